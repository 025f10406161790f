"""The plan beside splits that users have today: what the partition gains, and what the order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from pipesat.choose.candidates import Candidate
from pipesat.choose.search import Findings, Search
from pipesat.choose.splits import balanced_partition, even_partition
from pipesat.core.checker import check
from pipesat.core.claims import Bound, change, tenable
from pipesat.core.errors import BadInput, Infeasible, NotApplicable
from pipesat.core.problem import Problem
from pipesat.core.progress import doing
from pipesat.core.schedule import Objective, Schedule
from pipesat.core.timing import retime
from pipesat.layers.pipeline import Pipeline, shape_name

HandWritten: TypeAlias = Mapping[str, Callable[[Problem], Schedule]]
"""Column of the table -> what makes its schedule; it may not apply."""

PLAN = "plan"


@dataclass(frozen=True)
class Cell:
    """The value of one order on one split.

    ``fits`` is False where the schedule needs more memory than there is; then the value is what it
    would be with more. No value: it does not apply, ``why_not`` says why.
    """

    value: int | None = None
    fits: bool = False
    why_not: str = ""

    @property
    def valid(self) -> int | None:
        """The value, if the schedule fits."""
        return self.value if self.fits else None


@dataclass
class SplitRow:
    """One split: its hand-written schedules, the best order found, and the bound for this split."""

    name: str
    candidate: Candidate | None
    cells: dict[str, Cell] = field(default_factory=dict)
    why_not: str = ""

    def best(self, objective: Objective) -> int | None:
        """Value of the best order found."""
        return None if self.candidate is None else self.candidate.value(objective)

    def bound(self, objective: Objective) -> Bound | None:
        """What no order of this split, recomputing as it does, is below."""
        if self.candidate is None:
            return None
        return tenable(self.best(objective), self.candidate.bound)[0]


@doing("making the even and the balanced split")
def rows_to_compare(
    known: Findings, hand: Sequence[tuple[str, Pipeline, tuple[range, ...]]]
) -> list[SplitRow]:
    """Return rows of the even and the balanced split of a chain, and of splits given by hand.

    Those that are partitions of a shape of the search become its candidates, the others stand for
    comparison alone. Where recomputation may be chosen, stages recompute that 1F1B needs it for.
    """
    chain = _chain_of(known.question.shapes[0])
    rows = []
    for name, split in (
        ("even split", even_partition),
        ("cost-balanced split", balanced_partition),
    ):
        try:
            partition = split(known.question.layers, chain)
        except (BadInput, Infeasible, NotApplicable) as error:
            rows.append(SplitRow(name, None, why_not=str(error)))
        else:
            rows.append(_row(known, name, chain, partition))
    rows += [_row(known, name, shape, partition) for name, shape, partition in hand]
    return rows


def _chain_of(shape: Pipeline) -> Pipeline:
    return replace(shape, placement="chain")


def _row(known: Findings, name: str, shape: Pipeline, partition: tuple[range, ...]) -> SplitRow:
    flags = next(known.question.space.first(shape, partition))
    number = next((n for n, own in enumerate(known.question.shapes) if _same(own, shape)), -1)
    if number >= 0 and all(partition) and not known.states[number].why_not:
        candidate = known.consider(number, partition, flags, name)
        if candidate is not None:
            return SplitRow(name, candidate)
    try:
        return SplitRow(name, known.question.made(shape, partition, flags, name))
    except BadInput as error:
        return SplitRow(name, None, why_not=str(error))


def _same(one: Pipeline, other: Pipeline) -> bool:
    return one.homes == other.homes


@doing("comparing with hand-written schedules")
def fill(search: Search, rows: Sequence[SplitRow], written: HandWritten, seconds: float) -> None:
    """Make the hand-written schedules of every row, and let the solver order each for a while."""
    for row in rows:
        _write(search, row, written)
    solved = [row.candidate for row in rows if row.candidate is not None]
    for candidate in solved:
        share = seconds / len(solved)
        if search.deadline.stop.is_set() or candidate.proven(search.objective):
            continue
        search.evaluate(candidate, 1, share)
        if not candidate.proven(search.objective) and search.deadline.left:
            search.solve(candidate, share, drop=False)


@doing("comparing with hand-written schedules")
def row_of_plan(search: Search, written: HandWritten) -> SplitRow:
    """The best candidate's row."""
    row = SplitRow(PLAN, search.known.best)
    _write(search, row, written)
    return row


def _write(search: Search, row: SplitRow, written: HandWritten) -> None:
    if row.candidate is not None:
        row.cells = {n: _cell(search, row.candidate, build) for n, build in written.items()}


def _cell(search: Search, candidate: Candidate, build: Callable[[Problem], Schedule]) -> Cell:
    problem = candidate.problem
    try:
        schedule = build(problem)
    except NotApplicable as error:
        return Cell(why_not=str(error))
    if search.objective == "span":
        schedule = retime(problem, schedule, "span", schedule.source)
    violations = check(problem, schedule)
    if violations:
        return Cell(schedule.value(search.objective), why_not=violations[0].message)
    search.offer(candidate, schedule)
    return Cell(schedule.value(search.objective), fits=True)


def gains(rows: Sequence[SplitRow], objective: Objective) -> Iterator[str]:
    """Say how much of the gain comes from the partition, and how much from the order.

    The columns' first hand-written schedule (1F1B) is the common ground.
    """
    even, plan = rows[0], rows[-1]
    start, end = _first(even), plan.best(objective)
    if not start or end is None:
        return
    (column, value), fits = start
    beyond = "" if fits else ", which needs more memory than there is,"
    yield (
        f"from {even.name} with {column}{beyond} to the plan: {value} to {end}, "
        f"{change(end, value, 1)}"
    )
    order = even.best(objective)
    if order is not None:
        yield f"the order alone (even split, best order found): {change(order, value, 1)}"
    moved = plan.cells.get(column)
    if moved is not None and moved.value is not None:
        more = "" if moved.fits else ", with more memory than there is"
        same = plan.candidate is None or plan.candidate.shape.placement == "chain"
        what = "the partition" if same else "partition and placement"
        yield (f"{what} alone (the plan's, with {column}{more}): {change(moved.value, value, 1)}")


def _first(row: SplitRow) -> tuple[tuple[str, int], bool] | None:
    for name, cell in row.cells.items():
        if cell.value is not None:
            return (name, cell.value), cell.fits
    return None


def comparison_document(rows: Sequence[SplitRow], objective: Objective) -> list[dict[str, object]]:
    """The rows, ready for JSON; what is unknown is ``None``."""
    return [
        {
            "name": row.name,
            "placement": None if row.candidate is None else shape_name(row.candidate.shape),
            "layers_per_stage": (
                None if row.candidate is None else [len(p) for p in row.candidate.partition]
            ),
            "recompute": None if row.candidate is None else [*row.candidate.flags],
            "schedules": {
                name: {"value": cell.value, "fits": cell.fits, "why_not": cell.why_not or None}
                for name, cell in row.cells.items()
            },
            "best_order": row.best(objective),
            "lower_bound": None if bound is None else bound.value,
            "why_not": row.why_not or None,
        }
        for row in rows
        for bound in [row.bound(objective)]
    ]
