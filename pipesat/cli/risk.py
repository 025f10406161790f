"""``pipesat risk``."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipesat.cli.arguments import AsJson, ObjectiveName, ProblemFile, ScheduleFile
from pipesat.cli.exits import one_line
from pipesat.cli.risk_report import print_links, print_noise
from pipesat.core.errors import BadInput

if TYPE_CHECKING:
    from pipesat.core.ops import Phase
    from pipesat.risk.report import LinksRow

NOISE = "5%"


class LinksName(StrEnum):
    """How transfers queue."""

    independent = "independent"
    pair = "pair"
    rank = "rank"


def risk(
    problem: ProblemFile,
    schedule: ScheduleFile,
    noise: Annotated[
        str | None,
        typer.Option(
            help="Variation of each op's time, 5% or F=3%,B=5%,W=4% (B is BW's too).",
            show_default=NOISE,
        ),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Take it from the profile the problem was made from."),
    ] = None,
    skew: Annotated[str, typer.Option(help="Variation between devices, for a whole step.")] = "0%",
    links: Annotated[
        LinksName, typer.Option(help="How transfers queue while times vary.")
    ] = LinksName.independent,
    samples: Annotated[int, typer.Option(metavar="N", min=1, max=100_000)] = 200,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, max=2**31 - 1, help="Seed of the samples.")
    ] = 0,
    baselines: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, max=1000, help="Compare with the N best baselines that fit."
        ),
    ] = 3,
    objective: Annotated[ObjectiveName, typer.Option(help="What to value.")] = (
        ObjectiveName.makespan
    ),
    as_json: AsJson = False,
) -> None:
    """Value a schedule where links queue, and where times vary, beside the best baselines.

    Links: transfers between two ranks one at a time, as NCCL runs torch's, or all of a rank's.
    Noise: every order is timed under the same random times; variations are standard deviations
    relative to the mean.
    """
    from pipesat.cli.console import print_json
    from pipesat.cli.reading import read_problem
    from pipesat.workflows.risk import risk as run

    data = read_problem(problem)
    drawn = str(profile) if profile else noise or NOISE
    found = run(
        data,
        schedule,
        noise=_noise(noise, profile),
        profile=profile,
        skew=_share("--skew", skew),
        links=links.value,
        samples=samples,
        seed=seed,
        baselines=baselines,
        objective=objective.value,
    )
    link_rows, noise_rows = found.links, found.noise
    if as_json:
        settings = {"noise": drawn, "skew": skew, "samples": samples, "seed": seed}
        print_json(
            {
                "objective": objective.value,
                "links": [_links_document(row) for row in link_rows],
                "noise": settings
                | {"links": links.value, "rows": [asdict(row) for row in noise_rows]},
            }
        )
        return
    heading = f"{objective.value}s" + (f" in {data.time_unit}" if data.time_unit else "")
    typer.echo(one_line(f"{data.name or 'problem'}: {heading}"))
    print_links(data, link_rows)
    typer.echo("")
    drawn = f"noise {drawn}, skew {skew}, links {links.value}, {samples} samples, seed {seed}"
    typer.echo(one_line(f"{drawn}; gain: what schedule saves of a baseline's time"))
    print_noise(noise_rows)


def _noise(given: str | None, profile: Path | None) -> float | dict[Phase, float] | None:
    """Read ``5%`` or ``F=3%,B=5%,W=4%``."""
    if given is not None and profile is not None:
        raise BadInput("expected it, or --profile, not both", where="--noise", value=given)
    if given is None or "=" not in given:
        return None if given is None else _share("--noise", given)
    phases: dict[str, Phase] = {"F": "F", "B": "B", "W": "W"}
    by_phase: dict[Phase, float] = {}
    for part in given.split(","):
        name, _, text = part.strip().partition("=")
        phase = phases.get(name)
        if phase is None or phase in by_phase:
            raise BadInput(
                "expected a share, or one each of F, B and W", where="--noise", value=given
            )
        by_phase[phase] = _share("--noise", text)
    return by_phase


def _share(option: str, text: str) -> float:
    from pipesat.core.amounts import share

    return float(share(option, text))


def _links_document(row: LinksRow) -> dict[str, Any]:
    most = row.most_waiting
    waiting = None if most is None else {"ranks": list(most.ranks), "waiting": most.waiting}
    return asdict(row) | {"most_waiting": waiting}
