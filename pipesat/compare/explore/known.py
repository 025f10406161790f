"""What one run knows of a pipeline: what was found at one memory tells something of all."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.check.checker import check
from pipesat.compare.best_known import Comparison, comparison_of
from pipesat.compare.frontier.by_mode import own_cap
from pipesat.compare.frontier.capacities import Cap, at_cap, least_feasible_cap, scale_of
from pipesat.compare.frontier.curve import Curve, size
from pipesat.compare.frontier.frontiers import Frontiers
from pipesat.compare.frontier.memory import frontier
from pipesat.compare.hand_written import ScheduleRow, hand_written_for
from pipesat.compare.result import Result
from pipesat.compare.solve import solve
from pipesat.problem.problem import Problem
from pipesat.schedule.metrics import peak_memory
from pipesat.schedule.schedule import Objective, Schedule

_NO_TIME: Final = threading.Event()
_NO_TIME.set()
_PLACES: Final = 12
"""Capacities along the curve at which hand-written schedules are made, one more than that."""
_MOMENT: Final = 0.3  # seconds
_BEYOND: Final = 1.25  # times the memory of the best schedule: the right end of the curve


class Known:
    """Schedules and bounds of a pipeline as a curve over memory, and the results of solves.

    ``results`` are by the digest of their problem, ``frontier`` is the last that was asked for.
    """

    def __init__(self, problem: Problem, objective: Objective) -> None:
        self.curve, self.objective = Curve(problem, objective), objective
        self.results, self.visited = dict[str, Result](), set[Cap]()
        self.frontier: Frontiers | None = None
        self.lock = threading.RLock()

    def compared(self, problem: Problem) -> Comparison:
        """Return all hand-written schedules with the best that is known, without a search."""
        with self.lock:
            rows = self._visit(problem, min((d.memory for d in problem.devices), key=size))
            result = self.results.get(problem.sha256)
            best = min((known.value for known in self._fitting(problem)), default=math.inf)
            if result is None or best < (result.value or math.inf):
                result = self._solved(problem, stop=_NO_TIME)
            return comparison_of(result, made=rows)

    def search(self, problem: Problem, **how: Any) -> None:
        """Solve a problem, from all that is known."""
        self.results[problem.sha256] = self._solved(problem, **how)

    def search_curve(self, problem: Problem, **how: Any) -> None:
        """Search at many capacities, and take what that finds."""
        self.frontier = frontier(problem, objective=self.objective, **how)
        found = self.frontier[None].curve
        with self.lock:
            self._learn([known.schedule for known in found.schedules])
            for cap, bound in found.bounds:
                self.curve.prove(cap, bound)

    def document(self, problem: Problem) -> dict[str, Any]:
        """Return the curve: steps of value and bound by capacity, from the least to beyond use.

        ``own`` is the problem's capacity, if all devices have the same. What takes longer than a
        moment is left for the next time: then the curve is not ``complete``.
        """
        curve, scale, expires = self.curve, scale_of(problem), time.monotonic() + _MOMENT
        least = least_feasible_cap(problem)
        with self.lock:
            known = sorted(curve.schedules, key=lambda known: (known.value, known.peak))
            most = max([least + 1, *(round(_BEYOND * one.peak) for one in known[:1])])
            places = {least + (most - least) * place // _PLACES for place in range(_PLACES + 1)}
            for cap in sorted(places - self.visited, reverse=True):  # bounds hold for smaller ones
                if time.monotonic() < expires:
                    self._visit(at_cap(problem, cap), cap)
            known = sorted(curve.schedules, key=lambda known: (known.peak, known.value))
            caps = sorted(places | {cap for cap, _ in curve.bounds if cap is not None})
            return {
                "least": least,
                "most": most,
                "steps": [
                    [one.peak, one.value, one.schedule.source]
                    for one in known
                    if (curve.value(one.peak - 1) or math.inf) > one.value == curve.value(one.peak)
                ],
                "bounds": [(cap, one.value) for cap in caps if (one := curve.bound(cap))],
                "own": own_cap(problem),
                "scale": scale and [scale.static, scale.activations],
                "complete": places <= self.visited,
            }

    def _visit(self, problem: Problem, cap: Cap) -> list[ScheduleRow]:
        """Take the closed form's bound at a capacity, and all hand-written schedules made there."""
        if cap not in self.visited:
            self.visited.add(cap)
            self.curve.prove(cap, closed_form_bound(problem, self.objective))
        rows = hand_written_for(problem, None, self.objective)
        self._learn([row.schedule for row in rows if row.schedule is not None])
        return rows

    def _solved(self, problem: Problem, **how: Any) -> Result:
        caps = [device.memory for device in problem.devices]
        how["schedules"] = [known.schedule for known in self._fitting(problem)]
        how["known_bound"] = self.curve.bound(max(caps, key=size))
        found = solve(problem, objective=self.objective, **how)
        with self.lock:
            self._learn([found.schedule] if found.schedule else [])
            if found.bound is not None:
                self.curve.prove(min(caps, key=size), found.bound)
        return found

    def _fitting(self, problem: Problem) -> list[Any]:
        caps = [device.memory for device in problem.devices]
        return [known for known in self.curve.schedules if known.fits(caps)]

    def _learn(self, schedules: Sequence[Schedule]) -> None:
        """Take schedules; what breaks a rule other than memory counts nowhere."""
        for schedule in schedules:
            peak = max(peak_memory(self.curve.problem, schedule))
            better = schedule.value(self.objective) < (self.curve.value(peak) or math.inf)
            if better and not check(at_cap(self.curve.problem, peak), schedule):
                self.curve.know(schedule)
