"""The plan beside splits that users have today: what placement, cut and order gain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from pipesat.advise.candidates import GREEDY, Candidate
from pipesat.advise.orders import COLUMNS
from pipesat.advise.plan_search import Search
from pipesat.advise.splits import balanced_partition, even_partition
from pipesat.check.checker import check
from pipesat.core.claims import (
    Bound,
    Steps,
    against,
    change_in_steps,
    factors,
    tenable,
)
from pipesat.core.errors import BadInput, Infeasible, NotApplicable
from pipesat.core.grouping import firsts
from pipesat.core.progress import doing
from pipesat.core.text_tables import shortened
from pipesat.heuristics import BASELINES
from pipesat.layers.layer import Layers
from pipesat.layers.pipeline import Pipeline
from pipesat.problem.geometry import one_route_placement_of
from pipesat.schedule.metrics import peak_memory
from pipesat.schedule.summary import fullest
from pipesat.schedule.timing import retime

PLAN: Final = "plan"
EVEN: Final = "even split"
Cut: TypeAlias = Callable[[Layers, Pipeline], tuple[range, ...]]
"""A rule by which layers are cut for a shape."""
_SPLITS: Final[Mapping[str, Cut]] = {
    EVEN: even_partition,
    "cost-balanced split": balanced_partition,
}
_MORE: Final = "more memory than there is"
_LONGEST: Final = 30  # names
_SHARE: Final = 0.15  # of the time limit, for all rows

Hand: TypeAlias = tuple[str, Pipeline, tuple[range, ...]]
"""Name, shape and partition of a split that a user gives."""


@dataclass(frozen=True)
class Cell:
    """The value of one order on one split.

    ``fits`` is False where the schedule needs more memory than there is; then value and ``peaks``,
    one per device, are what they would be with more. No value: it does not apply, ``why_not`` says
    why.
    """

    value: int | None = None
    fits: bool = False
    why_not: str = ""
    peaks: tuple[int, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return it ready for JSON; what is unknown is ``None``."""
        return {
            "value": self.value,
            "fits": self.fits,
            "peak_memory": [*self.peaks] or None,
            "why_not": self.why_not or None,
        }


@dataclass
class SplitRow:
    """One split: its hand-written schedules, the best order found, and the bound for this split.

    ``outside`` says why the plan cannot be this split; empty: it was searched like all others.
    """

    name: str
    shape: Pipeline
    candidate: Candidate | None
    cells: dict[str, Cell] = field(default_factory=dict)
    why_not: str = ""
    outside: str = ""

    @property
    def placement(self) -> str:
        """``chain``, ``vee`` or ``loop of 3``."""
        return self.shape.geometry.label

    @property
    def short(self) -> str:
        """The name, shortened in its middle: layouts differ at their ends, too."""
        return shortened(self.name, _LONGEST)

    @property
    def best(self) -> int | None:
        """Value of the best order found."""
        return None if self.candidate is None else self.candidate.value

    @property
    def bound(self) -> Bound | None:
        """What no order of this split, recomputing as it does, is below."""
        return None if self.candidate is None else tenable(self.best, self.candidate.bound)[0]

    @property
    def peaks(self) -> tuple[int, ...]:
        """Peak memory of every device: of the best order, else of the first hand-written one."""
        if self.candidate is not None and self.candidate.schedules:
            return tuple(peak_memory(self.candidate.problem, self.candidate.schedules[0]))
        return next((cell.peaks for cell in self.cells.values() if cell.peaks), ())

    @property
    def fullest(self) -> int | None:
        """The device that is nearest to its capacity; without any, the one that holds most."""
        if self.candidate is None or not self.peaks:
            return None
        return fullest(self.candidate.problem, self.peaks)

    def with_schedule(self, column: str) -> str:
        """Name the split with a hand-written schedule: that of its placement."""
        placement = self.shape.placement
        name = column if placement == "chain" else COLUMNS[column][placement]
        return f"{self.short} ({self.placement}) with {name}"

    def document(self, rows: Sequence[SplitRow]) -> dict[str, Any]:
        """Return it ready for JSON; what is unknown is ``None``."""
        own, bound, gain = self.candidate, self.bound, gain_of(self, rows)
        fits = self.best is not None
        return {
            "name": self.name,
            "placement": self.placement,
            "layers_per_stage": None if own is None else [len(part) for part in own.partition],
            "recompute": None if own is None else [*own.flags],
            "schedules": {name: cell.document() for name, cell in self.cells.items()},
            "best_order": self.best,
            "peak_memory": [*self.peaks] if fits else None,
            "fullest_device": self.fullest if fits else None,
            "lower_bound": None if bound is None else bound.value,
            "gain": None if gain is None else gain.document(),
            "why_not": self.why_not or None,
            "why_not_the_plan": self.outside or None,
        }


def compared(
    search: Search, hand: Sequence[Hand] = (), beside: Sequence[Pipeline] = (), *, plain: bool
) -> list[SplitRow]:
    """Search, and return the plan's row below those of the even and the balanced split.

    These, if they are asked for (``plain``), stand in each placement that is searched; the even one
    also in that of each split given by ``hand``, which has a row too, and in the placements
    ``beside``. Those that are partitions of a shape of the search become its candidates, the others
    stand for comparison alone. Where recomputation may be chosen, stages recompute that 1F1B needs
    it for.
    """
    rows, question = list[SplitRow](), search.question
    shapes = [(shape, name) for shape in question.shapes for name in _SPLITS]
    shapes += [(shape, EVEN) for shape in (*(shape for _, shape, _ in hand), *beside)]
    asked = shapes if plain else []
    different = firsts(((name, shape.homes), shape) for shape, name in asked)

    def compare() -> None:
        for (name, _), shape in different.items():
            try:
                rows.append(_row(search, name, shape, _SPLITS[name](question.layers, shape)))
            except (BadInput, Infeasible, NotApplicable) as error:
                rows.append(SplitRow(name, shape, None, why_not=str(error)))
        rows.extend(_row(search, *given) for given in hand)
        _order(search, rows)

    search.run(compare=compare)
    if rows:
        shape = question.shapes[0] if search.best is None else search.best.shape
        rows.append(SplitRow(PLAN, shape, search.best))
        write(search, rows[-1])
    return rows


@doing("comparing with hand-written schedules")
def _order(search: Search, rows: Sequence[SplitRow]) -> None:
    """Make the hand-written schedules of every row, and let the solver order each for a while."""
    for row in rows:
        write(search, row)
    candidates = dict.fromkeys(row.candidate for row in rows if row.candidate is not None)
    seconds = _SHARE * search.deadline.limit / max(1, len(candidates))
    for candidate in candidates:
        if search.deadline.stop.is_set():
            return
        search.evaluate(candidate, GREEDY, seconds)
        if not candidate.proven and search.deadline.left:
            search.solve(candidate, seconds, drop=False)


def _row(search: Search, name: str, shape: Pipeline, partition: tuple[range, ...]) -> SplitRow:
    question = search.question
    flags = next(question.first(shape, partition))
    own = next((one for one in question.shapes if one.homes == shape.homes), None)
    if own is None:
        outside = f"its placement, {shape.geometry.label}, was not asked for"
    elif not all(partition):
        outside = "stages without layers are not searched"
    else:
        outside = search.why_not.get(own, "")
        candidate = None if outside else search.consider(own, partition, flags, name)
        if candidate is not None:
            return SplitRow(name, own, candidate)
        outside = outside or "one microbatch does not fit into memory"
    try:
        flags = question.settled(shape, partition, flags)
        made = question.candidate(shape, partition, flags)
    except BadInput as error:
        return SplitRow(name, shape, None, why_not=str(error))
    made.proposed_by = made.proposed_by or name
    return SplitRow(name, shape, made, outside=outside)


def write(search: Search, row: SplitRow) -> None:
    """Make the hand-written schedules of a row."""
    own, objective = row.candidate, search.question.objective
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
        peaks = tuple(peak_memory(own.problem, schedule))
        row.cells[name] = Cell(schedule.value(objective), not violations, why_not, peaks)
        if not violations:
            search.offer(own, schedule)


@dataclass(frozen=True)
class Gain:
    """From the even split with a hand-written schedule to a row, one thing changed at a time.

    ``name`` is that of the start, with its schedule. ``steps`` are all three, as ``placement``,
    ``cut`` and ``order``. ``beyond`` names those that end at a schedule that needs more memory than
    there is; an empty name stands for the start.
    """

    name: str
    start: int
    steps: Steps
    beyond: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return it ready for JSON: the factors, whose product is ``whole``."""
        return {"from": self.name, "value": self.start, **factors(self.start, self.steps)}

    def text(self, end: str, *, same_placement: bool) -> str:
        """Say the gain in a sentence; ``end`` names the row."""
        more = f", which needs {_MORE}," if "" in self.beyond else ""
        steps = [
            (f"the {name}{f' (with {_MORE})' if name in self.beyond else ''}", value)
            for name, value in self.steps
            if name != "placement" or not same_placement
        ]
        said = change_in_steps(self.start, steps)
        return f"from {self.name}{more} to {end}: {self.start} to {steps[-1][1]}, {said}"


def _ground(rows: Sequence[SplitRow]) -> SplitRow | None:
    """The even split of the first placement that has one."""
    even = (row for row in rows if row.name == EVEN)
    return next((row for row in even if any(cell.value for cell in row.cells.values())), None)


def gain_of(row: SplitRow, rows: Sequence[SplitRow]) -> Gain | None:
    """Return what a row gains over the even split; ``None`` if it is that, or has no order.

    First placement and cut change under a hand-written schedule that all have, then the order. If
    there is none that fits the even split, the order changes first, to the best that was found.
    """
    start = _ground(rows)
    if start is None or row is start or row.best is None:
        return None
    there = next((x for x in rows if x.name == EVEN and x.shape.homes == row.shape.homes), start)
    valued = [name for name, cell in start.cells.items() if cell.value]
    shared = [c for c in valued if all(c in x.cells and x.cells[c].value for x in (there, row))]
    column = min(valued, key=lambda c: (not start.cells[c].fits, c not in shared))
    cell, name = start.cells[column], start.with_schedule(column)
    if column in shared:
        path = {"placement": there.cells[column], "cut": row.cells[column]}
        path["order"] = Cell(row.best, fits=True)
    elif start.best is not None and there.best is not None:
        found = {"order": start.best, "placement": there.best, "cut": row.best}
        path = {step: Cell(value, fits=True) for step, value in found.items()}
    else:
        path = {"placement, cut and order": Cell(row.best, fits=True)}
    steps = [(step, value.value or 0) for step, value in path.items()]
    beyond = tuple(step for step, x in {"": cell, **path}.items() if not x.fits)
    return Gain(name, cell.value or 0, steps, beyond)


def gains(rows: Sequence[SplitRow]) -> Iterator[str]:
    """Say what the plan gains, and each split given by hand: by placement, cut and order."""
    *others, plan = rows
    start = _ground(rows)
    for row in (plan, *(row for row in others if row.name not in _SPLITS)):
        gain = gain_of(row, rows)
        if gain is not None and start is not None:
            end = "the plan" if row is plan else row.short
            yield gain.text(end, same_placement=row.shape.homes == start.shape.homes)
    fitting = [
        (cell.value, row.with_schedule(column))
        for row in others
        for column, cell in row.cells.items()
        if cell.fits and cell.value is not None
    ]
    if fitting and plan.best is not None:
        value, name = min(fitting, key=lambda one: one[0])
        known = f"{name} ({value}), the best hand-written schedule of these splits that fits"
        yield f"the plan is {against(plan.best, value, known)}"
