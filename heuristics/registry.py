"""What is known about a hand-written schedule, beside the function that builds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pipesat.problem import Problem
from pipesat.schedule import Schedule

Placement: TypeAlias = Literal["one stage per device", "loop", "vee", "two routes", "any"]
"""Where a schedule needs its stages: see :mod:`pipesat.heuristics.placement`."""

Build: TypeAlias = Callable[[Problem], Schedule]


@dataclass(frozen=True)
class Published:
    """A schedule that users know by name. Call it with a problem to build it.

    Parameters
    ----------
    name
        What users type.
    build
        The function; it raises :class:`pipesat.errors.NotApplicable` with a reason where the
        schedule does not exist, and does not look at capacities unless its source does.
    placement
        Where it needs its stages.
    splits
        Whether it runs B and W apart where stages allow it.
    pairs
        Whether it runs overlapped pairs where the problem allows them.
    source
        The paper or program that it was published in.
    promises
        Names of the functions in :mod:`pipesat.closed_forms` that describe it.
    """

    name: str
    build: Build
    placement: Placement
    splits: bool
    pairs: bool
    source: str
    promises: tuple[str, ...]

    def __call__(self, problem: Problem) -> Schedule:
        """Build it, timed as early as possible, whether or not it fits into memory."""
        return self.build(problem)


def published(
    name: str,
    *,
    placement: Placement,
    source: str,
    splits: bool = False,
    pairs: bool = False,
    promises: tuple[str, ...] = (),
) -> Callable[[Build], Published]:
    """Decorate a function ``Problem -> Schedule`` with what is known about it."""

    def decorate(build: Build) -> Published:
        entry = Published(name, build, placement, splits, pairs, source, promises)
        object.__setattr__(entry, "__doc__", build.__doc__)
        return entry

    return decorate
