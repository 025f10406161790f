"""What one run knows of a pipeline: what was found at one memory tells something of all."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.check.checker import check
from pipesat.compare.best_known import Comparison, comparison_of
from pipesat.compare.frontier.by_mode import own_cap
from pipesat.compare.frontier.capacities import Cap, at_cap, least_feasible_cap, scale_of
from pipesat.compare.frontier.curve import Curve, size
from pipesat.compare.frontier.memory import frontier
from pipesat.compare.hand_written import ScheduleRow, hand_written_for
from pipesat.compare.solve import solve
from pipesat.schedule.metrics import peak_memory

if TYPE_CHECKING:
    from pipesat.compare.frontier.frontiers import Frontiers
    from pipesat.compare.result import Result
    from pipesat.core.claims import Bound
    from pipesat.problem.problem import Problem
    from pipesat.schedule.schedule import Schedule

_NO_TIME: Final = threading.Event()
_NO_TIME.set()
_PLACES: Final = 12
"""Capacities along the curve at which hand-written schedules are made, one more than that."""
_MOMENT: Final = 0.3  # seconds
_BEYOND: Final = 1.25  # times the memory of the best schedule: the right end of the curve


@dataclass
class Known:
    """Schedules and bounds of a pipeline as a curve over memory, and the results of solves.

    ``results`` are by the digest of their problem, ``frontier`` is the last that was asked for.
    """

    curve: Curve
    results: dict[str, Result] = field(default_factory=dict)
    frontier: Frontiers | None = None
    visited: set[Cap] = field(default_factory=set)
    lock: Any = field(default_factory=threading.RLock)

    def compared(self, problem: Problem) -> Comparison:
        """Return all hand-written schedules with the best that is known, without a search."""
        with self.lock:
            rows = self._visit(problem, min((d.memory for d in problem.devices), key=size))
            result = self.results.get(problem.sha256)
            values = [known.value for known in self._fitting(problem)]
            if result is None or min(values, default=math.inf) < (result.value or math.inf):
                result = self._solved(problem, stop=_NO_TIME)
            return comparison_of(result, made=rows)

    def search(self, problem: Problem, **how: Any) -> None:
        """Solve a problem, from all that is known."""
        self.results[problem.sha256] = self._solved(problem, **how)

    def search_curve(self, problem: Problem, **how: Any) -> None:
        """Search at many capacities, and take what that finds."""
        self.frontier = found = frontier(problem, objective=self.curve.objective, **how)
        with self.lock:
            self._learn(known.schedule for known in found[None].curve.schedules)
            for cap, bound in found[None].curve.bounds:
                self.curve.prove(cap, bound)

    def document(self, problem: Problem) -> dict[str, Any]:
        """Return the curve: steps of value and bound by capacity, from the least to beyond use.

        ``own`` is the problem's capacity, if all devices have the same. What takes longer than a
        moment is left for the next time: then the curve is not ``complete``.
        """
        curve, scale, expires = self.curve, scale_of(problem), time.monotonic() + _MOMENT
        least = least_feasible_cap(problem)
        with self.lock:
            best = min(curve.schedules, key=lambda one: (one.value, one.peak), default=None)
            most = max(least + 1, 0 if best is None else round(_BEYOND * best.peak))
            places = {least + (most - least) * place // _PLACES for place in range(_PLACES + 1)}
            for cap in sorted(places - self.visited, reverse=True):  # bounds hold for smaller ones
                if time.monotonic() < expires:
                    self._visit(at_cap(problem, cap), cap)
            steps = [
                [known.peak, known.value, known.schedule.source]
                for known in sorted(curve.schedules, key=lambda known: (known.peak, known.value))
                if known.value == curve.value(known.peak)
            ]
            caps = sorted(places | {cap for cap, _ in curve.bounds if cap is not None})
            bounds = [(cap, bound.value) for cap in caps if (bound := curve.bound(cap)) is not None]
        return {
            "least": least,
            "most": most,
            "steps": steps,
            "bounds": bounds,
            "own": own_cap(problem),
            "scale": scale and [scale.static, scale.activations],
            "complete": places <= self.visited,
        }

    def _visit(self, problem: Problem, cap: Cap) -> list[ScheduleRow]:
        """Take the closed form's bound at a capacity, and all hand-written schedules made there."""
        if cap not in self.visited:
            self.visited.add(cap)
            self.curve.prove(cap, closed_form_bound(problem, self.curve.objective))
        rows = hand_written_for(problem, None, self.curve.objective)
        self._learn(row.schedule for row in rows if row.schedule is not None)
        return rows

    def _solved(self, problem: Problem, **how: Any) -> Result:
        largest = max((device.memory for device in problem.devices), key=size)
        fitting = [known.schedule for known in self._fitting(problem)]
        bound: Bound | None = self.curve.bound(largest)
        how |= {"schedules": fitting, "known_bound": bound}
        found = solve(problem, objective=self.curve.objective, **how)
        with self.lock:
            self._learn([] if found.schedule is None else [found.schedule])
            if found.bound is not None:
                self.curve.prove(min((d.memory for d in problem.devices), key=size), found.bound)
        return found

    def _fitting(self, problem: Problem) -> list[Any]:
        caps = [device.memory for device in problem.devices]
        return [known for known in self.curve.schedules if known.fits(caps)]

    def _learn(self, schedules: Iterable[Schedule]) -> None:
        """Take schedules; what breaks a rule other than memory counts nowhere."""
        for schedule in schedules:
            peak = max(peak_memory(self.curve.problem, schedule))
            best = self.curve.value(peak)
            better = best is None or schedule.value(self.curve.objective) < best
            if better and not check(at_cap(self.curve.problem, peak), schedule):
                self.curve.know(schedule)
