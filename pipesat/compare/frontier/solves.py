"""Solves at caps within one time limit, and what they tell of all caps."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final

from pipesat import solver
from pipesat.check.checker import check
from pipesat.compare.frontier.capacities import Cap, at_cap, scale_of
from pipesat.compare.frontier.curve import Curve, Interval, KnownSchedule, words
from pipesat.core.claims import Bound
from pipesat.core.errors import NotApplicable
from pipesat.core.grouping import firsts
from pipesat.core.progress import doing
from pipesat.heuristics.registry import Build
from pipesat.problem.problem import Problem
from pipesat.schedule.result import Baseline, Improvement, Solution
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.solving import LEAST_SECONDS, Deadline, EitherStop, Starts
from pipesat.schedule.timing import retime
from pipesat.solver.options import SolveOptions

_MOST_GIVEN: Final = 6  # schedules, of different sources
_AUTOMATIC: Final = {"makespan": "zb-auto", "span": "zb-auto-span"}  # by objective
_SHARES: Final = (("ZB-1p (zb-auto)", 1), ("ZB-2p (zb-auto)", 2))
"""ZB-1p and ZB-2p are what the automatic schedule gives within 1F1B's memory and within twice that
(Qi et al., ICLR 2024, section 4)."""


@dataclass
class Study:
    """Solves at caps within one time limit and collects what they tell in a curve.

    ``published`` are the hand-written schedules that exist, ``spent`` has the seconds per cap,
    ``baselines`` the best hand-written schedule that a solve at a cap has met, ``hand_written_s``
    the seconds that making all hand-written ones takes.
    """

    curve: Curve
    options: SolveOptions
    deadline: Deadline
    published: dict[str, KnownSchedule] = field(default_factory=dict)
    spent: dict[Cap, float] = field(default_factory=dict)
    baselines: dict[Cap, Baseline] = field(default_factory=dict)
    hand_written_s: float = 0.0
    complete: set[Cap] = field(default_factory=set)

    @classmethod
    def begun(
        cls,
        problem: Problem,
        options: SolveOptions,
        baselines: Mapping[str, Build] | None,
        known: Sequence[Schedule] = (),
    ) -> Study:
        """Begin with what costs no search: closed form, known and hand-written schedules."""
        deadline = Deadline(options.time_limit, options.stop)
        study = cls(Curve(problem, options.objective), options, deadline)
        study.curve.prove_by_arithmetic(None)
        for schedule in known:
            study.curve.know(schedule)
        study._publish(baselines or {})
        study.hand_written_s = deadline.seconds
        return study

    def _publish(self, baselines: Mapping[str, Build]) -> None:
        """Make every hand-written schedule that exists for the curve's placement."""
        problem = self.curve.problem
        unlimited, scale = at_cap(problem, None), scale_of(problem)
        for name, build in baselines.items():
            wanted = [(name, unlimited)]
            if scale is not None and name == _AUTOMATIC[self.curve.objective]:
                wanted += [(at, at_cap(problem, scale.cap(Fraction(x)))) for at, x in _SHARES]
            for label, one in wanted:
                if self.deadline.over:
                    return
                with doing(f"building {label}"), suppress(NotApplicable):
                    made = build(one)
                    # the problem's order may forbid that of a list's microbatches
                    if not (one.has_lists and check(one, made)):
                        made = retime(one, made, self.curve.objective, made.source)
                        self.published[label] = self.curve.know(made)

    def work(self, cap: Cap, seconds: float, target: int | None = None) -> None:
        """Solve at a cap; with a target, only until it is met or proven to be out of reach.

        Hand-written schedules are made for a cap once, as they would be the same again; their time
        comes on top, and as soon as it is no more than twice what the cap is worth.
        """
        starts: Starts = "none" if cap in self.spent else "greedy"
        extra = self.hand_written_s
        if cap not in self.complete and extra <= min(2 * seconds, self.deadline.left):
            starts, seconds = "all", seconds + extra
            self.complete.add(cap)
        known, bound = self.curve.fitting(cap), self.curve.bound(cap)
        problem = at_cap(self.curve.problem, cap)
        result = self.decide(problem, words(cap), seconds, starts, known, bound, target)
        self.spent[cap] = self.spent.get(cap, 0.0) + result.wall_s
        if result.bound is not None:
            self.curve.prove(cap, result.bound)
        if result.status == "infeasible" and cap is not None and not known:
            self.curve.impossible = max(self.curve.impossible, cap)
        if result.baseline is not None:
            self.baselines.setdefault(cap, result.baseline)

    def decide(
        self,
        problem: Problem,
        name: str,
        seconds: float,
        starts: Starts,
        known: Sequence[KnownSchedule],
        bound: Bound | None,
        target: int | None = None,
    ) -> Solution:
        """Solve a problem with the curve's layers and any capacities; keep its schedule.

        ``known`` are schedules that fit, the best first, ``bound`` is one that holds already.

        The result's bound is that of the problem: what it tells of caps is the caller's business.
        """
        enough = EitherStop(self.deadline.stop)
        told = known[0].value if known else math.inf

        def listen(improvement: Improvement) -> None:
            nonlocal told
            value, least = improvement.value, improvement.bound
            met = target is not None and value is not None and value <= target
            if met or (target is not None and least is not None and least > target):
                enough.set()
            heard = self.options.listener
            if heard is not None and value is not None and value < told:
                told, source = value, f"{name}: {improvement.source}"
                heard(improvement._replace(seconds=self.deadline.seconds, source=source))

        # those of one source tend to be much alike
        different = firsts((entry.schedule.source, entry.schedule) for entry in known)
        with doing(name):
            options = replace(
                self.options,
                starts=starts,
                time_limit=max(min(seconds, self.deadline.left), LEAST_SECONDS),
                schedules=[*different.values()][:_MOST_GIVEN],
                known_bound=bound,
                listener=listen,
                stop=enough,
            )
            result = solver.solve(problem, options)
        self.curve.contradictions += result.contradictions
        if result.schedule is not None:
            self.curve.know(result.schedule)
        elif result.status == "infeasible" and known:
            self.curve.contradictions.append(
                f"{name}: {result.explanation}, but a checked schedule has {known[0].value}"
            )
        return result

    def narrow(
        self,
        amounts: Sequence[int],
        target: int,
        seconds: float,
        expires: float,
        *,
        fall_only: bool = False,
    ) -> Interval:
        """Look for the smallest cap with which a target is met, one round of bisection.

        Every cap asks whether there is a schedule of at most the target. A schedule says yes, for
        all larger caps too; a bound above the target says no, for all smaller ones; or time runs
        out. So two marks close in on the answer. First by the closed forms alone. Then an undecided
        cap counts as too small, and the upper mark falls; then it counts as large enough, and the
        lower mark rises, unless ``fall_only``.

        Parameters
        ----------
        amounts
            The feasible caps that matter.
        seconds
            The most that a decision takes.
        expires
            When it ends, in seconds since the study began.
        """
        curve = self.curve

        def over() -> bool:
            return self.deadline.over or self.deadline.seconds >= expires

        bisect_left(
            amounts, True, key=lambda cap: over() or curve.prove_by_arithmetic(cap) <= target
        )
        undecided: list[int] = []
        for falling in (True,) if fall_only else (True, False):
            while not over():
                known = curve.interval(amounts, target)
                low = max([known.low, *undecided]) if falling else known.low
                high = known.high if falling else min([known.high, *undecided])
                if high - low < 2:
                    break
                middle = (low + high) // 2
                self.work(amounts[middle], seconds, target)
                known = curve.interval(amounts, target)
                if known.low < middle < known.high:
                    undecided.append(middle)
        return curve.interval(amounts, target)
