"""``pipesat compare``; with --noise, --skew or --links where times vary and links queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pipesat.cli.asked import listing
from pipesat.cli.commands import command
from pipesat.cli.exits import note
from pipesat.cli.options import Argument, Option
from pipesat.core.errors import BadInput
from pipesat.core.showing import Said, table_of

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.core.ops import Phase
    from pipesat.core.problem import Problem
    from pipesat.core.result import Result
    from pipesat.core.schedule import Schedule
    from pipesat.risk.report import LinksRow
    from pipesat.workflows.compare import Comparisons
    from pipesat.workflows.risk import Risk


def _listed() -> Said:
    """Every hand-written schedule."""
    from pipesat.workflows.hand_written import baselines

    rows = [
        {"name": b.name, "placement": b.placement, "splits_B, W": b.splits, "runs_pairs": b.pairs}
        | {"source": b.source}
        for b in baselines().values()
    ]
    legend = (
        "chain: one stage per device; loop: several, in turns; vee: two, there and back; "
        "bidirectional: two routes in opposite directions; any: no matter where."
    )
    return Said(shown=[table_of(rows, notes=[legend])])


_SCHEDULES = Argument(
    ["schedules"],
    help="Yours, to be compared too: files, folders of a solve, torch's CSVs.",
    metavar="[SCHEDULE]...",
    nargs=-1,
    type=click.Path(path_type=Path),
)
_LISTED = listing(
    "--list", "List all hand-written schedules with their sources, and exit.", _listed
)


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


@command(
    "compare",
    example="pipesat compare problem.json mine.json --time-limit 20",
    names={"target": "--for", "layers": "--layers-per-stage"},
    without=("result", "schedules", "search", "solve_one", "placements"),
    follow={"noise": ("samples", "baselines")},
    extra=(_SCHEDULES, _LISTED, *OPTIONS),
    output="DIR",
)
def compare(asked: Asked) -> int:
    """Rank all published schedules, yours and the best one found.

    Schedules of your own have a row each, and a line says how far above the optimum they are at
    most. The search starts from them too.

    With -o, also write what `solve` writes. --layers-per-stage states that stages divide: then the
    same layers are placed in a loop, a V and bidirectional, too. The problem has one stage per
    device. Each placement is solved within the time limit and has a folder of its own. With costs
    per layer, use `plan --placement any`.
    """
    if any(option.name in asked.given for option in OPTIONS):
        return compare_risks(asked)
    from pipesat.core.summary import statement_of
    from pipesat.export.result_folder import write_result_folder
    from pipesat.workflows.solve import solve

    logs: dict[str | None, list[str]] = {}

    def solve_one(placement: str | None, placed: Problem, own: Sequence[Schedule]) -> Result:
        if placement is not None:
            note(f"pipesat: {placement}")
        with asked.progress() as progress:
            names = ("objective", "time_limit", "workers", "seed", "target")
            told: Any = {name: asked[name] for name in names}
            told |= {"listener": progress, "stop": asked.interrupts.stop, "schedules": own}
            result = solve(placed, **told)
        logs[placement] = progress.lines
        if asked.output is not None:
            write(asked.output, placement, result)
        return result

    def write(folder: Path, placement: str | None, result: Result) -> None:
        homes = [_home(name) for name in logs if name != placement]
        log, home = logs[placement], _home(placement)
        write_result_folder(folder, result, log, home=home, keep=homes)

    def save(found: Comparisons, folder: Path, _: object) -> None:
        for one in found.comparisons:  # baselines may have changed the answer
            write(folder, one.placement, one.result)

    schedules = {str(path): path for path in asked["schedules"]}
    found: Comparisons = asked.answer(
        save,
        schedules=schedules,
        solve_one=solve_one,
        placements="layers" in asked.given,
        listener=None,
    )
    if found.layers and asked["as_json"]:  # rows do not repeat it
        note(f"pipesat: {statement_of(found.layers)}")
    asked.show(found, lambda: [asdict(row) for row in found.rows])
    return asked.end(*(one.result for one in found.comparisons))


def _home(placement: str | None) -> str:
    """Each placement has a folder of its own: ``loop-v2``, ``vee``."""
    return "" if placement is None else placement.replace(" ", "-").replace("=", "")


def compare_risks(asked: Asked) -> int:
    """Value a schedule where links queue, and where times vary, beside the best baselines."""
    from pipesat.core.attached import attached

    searched = ("output", "time_limit", "workers", "layers", "target")
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
    settings = {"noise": noise, "skew": skew, "samples": samples, "seed": seed, "links": links}
    rows = [asdict(row) for row in found.noise]
    said = {"objective": found.objective, "links": [_links_document(row) for row in found.links]}
    risk.show(found, lambda: said | {"noise": settings | {"rows": rows}})
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
