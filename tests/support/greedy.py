"""The schedule of every policy of list scheduling, alone and in pairs, however long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pipesat.heuristics.greedy_pairs import GreedySetting, pairing_policies
from pipesat.heuristics.list_scheduling import ListScheduler, list_schedules, policies
from pipesat.heuristics.registry import never
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Schedule


def by_each_policy(problem: Problem) -> Iterator[Schedule]:
    """Yield one schedule per policy, without pairs."""
    for policy in policies(problem):
        yield from list_schedules(problem, chosen=[policy])


def by_each_setting(
    problem: Problem, chosen: Iterable[GreedySetting] | None = None
) -> Iterator[Schedule]:
    """Yield one schedule per setting of greedy pairs, of all or of those chosen."""
    scheduler = ListScheduler(problem)
    for setting in pairing_policies(problem) if chosen is None else chosen:
        if scheduler.applies:
            yield from scheduler.shorter([scheduler.run(*setting)], never, "in pairs")
