"""``pipesat show`` of a schedule: grid, where time goes, critical path, steps, picture."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from pipesat.cli.exits import one_line
from pipesat.core.ops import members

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Schedule
    from pipesat.export.steps import RankStep, Steps
    from pipesat.workflows.schedules import ShownSchedule


def show_schedule(problem: Problem, timed: Schedule, *, critical_path: bool, as_json: bool) -> None:
    """Print a valid schedule, or say its figures as JSON."""
    from pipesat.cli.terminal import print_json, print_tables, stdout
    from pipesat.workflows.schedules import show as run

    shown = run(problem, timed, width=stdout().width)
    if as_json:
        said = {"makespan": timed.makespan, "span": timed.span, "devices": shown.records()}
        if critical_path:
            chain = shown.critical_path
            said["critical_path"] = [[d, str(t.item), t.start, t.end, why] for d, t, why in chain]
        print_json(said)
        return
    print_schedule(shown)
    if critical_path:
        sys.stdout.write("\n")
        print_tables([shown.path_table()])


def print_schedule(shown: ShownSchedule) -> None:
    """Print a grid, where each device's time goes, and both figures."""
    from pipesat.cli.terminal import print_answer

    click.echo(f"{shown}\n")
    print_answer(shown)


def show_steps(problem: Problem, timed: Schedule, *, as_json: bool) -> None:
    """Print the steps of each rank."""
    from pipesat.cli.terminal import print_json, stdout
    from pipesat.picture.text import text_grid
    from pipesat.workflows.schedules import steps

    lists = steps(problem, timed)
    if as_json:
        print_json([_rank_document(problem, rank, row) for rank, row in enumerate(lists)])
        return
    click.echo(text_grid(problem, timed, stdout().width))
    _print_lists(problem, lists)


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
        click.echo(f"\n{name}: {len(row) - transfers} compute steps, {transfers} transfers")
        for step in row:
            kind, item, peer = step
            way = "from" if kind.startswith("Recv") else "to"
            where = "" if peer is None else f" {way} {one_line(problem.device_name(peer))}"
            mode = "".join(f" in mode {name}" for name in _modes(problem, step).values())
            click.echo(one_line(f"  {kind:<18} {item}{where}{mode}"))
