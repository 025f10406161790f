"""Which kinds of ops gain by running as a pair, and when a backward is worth fusing for it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations_with_replacement
from types import MappingProxyType
from typing import Final, TypeAlias

from pipesat.core.ops import PHASE_OF, Kind, Op, OpKind
from pipesat.core.problem import Problem
from pipesat.core.rules import duration, pair_time_of_kinds

Gains: TypeAlias = Mapping[tuple[OpKind, OpKind], int]
"""Times of the pairs of two kinds that gain something, in either order of the two."""

NO_GAINS: Final[Gains] = MappingProxyType({})


def gains(problem: Problem) -> Gains:
    """Return the times of all pairs that take less than their members in turn.

    No other pair is needed: its members in turn take no longer, end no later, and hold no more, as
    the first takes no less than it leaves behind. An op of a kind that its stage never runs has
    none. Where microbatches differ, these are the times of microbatches 0.
    """
    if problem.overlap is None:
        return NO_GAINS
    found: dict[tuple[OpKind, OpKind], int] = {}
    for stages in problem.stages_on:
        kinds = [(stage, kind) for stage in stages for kind in _kinds(problem, stage)]
        for one, other in combinations_with_replacement(kinds, 2):
            time = pair_time_of_kinds(problem, one, other)
            alone = sum(duration(problem, Op(*kind, 0)) for kind in (one, other))
            if time is not None and time < alone:
                found[one, other] = found[other, one] = time
    return found


def fusing_may_pay(problem: Problem, known: Gains, stage: int, kind: int = 0) -> bool:
    """Whether BW can ever be the better choice of a stage: by itself, or in a pair that gains.

    ``kind`` is the microbatch's class. Elsewhere B and then W in its place take no longer and hold
    no more.
    """
    data = problem.resulting(stage, 0, kind)
    return data.fusing_may_pay or (data.may_fuse and any(one == (stage, "BW") for one, _ in known))


def _kinds(problem: Problem, stage: int) -> list[Kind]:
    data = problem.stages[stage]
    unused = {"B", "W"} if not data.may_split else {"BW"} if not data.may_fuse else set()
    return [kind for kind in PHASE_OF if kind not in unused]
