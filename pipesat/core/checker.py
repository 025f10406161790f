"""The independent checker: whether a schedule, as it stands in a file, keeps every rule.

It restates the rules of the contract from the given times alone. It shares no code with the timing
of orders, with :mod:`pipesat.core.rules` or with the solver's model: a fault there shows here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise, product
from operator import itemgetter
from typing import Literal, NamedTuple

from pipesat.core.ops import Op, Pair, Unreadable, members
from pipesat.core.problem import MicrobatchClass, Problem, Stage
from pipesat.core.schedule import Schedule, Timed
from pipesat.core.ties import impossible_ties


@dataclass(frozen=True)
class Violation:
    """One broken rule.

    ``rule`` is a short word (``missing``, ``doubled``, ``text``, ``name``, ``device``, ``time``,
    ``length``, ``kind``, ``overlap``, ``order``, ``sequence`` (of microbatches), ``input``,
    ``memory``), ``device`` the device's number, ``time`` where on the time axis, in time units;
    ``None`` where that has no meaning.
    """

    rule: str
    message: str
    device: int | None = None
    time: int | None = None

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}"


def check(problem: Problem, schedule: Schedule) -> list[Violation]:
    """Return every violation; an empty list means that the schedule is valid. O(n log n)."""
    if len(schedule.devices) != len(problem.devices):
        return [
            Violation(
                "device",
                f"{len(schedule.devices)} device lists, expected {len(problem.devices)}, "
                "one per device (empty if it has no ops)",
            )
        ]
    ops = _Ops(problem)
    violations = [v for device, timed in schedule for v in ops.add(device, timed)]
    violations += _completeness(problem, ops)
    for device, row in enumerate(schedule.devices):
        violations += _device_conflicts(problem, device, row)
    waits = _waits(problem, ops)
    violations += _inputs(problem, ops, waits)
    violations += _pairs_that_wait(schedule, waits)
    ties = impossible_ties(problem, schedule.devices, {op: x for op, (x, _) in waits.items()})
    violations += [Violation("order", text, None, time) for time, text in ties]
    violations += _memory(problem, ops)
    violations += _turns(problem, schedule)
    return violations


class _Amounts(NamedTuple):
    """What a (stage, microbatch) takes and holds."""

    F: int
    B: int
    W: int
    BW: int
    held_after_F: int
    held_after_B: int
    held_in_backward: int


def _restated(problem: Problem, op: Op) -> Stage | _Amounts:
    """A stage's amounts for an op's microbatch: each scaled by its class, or stated by it."""
    stage = problem.stages[op.stage]
    kind = _class(problem, op.stage, op.microbatch)
    if kind is None:
        return stage
    own = {key: getattr(stage, key) for key in _Amounts._fields}
    stated: dict[str, int] = {}
    for number, amounts in kind.outright:
        if number == op.stage:
            stated.update(amounts)
    for key, amount in own.items():
        num, den = kind.held if key.startswith("held") else kind.time
        own[key] = stated.get(key, (amount * num + den - 1) // den)
    if stage.sums and "BW" not in stated:
        own["BW"] = own["B"] + own["W"]
    return _Amounts(**own)


def _class(problem: Problem, stage: int, microbatch: int) -> MicrobatchClass | None:
    route = problem.routes[problem.route_of[stage]]
    return None if route.classes is None else route.definitions[route.classes[microbatch]]


def _delay(
    problem: Problem, hop: tuple[int, int], direction: Literal["F", "B"], microbatch: int
) -> int:
    """Delay of a microbatch between two stages, scaled by its class."""
    if hop not in problem.links:
        return 0
    delay: int = getattr(problem.links[hop], direction)
    kind = _class(problem, hop[0], microbatch)
    if kind is None:
        return delay
    num, den = kind.comm
    return (delay * num + den - 1) // den


class _Ops:
    """Start, end and device of every op, the first time it stands in the schedule."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.times: dict[Op, tuple[int, int]] = {}

    def add(self, device: int, timed: Timed) -> Iterator[Violation]:
        """Take in one entry and complain about what is wrong with it alone."""
        item, start, end = timed
        home = self.problem.device_name(device)
        if isinstance(item, Unreadable):
            text = f"{item.text!r} on {home} is no op; write <stage><F|B|W|BW><microbatch>"
            yield Violation("text", text, device, start)
            return
        if start < 0:
            yield Violation("time", f"{item} starts at {start}, before time 0", device, start)
        ops = [item.first, item.second] if isinstance(item, Pair) else [item]
        known = True
        for op in ops:
            for complaint in self._add_op(op, device, start, end):
                known = known and complaint.rule != "name"
                yield complaint
        if not known:
            return
        if isinstance(item, Pair):
            yield from self._pair(item, device, start)
        wanted = self._length(item)
        if wanted is not None and end - start != wanted:
            text = f"{item} on {home} lasts {end - start} ({start} to {end}), expected {wanted}"
            yield Violation("length", text, device, start)

    def _add_op(self, op: Op, device: int, start: int, end: int) -> Iterator[Violation]:
        problem = self.problem
        if op.stage >= len(problem.stages):
            text = f"{op} names stage {op.stage}, the last one is {len(problem.stages) - 1}"
            yield Violation("name", text, device, start)
            return
        if op.microbatch >= problem.microbatches[op.stage]:
            last = problem.microbatches[op.stage] - 1
            text = f"{op} names microbatch {op.microbatch}, the last one of its route is {last}"
            yield Violation("name", text, device, start)
            return
        home = problem.stages[op.stage].device
        if home != device:
            text = (
                f"{op} runs on {problem.device_name(device)}, "
                f"but stage {op.stage} lies on {problem.device_name(home)}"
            )
            yield Violation("device", text, device, start)
        if op in self.times:
            text = f"{op} stands twice, at {self.times[op][0]} and at {start}"
            yield Violation("doubled", text, device, start)
            return
        self.times[op] = (start, end)

    def _pair(self, pair: Pair, device: int, start: int) -> Iterator[Violation]:
        first, second = pair
        if (first.stage, first.microbatch) == (second.stage, second.microbatch):
            text = f"{pair}: a pair needs two different (stage, microbatch)"
            yield Violation("kind", text, device, start)
        elif self.problem.overlap is None:
            text = f"{pair}: this problem has no `overlap`, so pairs are not allowed"
            yield Violation("kind", text, device, start)
        elif self._length(pair) is None:
            kinds = f"{first.stage}{first.kind} and {second.stage}{second.kind}"
            text = f"{pair}: `overlap` does not allow a pair of {kinds}"
            yield Violation("kind", text, device, start)

    def _length(self, item: Op | Pair) -> int | None:
        """How long an item lasts; ``None`` for a pair that is not allowed."""
        if not isinstance(item, Pair):
            stage = _restated(self.problem, item)
            return {"F": stage.F, "B": stage.B, "W": stage.W, "BW": stage.BW}[item.kind]
        overlap = self.problem.overlap
        if overlap is None:
            return None
        for op, other in (item, item[::-1]):
            time = overlap.times.get(((op.stage, op.kind), (other.stage, other.kind)))
            if time is not None:
                return time
        for forward, backward in (item, item[::-1]):
            if overlap.factor and (forward.kind, backward.kind) == ("F", "BW"):
                num, den = overlap.factor
                f = _restated(self.problem, forward).F
                bw = _restated(self.problem, backward).BW
                return max(f, bw, ((f + bw) * num + den - 1) // den)
        return None


def _completeness(problem: Problem, ops: _Ops) -> Iterator[Violation]:
    """Every (stage, microbatch) has F and either B and W, or BW, as `backward` allows."""
    for number, stage in enumerate(problem.stages):
        for microbatch in range(problem.microbatches[number]):
            f, b, w, bw = (Op(number, kind, microbatch) for kind in ("F", "B", "W", "BW"))
            has_b, has_w, has_bw = b in ops.times, w in ops.times, bw in ops.times
            where = f"on {problem.device_name(stage.device)}"
            missing = [] if f in ops.times else [str(f)]
            if has_bw:
                for op in [b] * has_b + [w] * has_w:
                    text = f"{op} {where}, but {bw} already is the whole backward"
                    yield Violation("kind", text, stage.device, ops.times[op][0])
                if stage.backward == "split":
                    text = f"{bw} {where}, but stage {number} allows only B and W"
                    yield Violation("kind", text, stage.device, ops.times[bw][0])
            elif stage.backward == "fused" and (has_b or has_w):
                text = f"{b if has_b else w} {where}, but stage {number} allows only BW"
                yield Violation("kind", text, stage.device)
                continue
            elif has_b or has_w or stage.backward == "split":
                missing += [str(b)] * (not has_b) + [str(w)] * (not has_w)
            else:
                choice = str(bw) if stage.backward == "fused" else f"{bw} (or {b} and {w})"
                missing.append(choice)
            for text in missing:
                yield Violation("missing", f"{text} {where} is missing", stage.device)


def _device_conflicts(problem: Problem, device: int, row: tuple[Timed, ...]) -> Iterator[Violation]:
    """One op at a time; an op of length 0 may touch another's ends, not lie strictly inside."""
    home = problem.device_name(device)
    for before, after in pairwise(row):
        if after[1:] < before[1:]:
            text = (
                f"{after.item} ({after.start} to {after.end}) is listed after {before.item} "
                f"({before.start} to {before.end}) on {home}; lists are in order of (start, end)"
            )
            yield Violation("order", text, device, after.start)
    running: Timed | None = None
    for timed in sorted(row, key=lambda t: (t.start, t.end)):
        if running is not None and timed.start < running.end:
            touches = timed.start == timed.end == running.start
            if not touches:
                text = (
                    f"{timed.item} ({timed.start} to {timed.end}) overlaps {running.item} "
                    f"({running.start} to {running.end}) on {home}"
                )
                yield Violation("overlap", text, device, timed.start)
        if running is None or timed.end > running.end:
            running = timed


def _backward(ops: _Ops, stage: int, microbatch: int) -> Op | None:
    """The op that gives the input gradient: B or BW, whichever is there."""
    for kind in ("B", "BW"):
        op = Op(stage, kind, microbatch)
        if op in ops.times:
            return op
    return None


def _waits(problem: Problem, ops: _Ops) -> dict[Op, tuple[Op, int]]:
    """Return each op's input, if it has one that is there, and the delay until it arrives."""
    waits = {}
    for op in ops.times:
        stage, kind, microbatch, _ = op
        needed: Op | None
        delay = 0
        if kind == "W":
            needed = Op(stage, "B", microbatch)
        elif kind == "F":
            before = problem.previous[stage]
            if before is None:
                continue
            needed = Op(before, "F", microbatch)
            delay = _delay(problem, (before, stage), "F", microbatch)
        else:
            after = problem.next[stage]
            if after is None:
                needed = Op(stage, "F", microbatch)
            else:
                needed = _backward(ops, after, microbatch)
                delay = _delay(problem, (stage, after), "B", microbatch)
        if needed in ops.times:
            waits[op] = needed, delay
    return waits


def _inputs(problem: Problem, ops: _Ops, waits: Mapping[Op, tuple[Op, int]]) -> Iterator[Violation]:
    """Nothing starts before its input has arrived. Missing inputs are reported as missing."""
    for op, (needed, delay) in waits.items():
        start, end = ops.times[op][0], ops.times[needed][1]
        if start < end + delay:
            travel = f" and takes {delay} to arrive" if delay else ""
            text = (
                f"{op} starts at {start}, but its input {needed} ends at {end}{travel}: "
                f"not before {end + delay}"
            )
            yield Violation("input", text, problem.stages[op.stage].device, start)


def _pairs_that_wait(schedule: Schedule, waits: Mapping[Op, tuple[Op, int]]) -> Iterator[Violation]:
    """Neither member of a pair waits for the other, directly or through other ops."""
    for device, timed in schedule:
        if not isinstance(timed.item, Pair):
            continue
        for op, other in (timed.item, timed.item[::-1]):
            need = op
            while op.microbatch == other.microbatch and need in waits and need != other:
                need = waits[need][0]
            if need == other != op:
                text = f"{timed.item}: {op} waits for {other}, so they cannot run as one"
                yield Violation("kind", text, device, timed.start)


def _memory(problem: Problem, ops: _Ops) -> Iterator[Violation]:
    """Static memory plus all that is held never exceeds a device's capacity."""
    changes: list[list[tuple[int, int]]] = [[] for _ in problem.devices]
    for stage, begin, end, amount in _held(problem, ops):
        if amount and begin < end:
            changes[problem.stages[stage].device] += [(begin, amount), (end, -amount)]
    for number, device in enumerate(problem.devices):
        if device.memory is None:
            continue
        held, worst, since = device.static, 0, 0
        if held > device.memory:
            worst = held
        for time, group in groupby(sorted(changes[number]), key=itemgetter(0)):
            held += sum(change for _, change in group)
            if held > device.memory:
                since = since if worst else time
                worst = max(worst, held)
            elif worst:
                yield _over(problem, number, since, time, worst)
                worst = 0
        if worst:
            yield _over(problem, number, since, None, worst)


def _held(problem: Problem, ops: _Ops) -> Iterator[tuple[int, int, int, int]]:
    """Half-open intervals ``(stage, begin, end, amount)`` in which memory is held."""
    for op, (start, end) in ops.times.items():
        stage, kind, microbatch, _ = op
        amounts = _restated(problem, op)
        a, w, x = amounts.held_after_F, amounts.held_after_B, amounts.held_in_backward
        if kind == "F":
            backward = _backward(ops, stage, microbatch)
            if backward is not None:
                b_start, b_end = ops.times[backward]
                yield stage, start, b_end, a
                most = max(w, x) if backward.kind == "B" else x
                yield stage, b_start, b_end, max(0, most - a)
        elif kind == "B":
            weight = ops.times.get(Op(stage, "W", microbatch))
            if weight is not None:
                yield stage, end, weight[1], w


def _turns(problem: Problem, schedule: Schedule) -> Iterator[Violation]:
    """Where microbatches are a list: the order in which stages run forwards, and backwards."""
    if problem.order == "free":
        return
    turns: dict[tuple[int, bool], list[int]] = defaultdict(list)  # (stage, backward)
    for _, timed in schedule:
        for op in members(timed.item) if not isinstance(timed.item, Unreadable) else ():
            if op.kind != "W":
                turns[op.stage, op.kind != "F"].append(op.microbatch)
    for route in problem.routes:
        if route.classes is None:
            continue
        wanted = list(range(route.microbatches))
        if problem.order == "same":
            wanted = turns[route.stages[0], False]
        place = {microbatch: at for at, microbatch in enumerate(wanted)}
        for stage, backward in product(route.stages, (False, True)):
            known = [m for m in turns[stage, backward] if m in place]
            for before, after in pairwise(known):
                if place[after] < place[before]:
                    what = "backward" if backward else "forward"
                    text = (
                        f"stage {stage} runs the {what} of microbatch {before} before that of "
                        f"{after}, against the order "
                        + (
                            "of the numbers"
                            if problem.order == "given"
                            else f"of stage {route.stages[0]}'s forwards"
                        )
                    )
                    yield Violation("sequence", text, problem.stages[stage].device)
                    break


def _over(problem: Problem, device: int, since: int, until: int | None, peak: int) -> Violation:
    capacity = problem.devices[device].memory or 0
    when = f"from {since} to {until}" if until is not None else f"from {since} on"
    text = (
        f"{problem.device_name(device)} holds up to {peak} {when}, "
        f"{peak - capacity} over its capacity of {capacity}"
    )
    return Violation("memory", text, device, since)
