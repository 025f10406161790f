"""The plan beside splits that users have today: what the partition gains, and what the order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from pipesat.choose.candidates import Candidate
from pipesat.choose.orders import COLUMNS
from pipesat.choose.search import Findings, Search
from pipesat.choose.splits import balanced_partition, even_partition
from pipesat.core.checker import check
from pipesat.core.claims import Bound, change, tenable
from pipesat.core.errors import BadInput, Infeasible, NotApplicable
from pipesat.core.progress import doing
from pipesat.core.timing import retime
from pipesat.heuristics import BASELINES
from pipesat.layers.pipeline import Pipeline, shape_name
from pipesat.placement.geometry import one_route_placement_of

PLAN: Final = "plan"

Hand: TypeAlias = tuple[str, Pipeline, tuple[range, ...]]
"""Name, shape and partition of a split that a user gives."""


@dataclass(frozen=True)
class Cell:
    """The value of one order on one split.

    ``fits`` is False where the schedule needs more memory than there is; then the value is what it
    would be with more. No value: it does not apply, ``why_not`` says why.
    """

    value: int | None = None
    fits: bool = False
    why_not: str = ""


@dataclass
class SplitRow:
    """One split: its hand-written schedules, the best order found, and the bound for this split."""

    name: str
    candidate: Candidate | None
    cells: dict[str, Cell] = field(default_factory=dict)
    why_not: str = ""

    @property
    def best(self) -> int | None:
        """Value of the best order found."""
        return None if self.candidate is None else self.candidate.value

    @property
    def bound(self) -> Bound | None:
        """What no order of this split, recomputing as it does, is below."""
        return None if self.candidate is None else tenable(self.best, self.candidate.bound)[0]

    def document(self) -> dict[str, Any]:
        """Return it ready for JSON; what is unknown is ``None``."""
        own, bound = self.candidate, self.bound
        return {
            "name": self.name,
            "placement": None if own is None else shape_name(own.shape),
            "layers_per_stage": None if own is None else [len(part) for part in own.partition],
            "recompute": None if own is None else [*own.flags],
            "schedules": {
                name: {"value": cell.value, "fits": cell.fits, "why_not": cell.why_not or None}
                for name, cell in self.cells.items()
            },
            "best_order": self.best,
            "lower_bound": None if bound is None else bound.value,
            "why_not": self.why_not or None,
        }


@doing("making the even and the balanced split")
def rows_to_compare(known: Findings, hand: Sequence[Hand]) -> list[SplitRow]:
    """Return rows of the even and the balanced split of a chain, and of splits given by hand.

    Those that are partitions of a shape of the search become its candidates, the others stand for
    comparison alone. Where recomputation may be chosen, stages recompute that 1F1B needs it for.
    """
    chain = replace(known.space.shapes[0], placement="chain")
    splits = {"even split": even_partition, "cost-balanced split": balanced_partition}
    rows = []
    for name, split in splits.items():
        try:
            rows.append(_row(known, name, chain, split(known.space.layers, chain)))
        except (BadInput, Infeasible, NotApplicable) as error:
            rows.append(SplitRow(name, None, why_not=str(error)))
    return rows + [_row(known, *given) for given in hand]


def _row(known: Findings, name: str, shape: Pipeline, partition: tuple[range, ...]) -> SplitRow:
    space = known.space
    flags = next(space.first(shape, partition))
    same = (n for n, own in enumerate(space.shapes) if own.homes == shape.homes)
    number = next(same, None)
    if number is not None and all(partition) and not known.states[number].why_not:
        candidate = known.consider(number, partition, flags, name)
        if candidate is not None:
            return SplitRow(name, candidate)
    try:
        return SplitRow(name, space.made(shape, partition, flags, name))
    except BadInput as error:
        return SplitRow(name, None, why_not=str(error))


@doing("comparing with hand-written schedules")
def fill(search: Search, rows: Sequence[SplitRow], seconds: float) -> None:
    """Make the hand-written schedules of every row, and let the solver order each for a while."""
    for row in rows:
        write(search, row)
    candidates = [row.candidate for row in rows if row.candidate is not None]
    for candidate in candidates:
        if search.deadline.stop.is_set():
            return
        search.evaluate(candidate, 1, seconds / len(candidates))
        if not candidate.proven and search.deadline.left:
            search.solve(candidate, seconds / len(candidates), drop=False)


def write(search: Search, row: SplitRow) -> None:
    """Make the hand-written schedules of a row."""
    own, objective = row.candidate, search.known.space.objective
    if own is None:
        return
    for name, names in COLUMNS.items():
        try:
            schedule = BASELINES[names[one_route_placement_of(own.problem)]](own.problem)
        except NotApplicable as error:
            row.cells[name] = Cell(why_not=str(error))
            continue
        if objective == "span":
            schedule = retime(own.problem, schedule, "span", schedule.source)
        violations = check(own.problem, schedule)
        why_not = violations[0].message if violations else ""
        row.cells[name] = Cell(schedule.value(objective), not violations, why_not)
        if not violations:
            search.offer(own, schedule)


def gains(rows: Sequence[SplitRow]) -> Iterator[str]:
    """Say how much of the gain comes from the partition, and how much from the order.

    1F1B, or else ZB-H1, is the common ground.
    """
    even, plan = rows[0], rows[-1]
    column = next((name for name, cell in even.cells.items() if cell.value is not None), "")
    start, end = even.cells.get(column, Cell()), plan.best
    if not start.value or end is None or plan.candidate is None:
        return
    beyond = "" if start.fits else ", which needs more memory than there is,"
    yield (
        f"from {even.name} with {column}{beyond} to the plan: {start.value} to {end}, "
        f"{change(end, start.value, 1)}"
    )
    if even.best is not None:
        gain = change(even.best, start.value, 1)
        yield f"the order alone (even split, best order found): {gain}"
    moved = plan.cells.get(column, Cell())
    if moved.value is not None:
        more = "" if moved.fits else ", with more memory than there is"
        chain = plan.candidate.shape.placement == "chain"
        what = "the partition" if chain else "partition and placement"
        gain = change(moved.value, start.value, 1)
        yield f"{what} alone (the plan's, with {column}{more}): {gain}"
