"""Two routes that meet head-on: Chimera, DualPipe, and DualPipeV, which folds them into a V."""

from __future__ import annotations

from pipesat.core.errors import require_applicable
from pipesat.heuristics.registry import published
from pipesat.heuristics.shared.rows import RowWriter, full_backward, schedule_by_rank
from pipesat.problem.geometry import ranks_of
from pipesat.problem.ops import Item, Op
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Schedule


@published("chimera", placement="bidirectional", source="Li and Hoefler, SC 2021")
def chimera(problem: Problem) -> Schedule:
    """1F1B on both of two opposite routes, merged without conflicts.

    Units of p microbatches, p / 2 on each route, are concatenated; a unit's first forwards fill
    the gaps between the last backwards of the one before ("direct concatenation", section 3.5).
    In slots of one op each, microbatch j of a unit runs F on position s of its route in slot
    ``s + 2 j`` and BW in slot ``2 p - 1 - s + 2 j``, and a unit begins ``2 p`` slots after the
    one before. For even p no two ops of a rank share a slot. A unit of equal F and BW takes
    ``3 p - 2`` slots, of which ``p - 2`` are bubble. The last unit may lack microbatches.

    Raises
    ------
    NotApplicable
        Unless two routes pass an even number of devices in opposite directions.
    """
    ranks = ranks_of(problem, "bidirectional")
    p = len(ranks)
    require_applicable(p % 2 == 0, "needs an even number of devices")

    def row(rank: int) -> list[Item]:
        slots: list[tuple[int, list[Item]]] = []
        for stage, position in zip(ranks.stages[rank], (rank, p - 1 - rank), strict=True):
            for microbatch in range(problem.microbatches[stage]):
                unit, number = divmod(microbatch, p // 2)
                begin = 2 * p * unit + 2 * number
                slots.append((begin + position, [Op(stage, "F", microbatch)]))
                backward = full_backward(problem, stage, microbatch)
                slots.append((begin + 2 * p - 1 - position, backward))
        return [item for _, items in sorted(slots) for item in items]

    return schedule_by_rank(problem, ranks, row, "chimera")


_SOURCE = "DeepSeek-AI, DeepSeek-V3 Technical Report, 2024"


@published("dualpipe", placement="bidirectional", splits=True, pairs=True, source=_SOURCE)
def dualpipe(problem: Problem) -> Schedule:
    """Two routes that meet head-on; forwards of one overlap backwards of the other.

    On uniform stages without delays, with h = p / 2 > 1 and pairs that take P, the bubble is
    ``(h - 1)(P + F - 2 W) - (h - 2)(F + BW - P)`` where ``W <= B`` and ``(h - 1)(B - F) <= F``:
    the report's ``(h - 1)(P + BW - 3 W)`` where F = B and ``P = F + BW``, as in its figure. Every
    rank holds at most p + 1 activations. Where pairs are not allowed, their members run in turn,
    the forward first.

    Raises
    ------
    NotApplicable
        Unless two routes with the same number of microbatches, at least p, pass an even number p
        of devices in opposite directions.
    """
    ranks = ranks_of(problem, "bidirectional")
    p = len(ranks)
    require_applicable(p % 2 == 0, "needs an even number of devices")
    n, other = (route.microbatches for route in problem.routes)
    require_applicable(n == other, "needs the same number of microbatches on both routes")
    require_applicable(n >= p, f"needs at least {p} microbatches on each route")

    def row(rank: int) -> list[Item]:
        near, far = ranks.stages[rank] if rank < p // 2 else ranks.stages[rank][::-1]
        return _eight_steps(problem, (near, far), min(rank, p - 1 - rank), p // 2, n)

    return schedule_by_rank(problem, ranks, row, "dualpipe")


@published("dualpipev", placement="vee", splits=True, pairs=True, source=_SOURCE)
def dualpipev(problem: Problem) -> Schedule:
    """DualPipe cut in half and folded: one route in a V, each rank in the part of two.

    Rank d's order is that of rank d of a DualPipe on 2p ranks, its second chunk in the place of
    the opposite route; so the bubble is DualPipe's with h = p, and every rank holds at most
    2p + 1 chunk activations. The order is PyTorch's ``ScheduleDualPipeV``.

    Raises
    ------
    NotApplicable
        Unless every device holds two stages in a V, and there are at least 2p microbatches.
    """
    ranks = ranks_of(problem, "vee")
    p, m = len(ranks), problem.routes[0].microbatches
    require_applicable(m >= 2 * p, f"needs at least {2 * p} microbatches")

    def row(rank: int) -> list[Item]:
        return _eight_steps(problem, ranks.stages[rank], rank, p, m)

    return schedule_by_rank(problem, ranks, row, "dualpipev")


def _eight_steps(
    problem: Problem, stages: tuple[int, ...], rank: int, half: int, n: int
) -> list[Item]:
    """Row of a rank, ``rank`` counted from the nearer end of a pipeline of ``2 half`` ranks.

    Chunk 0 is the stage that the rank is the nearer to the input of, chunk 1 the opposite one;
    each has n microbatches.
    """
    writer = RowWriter(problem, stages)
    before_middle = half - rank - 1
    writer.write("F0", 2 * before_middle)
    writer.write("F0 F1", rank + 1)
    writer.write("B1 W F1", before_middle)
    # 4, the steady state; nothing to gain yet from a first pair that waits for both inputs
    writer.write("F0+BW1 F1+BW0" if before_middle else "F0 BW1 F1+BW0")
    writer.write("F0+BW1 F1+BW0", n - 2 * half + rank)
    writer.write("BW1 F1+BW0", before_middle)
    for number in range(2 * (rank + 1)):  # 6, the second half without W
        writer.write(f"{'B' if number > rank else 'BW'}{1 - number % 2}")
    writer.write("W B0", before_middle)
    writer.write("W", rank + 1)
    return writer.items
