"""Part of the checker: the ops of a schedule, each by itself, and their modes.

What one microbatch takes and holds is said by the contract's words alone: classes and modes are
restated from what a problem states. Nothing here comes from
:meth:`pipesat.core.problem.Problem.amounts`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

from pipesat.core.errors import Violation
from pipesat.core.ops import Copy, Op, Pair, Unreadable
from pipesat.core.problem import MicrobatchClass, Problem, Stage
from pipesat.core.schedule import Timed, TimedCopy
from pipesat.core.stage import Mode

Complaint: TypeAlias = tuple[str, str]
"""The rule that one entry of a schedule breaks, and how."""


class Amounts(NamedTuple):
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


def restated(problem: Problem, op: Op) -> Stage | Amounts:
    """Return the amounts of an op's microbatch in the op's mode.

    The stage's own, or what the mode states; then scaled by its class, or stated by it.
    """
    stage = problem.stages[op.stage]
    of_class, mode = _class(problem, op.stage, op.microbatch), mode_of(problem, op)
    if of_class is None and mode is None:
        return stage
    own = {key: getattr(stage, key) for key in Amounts._fields if key != "backward"}
    backward, is_sum = stage.backward, stage.sums
    if mode is not None:
        stated = dict(mode.stated)
        own |= stated
        is_sum = "BW" not in stated and (is_sum or "B" in stated or "W" in stated)
        backward = mode.backward or backward
    if of_class is not None:
        outright = dict(next((amounts for s, amounts in of_class.outright if s == op.stage), ()))
        for key, amount in own.items():
            factor = of_class.held if key.startswith("held") else of_class.time
            own[key] = outright.get(key, _rounded_up(amount, factor))
        is_sum = is_sum and "BW" not in outright
    if is_sum:
        own["BW"] = own["B"] + own["W"]
    return Amounts(**own, backward=backward)


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


class Ops:
    """Start and end of every op, the first time it appears in the schedule, and the modes.

    ``times`` has the ops without their modes, ``modes`` the mode of every (stage, microbatch) that
    is not kept: that of the first of its ops that is not.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.times: dict[Op, tuple[int, int]] = {}
        self.modes: dict[tuple[int, int], int] = {}
        self.seen: dict[tuple[int, int], dict[int, Op]] = defaultdict(dict)  # an op of each mode

    def amounts(self, op: Op) -> Stage | Amounts:
        """What an op's microbatch takes and holds in its mode."""
        if self.modes:
            op = op._replace(mode=self.modes.get((op.stage, op.microbatch), 0))
        return restated(self.problem, op)

    def backward(self, stage: int, microbatch: int) -> Op | None:
        """The op that gives the input gradient: B or BW, whichever is there."""
        for kind in ("B", "BW"):
            op = Op(stage, kind, microbatch)
            if op in self.times:
                return op
        return None

    def add(self, device: int, timed: Timed) -> Iterator[Violation]:
        """Take in one entry and complain about what is wrong with it alone."""
        for rule, text in self._complaints(device, timed):
            yield Violation(rule, text, device, timed.start)

    def _complaints(self, device: int, timed: Timed) -> Iterator[Complaint]:
        item, start, end = timed
        home = self.problem.device_name(device)
        if isinstance(item, Unreadable):
            yield "text", f"{item.text!r} on {home} is no op; write <stage><F|B|W|BW><microbatch>"
            return
        if start < 0:
            yield "time", f"{item} starts at {start}, before time 0"
        complaints = [c for op in _ops_of(item) for c in self._add_op(op, device, start, end)]
        yield from complaints
        if any(rule == "name" for rule, _ in complaints):
            return
        if isinstance(item, Pair):
            yield from self._pair(item)
        wanted = self._length(item)
        if wanted is not None and end - start != wanted:
            yield "length", f"{item} on {home} lasts {lasting(start, end)}, expected {wanted}"

    def _add_op(self, op: Op, device: int, start: int, end: int) -> Iterator[Complaint]:
        problem = self.problem
        if op.stage >= len(problem.stages):
            yield "name", f"{op} names stage {op.stage}, the last one is {len(problem.stages) - 1}"
            return
        if op.microbatch >= problem.microbatches[op.stage]:
            last = problem.microbatches[op.stage] - 1
            yield (
                "name",
                f"{op} names microbatch {op.microbatch}, the last one of its route is {last}",
            )
            return
        yield from elsewhere(problem, op, device, "runs")
        if problem.stages[op.stage].modes or op.mode:
            yield from self._note_mode(op)
            op = op._replace(mode=0)
        if op in self.times:
            yield "doubled", f"{op} stands twice, at {self.times[op][0]} and at {start}"
            return
        self.times[op] = (start, end)

    def _note_mode(self, op: Op) -> Iterator[Complaint]:
        count = len(self.problem.stages[op.stage].modes)
        if op.mode > count:
            yield (
                "mode",
                f"{op} runs in mode {op.mode}, the last one of stage {op.stage} is {count}",
            )
            return
        key = op.stage, op.microbatch
        self.seen[key].setdefault(op.mode, op)
        if op.mode:
            self.modes.setdefault(key, op.mode)

    def modes_differ(self) -> Iterator[Violation]:
        """All ops of a (stage, microbatch), or of a whole stage, run in one mode."""
        of_stage: dict[int, dict[int, Op]] = defaultdict(dict)
        for (stage, _), seen in self.seen.items():
            if len(seen) > 1:
                yield self._two_modes(list(seen.values()), "the ops of one microbatch")
            for mode, op in seen.items():
                of_stage[stage].setdefault(mode, op)
        if self.problem.mode_choice == "stage":
            for seen in of_stage.values():
                if len(seen) > 1:
                    which = "with `mode_choice` stage, all microbatches of one"
                    yield self._two_modes(list(seen.values()), which)

    def _two_modes(self, differing: list[Op], which: str) -> Violation:
        one, other = differing[:2]
        modes = (mode_of(self.problem, op) for op in (one, other))
        names = [mode.name if mode else "keep" for mode in modes]
        text = f"{one} runs in mode {names[0]}, {other} in {names[1]}; {which} run in one mode"
        return Violation("mode", text, self.problem.stages[one.stage].device)

    def _pair(self, pair: Pair) -> Iterator[Complaint]:
        first, second = pair
        if (first.stage, first.microbatch) == (second.stage, second.microbatch):
            yield "kind", f"{pair}: a pair needs two different (stage, microbatch)"
        elif self.problem.overlap is None:
            yield "kind", f"{pair}: this problem has no `overlap`, so pairs are not allowed"
        elif self._length(pair) is None:
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

    def _length(self, item: Op | Pair) -> int | None:
        """How long an item lasts; ``None`` for a pair that is not allowed."""
        if not isinstance(item, Pair):
            stage = restated(self.problem, item)
            return {"F": stage.F, "B": stage.B, "W": stage.W, "BW": stage.BW}[item.kind]
        overlap = self.problem.overlap
        if overlap is None:
            return None
        listed = self._listed(item)
        if isinstance(listed, int):
            return listed
        if listed is not None:
            num, den = listed
            alone = [self._length(op) or 0 for op in item]
            return max(1, (sum(alone) * num + den - 1) // den)
        for forward, backward in (item, item[::-1]):
            if overlap.factor and (forward.kind, backward.kind) == ("F", "BW"):
                num, den = overlap.factor
                f = restated(self.problem, forward).F
                bw = restated(self.problem, backward).BW
                return max(f, bw, ((f + bw) * num + den - 1) // den)
        return None

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


def _ops_of(item: Op | Pair) -> list[Op]:
    return [item.first, item.second] if isinstance(item, Pair) else [item]


def elsewhere(problem: Problem, what: Op | Copy, device: int, does: str) -> Iterator[Complaint]:
    """What is not on the device of its stage."""
    home = problem.stages[what.stage].device
    if home != device:
        where, there = problem.device_name(device), problem.device_name(home)
        yield "device", f"{what} {does} on {where}, but stage {what.stage} lies on {there}"


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
