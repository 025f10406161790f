"""``pipesat compare``."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pipesat.cli.asked import listing
from pipesat.cli.commands import command
from pipesat.cli.derived import Argument
from pipesat.cli.exits import note
from pipesat.core.errors import BadInput, require

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.compare.compare import Comparisons
    from pipesat.compare.risk.answer import Risk


def _listed() -> list[dict[str, Any]]:
    """Every hand-written schedule."""
    from pipesat.compare.hand_written import baselines

    return [
        {"name": b.name, "placement": b.placement, "splits": b.splits, "pairs": b.pairs}
        | {"source": b.source}
        for b in baselines().values()
    ]


_SCHEDULES = Argument(
    ["schedules"],
    help="Yours, to be compared too: files, folders of a solve, torch's CSVs. Or problem files of "
    "the same layers, which are solved too.",
    metavar="[SCHEDULE|PROBLEM]...",
    nargs=-1,
    type=click.Path(path_type=Path),
    is_eager=True,
)
_LISTED = listing(
    "--list",
    "List all hand-written schedules with their sources, and exit.",
    _listed,
    "chain: one stage per device; loop: several, in turns; vee: two, there and back; "
    "bidirectional: two routes in opposite directions; any: no matter where. splits: B and W run "
    "apart; pairs: two ops run as one.",
)


_FORMAT: Final = "pipesat.problem/"
_RISK = "--noise, --skew or --links"
_RISKY = ("noise", "skew", "links", "samples", "baselines")


def _is_problem(path: Path) -> bool:
    """Whether a file states the format of problems, at its begin or anywhere."""
    from pipesat.core.strict_json import read_json

    with suppress(BadInput):  # a name, a folder, a CSV: read as a schedule
        document = read_json(path)
        return isinstance(document, dict) and str(document.get("format")).startswith(_FORMAT)
    return False


@command(
    "compare",
    also={_RISK: "risk"},
    example="pipesat compare problem.json mine.json --time-limit 20",
    names={"target": "--for"},
    without=("result", "schedules", "search", "placements", "beside", "schedule"),
    metavars={"noise": "SHARE", "skew": "SHARE"},
    follow={"noise": ("samples", "baselines"), "target": ("version",)},
    extra=(_SCHEDULES, _LISTED),
    output="DIR",
)
def compare(asked: Asked) -> int:
    """Rank all published schedules, yours and the best one found.

    Schedules of your own have a row each, and a line says how far above the optimum they are at
    most. The search starts from them too.

    To compare placements, give a problem file of each, as v.json loop.json. Every row names its
    placement. Schedules are of the first problem.

    With -o, also write what `solve` writes. --layers-per-stage states that stages divide: then the
    same layers are placed in a loop, a V and bidirectional, too. The problem has one stage per
    device. Each placement is solved within the time limit and has a folder of its own. With costs
    per layer, use `plan --placement any`.
    """
    beside = [path for path in asked["schedules"] if _is_problem(path)]
    own = [path for path in asked["schedules"] if path not in beside]
    if risky := [name for name in _RISKY if name in asked.given]:
        require(
            len(own) == 1,
            f"{len(own)} schedules given, expected one SCHEDULE after the problem: a file, a "
            "folder or a name, as 1f1b",
            where=f"--{risky[0]}",
        )
        asked = asked.instead(_RISK)
        risk: Risk = asked.answer(schedule=own[0])
        asked.show(risk, risk.document)
        return 0
    found: Comparisons = asked.answer(
        lambda found, folder, lines: found.save(folder, lines),
        schedules={str(path): path for path in own},
        placements="layers_per_stage" in asked.given,
        beside=beside,
    )
    if found.layers and asked["as_json"]:  # rows do not repeat it
        from pipesat.schedule.summary import statement_of

        note(f"pipesat: {statement_of(found.layers)}")
    asked.show(found, found.document)
    return asked.end(*(one.result for one in found.comparisons))
