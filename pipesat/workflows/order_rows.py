"""What orders of microbatches give: rows, the best of them, and a bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipesat.core.claims import Bound, Standing, against
from pipesat.core.showing import Displayed, Facts

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Objective

GIVEN = "given"
BEST = "best"


@dataclass(frozen=True)
class OrderRow:
    """One hand-written schedule under several orders of its microbatches.

    ``values`` has makespan or span of each rule, and of the best order found, ``None`` where an
    order breaks a rule of the problem; ``order`` is the best one, a list of numbers per route.
    """

    name: str
    values: Mapping[str, int | None] = field(default_factory=dict)
    order: list[list[int]] | None = None
    why_not: str | None = None

    @property
    def value(self) -> int | None:
        """Value of the best order; ``None`` where none fits or the schedule does not apply."""
        return self.values.get(BEST)


@dataclass(frozen=True, repr=False, slots=True)
class MicrobatchOrders(Displayed):
    """Orders of microbatches under each hand-written schedule, the best first, and a bound.

    No schedule at all, whatever its order of ops and microbatches, goes below ``lower_bound``.

    Raises
    ------
    Contradiction
        If a checked schedule does.
    """

    problem: Problem
    objective: Objective
    bound: Bound
    rows: tuple[OrderRow, ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            Standing(row.value, self.lower_bound, of=row.name)

    def __iter__(self) -> Iterator[OrderRow]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> OrderRow:
        return next(row for row in self.rows if row.name == name)

    @property
    def best(self) -> OrderRow | None:
        """The schedule of least value in its best order."""
        fitting = [row for row in self.rows if row.value is not None]
        return min(fitting, key=lambda row: row.value or 0, default=None)

    @property
    def order(self) -> list[int] | list[list[int]] | None:
        """The best order of the best schedule: a list of numbers, one per route if several."""
        best = self.best
        if best is None or best.order is None:
            return None
        return best.order[0] if len(best.order) == 1 else best.order

    def seconds(self, time: int | None) -> float | None:
        """A time in seconds; ``None`` where the problem does not say its unit."""
        from pipesat.export.trace import MICROSECONDS

        scale = MICROSECONDS.get(self.problem.time_unit)
        return None if time is None or scale is None else time * scale[0] / scale[1] / 1e6

    @property
    def lower_bound(self) -> int:
        """What no schedule goes below, in the problem's time unit."""
        return self.bound.value

    def facts(self) -> Facts:
        """Return what the best order takes and saves, and the bound."""
        best = self.best
        if best is None or best.value is None:
            return [("orders", "none fits")]
        given = best.values[GIVEN]
        saved = "" if given is None else f", {against(best.value, given, 'the order given')}"
        standing = Standing(best.value, self.lower_bound)
        return [
            ("best", f"{best.name}: {self.objective} {best.value}{saved}"),
            ("bound", f"{self.lower_bound}, {standing.verdict}"),
            ("order", str(self.order)),
        ]

    def records(self) -> list[dict[str, Any]]:
        """Return a row per schedule."""
        rules = dict.fromkeys(rule for row in self.rows for rule in row.values)
        return [
            {
                "name": row.name,
                **{rule: row.values.get(rule) for rule in rules},
                "order": row.order,
                "why_not": row.why_not,
            }
            for row in self.rows
        ]

    def document(self) -> dict[str, Any]:
        """Return all of it as a JSON document; seconds are ``None`` where the unit is unknown."""
        best = self.best
        value = None if best is None else best.value
        standing = Standing(value, self.lower_bound)
        return {
            "best": None if best is None else best.name,
            "order": self.order,
            "objective": self.objective,
            self.objective: value,
            "lower_bound": self.lower_bound,
            "lower_bound_source": self.bound.source,
            "gap": standing.gap,
            "status": standing.status,
            "time_unit": self.problem.time_unit,
            "seconds": self.seconds(value),
            "lower_bound_seconds": self.seconds(self.lower_bound),
            "baselines": [
                {
                    "name": row.name,
                    f"{self.objective}s": dict(row.values),
                    "seconds": {rule: self.seconds(t) for rule, t in row.values.items()},
                    "order": row.order,
                    "why_not": row.why_not,
                }
                for row in self.rows
            ],
        }
