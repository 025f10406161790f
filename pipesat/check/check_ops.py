"""Part of the checker: the ops of a schedule, each by itself, and their modes.

What one microbatch takes and holds is said by the contract's words alone: classes and modes are
restated from what a problem states. Nothing here comes from
:meth:`pipesat.problem.problem.Problem.amounts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from pipesat.core.arrays import Ints
from pipesat.core.errors import Violation
from pipesat.problem.ops import KINDS, Copy, Kind, Op, Pair, Unreadable, members
from pipesat.problem.problem import MicrobatchClass, Problem, Stage
from pipesat.problem.stage import KEEP, Mode
from pipesat.schedule.schedule import Schedule, Timed, TimedCopy

Complaint: TypeAlias = tuple[str, str]
"""The rule that one entry of a schedule breaks, and how."""


class CheckedAmounts(NamedTuple):
    """What a (stage, microbatch) takes and holds."""

    F: int
    B: int
    W: int
    BW: int
    held_after_F: int
    held_after_B: int
    held_in_backward: int
    backward: str


class CopyAmounts(NamedTuple):
    """Lengths of both copies, and what is not held between them."""

    out: int
    back: int
    away: int


def mode_of(problem: Problem, op: Op) -> Mode | None:
    """The mode that an op names; ``None`` for keep, and for one that its stage has not."""
    modes = problem.stages[op.stage].modes
    return modes[op.mode - 1] if 0 < op.mode <= len(modes) else None


def restated(problem: Problem, op: Op) -> Stage | CheckedAmounts:
    """Return the amounts of an op's microbatch in the op's mode.

    The stage's own, or what the mode states; then scaled by its class, or stated by it.
    """
    stage = problem.stages[op.stage]
    of_class, mode = _class(problem, op.stage, op.microbatch), mode_of(problem, op)
    if of_class is None and mode is None:
        return stage
    own = {key: getattr(stage, key) for key in CheckedAmounts._fields if key != "backward"}
    backward, is_sum = stage.backward, stage.sums
    if mode is not None:
        stated = dict(mode.stated)
        own |= stated
        is_sum = "BW" not in stated and (is_sum or "B" in stated or "W" in stated)
        if stage.backward != "none":
            backward = mode.backward or backward
    if of_class is not None:
        outright = dict(next((amounts for s, amounts in of_class.outright if s == op.stage), ()))
        for key, amount in own.items():
            factor = of_class.time if key in KINDS else of_class.held
            own[key] = outright.get(key, _rounded_up(amount, factor))
        is_sum = is_sum and "BW" not in outright
    if is_sum:
        own["BW"] = own["B"] + own["W"]
    return CheckedAmounts(**own, backward=backward)


def restated_copies(problem: Problem, op: Op) -> CopyAmounts | None:
    """Return what an op's mode copies; ``None`` where it does not offload."""
    mode = mode_of(problem, op)
    if mode is None or mode.offload is None:
        return None
    of_class = _class(problem, op.stage, op.microbatch)
    out, back, rest = mode.offload.time_out, mode.offload.time_in, mode.offload.held
    if of_class is not None:
        out, back, rest = (_rounded_up(amount, of_class.held) for amount in (out, back, rest))
    return CopyAmounts(out, back, restated(problem, op).held_after_F - rest)


def restated_delay(
    problem: Problem, hop: tuple[int, int], direction: Literal["F", "B"], microbatch: int
) -> int:
    """Return the delay of a microbatch between two stages, scaled by its class."""
    if hop not in problem.links:
        return 0
    delay: int = getattr(problem.links[hop], direction)
    of_class = _class(problem, hop[0], microbatch)
    for stage, stated in () if of_class is None else of_class.delays:
        if stage == hop[0]:
            return stated["FB".index(direction)]
    return delay if of_class is None else _rounded_up(delay, of_class.comm)


def _class(problem: Problem, stage: int, microbatch: int) -> MicrobatchClass | None:
    route = problem.routes[problem.route_of[stage]]
    return None if route.classes is None else route.definitions[route.classes[microbatch]]


def _rounded_up(amount: int, factor: tuple[int, int]) -> int:
    num, den = factor
    return (amount * num + den - 1) // den


BACKWARDS: Final = ("split", "fused", "either", "none")


class OpColumn(IntEnum):
    """What stands where in a row of :attr:`CheckedOps.table`; times are at their kind's place."""

    held_after_F = 4
    held_after_B = 5
    held_in_backward = 6
    backward = 7


_EXACT_IN_INT64: Final = 1 << 60  # what is larger is added up as Python integers


def integers(values: Sequence[int]) -> Ints:
    """Return an array of integers, of any size."""
    exact = max(values, default=0) < _EXACT_IN_INT64 and min(values, default=0) > -_EXACT_IN_INT64
    return np.array(values, dtype=np.int64 if exact else object)


def first_of(keys: Ints, count: int) -> Ints:
    """Return where each of the keys 0, 1, ... first stands; -1 for one that does not."""
    first = np.full(count, -1)
    first[keys[::-1]] = np.arange(len(keys))[::-1]  # of several the last one stays
    return first


def column(rows: Sequence[tuple[Any, ...]], place: int) -> list[Any]:
    """Return one entry of each row. ``zip(*rows)`` makes the garbage collector busy for seconds."""
    return [*map(itemgetter(place), rows)]


class CheckedOps:
    """The ops of a schedule, as arrays of one number per op, in the order of its lists.

    A *cell* is a (stage, microbatch), a kind a place in ``KINDS``. Ops of a stage or microbatch
    that is not there are left out. ``number[kind, cell]`` is the first op of a kind, -1 if there is
    none; ``modes`` has each cell's mode, that of the first of its ops that is not kept. Cells of
    one stage, class and mode are of one ``sort``, and have a row of :class:`OpColumn` in ``table``.
    """

    def __init__(self, problem: Problem, schedule: Schedule) -> None:
        self.problem = problem
        self.timed = list(chain.from_iterable(schedule.devices))
        items, *times = (column(self.timed, place) for place in range(3))
        self.starts, self.ends = map(integers, times)  # of entries
        lengths = [len(row) for row in schedule.devices]
        self.devices = np.repeat(np.arange(len(lengths)), lengths)
        ops: list[Op] = items
        entry = np.arange(len(items))
        self.unreadable: list[int] = []
        if {*map(type, items)} - {Op}:
            parts = [() if isinstance(item, Unreadable) else members(item) for item in items]
            self.unreadable = [entry for entry, own in enumerate(parts) if not own]
            ops, entry = [*chain(*parts)], np.repeat(entry, [len(part) for part in parts])
        places = {kind: place for place, kind in enumerate(KINDS)}
        kinds = [*map(places.__getitem__, column(ops, 1))]
        columns = (column(ops, 0), kinds, column(ops, 2), column(ops, 3))
        stage, kind, microbatch, mode = (np.array(own, dtype=np.int64) for own in columns)
        counts = np.array(problem.microbatches)
        known = (stage >= 0) & (stage < len(counts))
        known &= (microbatch >= 0) & (microbatch < counts[np.where(known, stage, 0)])
        self.unknown = [(int(entry[at]), ops[at]) for at in np.flatnonzero(~known)]
        self.ops = ops if known.all() else [ops[at] for at in np.flatnonzero(known)]
        self.entry, self.stage, self.kind = entry[known], stage[known], kind[known]
        self.start, self.end = self.starts[self.entry], self.ends[self.entry]
        self.offset = offset = np.cumsum(counts) - counts  # of stages, among the cells
        self.cell = offset[self.stage] + microbatch[known]
        self.stage_of = np.repeat(np.arange(len(counts)), counts)  # of cells
        self.microbatch_of = np.arange(len(self.stage_of)) - offset[self.stage_of]
        key = self.kind * len(self.stage_of) + self.cell
        first = first_of(key, len(KINDS) * len(self.stage_of))
        self.number = first.reshape(len(KINDS), -1)
        self.again = first[key] != np.arange(len(key))
        most = np.array([len(data.modes) for data in problem.stages])[self.stage]
        self.beyond = mode[known] > most
        self.mode = np.where(self.beyond, 0, mode[known])
        self.modes = np.zeros_like(self.stage_of)
        chosen = np.flatnonzero(self.mode)[::-1]
        self.modes[self.cell[chosen]] = self.mode[chosen]
        self._set_table()

    def _set_table(self) -> None:
        """Look up the amounts of the cells: those of a stage, class and mode are alike."""
        problem = self.problem
        classes = [route.classes for route in problem.routes]
        of_class = np.zeros_like(self.stage_of)
        for stage, begin in enumerate(self.offset):
            own = classes[problem.route_of[stage]]
            if own is not None:
                of_class[begin : begin + len(own)] = own
        sorts = (self.stage_of * (1 + of_class.max()) + of_class) * (1 + self.modes.max())
        _, first, self.sort = np.unique(sorts + self.modes, return_index=True, return_inverse=True)
        rows = []
        for cell in first.tolist():
            op = self.op(cell)
            amounts = restated(problem, op)
            held = (amounts.held_after_F, amounts.held_after_B, amounts.held_in_backward)
            times = (amounts.F, amounts.B, amounts.W, amounts.BW)
            rows.append((*times, *held, BACKWARDS.index(amounts.backward)))
        self.table = np.array([integers(row) for row in rows])

    def op(self, cell: int, kind: Kind = "F") -> Op:
        """Return an op of a cell, in the cell's mode."""
        return Op(
            int(self.stage_of[cell]), kind, int(self.microbatch_of[cell]), int(self.modes[cell])
        )

    def of_cells(self, column: int) -> Ints:
        """Return an amount of every cell, by its column of the table."""
        return self.table[self.sort, column]

    def has(self, op: Op) -> bool:
        """Whether an op of a stage and microbatch that there are is there."""
        return bool(self._number(op) >= 0)

    def time(self, op: Op) -> tuple[int, int]:
        """Start and end of an op that is there, the first time it appears."""
        timed = self.timed[self.entry[self._number(op)]]
        return timed.start, timed.end

    def _number(self, op: Op) -> int:
        cell = self.offset[op.stage] + op.microbatch
        return int(self.number[KINDS.index(op.kind), cell])

    def violations(self) -> Iterator[Violation]:
        """Yield what is wrong with entries alone, entry after entry."""
        found = [*self._of_entries(), *self._of_ops(), *self._of_pairs_and_lengths()]
        for entry, (rule, text) in sorted(found, key=lambda one: one[0]):
            yield Violation(rule, text, int(self.devices[entry]), self.timed[entry].start)

    def _of_entries(self) -> Iterator[tuple[int, Complaint]]:
        for entry in self.unreadable:
            home = self.problem.device_name(int(self.devices[entry]))
            text = f"{str(self.timed[entry].item)!r} on {home} is no op"
            yield entry, ("text", f"{text}; write <stage><F|B|W|BW><microbatch>")
        for entry in np.flatnonzero(self.starts < 0).tolist():
            item, start, _ = self.timed[entry]
            if not isinstance(item, Unreadable):
                yield entry, ("time", f"{item} starts at {start}, before time 0")

    def _of_ops(self) -> Iterator[tuple[int, Complaint]]:
        problem = self.problem
        for entry, op in self.unknown:
            text = f"stage {op.stage}, the last one is {len(problem.stages) - 1}"
            if 0 <= op.stage < len(problem.stages):
                last = problem.microbatches[op.stage] - 1
                text = f"microbatch {op.microbatch}, the last one of its route is {last}"
            yield entry, ("name", f"{op} names {text}")
        homes = np.array([stage.device for stage in problem.stages])[self.stage]
        devices = self.devices[self.entry]
        for at in np.flatnonzero(homes != devices):
            text = elsewhere(problem, self.ops[at], int(devices[at]), "runs")
            yield self.entry[at], ("device", text)
        for at in np.flatnonzero(self.beyond):
            op = self.ops[at]
            most = f"the last one of stage {op.stage} is {len(problem.stages[op.stage].modes)}"
            yield self.entry[at], ("mode", f"{op} runs in mode {op.mode}, {most}")
        for at in np.flatnonzero(self.again):
            first = self.timed[self.entry[self.number[self.kind[at], self.cell[at]]]]
            text = f"{self.ops[at]} stands twice, at {first.start} and at {self.start[at]}"
            yield self.entry[at], ("doubled", text)

    def _of_pairs_and_lengths(self) -> Iterator[tuple[int, Complaint]]:
        """Pairs of the same two sorts are alike: one of each is looked at."""
        judged = np.zeros(len(self.timed), dtype=bool)
        judged[self.entry] = True
        judged[[entry for entry, _ in self.unknown]] = False
        sort = self.sort[self.cell] * len(KINDS) + self.kind
        wanted = np.zeros(len(self.timed), dtype=np.int64)
        wanted[self.entry] = self.table[self.sort[self.cell], self.kind]
        one = np.flatnonzero(self.entry[:-1] == self.entry[1:])
        sorts = sort[one] * (1 + len(KINDS) * len(self.table)) + sort[one + 1]
        _, first, alike = np.unique(sorts, return_index=True, return_inverse=True)
        examples: list[Any] = [self.timed[self.entry[at]].item for at in one[first]]
        lengths = np.array([self._length(pair) for pair in examples], dtype=np.int64)[alike]
        wrong = np.array([any(self._pair(pair)) for pair in examples], dtype=bool)[alike]
        wrong |= self.cell[one] == self.cell[one + 1]
        for entry in self.entry[one[wrong]].tolist():
            for complaint in self._pair(self.timed[entry].item):
                yield entry, complaint
        wanted[self.entry[one]] = lengths
        judged[self.entry[one]] &= lengths >= 0
        for entry in np.flatnonzero(judged & (self.ends - self.starts != wanted)).tolist():
            item, start, end = self.timed[entry]
            home = self.problem.device_name(int(self.devices[entry]))
            text = f"{item} on {home} lasts {lasting(start, end)}, expected {wanted[entry]}"
            yield entry, ("length", text)

    def modes_differ(self) -> Iterator[Violation]:
        """All ops of a (stage, microbatch), or of a whole stage, run in one mode."""
        yield from self._modes_by(self.cell, "the ops of one microbatch run in one mode")
        if self.problem.mode_choice == "stage":
            which = "with `mode_choice` stage, all microbatches of one run in one mode"
            yield from self._modes_by(self.stage, which)

    def _modes_by(self, group: Ints, rule: str) -> Iterator[Violation]:
        """Yield one violation per group of ops that has two modes."""
        if not self.mode.any():
            return
        valid = np.flatnonzero(~self.beyond)
        group, modes_of = group[valid], self.mode[valid]
        first = first_of(group, 1 + int(group.max()))[group]
        others = np.flatnonzero(modes_of != modes_of[first])
        _, at = np.unique(group[others], return_index=True)
        for other in sorted(others[at], key=lambda other: first[other]):
            one, two = (self.ops[valid[number]] for number in (first[other], other))
            names = [
                mode.name if (mode := mode_of(self.problem, op)) else KEEP for op in (one, two)
            ]
            text = f"{one} runs in mode {names[0]}, {two} in {names[1]}; {rule}"
            yield Violation("mode", text, self.problem.stages[one.stage].device)

    def _pair(self, pair: Pair) -> Iterator[Complaint]:
        first, second = pair
        if first[::2] == second[::2]:
            yield "kind", f"{pair}: a pair needs two different (stage, microbatch)"
        elif self.problem.overlap is None:
            yield "kind", f"{pair}: this problem has no `overlap`, so pairs are not allowed"
        elif self._length(pair) < 0:
            kinds = f"{first.stage}{first.kind} and {second.stage}{second.kind}"
            yield "kind", f"{pair}: `overlap` does not allow a pair of {kinds}"
        elif isinstance(self._listed(pair), int):
            for op in pair:
                mode = mode_of(self.problem, op)
                if mode is not None and mode.offload is None:
                    text = (
                        f"{pair}: {op} runs in mode {mode.name}; members of pairs that `overlap` "
                    )
                    yield "mode", f"{text}lists by `time` run in keep or an offload mode"

    def _length(self, pair: Pair) -> int:
        """How long a pair lasts; -1 if it is not allowed."""
        overlap, listed = self.problem.overlap, self._listed(pair)
        if isinstance(listed, int):
            return listed
        alone: list[int] = [getattr(restated(self.problem, op), op.kind) for op in pair]
        if listed is not None:
            return max(1, _rounded_up(sum(alone), listed))
        if overlap is None or not overlap.factor or {op.kind for op in pair} != {"F", "BW"}:
            return -1
        return max(*alone, _rounded_up(sum(alone), overlap.factor))

    def _listed(self, pair: Pair) -> int | tuple[int, int] | None:
        """Time, or factor, of a pair that `overlap` lists."""
        overlap = self.problem.overlap
        for op, other in (pair, pair[::-1]):
            key = ((op.stage, op.kind), (other.stage, other.kind))
            if overlap is not None and key in overlap.times:
                return overlap.times[key]
            if overlap is not None and key in overlap.factors:
                return overlap.factors[key]
        return None


def elsewhere(problem: Problem, what: Op | Copy, device: int, does: str) -> str:
    """Say that something is not on the device of its stage."""
    home = problem.stages[what.stage].device
    where, there = problem.device_name(device), problem.device_name(home)
    return f"{what} {does} on {where}, but stage {what.stage} lies on {there}"


def plain(op: Op) -> Op:
    """Return an op without its mode."""
    return op._replace(mode=0) if op.mode else op


def lasting(start: int, end: int) -> str:
    """How long something lasts, and when."""
    return f"{end - start} ({start} to {end})"


def in_turn(device: int, row: Sequence[Timed | TimedCopy], where: str) -> Iterator[Violation]:
    """A list is in order of (start, end)."""
    for before, after in pairwise(row):
        if after[1:] < before[1:]:
            text = f"{_timed(after)} is listed after {_timed(before)} {where}"
            order = "lists are in order of (start, end)"
            yield Violation("order", f"{text}; {order}", device, after.start)


def crowded(starts: Ints, ends: Ints, devices: Ints) -> list[int]:
    """Devices whose entries are not in turn, or not clearly one after the other."""
    before, after = slice(None, -1), slice(1, None)
    last = np.maximum(starts, ends)
    wrong = (starts[after] < last[before]) | (ends[after] < ends[before])
    return [*map(int, np.unique(devices[after][wrong & (devices[after] == devices[before])]))]


def one_at_a_time(device: int, row: Sequence[Timed | TimedCopy], where: str) -> Iterator[Violation]:
    """What takes no time may touch another's ends, not lie strictly inside."""
    running: Timed | TimedCopy | None = None
    for timed in sorted(row, key=lambda one: one[1:]):
        if running is not None and timed.start < running.end:
            touches = timed.start == timed.end == running.start
            if not touches:
                text = f"{_timed(timed)} overlaps {_timed(running)} {where}"
                yield Violation("overlap", text, device, timed.start)
        if running is None or timed.end > running.end:
            running = timed


def _timed(one: Timed | TimedCopy) -> str:
    return f"{one[0]} ({one.start} to {one.end})"
