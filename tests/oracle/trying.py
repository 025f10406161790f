"""All schedules of a tiny problem, one after the other: what the exact model is held against.

Without modes, and with times of 1 or more, so that on a device memory depends on the order alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise, permutations, product
from typing import Any

from tests.oracle.reading import KEEP, KINDS, Op, Pipe

Rows = tuple[tuple[Op, ...], ...]
Turns = tuple[tuple[int, ...] | None, ...]


class Trying:
    """Every order of every device that keeps to memory and to the rule about microbatches."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.pipe = Pipe(document)
        self.amounts = {key: modes[KEEP] for key, modes in self.pipe.modes.items()}
        self.ops = [
            Op(s, kind, m)
            for (s, m), amounts in self.amounts.items()
            for kind in KINDS
            if kind in ("F", *(kind for way in amounts.ways for kind in way))
        ]
        self.waits = {op: self.pipe.waits(op) for op in self.ops}
        assert all(self.length(op) > 0 for op in self.ops)

    def length(self, op: Op) -> int:
        """Time of an op alone."""
        return self.amounts[op[::2]].time[op.kind]

    def turns(self) -> Iterator[Turns]:
        """Yield the orders of sequences that the rule allows, by route; ``None`` for any."""
        every: list[list[tuple[int, ...] | None]] = []
        for route in self.pipe.routes:
            numbers = tuple(range(len(route.sequences)))
            free = self.pipe.order == "free" or not route.listed
            given = [numbers] if self.pipe.order == "given" else [*permutations(numbers)]
            every.append([None] if free else [*given])
        yield from product(*every)

    def orders(self) -> Iterator[Rows]:
        """Yield rows of ops, once per permutation of microbatches; of a pair, one after another."""
        for turns in self.turns():
            yield from (rows for rows, _ in _Search(self, turns, None).leaves())

    def optimum(self, objective: str = "makespan") -> int | None:
        """Least makespan or span; ``None`` if nothing fits."""
        if objective == "span":
            assert not self.pipe.overlap
            return min(map(self.least_span, self.orders()), default=None)
        best: list[int] = []
        for turns in self.turns():
            for _ in _Search(self, turns, best).leaves():
                pass  # each is better than the last, and noted
        return best[0] if best else None

    def least_span(self, rows: Rows) -> int:
        """Least span of an order: the first for which starts exist, by relaxation."""
        there = {op for row in rows for op in row}
        arcs = [(x, y, self.length(x)) for row in rows for x, y in pairwise(row)]
        for op in there:
            arcs += [(x, op, self.length(x) + d) for x, d in self.waits[op] if x in there]

        def exist(span: int) -> bool:
            limits = [(row[-1], row[0], self.length(row[-1]) - span) for row in rows if row]
            start = dict.fromkeys(there, 0)
            for _ in range(len(there) + 1):
                changed = False
                for x, y, length in (*arcs, *limits):
                    if start[x] + length > start[y]:
                        start[y], changed = start[x] + length, True
                if not changed:
                    return True
            return False

        span = max(sum(map(self.length, row)) for row in rows)
        while not exist(span):
            span += 1
        return span


class _Search:
    """Depth first over ops in order of their starts; a list of ``best`` prunes by the makespan."""

    def __init__(self, of: Trying, turns: Turns, best: list[int] | None) -> None:
        self.of, self.pipe, self.best = of, of.pipe, best
        self.turn = {s: t for r, t in zip(of.pipe.routes, turns, strict=True) for s in r.stages}
        self.ends: dict[Op, int] = {}
        self.free, self.held = [0 for _ in of.pipe.devices], [*of.pipe.static]
        self.rows: list[list[Op]] = [[] for _ in of.pipe.devices]

    def leaves(self, last: tuple[int, int] = (-1, -1)) -> Iterator[tuple[Rows, int]]:
        """Yield complete orders and their makespan; with pruning, only ever better ones."""
        if not (choices := list(self._choices())):
            done = sum(
                op.kind in ("BW", "W") or self.of.amounts[op[::2]].backward == "none"
                for op in self.ends
            )
            value = max(self.ends.values(), default=0)
            if done == len(self.of.amounts) and not self._hopeless(value):
                if self.best is not None:
                    self.best[:] = [value]
                yield tuple(map(tuple, self.rows)), value
            return
        for ops, start, length in choices:
            device = self.pipe.home[ops[0].stage]
            if (start, device) < last or self._hopeless(start + length):
                continue
            before = self.free[device], self.held[device]
            self.free[device] = start + length
            self.ends |= dict.fromkeys(ops, start + length)
            self.held[device] += sum(self.of.amounts[op[::2]].change(op.kind)[1] for op in ops)
            self.rows[device] += ops
            yield from self.leaves((start, device))
            for op in ops:
                self.rows[device].pop()
                del self.ends[op]
            self.free[device], self.held[device] = before

    def _hopeless(self, end: int) -> bool:
        return bool(self.best) and end >= self.best[0]  # type: ignore[index]

    def _choices(self) -> Iterator[tuple[tuple[Op, ...], int, int]]:
        """What may start next, alone or as a pair: ops, start and length."""
        ready = {op: start for op in self.of.ops if (start := self._ready(op)) is not None}
        for op, start in ready.items():
            yield (op,), start, self.of.length(op)
        for one, other in product(ready, ready) if self.pipe.overlap else ():
            a, b = self.of.amounts[one[::2]], self.of.amounts[other[::2]]
            time = self.pipe.together(one, other, a, b) if one < other else None
            if time and self._fits(one, other):
                yield (one, other), max(ready[one], ready[other]), time

    def _fits(self, *ops: Op) -> bool:
        device = self.pipe.home[ops[0].stage]
        taken = sum(self.of.amounts[op[::2]].change(op.kind)[0] for op in ops)
        capacity = self.pipe.memory[device]
        return capacity is None or self.held[device] + taken <= capacity

    def _ready(self, op: Op) -> int | None:
        """When an op may start; nothing where it may not yet, or no more."""
        s, kind, m = op
        if op in self.ends or (kind != "F" and Op(s, "F", m) not in self.ends):
            return None
        waits = self.of.waits[op]
        ends = [self.ends[source] + delay for source, delay in waits if source in self.ends]
        if len({source[::2] for source, _ in waits}) > len(ends) or not self._fits(op):
            return None
        other = {"BW": "B", "B": "BW", "W": "BW"}.get(kind, kind)
        ways = self.of.amounts[s, m].ways
        if Op(s, other, m) in self.ends or not any(kind in ("F", *way) for way in ways):
            return None
        turn = self.turn[s]
        if turn is not None and kind != "W":
            kinds = ("F",) if kind == "F" else ("B", "BW")
            done = sum(x.stage == s and x.kind in kinds for x in self.ends)
            slices = self.pipe.route[s].slices
            if turn[done // slices] != m // slices:
                return None
        return max([self.free[self.pipe.home[s]], *ends])
