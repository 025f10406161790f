"""What lanes do in tests: functions that travel to their processes, so light to import."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from pipesat.core.claims import Bound
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Schedule
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.lane import Seat
from pipesat.solver.lanes.team import SearchReport, Team
from pipesat.solver.options import SolveOptions
from tests.support.greedy import by_each_policy
from tests.support.problems import chain

PROBLEM = chain(3, 4, F=2, B=3, W=2, cap=2)


def schedules(problem: Problem = PROBLEM) -> list[Schedule]:
    """List schedules of different lengths, the longest first."""
    by_length = {schedule.makespan: schedule for schedule in by_each_policy(problem)}
    return [by_length[length] for length in sorted(by_length, reverse=True)]


def team_of(seconds: float = 600.0, lanes: int = 2) -> tuple[Team, Incumbent]:
    """Lanes for an incumbent that has the longest list schedule."""
    incumbent = Incumbent(PROBLEM, "makespan", Clock(seconds))
    incumbent.offer_timed(schedules()[0])
    return Team(incumbent, lanes), incumbent


def until(holds: Callable[[], object]) -> None:
    """Wait for another lane."""
    for _ in range(6_000):
        if holds():
            return
        time.sleep(0.01)
    raise TimeoutError("the other lane did not come")


def answers(seat: Seat, incumbent: Incumbent) -> list[str]:
    """Offer the shortest schedule after a bound of 2, and prove 4 after one of 3."""
    del seat
    until(lambda: incumbent.bound.value == 2)
    incumbent.offer_timed(schedules()[-1])
    until(lambda: incumbent.bound.value == 3)
    incumbent.raise_bound(Bound(4, "the other lane"))
    return ["answered"]


def offers_and_stays(seat: Seat, incumbent: Incumbent) -> list[str]:
    """Offer the shortest schedule, then do nothing until the end."""
    incumbent.offer_timed(schedules()[-1])
    return stays(seat, incumbent)


def stays(seat: Seat, incumbent: Incumbent) -> list[str]:
    """Do nothing until the end."""
    del seat
    until(lambda: incumbent.clock.over)
    return []


def begun(*, report: Callable[[list[int]], Any] = print) -> Team:
    """A team whose other lane is at work; ``report`` is told its process."""
    team, incumbent = team_of()
    value = schedules()[-1].makespan
    team.hand(incumbent, offers_and_stays)
    team.fill()
    until(lambda: incumbent.value == value)
    report([member.child.process.pid for member in team.members.values()])
    return team


def offers_and_ends(seat: Seat, incumbent: Incumbent) -> list[str]:
    """Offer the shortest schedule."""
    del seat
    incumbent.offer_timed(schedules()[-1])
    return ["offered"]


def waits_for_the_best(seat: Seat, incumbent: Incumbent) -> list[str]:
    """Wait until the shortest schedule is known."""
    del seat
    until(lambda: incumbent.value == schedules()[-1].makespan)
    return ["waited"]


def by(
    search: Callable[[Incumbent, list[Schedule]], SearchReport],
    starts_of: Callable[[Problem], Iterable[Schedule]] = lambda _: (),
) -> Any:
    """Lanes that search as a function does, and tell nobody meanwhile."""
    return SimpleNamespace(
        search=search, hand=lambda *_: None, starts_of=starts_of, options=SolveOptions()
    )
