"""What orders of microbatches give: rows, the best of them, and a bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pipesat.compare.replicas.assignment import Assignment
from pipesat.core.amounts import rounded_down, seconds_of, time_text
from pipesat.core.claims import Bound, Standing, against
from pipesat.core.showing import Displayed, Facts, Table, table_of
from pipesat.problem.problem import Problem
from pipesat.schedule.microbatch_order import Permutation, permuted
from pipesat.schedule.schedule import Objective
from pipesat.schedule.summary import units_of

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


def in_order(problem: Problem, orders: Permutation) -> Problem:
    """Return the problem whose microbatches enter each route so, as given."""
    return replace(permuted(problem, orders), order="given")


@dataclass(frozen=True, repr=False, slots=True)
class MicrobatchOrders(Displayed):
    """Orders of microbatches under each hand-written schedule, the best first, and a bound.

    No schedule at all, whatever its order of ops and microbatches, goes below ``lower_bound``.
    ``about`` has the digest of the problem asked about, the seed, and the lengths that were read.

    Raises
    ------
    Contradiction
        If a checked schedule does.
    """

    problem: Problem
    objective: Objective
    bound: Bound
    rows: tuple[OrderRow, ...]
    about: Mapping[str, Any]

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

    def save(self, folder: str | Path) -> None:
        """Write the best order: ``problem.json``, and of one route ``assignment.json``.

        Without an order that fits, nothing is written.
        """
        from pipesat.core.folder import write_folder
        from pipesat.problem.problem_file import problem_text

        best, about = self.best, self.about
        if best is None or best.value is None or best.order is None:
            return
        ordered = problem_text(in_order(self.problem, best.order).document)
        if len(best.order) > 1:
            write_folder(Path(folder), {"problem.json": ordered.encode()})
            return
        Assignment(
            problem_sha256=about["problem_sha256"],
            schedule=best.name,
            lengths=about["lengths"],
            replicas=[[[number] for number in best.order[0]]],
            makespans=[best.value],
            lower_bound=self.lower_bound,
            lower_bound_source=self.bound.source,
            seed=about["seed"],
            time_unit=self.problem.time_unit,
            objective=self.objective,
            ordered=ordered,
        ).save(folder)

    def seconds(self, time: int | None) -> float | None:
        """A time in seconds; ``None`` where the problem does not say its unit."""
        second = seconds_of(self.problem.time_unit)
        return None if time is None or second is None else float(time * second)

    @property
    def lower_bound(self) -> int:
        """What no schedule goes below, in the problem's time unit."""
        return self.bound.value

    def facts(self) -> Facts:
        """Return what the best order takes and saves, the order, and what none goes below."""
        from pipesat.heuristics.registry import GIVEN_UP

        best, unit = self.best, self.problem.time_unit
        cut = ", ".join(row.name for row in self.rows if row.why_not == GIVEN_UP)
        least = f"{time_text(self.lower_bound, unit, rounded_down)} ({self.bound.source})"
        proof = ("Proof", f"no schedule at all{self.problem.within_memory} is shorter than {least}")
        if best is None or best.value is None:
            return [("Order", "none fits into memory"), proof]
        given = best.values[GIVEN]
        gains = [] if given is None else [against(best.value, given, "in the given order")]
        ruled = [
            (value, f"{rule} under {row.name}, the best rule")
            for row in self
            for rule, value in row.values.items()
            if value is not None and rule not in (GIVEN, BEST)
        ]
        gains += [against(best.value, *min(ruled))] if ruled else []
        standing = Standing(best.value, self.lower_bound)
        left = f"orders alone leave {standing.gap_text()} between the best and that bound. "
        left += "`pipesat solve` may change the schedule, too"
        return [
            ("Take", f"{best.name}: {time_text(best.value, unit)} if they enter so"),
            ("Gain", ", ".join(gains)),
            ("Order", f"{self.order} (numbered from 0)"),
            proof,
            ("Left", "" if standing.proven else left),
            ("Doubt", cut and f"there was no time to try all of {cut}"),
        ]

    def tables(self) -> Iterator[Table]:
        """Yield what each schedule takes under each rule."""
        rules = (GIVEN, BEST, "descending", "ascending", "both-ends")
        rows: list[dict[str, Any]] = [
            {"schedule": row.name}
            | {rule: row.values[rule] for rule in rules}
            | {"gap": Standing(row.value, self.lower_bound).gap}
            for row in self
            if row.value is not None
        ]
        notes = units_of(self.problem, ms=True)
        if any(None in row.values.values() for row in self if row.value is not None):
            notes.append("-: exceeds memory")
        if exceed := [row.name for row in self if row.values and row.value is None]:
            notes.append(f"no order found in which {', '.join(exceed)} fits")
        yield table_of(rows, notes=notes, units=dict.fromkeys(rules, self.problem.time_unit))

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
