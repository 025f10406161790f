"""How hand-written schedules are written down: rows of items per rank, then timed.

Most have the shape that 1F1B gave them: warm-up, one forward and one backward in turn, rest. A
*pass* is a (stage, microbatch). Whatever a rank's forwards and backwards are, one stage's or those
of several chunks in groups, its row is put together from two sequences of passes (:class:`Rank`).
Others are written op by op (:class:`RowWriter`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain, zip_longest
from typing import NamedTuple, TypeAlias

from pipesat.problem.geometry import Ranks, ranks_of
from pipesat.problem.ops import Item, Op, Pair
from pipesat.problem.problem import Problem
from pipesat.problem.rules import in_order, pair_time
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.timing import time_order

Pass: TypeAlias = tuple[int, int]
"""(stage, microbatch)."""


def schedule_by_rank(
    problem: Problem, ranks: Ranks, row: Callable[[int], list[Item]], source: str
) -> Schedule:
    """Time the order whose rank d runs ``row(d)``."""
    rows = {device: tuple(row(rank)) for rank, device in enumerate(ranks.device)}
    order = tuple(rows.get(device, ()) for device in range(len(problem.devices)))
    return time_order(problem, order, source=source)


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


class Rank(NamedTuple):
    """A rank's passes in order, and how many ranks lie before and after it.

    ``deep`` forwards let the first microbatches reach the rank's last stage: none on a chain.
    """

    problem: Problem
    forwards: Sequence[Pass]
    backwards: Sequence[Pass]
    before: int
    after: int
    deep: int = 0

    def warm_up(self, per_hop: int, extra: int = 0) -> int:
        """Forwards before the steady state: ``deep + per_hop * after + extra``, or all.

        The second part covers the way to the last rank and back.
        """
        return min(self.deep + per_hop * self.after + extra, len(self.forwards))

    def whole(self, warm_up: int) -> list[Item]:
        """``warm_up`` forwards, then F and BW in turn, then the other BWs."""
        return self._in_turn(warm_up, [full_backward(self.problem, *at) for at in self.backwards])

    def split(self, warm_up: int, delay: int) -> list[Item]:
        """B and W apart: the k-th W follows the (k + ``delay``)-th B, the last ones the last B.

        Where a stage may not split, BW stands for B.
        """
        split = [split_backward(self.problem, *at) for at in self.backwards]
        rows = [[*before] for before, _ in split]
        for number, (_, weights) in enumerate(split):
            rows[min(number + delay, len(rows) - 1)] += weights
        return self._in_turn(warm_up, rows)

    def in_pairs(self, warm_up: int) -> list[Item]:
        """As :meth:`whole`, each forward of the steady state overlapped with its backward."""
        items: list[Item] = [*self._ops[:warm_up]]
        for forward, (stage, microbatch) in zip(self._ops[warm_up:], self.backwards, strict=False):
            items += overlapped(self.problem, forward, stage, microbatch)
        for at in self.backwards[len(self.forwards) - warm_up :]:
            items += full_backward(self.problem, *at)
        return items

    def _in_turn(self, warm_up: int, backwards: Sequence[Sequence[Item]]) -> list[Item]:
        """``backwards[k]`` are the items that stand where the k-th backward does."""
        steady = ([op] for op in self._ops[warm_up:])
        turns = chain.from_iterable(zip_longest(steady, backwards, fillvalue=()))
        return [*self._ops[:warm_up], *chain.from_iterable(turns)]

    @property
    def _ops(self) -> list[Op]:
        return [Op(stage, "F", microbatch) for stage, microbatch in self.forwards]


def chain_schedule(problem: Problem, source: str, row: Callable[[Rank], list[Item]]) -> Schedule:
    """Time the order whose ranks run ``row(rank)`` on a chain, microbatches by number.

    Raises
    ------
    NotApplicable
        Unless every device holds exactly one stage of one route.
    """
    ranks = ranks_of(problem, "chain")

    def row_of(rank: int) -> list[Item]:
        (stage,) = ranks.stages[rank]
        passes = [(stage, microbatch) for microbatch in range(problem.microbatches[stage])]
        return row(Rank(problem, passes, passes, rank, len(ranks) - 1 - rank))

    return schedule_by_rank(problem, ranks, row_of, source)


class RowWriter:
    """A row in the making; chunks are indices into ``stages``.

    Every forward, and every backward, takes the next microbatch of its chunk. Microbatches that
    the problem does not have are left out, so a schedule that needs some minimum can be written
    for that many and is cut to those that exist.
    """

    def __init__(self, problem: Problem, stages: Sequence[int]) -> None:
        self.items: list[Item] = []
        self._problem, self._stages = problem, stages
        self._taken: Counter[tuple[str, int]] = Counter()
        self._due: list[tuple[str, list[Item]]] = []  # W's that wait, with their chunks

    def write(self, ops: str, times: int = 1) -> None:
        """Write ops so many times, such as ``F0 B1 W1``: kinds, each with its chunk.

        ``W1`` is the chunk's oldest W that is due, ``W`` the oldest of all; if there is none,
        nothing. ``F0+BW1`` is a pair, or its members in turn where pairs are not allowed. Where a
        stage may not split, or not fuse, BW stands for B, or B and W for BW.
        """
        for word in ops.split() * times:
            if word[0] == "W":
                self._weight(word[1:])
            elif "+" in word:
                forward, backward = map(self._next, word.split("+"))
                self.items += overlapped(self._problem, Op(forward[0], "F", forward[1]), *backward)
            else:
                self._alone(word)

    def _alone(self, word: str) -> None:
        stage, microbatch = self._next(word)
        now: list[Item] = [Op(stage, "F", microbatch)]
        later: list[Item] = []
        if word[:-1] == "B":
            now, later = split_backward(self._problem, stage, microbatch)
        elif word[0] == "B":
            now = full_backward(self._problem, stage, microbatch)
        if microbatch >= self._problem.microbatches[stage]:
            now, later = [], []
        self.items += now
        if word[:-1] == "B":
            self._due.append((word[-1], later))

    def _weight(self, chunk: str) -> None:
        due = (n for n, (own, _) in enumerate(self._due) if chunk in ("", own))
        if (first := next(due, None)) is not None:
            self.items += self._due.pop(first)[1]

    def _next(self, word: str) -> Pass:
        stage = self._stages[int(word[-1])]
        number = self._taken[word[0], stage]
        self._taken[word[0], stage] += 1
        return stage, number
