"""Every rule that a schedule can break, by the contract's words alone: from times, not from orders.

A schedule is rows of ``(text, start, end)`` per device, the same for copies, and modes by name.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise, product
from typing import Any, NamedTuple

from tests.oracle.reading import KEEP, KINDS, Amounts, Op, Pipe

_WORD = re.compile(r"(\d+)(F|BW|B|W|O|L)(\d+)", re.ASCII)
Row = Sequence[tuple[str, int, int]]


class Slot(NamedTuple):
    """One entry of a device's row; two ops are a pair."""

    ops: tuple[Op, ...]
    start: int
    end: int
    text: str


class Timed:
    """A schedule's rows read, and where each op and copy stands."""

    def __init__(
        self,
        pipe: Pipe,
        devices: Sequence[Row],
        copies: Sequence[Row] = (),
        modes: Mapping[tuple[int, int], str] | None = None,
    ) -> None:
        self.pipe, self.modes = pipe, dict(modes or {})
        self.rows = [[_slot(*entry) for entry in row] for row in devices]
        self.copies = [[_slot(*entry) for entry in row] for row in copies or [()] * len(devices)]
        self.at: dict[Op, Slot] = {}
        self.place: dict[Op, tuple[str, int, int]] = {}
        for name, rows in (("op", self.rows), ("copy", self.copies)):
            for device, row in enumerate(rows):
                for number, slot in enumerate(row):
                    for op in slot.ops:
                        self.at[op], self.place[op] = slot, (name, device, number)

    def amounts(self, stage: int, microbatch: int) -> Amounts:
        """Amounts in the mode that the schedule has."""
        return self.pipe.modes[stage, microbatch][self.modes.get((stage, microbatch), KEEP)]

    def backward(self, stage: int, microbatch: int) -> Op:
        """The backward that runs."""
        fused = Op(stage, "BW", microbatch)
        return fused if fused in self.at else Op(stage, "B", microbatch)

    @property
    def makespan(self) -> int:
        """End of the last op."""
        return max((slot.end for row in self.rows for slot in row), default=0)

    @property
    def span(self) -> int:
        """Longest time from a device's first start to its last end."""
        rows = [row for row in self.rows if row]
        return max((max(s.end for s in r) - min(s.start for s in r) for r in rows), default=0)

    def levels(self, device: int) -> Iterator[tuple[int, int]]:
        """Yield (time, what is held from it on): intervals are half-open, of one instant a sum."""
        changes: Counter[int] = Counter({0: self.pipe.static[device]})

        def hold(amount: int, start: int, end: int) -> None:
            changes[start] += amount
            changes[end] -= amount

        for s, m in self.pipe.modes:
            if self.pipe.home[s] != device:
                continue
            x, (_, begin, end, _) = self.amounts(s, m), self.at[Op(s, "F", m)]
            if x.backward == "none":
                hold(x.a, begin, end)
                continue
            back = self.at[self.backward(s, m)]
            if x.copies:
                out, load = self.at[Op(s, "O", m)], self.at[Op(s, "L", m)]
                hold(x.a, begin, out.end)
                hold(x.copies[2], out.end, load.start)
                begin = load.start
            hold(x.a, begin, back.start)
            most = max(x.a, x.x)
            if Op(s, "W", m) in self.at:
                most = max(most, x.w)
                hold(x.w, back.end, self.at[Op(s, "W", m)].end)
            hold(most, back.start, back.end)
        held = 0
        for time in sorted(changes):
            held += changes[time]
            yield time, held

    def peak(self, device: int) -> int:
        """Most memory that a device holds."""
        return max(held for _, held in self.levels(device))


def _slot(text: str, start: int, end: int) -> Slot:
    ops = tuple(Op(int(s), kind, int(m)) for s, kind, m in _WORD.findall(text))
    assert ops, text
    return Slot(ops, start, end, text)


def broken_rules(timed: Timed) -> list[str]:
    """Return what is wrong, each with the rule's name first; nothing if the schedule is valid."""
    wrong = [*_modes(timed)] or [*_counts(timed)]
    if wrong:
        return wrong
    parts = (_lengths, _one_at_a_time, _waits, _orders, _circles, _memory)
    return [what for part in parts for what in part(timed)]


def _modes(timed: Timed) -> Iterator[str]:
    for key, name in timed.modes.items():
        if name not in timed.pipe.modes.get(key, {}):
            yield f"mode: {key} has no mode {name!r}"
    if timed.pipe.choice == "stage":
        for route in timed.pipe.routes:
            for s in route.stages:
                found = {timed.modes.get((s, m), KEEP) for m in range(len(route.classes))}
                if len(found) > 1:
                    yield f"mode: stage {s} runs in {sorted(found)}"


def _counts(timed: Timed) -> Iterator[str]:
    """Exactly F and one allowed way of the backward, and copies where the mode has them."""
    pipe = timed.pipe
    seen = Counter(op for row in (*timed.rows, *timed.copies) for slot in row for op in slot.ops)
    wanted = set()
    for s, m in pipe.modes:
        x = timed.amounts(s, m)
        way = ("BW",) if Op(s, "BW", m) in seen else ("B", "W")
        way = () if x.backward == "none" else way
        if way not in x.ways:
            yield f"backward: stage {s} may not run {way} of {m}"
        wanted |= {Op(s, kind, m) for kind in ("F", *way, *("OL" if x.copies else ""))}
    for op in seen.keys() | wanted:
        if seen[op] != (op in wanted):
            yield f"count: {op} is there {seen[op]} times"
        elif timed.place[op][1] != pipe.home[op.stage]:
            yield f"device: {op} is on another device"


def _lengths(timed: Timed) -> Iterator[str]:
    for slot in (slot for row in (*timed.rows, *timed.copies) for slot in row):
        amounts = [timed.amounts(*op[::2]) for op in slot.ops]
        length: int | None
        if len(slot.ops) == 2:
            length = timed.pipe.together(*slot.ops, *amounts)
            if length is None:
                yield f"pair: {slot.text} is not allowed"
                continue
        else:
            (op,), (x,) = slot.ops, amounts
            length = x.time[op.kind] if op.kind in KINDS else x.copies["OL".index(op.kind)]  # type: ignore[index]
        if slot.end - slot.start != length or slot.start < 0:
            yield f"length: {slot.text} from {slot.start} to {slot.end}, not {length}"


def _channels(timed: Timed) -> Iterator[list[Slot]]:
    """What runs one at a time: the ops of a device, the copies of a channel."""
    yield from timed.rows
    for device, row in enumerate(timed.copies):
        if timed.pipe.channels[device] == 1:
            yield row
        else:
            yield from ([s for s in row if s.ops[0].kind == kind] for kind in "OL")


def _one_at_a_time(timed: Timed) -> Iterator[str]:
    """Sorted by start and end, without overlap: no op of length 0 lies strictly inside another."""
    for row in (*timed.rows, *timed.copies):
        for before, after in pairwise(row):
            if before[1:3] > after[1:3]:
                yield f"listing: {before.text} before {after.text}"
    for row in _channels(timed):
        for before, after in pairwise(sorted(row, key=lambda slot: slot[1:3])):
            if after.start < before.end:
                yield f"overlap: {before.text} and {after.text}"


def inputs(timed: Timed) -> Iterator[tuple[Op, Op, int]]:
    """Every op, one that waits for it, and the delay."""
    for s, m in timed.pipe.modes:
        for kind in KINDS:
            op = Op(s, kind, m)
            if op in timed.at:
                waits = timed.pipe.waits(op)
                yield from ((source, op, delay) for source, delay in waits if source in timed.at)
        if Op(s, "O", m) in timed.at:
            ways = [Op(s, kind, m) for kind in "FOL"]
            yield from ((*two, 0) for two in pairwise([*ways, timed.backward(s, m)]))


def _waits(timed: Timed) -> Iterator[str]:
    for before, after, delay in inputs(timed):
        ready, start = timed.at[before].end + delay, timed.at[after].start
        if start < ready:
            yield f"input: {after} starts at {start}, its input {before} is there at {ready}"


def _orders(timed: Timed) -> Iterator[str]:
    """Stages of a listed route run sequences by number, or say nothing in a circle.

    A microbatch that is no slice is a sequence of its own.
    """
    pipe = timed.pipe
    for route in pipe.routes if pipe.order != "free" else ():
        graph: TopologicalSorter[int] = TopologicalSorter()
        if pipe.order == "given":
            for before, after in pairwise(range(len(route.sequences))):
                graph.add(after, before)
        for s, kinds in product(route.stages if route.listed else (), (("F",), ("B", "BW"))):
            row = timed.rows[pipe.home[s]]
            turns = [
                {
                    op.microbatch // route.slices
                    for op in x.ops
                    if op.stage == s and op.kind in kinds
                }
                for x in row
            ]
            for both in pairwise(turn for turn in turns if turn):
                for one, other in product(*both):
                    if one != other:
                        graph.add(other, one)
        try:
            graph.prepare()
        except CycleError as error:
            yield f"order: stages say {error.args[1]}"


def _circles(timed: Timed) -> Iterator[str]:
    """Run in turn, the rows never wait for each other in a circle."""
    graph: dict[Any, set[Any]] = defaultdict(set)
    for row in _channels(timed):
        places = [timed.place[slot.ops[0]] for slot in row]
        for before, after in pairwise(places):
            graph[after].add(before)
    for one, other, _ in inputs(timed):
        graph[timed.place[other]].add(timed.place[one])
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield f"circle: {error.args[1]}"


def _memory(timed: Timed) -> Iterator[str]:
    for device, capacity in enumerate(timed.pipe.memory):
        if capacity is not None and timed.peak(device) > capacity:
            yield f"memory: device {device} holds {timed.peak(device)} of {capacity}"
