"""``pipesat compare``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipesat.cli.command import command
from pipesat.cli.commands import Argument
from pipesat.cli.exits import note
from pipesat.cli.risk import OPTIONS, compare_risks

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.core.problem import Problem
    from pipesat.core.result import Result
    from pipesat.core.schedule import Schedule
    from pipesat.workflows.comparison import Comparisons


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _list(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    """Print every hand-written schedule and leave."""
    del param
    if not wanted:
        return
    from pipesat.cli.table import Column, print_table
    from pipesat.workflows.hand_written import baselines

    columns = [
        Column(head, number=False)
        for head in ("name", "placement", "splits\nB, W", "runs\npairs", "source")
    ]
    lines = [
        (b.name, b.placement, _yes(b.splits), _yes(b.pairs), b.source) for b in baselines().values()
    ]
    print_table(columns, lines, wrap_last=True)
    click.echo(
        "\nchain: one stage per device; loop: several, in turns; vee: two, there and back;\n"
        "bidirectional: two routes in opposite directions; any: no matter where."
    )
    ctx.exit()


_SCHEDULES = Argument(
    ["schedules"],
    help="Yours, to be compared too: files, folders of a solve, torch's CSVs.",
    metavar="[SCHEDULE]...",
    nargs=-1,
    type=click.Path(path_type=Path),
)
_LISTED = click.Option(
    ["--list"],
    is_flag=True,
    callback=_list,
    is_eager=True,
    expose_value=False,
    help="List all hand-written schedules with their sources, and exit.",
)


@command(
    "compare",
    example="pipesat compare problem.json mine.json --time-limit 20",
    names={"target": "--for", "layers": "--layers-per-stage"},
    without=("result", "schedules", "search", "solve_one"),
    follow={"noise": ("samples", "baselines")},
    extra=(_SCHEDULES, _LISTED, *OPTIONS),
    output="DIR",
)
def compare(asked: Asked) -> int:
    """Rank all published schedules, yours and the best one found.

    Schedules of your own have a row each, and a line says how far above the optimum they are at
    most. The search starts from them too.

    With -o, also write what `solve` writes. With --placements, the problem has one stage per
    device, and --layers-per-stage states that stages divide. Each placement is solved within the
    time limit and has a folder of its own. With costs per layer, use `plan --placement any`.
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
            told: Any = {"listener": progress, "stop": asked.interrupts.stop, "schedules": own}
            result = solve(placed, **asked.search, **told)
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
    found: Comparisons = asked.answer(save, schedules=schedules, solve_one=solve_one, listener=None)
    if found.layers and asked["as_json"]:  # rows do not repeat it
        note(f"pipesat: {statement_of(found.layers)}")
    asked.show(found, lambda: [asdict(row) for row in found.rows])
    return asked.end(*(one.result for one in found.comparisons))


def _home(placement: str | None) -> str:
    """Each placement has a folder of its own: ``loop-v2``, ``vee``."""
    return "" if placement is None else placement.replace(" ", "-").replace("=", "")
