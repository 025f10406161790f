"""1F1B over the slices of sequences, on chains and loops, and over routes that are graphs.

Forwards run by number. Backwards run sequence after sequence, the last slice of each first. The
first backward of a device needs all slices of its sequence, so a warm-up has ``n - 1`` forwards
more than 1F1B's, n being the slices of a sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipesat.core.errors import Deadlock, NotApplicable, require_applicable
from pipesat.heuristics.graphs import depths
from pipesat.heuristics.interleaved import chunked_loop_of
from pipesat.heuristics.registry import published
from pipesat.heuristics.shared.rows import Pass, Rank, schedule_by_rank
from pipesat.problem.geometry import Ranks, ranks_of
from pipesat.problem.ops import Item
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Schedule


def _rank_of(problem: Problem, stages: Sequence[int], before: int, after: int, group: int) -> Rank:
    """A rank's forwards and backwards in groups of passes, chunk after chunk in each."""
    m, slices = problem.microbatches[stages[0]], problem.slices_of[stages[0]]
    last_first = [first + at for first in range(0, m, slices) for at in reversed(range(slices))]

    def passes(chunks: Sequence[int], numbers: Sequence[int]) -> list[Pass]:
        groups = (numbers[first : first + group] for first in range(0, m, group))
        return [(chunk, number) for own in groups for chunk in chunks for number in own]

    own = [stage for stage in reversed(stages) if problem.stages[stage].has_backward]
    forwards, backwards = passes(stages, range(m)), passes(own, last_first)
    deep = forwards.index((stages[-1], slices - 1))
    return Rank(problem, forwards, backwards, before, after, deep)


def _on_chain(problem: Problem, per_hop: int, source: str) -> Schedule:
    ranks = ranks_of(problem, "chain")
    require_applicable(problem.routes[0].slices > 1, "needs sequences in slices")

    def row(rank: int) -> list[Item]:
        own = _rank_of(problem, ranks.stages[rank], rank, len(ranks) - 1 - rank, 1)
        return own.whole(own.warm_up(per_hop))

    return schedule_by_rank(problem, ranks, row, source)


@published("seq1f1b", placement="chain", source="Sun et al., NAACL 2025", graphs=True)
def seq1f1b(problem: Problem) -> Schedule:
    """``min(p - 1 - d + n - 1, m)`` warm-up forwards of slices on rank d, then F and BW in turn.

    Holds ``min(p - d + n - 1, m)`` slices on rank d. Makespan ``(m + p - 1)(F + BW)`` on a uniform
    chain without delays, m being all slices and F, BW the times of one.

    Raises
    ------
    NotApplicable
        Unless every device holds exactly one stage of one chain, and sequences have slices.
    """
    return _on_chain(problem, 1, "seq1f1b")


@published("slimpipe", placement="chain", source="Li et al., SlimPipe, 2025", graphs=True)
def slimpipe(problem: Problem) -> Schedule:
    """As ``seq1f1b`` with two more forwards per rank that follows: delays hide behind them.

    Holds ``min(n + 2 (p - 1 - d), m)`` slices on rank d, the paper's ``1 + 2 (p - 1) / n`` of a
    sequence on rank 0. Its exchange of attention's load between ranks is no matter of the order.

    Raises
    ------
    NotApplicable
        As ``seq1f1b``.
    """
    return _on_chain(problem, 2, "slimpipe")


@published("seq1f1b-interleaved", placement="loop", source="Sun et al., NAACL 2025", graphs=True)
def seq1f1b_interleaved(problem: Problem) -> Schedule:
    """Interleaved 1F1B whose groups are of slices: the larger of p and n pass a chunk at a time.

    Raises
    ------
    NotApplicable
        Unless stages lie in a loop of several per device, and sequences have slices.
    """
    slices = problem.routes[0].slices
    require_applicable(slices > 1, "needs sequences in slices")
    ranks = chunked_loop_of(problem)
    p = len(ranks)
    group = slices * -(-p // slices)

    def row(rank: int) -> list[Item]:
        own = _rank_of(problem, ranks.stages[rank], rank, p - 1 - rank, group)
        return own.whole(own.warm_up(2))

    return _unless_stuck(lambda: schedule_by_rank(problem, ranks, row, "seq1f1b-interleaved"))


@published("1f1b-by-depth", placement="any", source="GraphPipe, ASPLOS 2025", graphs=True)
def one_f_one_b_by_depth(problem: Problem) -> Schedule:
    """1F1B on a graph: a stage warms up as 1F1B's would with as many stages behind it.

    That is the number of stages on the longest way from there to a last stage, less one. A stage
    without a backward runs its forwards.

    Raises
    ------
    NotApplicable
        If the problem is a chain of stages with backwards, or a device holds several stages.
    """
    whole = all(stage.has_backward for stage in problem.stages)
    require_applicable(
        not whole or any(route.graph is not None for route in problem.routes),
        "needs a graph, or stages without a backward",
    )
    require_applicable(
        all(len(stages) <= 1 for stages in problem.stages_on), "needs at most one stage per device"
    )
    ranks = Ranks(tuple(problem.busy), tuple(problem.busy.values()))
    depth = depths(problem)

    def row(rank: int) -> list[Item]:
        (stage,) = ranks.stages[rank]
        own = _rank_of(problem, (stage,), 0, depth[stage] - 1, 1)
        return own.whole(own.warm_up(1))

    return _unless_stuck(lambda: schedule_by_rank(problem, ranks, row, "1f1b-by-depth"))


def _unless_stuck(build: Callable[[], Schedule]) -> Schedule:
    try:
        return build()
    except Deadlock:
        raise NotApplicable("its devices would wait for each other") from None
