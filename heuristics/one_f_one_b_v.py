"""1F1B-V: two chunks per rank in a V, full backwards, two thirds of 1F1B's memory.

A building block (:mod:`pipesat.heuristics.shared.building_blocks`) whose backwards are full: F
takes one slot, BW two, and a microbatch enters every six. Forwards pass a rank per slot. Backwards
pass a rank every two slots, and wait three more after every third rank: so no two ops of a rank
meet modulo six.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from typing import Final

from pipesat.core.errors import NotApplicable
from pipesat.heuristics.registry import GiveUp, published, unless_given_up
from pipesat.heuristics.shared.building_blocks import Slots, v_shape_of
from pipesat.kernels.arrays import Coded
from pipesat.problem.geometry import ranks_of
from pipesat.problem.problem import Problem
from pipesat.schedule.arrays_of import arrays_of
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.timing import time_codes

NAME: Final = "1f1b-v"
AUTO: Final = f"{NAME}-auto"
_WAIT: Final = 3


@published(NAME, placement="vee", source="Qi et al., NeurIPS 2024")
def one_f_one_b_v(problem: Problem) -> Schedule:
    """Two chunks per rank in a V with full backwards; a rank holds at most ``2 (2p // 3 + 1)``.

    Made for BW = 2 F; both ends are filled within the peak of the repeated block.

    Raises
    ------
    NotApplicable
        Unless every device holds two stages in a V.
    """
    return pulled_ahead(problem, 0)


@published(AUTO, placement="vee", slow=True, source="OLMo-core 3.0, 2026")
def one_f_one_b_v_auto(problem: Problem, give_up: GiveUp) -> Schedule:
    """The shortest 1F1B-V that fits, of those with 0, 1, 2, ... up to 2p more chunks per rank.

    Each takes memory, so the first that does not fit is the last one tried.

    Raises
    ------
    NotApplicable
        Unless every device holds two stages in a V; if none fits into memory; or if told to give
        up.
    """
    more, _ = _shortest(problem, give_up)
    return time_codes(problem, _codes(problem, more), source=AUTO)


def _shortest(problem: Problem, give_up: GiveUp) -> tuple[int, int]:
    """How many more chunks are best, and the makespan then."""
    from pipesat.kernels.arrays import UNLIMITED  # importing pipesat stays fast
    from pipesat.kernels.timing import makespan_of, over_slack

    p = len(ranks_of(problem, "vee"))
    arrays = arrays_of(problem)
    best, value = None, UNLIMITED
    for more in range(2 * p + 1):
        unless_given_up(give_up)
        codes = _codes(problem, more)
        if over_slack(arrays, codes) >= 0:
            break
        if (makespan := makespan_of(arrays, codes)) < value:
            best, value = more, makespan
    if best is None:
        raise NotApplicable(f"no {NAME} fits into memory")
    return best, value


def least_extra(problem: Problem) -> list[int]:
    """How many more chunks each rank needs for the shortest 1F1B-V that fits, rank by rank.

    Raises
    ------
    NotApplicable
        As :func:`one_f_one_b_v_auto`.
    """
    from pipesat.kernels.timing import makespan_of, over_slack

    most, value = _shortest(problem, lambda: False)
    arrays, extra = arrays_of(problem), [most] * len(problem.devices)

    def enough(rank: int, more: int) -> bool:
        codes = _codes(problem, [*extra[:rank], more, *extra[rank + 1 :]])
        return over_slack(arrays, codes) < 0 and makespan_of(arrays, codes) <= value

    for rank in range(len(extra)):
        extra[rank] = bisect_left(range(most), True, key=partial(enough, rank))
    return extra


def pulled_ahead(problem: Problem, more: int | Sequence[int]) -> Schedule:
    """1F1B-V whose forwards may come early until a rank holds the block's peak and ``more`` chunks.

    One number for all ranks, or one for each along the V.

    Raises
    ------
    NotApplicable
        Unless every device holds two stages in a V.
    """
    return time_codes(problem, _codes(problem, more), NAME)


def _codes(problem: Problem, more: int | Sequence[int]) -> Coded:
    import numpy as np

    from pipesat.kernels.blocks import pulled_order

    ranks = ranks_of(problem, "vee")
    block = np.array(whole_block(len(ranks)), np.int64)
    allowed = np.full(len(ranks), more, np.int64)
    return pulled_order(v_shape_of(problem, ranks, whole=True), block, allowed)


def whole_block(p: int) -> list[Slots]:
    """Last slots of a microbatch's F0, F1, B1 and B0 on every rank.

    Where p is a multiple of 3, the turn waits as well.
    """
    ends, slot = [], 2 * p + 1 + _WAIT * (p % 3 == 0)
    for hop in range(2 * p):
        ends.append(slot)
        slot += 2 + _WAIT * ((hop - 1 - p) % 3 == 0)
    return [(d, 2 * p - 1 - d, ends[d], ends[2 * p - 1 - d]) for d in range(p)]
