"""How hand-written schedules are written down: rows of items per rank, then timed.

Most have the shape that 1F1B gave them: warm-up, one forward and one backward in turn, rest. A
*pass* is a (stage, microbatch). Whatever a rank's forwards and backwards are, one stage's or those
of several chunks in groups, its row is put together from two sequences of passes. Others are
written op by op.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from pipesat.core.ops import Item, Op, Pair
from pipesat.core.problem import Problem
from pipesat.core.rules import in_order, pair_time
from pipesat.core.schedule import Schedule
from pipesat.core.timing import time_order
from pipesat.placement.geometry import Ranks, chain_of


def schedule_by_rank(
    problem: Problem, ranks: Ranks, row: Callable[[int], list[Item]], source: str
) -> Schedule:
    """Time the order whose rank d runs ``row(d)``."""
    rows: list[tuple[Item, ...]] = [() for _ in problem.devices]
    for rank, device in enumerate(ranks.device):
        rows[device] = tuple(row(rank))
    return time_order(problem, tuple(rows), source=source)


def full_backward(problem: Problem, stage: int, microbatch: int) -> list[Item]:
    """BW, or B and W in a row where the stage may not fuse them."""
    if problem.stages[stage].may_fuse:
        return [Op(stage, "BW", microbatch)]
    return [Op(stage, "B", microbatch), Op(stage, "W", microbatch)]


def split_backward(problem: Problem, stage: int, microbatch: int) -> tuple[list[Item], list[Item]]:
    """(ops where the schedule has B, ops where it has W); BW and nothing if it may not split."""
    if problem.stages[stage].may_split:
        return [Op(stage, "B", microbatch)], [Op(stage, "W", microbatch)]
    return [Op(stage, "BW", microbatch)], []


def overlapped(problem: Problem, forward: Op, stage: int, microbatch: int) -> list[Item]:
    """A forward and the whole backward of (stage, microbatch) as a pair.

    Where the problem does not allow this pair, or the stage may not fuse its backward: the two, one
    after the other.
    """
    backward = Op(stage, "BW", microbatch)
    if problem.stages[stage].may_fuse and pair_time(problem, forward, backward) is not None:
        return [in_order(problem, Pair(forward, backward))]
    return [forward, *full_backward(problem, stage, microbatch)]


Pass: TypeAlias = tuple[int, int]
"""(stage, microbatch)."""


def alternate(
    forwards: Sequence[Pass], backwards: Sequence[Sequence[Item]], warm_up: int
) -> list[Item]:
    """``warm_up`` forwards, then a forward and a backward in turn, then the other backwards.

    ``backwards[k]`` are the items that stand where the k-th backward does.
    """
    ops = [Op(stage, "F", microbatch) for stage, microbatch in forwards]
    items: list[Item] = [*ops[:warm_up]]
    for number, backward in enumerate(backwards):
        items += ops[warm_up + number : warm_up + number + 1]
        items += backward
    return items


def alternate_in_pairs(
    problem: Problem, forwards: Sequence[Pass], backwards: Sequence[Pass], warm_up: int
) -> list[Item]:
    """As :func:`alternate`, each forward of the steady state overlapped with its backward."""
    ops = [Op(stage, "F", microbatch) for stage, microbatch in forwards]
    steady = len(ops) - warm_up
    items: list[Item] = [*ops[:warm_up]]
    for forward, (stage, microbatch) in zip(ops[warm_up:], backwards, strict=False):
        items += overlapped(problem, forward, stage, microbatch)
    for stage, microbatch in backwards[steady:]:
        items += full_backward(problem, stage, microbatch)
    return items


def whole(problem: Problem, backwards: Sequence[Pass]) -> list[list[Item]]:
    """Every backward as BW, or as B and W in a row where its stage may not fuse them."""
    return [full_backward(problem, stage, microbatch) for stage, microbatch in backwards]


def with_late_weights(problem: Problem, backwards: Sequence[Pass], delay: int) -> list[list[Item]]:
    """B and W apart: the k-th W follows the (k + ``delay``)-th B, the last ones follow the last B.

    Where a stage may not split, BW stands for B.
    """
    split = [split_backward(problem, stage, microbatch) for stage, microbatch in backwards]
    rows = [list(before) for before, _ in split]
    for number, (_, weights) in enumerate(split):
        rows[min(number + delay, len(rows) - 1)] += weights
    return rows


def chain_schedule(
    problem: Problem, source: str, row: Callable[[list[Pass], int, int], list[Item]]
) -> Schedule:
    """Time the order whose rank runs ``row(passes, before, after)`` on a chain.

    ``passes`` are the rank's, in microbatch order; so many ranks lie before and after it.

    Raises
    ------
    NotApplicable
        Unless every device holds exactly one stage of one route.
    """
    ranks = chain_of(problem)

    def row_of(rank: int) -> list[Item]:
        (stage,) = ranks.stages[rank]
        passes = [(stage, microbatch) for microbatch in range(problem.microbatches[stage])]
        return row(passes, rank, len(ranks) - 1 - rank)

    return schedule_by_rank(problem, ranks, row_of, source)


class RowWriter:
    """A row in the making; chunks are indices into ``stages``.

    Every forward, and every backward, takes the next microbatch of its chunk. Microbatches that
    the problem does not have are left out, so a schedule that needs some minimum can be written
    for that many and is cut to those that exist.
    """

    def __init__(self, problem: Problem, stages: tuple[int, ...]) -> None:
        self.items: list[Item] = []
        self._problem, self._stages = problem, stages
        self._forwards: Counter[int] = Counter()
        self._backwards: Counter[int] = Counter()
        self._due: list[deque[list[Item]]] = [deque() for _ in stages]
        self._oldest: deque[int] = deque()  # chunks in the order in which their W became due

    def forward(self, chunk: int) -> None:
        """F."""
        op = self._next_forward(chunk)
        if self._exists(op):
            self.items.append(op)

    def backward_input(self, chunk: int) -> None:
        """B, its W due from now on; BW where the stage may not split."""
        stage, microbatch = self._next_backward(chunk)
        now, later = split_backward(self._problem, stage, microbatch)
        if microbatch < self._problem.microbatches[stage]:
            self.items += now
        else:
            later = []
        self._due[chunk].append(later)
        self._oldest.append(chunk)

    def backward(self, chunk: int, *, split: bool = False) -> None:
        """The whole backward, or B alone."""
        if split:
            self.backward_input(chunk)
            return
        stage, microbatch = self._next_backward(chunk)
        if microbatch < self._problem.microbatches[stage]:
            self.items += full_backward(self._problem, stage, microbatch)

    def weight(self, chunk: int) -> None:
        """W: the chunk's oldest due one, if any."""
        if self._due[chunk]:
            self._oldest.remove(chunk)
            self.items += self._due[chunk].popleft()

    def oldest_weight(self) -> None:
        """W: the oldest due one of all chunks, if any."""
        if self._oldest:
            self.items += self._due[self._oldest.popleft()].popleft()

    def pair(self, forward: int, backward: int) -> None:
        """An overlapped pair, or its two members in turn where pairs are not allowed."""
        op = self._next_forward(forward)
        stage, microbatch = self._next_backward(backward)
        self.items += overlapped(self._problem, op, stage, microbatch)

    def _next_forward(self, chunk: int) -> Op:
        microbatch = self._forwards[chunk]
        self._forwards[chunk] += 1
        return Op(self._stages[chunk], "F", microbatch)

    def _next_backward(self, chunk: int) -> tuple[int, int]:
        microbatch = self._backwards[chunk]
        self._backwards[chunk] += 1
        return self._stages[chunk], microbatch

    def _exists(self, op: Op) -> bool:
        return op.microbatch < self._problem.microbatches[op.stage]
