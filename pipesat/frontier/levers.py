"""What memory buys depends on what a schedule may do to save it: a curve for each lever.

A lever is a choice of memory modes that microbatches may run in, besides keep: none of them, each
on its own, all. A schedule of fewer modes is one of more, so later curves are never worse.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipesat.core.errors import BadInput
from pipesat.core.ops import Item, Op, Pair
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule, Timed
from pipesat.core.stage import KEEP
from pipesat.files.changed import changed_problem
from pipesat.frontier.curve import Curve


class Lever(str):
    """Name of a curve: the modes that are allowed besides keep, or ``keep``."""

    __slots__ = ()


def with_levers(problem: Problem) -> dict[str | None, Problem]:
    """Return the problem once per lever: keep alone, each mode by name, all modes.

    Raises
    ------
    BadInput
        If it has no modes.
    """
    names = list(dict.fromkeys(mode.name for stage in problem.stages for mode in stage.modes))
    if not names:
        text = "the problem has no memory modes; pipesat profile --measure-modes measures them"
        raise BadInput(text, where="by_mode")
    choices = [(), *((name,) for name in names)] + ([tuple(names)] if len(names) > 1 else [])
    return {Lever(" or ".join(kept) or KEEP): _allowing(problem, kept) for kept in choices}


def _allowing(problem: Problem, names: tuple[str, ...]) -> Problem:
    modes = [
        [mode for mode in entry.get("modes", ()) if mode["name"] in names]
        for entry in problem.document["stages"]
    ]
    return changed_problem(
        problem,
        stages=[{"modes": own or None} for own in modes],
        mode_choice=problem.document.get("mode_choice") if names else None,
    )


def taken_over(curve: Curve, problem: Problem) -> Iterator[Schedule]:
    """Yield a curve's schedules whose modes another problem of the same stages has, too."""
    for known in curve.schedules:
        try:
            yield _renumbered(known.schedule, curve.problem, problem)
        except ValueError:  # it has no mode of that name
            continue


def _renumbered(schedule: Schedule, old: Problem, new: Problem) -> Schedule:
    def op_of(op: Op) -> Op:
        if not op.mode:
            return op
        names = [mode.name for mode in new.stages[op.stage].modes]
        return op._replace(mode=1 + names.index(old.stages[op.stage].modes[op.mode - 1].name))

    def item_of(item: Item) -> Item:
        return Pair(*map(op_of, item)) if isinstance(item, Pair) else op_of(item)

    rows = tuple(
        tuple(Timed(item_of(timed.item), timed.start, timed.end) for timed in row)  # type: ignore[arg-type]
        for row in schedule.devices
    )
    return Schedule(rows, schedule.source, schedule.copies)
