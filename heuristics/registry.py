"""What is known about a hand-written schedule, beside the function that builds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from pipesat.core.arrays import nothing_collected
from pipesat.core.errors import NotApplicable, require_applicable
from pipesat.core.settings import Placement
from pipesat.problem.plain_problems import more_than_chains, typical_problem
from pipesat.problem.problem import Problem
from pipesat.schedule.microbatch_order import Permutation, permuted, relabelled
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.timing import time_order

Where: TypeAlias = Literal[Placement, "any"]
"""Where a schedule needs its stages: see :mod:`pipesat.problem.geometry`."""

Build: TypeAlias = Callable[[Problem], Schedule]
GiveUp: TypeAlias = Callable[[], bool]
SlowBuild: TypeAlias = Callable[[Problem, GiveUp], Schedule]
"""A build that tries so many orders that it asks now and then whether to give up."""


def never() -> bool:
    """Do not give up."""
    return False


GIVEN_UP = "given up before all of its orders were tried"


def unless_given_up(give_up: GiveUp) -> None:
    """Go on, unless told to give up: the best of a part of the orders would not be the schedule.

    Raises
    ------
    NotApplicable
        If told to give up.
    """
    require_applicable(not give_up(), GIVEN_UP)


@dataclass(frozen=True)
class Published:
    """A schedule that users know by name. Call it with a problem to build it.

    Parameters
    ----------
    name
        What users type.
    build
        The function; if it is slow, it asks now and then whether to give up. It raises
        :class:`pipesat.core.errors.NotApplicable` with a reason where the schedule does not exist,
        and does not look at capacities unless its source does.
    placement
        Where it needs its stages.
    splits
        Whether it runs B and W apart where stages allow it.
    pairs
        Whether it runs overlapped pairs where the problem allows them.
    source
        The paper or program that it was published in.
    slow
        Whether it tries so many orders that it asks that.
    equal
        Whether it needs equal microbatches: where they differ, its order is made for typical ones
        (:func:`pipesat.problem.plain_problems.typical_problem`).
    graphs
        Whether it is for more than chains: graphs, slices and stages without a backward.
    """

    name: str
    build: Build | SlowBuild
    placement: Where
    splits: bool
    pairs: bool
    source: str
    slow: bool = False
    equal: bool = False
    graphs: bool = False

    @nothing_collected()
    def __call__(
        self, problem: Problem, give_up: GiveUp = never, permutation: Permutation | None = None
    ) -> Schedule:
        """Build it, timed as early as possible, whether or not it fits into memory.

        Where it is slow, ``give_up`` is asked now and then; if it says yes, there is no schedule:
        :class:`pipesat.core.errors.NotApplicable` is raised.

        ``permutation`` has each route's microbatches in the order in which they enter; by default
        that of their numbers. Whether the problem's ``order`` allows it, the checker says.
        """
        if not (self.graphs or problem.chains_only):
            raise NotApplicable(more_than_chains(problem))
        entering = problem if permutation is None else permuted(problem, permutation)
        built_for = typical_problem(entering) if self.equal else entering
        arguments = (built_for, give_up) if self.slow else (built_for,)
        schedule = self.build(*arguments)
        if permutation is None and built_for is problem:
            return schedule
        order = schedule.order
        if permutation is not None:
            order = relabelled(problem, order, permutation)
        return time_order(problem, order, source=schedule.source)


BuildT = TypeVar("BuildT", Build, SlowBuild)


def published(
    name: str,
    *,
    placement: Where,
    source: str,
    splits: bool = False,
    pairs: bool = False,
    slow: bool = False,
    equal: bool = False,
    graphs: bool = False,
) -> Callable[[BuildT], Published]:
    """Decorate a function with what is known about it; see :class:`Published`."""

    def decorate(build: BuildT) -> Published:
        entry = Published(name, build, placement, splits, pairs, source, slow, equal, graphs)
        object.__setattr__(entry, "__doc__", build.__doc__)
        return entry

    return decorate
