"""``pipesat compare --noise, --skew, --links``: one schedule where times vary and links queue."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pipesat.cli.commands import Option
from pipesat.cli.exits import one_line
from pipesat.cli.risk_report import print_links, print_noise
from pipesat.core.errors import BadInput

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.core.ops import Phase
    from pipesat.risk.report import LinksRow
    from pipesat.workflows.risk import Risk

NOISE: Final = "5%"
OPTIONS: Final = (
    Option(
        ["--noise"],
        metavar="SHARE|FILE",
        help="No search: value SCHEDULE and the best hand-written ones where each op's time varies "
        "so, 5%, F=3%,B=5%,W=4% or as a profile (.json) has measured it, and links queue.",
    ),
    Option(["--skew"], metavar="SHARE", help="The same, varying between devices for a whole step."),
    Option(
        ["--links"],
        type=click.Choice(["independent", "pair", "rank"]),
        help="The same, and how transfers queue while times vary.",
    ),
    Option(
        ["--samples"],
        metavar="N",
        type=click.IntRange(1, 100_000),
        help="How often times are drawn.  [default: 200]",
    ),
    Option(
        ["--baselines"],
        metavar="N",
        type=click.IntRange(0, 1000),
        help="The N best hand-written schedules that fit.  [default: 3]",
    ),
)


def compare_risks(asked: Asked) -> int:
    """Value a schedule where links queue, and where times vary, beside the best baselines."""
    from pipesat.cli.console import print_json
    from pipesat.core.attached import attached

    searched = ("output", "time_limit", "workers", "placements", "layers", "target")
    asked.refuse(searched, "where times vary or links queue, nothing is searched")
    if len(asked["schedules"]) != 1:
        text = "expected one where times vary or links queue: a file, a folder or a name"
        raise BadInput(text, where="SCHEDULE", value=len(asked["schedules"]))
    risk = asked.other(attached("risk"))
    noise, skew = risk.given.get("noise", NOISE), risk.given.get("skew", "0%")
    links, measured = risk.given.get("links", "independent"), noise.endswith(".json")
    found: Risk = risk.answer(
        schedule=asked["schedules"][0],
        noise=None if measured or "noise" not in risk.given else _noise(noise),
        profile=Path(noise) if measured else None,
        skew=_share("--skew", skew),
    )
    samples, seed = risk.given.get("samples", 200), risk.given.get("seed", 0)
    if asked["as_json"]:
        settings = {"noise": noise, "skew": skew, "samples": samples, "seed": seed, "links": links}
        print_json(
            {
                "objective": found.objective,
                "links": [_links_document(row) for row in found.links],
                "noise": settings | {"rows": [asdict(row) for row in found.noise]},
            }
        )
        return 0
    data = risk.read["problem"]
    heading = f"{found.objective}s" + (f" in {data.time_unit}" if data.time_unit else "")
    click.echo(one_line(f"{data.name or 'problem'}: {heading}"))
    print_links(data, found.links)
    click.echo("")
    drawn = f"noise {noise}, skew {skew}, links {links}, {samples} samples, seed {seed}"
    click.echo(one_line(f"{drawn}; gain: what schedule saves of a baseline's time"))
    print_noise(found.noise)
    return 0


def _noise(given: str) -> float | dict[Phase, float]:
    """Read ``5%`` or ``F=3%,B=5%,W=4%``."""
    if "=" not in given:
        return _share("--noise", given)
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
