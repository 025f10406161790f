"""Writing a rank's row chunk by chunk, each op on the chunk's next microbatch."""

from __future__ import annotations

from collections import Counter, deque

from pipesat.core.ops import Item, Op
from pipesat.core.problem import Problem
from pipesat.heuristics.shared.rows import full_backward, overlapped, split_backward


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
