"""The hand-written schedules of a problem beside the answer to it: one table of schedules."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Final

from pipesat.check.checker import check, require_valid
from pipesat.compare.best_known import (
    Comparison,
    comparison_of,
    over_capacity,
    rows_of_own,
    why_not,
)
from pipesat.compare.hand_written import (
    SOLVER_ROW,
    ScheduleRow,
    against_best,
    hand_written_for,
)
from pipesat.compare.result import Result
from pipesat.compare.schedules import name_of, schedule_of
from pipesat.compare.solve import solve
from pipesat.core.amounts import time_text
from pipesat.core.arguments import public
from pipesat.core.errors import BadInput, require
from pipesat.core.settings import Count, Seconds, Seed, Target, Workers
from pipesat.core.showing import Displayed, Facts, Table, table_of
from pipesat.core.torch_releases import release_for
from pipesat.problem.geometry import label_of
from pipesat.problem.other_placements import same_layers_elsewhere, stated_layers
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import read_problem
from pipesat.problem.remarks import text_of
from pipesat.runtimes import problems_for
from pipesat.schedule.schedule import Objective, Schedule
from pipesat.schedule.solving import Listener, named, study
from pipesat.schedule.summary import fullest, statement_of, units_of

_BASIS = (
    "the same layers, devices, memory per device, link delays and microbatches; {stated}. A loop "
    "of 2 and a V cut each stage in two between layers (of an odd number, one part has a layer "
    "more; if an amount does not divide, the first part takes the rest). Static memory goes with "
    "its layers. The hop from the last device to the first takes the slowest link's delay. "
    "bidirectional has two replicas of every layer, with the static memory of both, and half of "
    "the microbatches in each direction."
)

_HALVED = (
    "A loop and a V halve a head or an embedding like layers. pipesat plan --placement any does not"
)


@dataclass(frozen=True, repr=False, slots=True)
class Comparisons(Displayed):
    """A table of schedules: iterate over its rows, ``print`` it, or call ``to_frame()``.

    ``comparisons`` has each placement's rows with the answer to its problem; without a search there
    are none. ``layers`` is what was stated of its stages.
    """

    problem: Problem
    objective: Objective
    rows: tuple[ScheduleRow, ...]
    comparisons: tuple[Comparison, ...] = ()
    layers: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[ScheduleRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> ScheduleRow:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"{name!r}, expected one of {', '.join(row.name for row in self.rows)}")

    @property
    def best(self) -> ScheduleRow | None:
        """The best valid row; the solver's where it is as good as a hand-written one."""
        return next((row for row in self.sorted() if row.valid), None)

    @property
    def result(self) -> Result | None:
        """The answer to the problem as it is, ``None`` without a search."""
        return self.comparisons[0].result if self.comparisons else None

    def sorted(self) -> list[ScheduleRow]:
        """Return the rows, the best valid one first; of equal ones what most runs use."""
        from pipesat.heuristics import USUAL

        def rank(row: ScheduleRow) -> tuple[bool, float, bool, bool]:
            value = row.value(self.objective)
            other = row.name != SOLVER_ROW, row.baseline not in USUAL
            return not row.valid, math.inf if value is None else value, *other

        return sorted(self.rows, key=rank)

    def facts(self) -> Facts:
        """Return the answer of the search, or the best row, and how many there are."""
        said: list[tuple[str, str]] = []
        if not self.comparisons:
            best, text = self.best, "nothing: none fits"
            if best is not None:
                time = time_text(best.value(self.objective) or 0, self.problem.time_unit)
                text = f"{best.name}: {time} ({self.objective}), the best hand-written schedule"
            said.append(("Take", text))
        for one in self.comparisons:
            if one.placement is None:
                said += one.result.answer()
            else:
                result = one.result
                said.append((one.placement, f"{result.taken()}, {result.standing.verdict}"))
            said += [("Yours", f"{row.name}: {one.above(row)}{one.later(row)}") for row in one.own]
        works = {str(one.placement): _work(one.problem) for one in self.comparisons}
        if len({*works.values()}) > 1:
            unit = self.problem.time_unit
            each = ", ".join(f"{name} {time_text(work, unit)}" for name, work in works.items())
            said.append(("Work", f"F and BW of all stages and microbatches differ: {each}"))
        twice = len({label_of(one.problem) == "bidirectional" for one in self.comparisons}) > 1
        said += [
            ("Weights", "bidirectional holds two copies of the model, others one" * twice),
            ("Basis", f"{statement_of(self.layers)}. {_HALVED}" if self.layers else ""),
        ]
        if self.result is None or self.comparisons[0].placement is not None:
            said.append(("Remark", text_of(self.problem.remarks)))
        left = sum(not row.valid for row in self.rows)
        return [*said, ("Left out", f"schedules that do not fit or apply: {left}" if left else "")]

    def details(self) -> Facts:
        """Return why schedules have no line in the table, and on what placements agree."""
        shown = {row.name for row in self.rows if row.valid or self._over(row)}
        rows = [r for r in self.rows if r.name not in {*shown, SOLVER_ROW} and _wanted(r)]
        said = [("does not apply", f"{', '.join(n)}: {why}") for why, n in why_not(rows)]
        if self.layers:
            said.append(("basis", _BASIS.format(stated=statement_of(self.layers))))
        return said

    def tables(self) -> Iterator[Table]:
        """Yield the schedules that apply, the best valid one first, then those over capacity."""
        rows = self.sorted()
        rows = [row for row in rows if row.valid] + [row for row in rows if self._over(row)]
        other = "span" if self.objective == "makespan" else "makespan"
        names = [
            *("name", "placement", self.objective, "to_best", "to_bound"),
            *(f"bubble_of_{self.objective}", "peak_memory", "of_capacity"),
            *(other, f"bubble_of_{other}"),
        ]
        records = [
            {name: self._record(row)[name] for name in names}
            | {"fits": "over capacity" if self._over(row) else None}
            for row in rows
        ]
        heading = "; ".join(
            [*units_of(self.problem, ms=True), f"order and ratios by {self.objective}"]
        )
        title = f"{self.problem.name or 'problem'}: {heading}"
        units = dict.fromkeys((self.objective, other), self.problem.time_unit)
        units["peak_memory"] = self.problem.memory_unit
        note = "to best: the best of all rows. to bound: that of the row's own placement"
        yield table_of(records, title, [note] * (len(self.comparisons) > 1), units)

    def records(self) -> list[dict[str, Any]]:
        """Return a row per schedule, the best valid one first."""
        return [self._record(row) for row in self.sorted()]

    def _record(self, row: ScheduleRow) -> dict[str, Any]:
        bubble = row.bubble or {"makespan": None, "span": None}
        peak, share = None, None
        if row.peak_memory:
            problem = self._problem_of(row)
            device = fullest(problem, row.peak_memory)
            peak, capacity = row.peak_memory[device], problem.devices[device].memory
            if capacity is not None:
                share = peak / capacity if capacity else float(peak > 0)
        return {
            "name": row.name,
            "placement": row.placement,
            "makespan": row.makespan,
            "span": row.span,
            "bubble_of_makespan": bubble["makespan"],
            "bubble_of_span": bubble["span"],
            "peak_memory": peak,
            "of_capacity": share,
            "to_best": row.ratio_to_best,
            "to_bound": row.ratio_to_bound,
            "valid": row.valid,
            "why_not": row.why_not,
        }

    def document(self) -> list[dict[str, Any]]:
        """Return the rows ready for JSON, the best valid one first."""
        return [row.document() for row in self.sorted()]

    def save(self, folder: str | Path, log: Sequence[str] = ()) -> None:
        """Write what ``pipesat solve -o`` writes; several placements have a folder each."""
        from pipesat.compare.result_folder import write_result_folder

        homes: list[str] = []
        for one in self.comparisons:  # each has a folder of its own: loop-of-2, vee
            home = (one.placement or "").replace(" ", "-")
            write_result_folder(Path(folder), one.result, log, home=home, keep=homes)
            homes.append(home)

    def _problem_of(self, row: ScheduleRow) -> Problem:
        found = (one.problem for one in self.comparisons if one.placement == row.placement)
        return next(found, self.problem)

    def _over(self, row: ScheduleRow) -> bool:
        """Whether a schedule exceeds a capacity, and nothing is wrong besides."""
        return bool(over_capacity(self._problem_of(row), row))


def _wanted(row: ScheduleRow) -> bool:
    """Whether a row's reason is the one to tell: that of the placement the schedule is made for."""
    from pipesat.heuristics import BASELINES

    home = BASELINES[row.baseline].placement
    return row.placement is None or home == "any" or row.placement.startswith(home)


@public
@study()
def compare(
    problem: Problem,
    result: Result | None = None,
    *,
    schedules: Mapping[str, Schedule | Result | str | Path] | None = None,
    search: bool = True,
    placements: bool = False,
    layers_per_stage: Count | Sequence[Count] | None = None,
    beside: Sequence[Problem | str | Path] = (),
    target: Target | None = None,
    version: str | None = None,
    objective: Objective = "makespan",
    time_limit: Seconds = 60.0,
    workers: Workers | None = None,
    seed: Seed = 0,
    listener: Listener | None = None,
    stop: threading.Event | None = None,
) -> Comparisons:
    """Compare every applicable baseline with the answer of a search: a table, best first.

    Parameters
    ----------
    result
        The answer to compare with; ``None``: the problem is solved. A baseline that is better is
        the answer: the solver's row has it too.
    schedules
        Yours, by names of your choice: each has a row, for its order timed as all others are. The
        search starts from them too, and one that is better than what it found is the answer. One
        that needs more memory has its row, and no more.
    search
        ``False``: the hand-written schedules alone, none is compared with a search.
    placements
        Compare with the same layers in a loop, a V and bidirectional. Each is solved. The problem
        has one stage per device.
    layers_per_stage
        With ``placements``: you state that every stage is so many equal layers, or one number per
        stage. A loop and a V cut between them; ``None``: unknown.
    beside
        Further problems of the same layers, or their files, in other placements. Each is solved.
    objective
        ``makespan`` or ``span``: of it are the ratios, unless a result says.
    time_limit
        Seconds for each search.

    Raises
    ------
    NotApplicable
        If other placements are asked for, and devices do not hold exactly one stage of one route.
    NotValid
        If one of ``schedules`` breaks another rule than a capacity.
    BadInput
        If no one states that the stages divide, or they do not; if problems ``beside`` differ in
        devices, microbatches or units.
    """
    stated = stated_layers(layers_per_stage, placements, target)
    require(
        not placements or not beside, "expected `beside` or `placements`, not both", where="beside"
    )
    release_for(target, version)  # before anything is searched
    given = _given(problem, schedules or {}, target if result is None else result.target)

    def solved(placed: Problem, placement: str | None = None) -> Result:
        own = given if placed is problem else {}
        return solve(
            placed,
            objective=objective,
            time_limit=time_limit,
            workers=workers,
            seed=seed,
            target=target,
            version=version,
            schedules=[one for one in own.values() if not check(placed, one)],
            listener=named(listener, placement),
            stop=stop,
        )

    if placements or beside:
        of = same_layers_elsewhere(problem, stated) if placements else _by_label(problem, beside)
        several = tuple(
            comparison_of(
                result if result is not None and placed is problem else solved(placed, name),
                name,
                given if placed is problem else None,
            )
            for name, placed in of.items()
        )
        rows = against_best((row for one in several for row in one.rows), objective)
        return Comparisons(problem, objective, tuple(rows), several, tuple(stated))
    if result is None and not search:
        made = hand_written_for(problem, target, objective)
        rows = against_best([*made, *rows_of_own(made, given, problem)], objective)
        return Comparisons(problem, objective, tuple(rows))
    one = comparison_of(solved(problem) if result is None else result, given=given)
    return Comparisons(problem, one.result.objective, one.rows, (one,))


def _by_label(problem: Problem, beside: Sequence[Problem | str | Path]) -> dict[str, Problem]:
    """Return the problems by their placements; of several in one, the further ones are numbered."""
    found: dict[str, Problem] = {}
    for one in (problem, *beside):
        placed = read_problem(Path(one)) if isinstance(one, str | Path) else one
        for what, of in _EQUAL.items():
            if of(placed) != of(problem):
                said = {"where": "beside"} if one is placed else {"source": str(one)}
                raise BadInput(
                    f"expected the {what} of the first problem, {of(problem)}",
                    value=of(placed),
                    **said,
                )
        label = label_of(placed) or "own placement"
        names = (label if n == 1 else f"{label} {n}" for n in count(1))
        found[next(name for name in names if name not in found)] = placed
    return found


_EQUAL: Final[Mapping[str, Callable[[Problem], object]]] = {
    "number of devices": lambda problem: len(problem.devices),
    "number of microbatches": lambda problem: sum(one.microbatches for one in problem.routes),
    "time unit": lambda problem: problem.time_unit,
    "memory unit": lambda problem: problem.memory_unit,
}
"""What problems have in common whose times are compared."""


def _work(problem: Problem) -> int:
    """Sum F and BW of every stage and microbatch, of a list as the stage states them."""
    stages = problem.stages
    return sum(
        route.microbatches * sum(stages[s].F + stages[s].BW for s in route.stages)
        for route in problem.routes
    )


def _given(
    problem: Problem,
    schedules: Mapping[str, Schedule | Result | str | Path],
    target: str | None,
) -> dict[str, Schedule]:
    """Check a user's schedules, and name them as the source of what comes of them.

    Memory alone makes none invalid: like a hand-written one, it is compared as over capacity.
    """
    given: dict[str, Schedule] = {}
    for name, schedule in schedules.items():
        timed = schedule_of(problem, schedule)
        if _wrong(problem, timed):
            require_valid(problem, timed, name_of(schedule))
        given[name] = replace(timed, source=name)
        require(
            not all(_wrong(way, timed) for way in problems_for(problem, target)),
            f"{target} does not run this order as it is: compare what `export` makes of it",
            where="schedules",
            value=name,
        )
    return given


def _wrong(problem: Problem, schedule: Schedule) -> bool:
    """Whether a schedule breaks another rule than a capacity."""
    return any(violation.rule != "memory" for violation in check(problem, schedule))
