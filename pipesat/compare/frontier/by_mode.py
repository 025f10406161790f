"""What memory buys depends on what a schedule may do to save it: a curve for each choice.

A choice of modes is what microbatches may run in besides keep: no other mode, each on its own,
all. A schedule of fewer modes is one of more, so later curves are never worse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pipesat.compare.frontier.capacities import in_1f1b, least_feasible_cap, scale_of
from pipesat.compare.frontier.curve import Curve
from pipesat.compare.frontier.points import Frontier
from pipesat.core.amounts import memory_text, time_text
from pipesat.core.claims import Standing, against
from pipesat.core.errors import require
from pipesat.core.showing import Facts, Table, table_of
from pipesat.problem.ops import Op
from pipesat.problem.problem import Problem
from pipesat.problem.problem_checks import changed
from pipesat.problem.stage import KEEP
from pipesat.schedule.schedule import Schedule, with_each_op

Curves = Mapping[str | None, Frontier]
"""By placement or choice of modes; ``None`` for the problem as it is."""

_SHARES = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))  # of 1F1B's activations
_WAITING = f"waiting ({KEEP})"


def with_choices(problem: Problem) -> dict[str | None, Problem]:
    """Return the problem once per choice of modes: keep alone, each mode by name, all modes.

    Raises
    ------
    BadInput
        If it has no modes.
    """
    names = problem.mode_names
    require(
        names,
        "the problem has no memory modes: pipesat profile --measure modes measures them",
        where="by_mode",
    )
    choices = [(), *((name,) for name in names)] + ([tuple(names)] if len(names) > 1 else [])
    return {" or ".join(kept) or KEEP: _allowing(problem, kept) for kept in choices}


def _allowing(problem: Problem, names: tuple[str, ...]) -> Problem:
    modes = ([mode for mode in stage.modes if mode.name in names] for stage in problem.stages)
    choice = problem.mode_choice if names else "microbatch"
    return changed(problem, [{"modes": tuple(own)} for own in modes], mode_choice=choice)


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

    return with_each_op(schedule, op_of)


def own_cap(problem: Problem) -> int | None:
    """The capacity that every device has in the problem; ``None`` if they differ or have none."""
    caps = {device.memory for device in problem.devices}
    return caps.pop() if len(caps) == 1 else None


def caps_to_compare(problem: Problem) -> list[int]:
    """Return the problem's own capacity, if one for all, and 1/4, 1/2, 3/4 of 1F1B's memory."""
    scale, own = scale_of(problem), own_cap(problem)
    caps = {own, *(scale.cap(share) for share in _SHARES if scale is not None)}
    least = least_feasible_cap(problem)
    return sorted(cap for cap in caps if cap is not None and cap >= least)


@dataclass(frozen=True)
class Compared:
    """What is proven of the best value of each choice of modes at one capacity."""

    cap: int
    share: float | None
    standings: Mapping[str, Standing]

    @property
    def best(self) -> str | None:
        """The choice of modes of the least value; of several, the one of fewest modes."""
        known = {name: s.value for name, s in self.standings.items() if s.value is not None}
        return min(known, key=lambda name: known[name], default=None)

    def document(self) -> dict[str, Any]:
        """Return it as an entry of ``frontier.json``."""
        choices = {
            name: {"status": s.status, "value": s.value, "lower_bound": s.bound, "gap": s.gap}
            for name, s in self.standings.items()
        }
        return {"cap": self.cap, "share_of_1f1b": self.share, "best": self.best, "levers": choices}


def compared(curves: Curves, cap: int) -> Compared:
    """Return what the curve of each choice of modes says at a capacity."""
    standings = {}
    for name, frontier in curves.items():
        possible = cap >= least_feasible_cap(frontier.curve.problem)
        none = Standing(None, None, infeasible=True, of=f"cap {cap}")
        standings[str(name)] = frontier.curve.standing(cap) if possible else none
    scale = next(iter(curves.values())).scale
    return Compared(cap, None if scale is None else scale.share(cap), standings)


def comparison(rows: list[Compared], problem: Problem) -> Table:
    """Return the best of each choice of modes, a line per capacity, and what is proven of it."""
    cells = [
        {"cap": row.cap, "share_of_1f1b": row.share}
        | {name: _said(found, problem.time_unit) for name, found in row.standings.items()}
        for row in rows
    ]
    title = "the best of each curve at the same caps, and what is proven of it"
    return table_of(cells, title, units={"cap": problem.memory_unit})


def answers(curves: Curves, rows: list[Compared]) -> Facts:
    """Say what modes buy where it matters most, and from where on memory does not matter."""
    some = next(iter(curves.values()))
    problem, unit = some.curve.problem, some.curve.problem.time_unit
    own, found = own_cap(problem), list[tuple[str, str]]()

    def memory(cap: int) -> str:
        return f"{memory_text(cap, problem.memory_unit)}{in_1f1b(some.scale, cap)}"

    if rows:  # the problem's own capacity, or what is nearest to half of 1F1B's memory
        near = {row.cap: abs((row.share or 0) - 0.5) for row in rows}
        row = min(rows, key=lambda row: (row.cap != own, not row.best, near[row.cap], row.cap))
        where = f"at {memory(row.cap)}"
        best, keep = row.best, row.standings[KEEP]
        none = "no schedule found"
        if all(standing.infeasible for standing in row.standings.values()):
            none = "no schedule exists"
        text = none if best is None else f"{best} {_said(row.standings[best], unit)}"
        value = None if best is None else row.standings[best].value
        if value is not None and keep.value is not None and best != KEEP:
            text += f", {against(value, keep.value, _WAITING)}"
        found.append(("Take", f"{where}: {text}. {_WAITING.capitalize()}: {_said(keep, unit)}"))
    bests = {name: known for name, one in curves.items() if (known := one.curve.best(None))}
    if bests:
        least = min(known.value for known in bests.values())
        ends = [
            f"{name} from {memory(known.peak)} on"
            for name, known in bests.items()
            if known.value == least
        ]
        verdict = curves[[*bests][-1]].curve.standing(None).verdict
        text = f"with ample memory: {time_text(least, unit)} ({verdict}), reached by "
        text += f"{', by '.join(ends)}. These are the least capacities found, smaller ones may do"
        found.append(("Ample", text))
    return found


def _said(standing: Standing, unit: str) -> str:
    if standing.value is None:
        return standing.verdict
    return f"{time_text(standing.value, unit)} ({standing.verdict})"
