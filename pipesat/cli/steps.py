"""``pipesat steps``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from pipesat.cli.arguments import AsJson, ProblemFile, ScheduleFile
from pipesat.cli.exits import one_line
from pipesat.core.ops import members

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.export.steps import RankStep, Steps


def steps(problem: ProblemFile, schedule: ScheduleFile, as_json: AsJson = False) -> None:
    """List each rank's steps, sends and receives included, in an order that cannot deadlock.

    Sends and receives may block until the other side is there.
    """
    from pipesat.cli.console import print_json, stdout
    from pipesat.cli.reading import read_problem
    from pipesat.picture.grid import text_grid
    from pipesat.workflows.schedules import steps as run
    from pipesat.workflows.valid import valid_schedule

    data = read_problem(problem)
    timed = valid_schedule(data, schedule)
    lists = run(data, timed)
    if as_json:
        print_json([_rank_document(data, rank, row) for rank, row in enumerate(lists)])
        return
    typer.echo(text_grid(data, timed, stdout().width))
    _print_lists(data, lists)


def _rank_document(problem: Problem, rank: int, row: tuple[RankStep, ...]) -> dict[str, Any]:
    return {
        "device": rank,
        "name": problem.device_name(rank),
        "steps": [
            {"step": s.kind, "op": str(s.item), "peer": s.peer} | _modes(problem, s) for s in row
        ],
    }


def _modes(problem: Problem, step: RankStep) -> dict[str, str]:
    """Name of the mode in which a compute step runs, where it is not kept."""
    if step.peer is not None:
        return {}
    names = [
        problem.stages[op.stage].modes[op.mode - 1].name for op in members(step.item) if op.mode
    ]
    return {"mode": ", ".join(names)} if names else {}


def _print_lists(problem: Problem, lists: Steps) -> None:
    for rank, row in enumerate(lists):
        transfers = sum(step.peer is not None for step in row)
        name = one_line(problem.device_name(rank))
        typer.echo(f"\n{name}: {len(row) - transfers} compute steps, {transfers} transfers")
        for step in row:
            kind, item, peer = step
            way = "from" if kind.startswith("Recv") else "to"
            where = "" if peer is None else f" {way} {one_line(problem.device_name(peer))}"
            mode = "".join(f" in mode {name}" for name in _modes(problem, step).values())
            typer.echo(one_line(f"  {kind:<18} {item}{where}{mode}"))
