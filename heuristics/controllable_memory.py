"""V schedules for less memory, or for any.

V-Half, V-Min and the search behind ``v-auto``: Qi et al., "Pipeline Parallelism with Controllable
Memory", NeurIPS 2024, section 3 and appendix A.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, permutations, product
from typing import Final, TypeAlias

from pipesat.core.arrays import Ints
from pipesat.core.errors import NotApplicable
from pipesat.heuristics.registry import GiveUp, published, unless_given_up
from pipesat.heuristics.shared.building_blocks import Slots, order_by_block, v_shape_of
from pipesat.heuristics.zero_bubble import zb_v
from pipesat.kernels.arrays import Coded
from pipesat.problem.geometry import Ranks, ranks_of
from pipesat.problem.problem import Problem
from pipesat.schedule.arrays_of import arrays_of, coded
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.timing import time_codes


@published("v-half", placement="vee", splits=True, source="Qi et al., NeurIPS 2024")
def v_half(problem: Problem) -> Schedule:
    """Two chunks per rank in a V at about half of 1F1B's memory: ``2 ((p + 2) // 2)`` chunks.

    The order is made for equal F, B and W; a steady state without bubbles survives other times,
    because the block leaves two slots for the way out of either chunk's F or B.

    Raises
    ------
    NotApplicable
        Unless every device holds two stages in a V.
    """
    ranks = ranks_of(problem, "vee")
    codes = order_by_block(problem, ranks, half_block(len(ranks)))
    return time_codes(problem, codes, source="v-half")


def half_block(p: int) -> list[Slots]:
    """Two slots per rank on the way to a turning point of chunk 0's F and chunk 1's B, else one.

    On even p both F's of a rank would meet both B's in one slot modulo 6 without three more
    between the last F and the first B.
    """
    turn = 0 if p % 2 else 3
    return [
        (2 * rank, 3 * p - rank - 2, 3 * p + turn - 1 + 2 * rank, 6 * p + turn - rank - 2)
        for rank in range(p)
    ]


@published("v-min", placement="vee", splits=True, source="Qi et al., NeurIPS 2024")
def v_min(problem: Problem) -> Schedule:
    """Two chunks per rank in a V at about a third of 1F1B's memory: ``2 ((p + 4) // 3)`` chunks.

    A microbatch passes every rank in one slot, so its lifespan is the least there is. The order is
    made for equal F, B and W; where they differ, the steady state has bubbles too.

    Raises
    ------
    NotApplicable
        Unless every device holds two stages in a V.
    """
    ranks = ranks_of(problem, "vee")
    codes = order_by_block(problem, ranks, least_block(len(ranks)))
    return time_codes(problem, codes, source="v-min")


def least_block(p: int) -> list[Slots]:
    """One slot per rank all the way.

    Where p is a multiple of 3, a rank's F's would meet its B's in one slot modulo 6 without two
    more between the last F and the first B.
    """
    turn = 2 if p % 3 == 0 else 0
    return [
        (rank, 2 * p - rank - 1, 2 * p + turn + rank, 4 * p + turn - rank - 1) for rank in range(p)
    ]


Hops: TypeAlias = tuple[int, int, int, int]
"""Slots from one rank to the next of F0, F1, B1 and B0."""

_HOPS: Final[tuple[Hops, ...]] = (
    (1, 1, 1, 1),  # V-Min's
    (2, 1, 2, 1),  # V-Half's
    (1, 2, 1, 2),
    (2, 2, 2, 2),
    (3, 3, 3, 3),
    (4, 2, 4, 2),
    (2, 4, 2, 4),
)
_TURNS: Final = sorted(product(range(4), range(6), range(4)), key=sum)
_PATIENCE: Final = (1.0, 0.25)
_MOST_OPS: Final = 10_000_000  # of all candidates together: a few seconds
_FULLEST: Final = 1.1  # times the slack: reordering may take less than the estimate


@published(
    "v-auto",
    placement="vee",
    source="after Qi et al., NeurIPS 2024",
    splits=True,
    slow=True,
    equal=True,
)
def v_auto(problem: Problem, give_up: GiveUp) -> Schedule:
    """The best of ZB-V and many building blocks that keeps within memory; refitted to the times.

    A block passes the ranks in some number of slots per hop, and from a rank on in another; the
    fullest that memory allows are tried first. Each order is tried as it is, and refitted
    (:mod:`pipesat.kernels.refitting`). A device without a capacity may hold what ZB-V holds, p
    activations of either chunk.

    Raises
    ------
    NotApplicable
        Unless every device holds two stages in a V; if none of the orders fits into memory; or if
        told to give up.
    """
    import numpy as np  # importing pipesat stays fast

    from pipesat.kernels.arrays import UNLIMITED
    from pipesat.kernels.refitting import refitted
    from pipesat.kernels.timing import makespan_of, over_slack

    ranks = ranks_of(problem, "vee")
    slack = _slack(problem, ranks)
    arrays = arrays_of(problem)._replace(slack=np.array(slack, np.int64))
    best, value = None, UNLIMITED
    for order in _orders(problem, ranks, slack):
        unless_given_up(give_up)
        if over_slack(arrays, order) < 0 and 0 <= (makespan := makespan_of(arrays, order)) < value:
            best, value = order, makespan
        for patience in _PATIENCE:
            changed = refitted(arrays, order, patience)
            if changed.fits and changed.end < value:
                best, value = changed.order, changed.end
    if best is None:
        raise NotApplicable("no building block fits into memory")
    return time_codes(problem, best, source="v-auto")


def _orders(problem: Problem, ranks: Ranks, slack: Sequence[int]) -> Iterator[Coded]:
    """ZB-V's, and those of blocks."""
    from pipesat.kernels.blocks import block_order

    yield coded(problem, zb_v(problem).order)[1]
    v_shape = v_shape_of(problem, ranks, whole=False)
    for block in islice(blocks(problem, ranks, slack), 1 + _MOST_OPS // problem.op_count):
        yield block_order(v_shape, block)


def _slack(problem: Problem, ranks: Ranks) -> list[int]:
    """Per device; without a capacity what ZB-V takes."""
    slack = []
    for device, stages in zip(problem.devices, problem.stages_on, strict=True):
        chunks = [problem.stages[s] for s in stages]
        both = sum(max(chunk.held_after_F, chunk.held_after_B) for chunk in chunks)
        slack.append(len(ranks) * both if device.slack is None else device.slack)
    return slack


def blocks(problem: Problem, ranks: Ranks, slack: Sequence[int]) -> Iterator[Ints]:
    """Yield slots by rank: of blocks without a change of pace, then with one, the fullest first."""
    import numpy as np

    from pipesat.kernels.blocks import PERIOD, without_conflicts

    held = np.array([[problem.stages[s].held_after_F for s in own] for own in ranks.stages])
    slacks = np.maximum([slack[device] for device in ranks.device], 1)
    turns, hops, p = np.array(_TURNS), np.array(_HOPS), len(ranks)
    steady = [(pace, pace, p) for pace in range(len(_HOPS))]
    mixed = [
        (*paces, cut) for paces in permutations(range(len(_HOPS)), 2) for cut in range(1, p - 1)
    ]
    seen: set[bytes] = set()
    for family in (steady, mixed):
        ranking: list[tuple[float, list[list[int]]]] = []
        for near, far, cut in family:
            slots = without_conflicts(hops[[near if d < cut else far for d in range(p - 1)]], turns)
            if len(slots) and slots.tobytes() not in seen:
                seen.add(slots.tobytes())
                lifespans = slots[:, :1:-1] - slots[:, :2] + 1  # of chunk 0 and of chunk 1
                fullness = float(((lifespans * held).sum(axis=1) / PERIOD / slacks).max())
                if fullness <= _FULLEST:
                    ranking.append((abs(1 - fullness), slots.tolist()))
        for _, block in sorted(ranking):
            yield np.array(block)
