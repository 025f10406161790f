"""One solve after the other on the same layers with other capacities, each told what is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pipesat.core.claims import Bound
from pipesat.core.problem import Problem
from pipesat.core.progress import doing
from pipesat.core.result import Baseline, Improvement, Result
from pipesat.core.schedule import Schedule
from pipesat.core.solving import LEAST_SECONDS, Deadline, EitherStop, Listener, Solve, Starts
from pipesat.frontier.caps import Cap, at_cap
from pipesat.frontier.curve import Curve, KnownSchedule

_VISIBLE = 0.001  # of a bound
_MOST_GIVEN = 6  # schedules, of different sources


@dataclass
class Study:
    """Solves at caps within one time limit and collects what they tell in a curve.

    ``spent`` has the seconds per cap, ``baselines`` the best hand-written schedule that a solve at
    a cap has met, ``hand_written_s`` the seconds that making all hand-written ones takes.
    """

    curve: Curve
    solve: Solve
    deadline: Deadline
    listener: Listener | None = None
    spent: dict[Cap, float] = field(default_factory=dict)
    baselines: dict[Cap, Baseline] = field(default_factory=dict)
    hand_written_s: float = 0.0
    complete: set[Cap] = field(default_factory=set)

    def work(self, cap: Cap, seconds: float, *, target: int | None = None) -> None:
        """Solve at a cap; with a target, only until it is met or proven to be out of reach.

        Hand-written schedules are made for a cap once, as they would be the same again; their time
        comes on top, and as soon as it is no more than twice what the cap is worth.
        """
        starts: Starts = "none" if cap in self.spent else "greedy"
        extra = self.hand_written_s
        if cap not in self.complete and extra <= min(2 * seconds, self.deadline.left):
            starts, seconds = "all", seconds + extra
            self.complete.add(cap)
        result = self.decide(
            at_cap(self.curve.problem, cap),
            seconds,
            starts=starts,
            known=self.curve.fitting(cap),
            bound=self.curve.bound(cap),
            target=target,
            name="unlimited memory" if cap is None else f"cap {cap}",
        )
        self.spent[cap] = self.spent.get(cap, 0.0) + result.wall_s
        if result.bound is not None:
            self.curve.prove(cap, result.bound)
        if result.baseline is not None:
            self.baselines.setdefault(cap, result.baseline)

    def decide(
        self,
        problem: Problem,
        seconds: float,
        *,
        starts: Starts,
        known: Sequence[KnownSchedule],
        bound: Bound | None,
        target: int | None,
        name: str,
    ) -> Result:
        """Solve a problem with the curve's layers and any capacities; keep its schedule.

        ``known`` are schedules that fit, the best first, ``bound`` is one that holds already.

        The result's bound is that of the problem: what it tells of caps is the caller's business.
        """
        enough = EitherStop(self.deadline.stop)
        news = _News(known[0].value if known else None, None if bound is None else bound.value)

        def listen(improvement: Improvement) -> None:
            value, least = improvement.value, improvement.bound
            if target is not None and (
                (value is not None and value <= target) or (least is not None and least > target)
            ):
                enough.set()
            if self.listener is not None and news.worth_telling(value, least):
                source = f"{name}: {improvement.source}"
                self.listener(improvement._replace(seconds=self.deadline.seconds, source=source))

        with doing(name):
            result = self.solve(
                problem,
                starts=starts,
                time_limit=max(min(seconds, self.deadline.left), LEAST_SECONDS),
                schedules=_of_different_sources(known),
                known_bound=bound,
                listener=listen,
                stop=enough,
            )
        self.curve.contradictions += result.contradictions
        if result.schedule is not None:
            self.curve.know(result.schedule)
        elif result.status == "infeasible" and known:
            self.curve.contradictions.append(
                f"{name}: {result.explanation}, but a checked schedule has {known[0].value}"
            )
        return result


@dataclass
class _News:
    """What has been told: every better value is worth it, and bounds that rise visibly."""

    value: int | None
    bound: int | None

    def worth_telling(self, value: int | None, bound: int | None) -> bool:
        """Whether to tell; then it counts as told."""
        if value is None:
            return False
        better = self.value is None or value < self.value
        rise = 0 if bound is None else bound - (self.bound or 0)
        met = value == bound != self.bound
        if not (better or met or rise > _VISIBLE * (bound or 0)):
            return False
        self.value, self.bound = value, bound
        return True


def _of_different_sources(known: Sequence[KnownSchedule]) -> list[Schedule]:
    """The first ones, each of another source: those of one source tend to be much alike."""
    chosen: dict[str, Schedule] = {}
    for entry in known:
        chosen.setdefault(entry.schedule.source, entry.schedule)
    return list(chosen.values())[:_MOST_GIVEN]
