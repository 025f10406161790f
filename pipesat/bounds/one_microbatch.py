"""One microbatch alone: whether it can pass the devices, and how.

Alone on its route, a microbatch runs F on every stage and then the backwards, the last stage's
first. Memory counts wherever time passes; ops of length zero that follow each other without delay
share an instant, and only the state after all of them matters. Call a place between two ops where
time passes a *stop*. At a stop all pending weight gradients run, which only frees memory. Between
two stops lies a *segment*: one op of any length, then ops of length zero without a delay.

Stopping wherever the state fits loses nothing: the rest of a segment, begun from a stop, holds no
more than it did as part of the longer one. So one pass that stops at the first place that fits
finds a way if there is one, in time proportional to the ops.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pipesat.core.ops import Kind, Op, Phase
from pipesat.core.problem import Problem
from pipesat.core.rules import duration, link_delay, memory_change


class Step(NamedTuple):
    """F or backward of a stage; ``apart`` if time surely passes between the step before and it."""

    stage: int
    phase: Phase
    apart: bool


@dataclass(frozen=True)
class Passage:
    """How a microbatch passes: the kind of op of each step, and how many are done at every stop.

    If it cannot pass, this is how far it gets: wherever the next stop would be, one of the devices
    ``short`` lacks memory.
    """

    kinds: tuple[Kind, ...]
    stops: tuple[int, ...]
    short: tuple[int, ...]

    @property
    def complete(self) -> bool:
        """Whether it passes."""
        return not self.short


def steps_of(problem: Problem, route: int) -> list[Step]:
    """All steps of a microbatch of a route, on all devices."""
    stages = problem.routes[route].stages
    steps = []
    for stage in stages:
        before = problem.previous[stage]
        delay = 0 if before is None else link_delay(problem, before, "F")
        steps.append(Step(stage, "F", delay > 0))
    return steps + [Step(s, "B", link_delay(problem, s, "B") > 0) for s in reversed(stages)]


def steps_by_device(problem: Problem, route: int) -> dict[int, list[Step]]:
    """Per device, its own steps; what lies between two of them takes as little time as it may."""
    own: dict[int, list[Step]] = {}
    past: dict[int, int] = {}  # how often time had passed when a device's last step ended
    passed = 0
    for stage, phase, apart in steps_of(problem, route):
        data = problem.stages[stage]
        passed += apart
        own.setdefault(data.device, []).append(
            Step(stage, phase, past.get(data.device, -1) < passed)
        )
        passed += (data.F if phase == "F" else data.shortest_backward) > 0
        past[data.device] = passed
    return own


def pass_alone(problem: Problem, steps: Sequence[Step], rooms: Mapping[int, int | None]) -> Passage:
    """Let one microbatch pass with so much room on every device; see the module's text."""
    walk = _Walk(problem, rooms)
    kinds: list[Kind] = []
    stops = [0]
    short: set[int] = set()
    for step in steps:
        first = stops[-1] == len(kinds)
        kind = walk.kind(step, first=first)
        if not first and (step.apart or duration(problem, Op(step.stage, kind, 0))):
            break  # time has to pass here, and some device lacks memory
        fits = walk.take(step.stage, kind)
        short |= walk.short
        if not fits:
            break
        kinds.append(kind)
        if not walk.short:
            walk.pending.clear()
            short.clear()
            stops.append(len(kinds))
    return Passage(tuple(kinds), tuple(stops), tuple(sorted(short)))


def need_alone(problem: Problem, steps: Sequence[Step]) -> int:
    """Least room of a device, whose steps these are, if all others have enough."""
    (device,) = {problem.stages[step.stage].device for step in steps}

    def passes(room: int) -> bool:
        return pass_alone(problem, steps, {device: room}).complete

    # with room for everything at once, a microbatch passes; binary search
    stages = {step.stage: problem.stages[step.stage] for step in steps}.values()
    everything = sum(max(s.held_after_F, s.held_after_B, s.held_in_backward) for s in stages)
    return bisect_left(range(everything), True, key=passes)


class _Walk:
    """What a microbatch holds on its way, per device; ``short`` are those over their room."""

    def __init__(self, problem: Problem, rooms: Mapping[int, int | None]) -> None:
        self.problem, self.rooms = problem, rooms
        self.held: dict[int, int] = defaultdict(int)
        self.pending: dict[int, int] = defaultdict(int)  # by W's that start at the next stop
        self.short: set[int] = set()

    def kind(self, step: Step, *, first: bool) -> Kind:
        """Return the kind that leaves least of those that can run here.

        Within a segment that is one of length zero, if there is one. BW leaves nothing, so it comes
        first wherever it fits; where it does not, B fits at most if it takes no time.
        """
        data = self.problem.stages[step.stage]
        if step.phase == "F" or not data.may_fuse:
            return "F" if step.phase == "F" else "B"
        if not data.may_split:
            return "BW"
        fused = self._admits(Op(step.stage, "BW", 0)) if first else not data.BW
        return "BW" if fused or data.B else "B"

    def take(self, stage: int, kind: Kind) -> bool:
        """Run an op up to its end; False, and the device is short, if it does not fit meanwhile."""
        data = self.problem.stages[stage]
        device = data.device
        op = Op(stage, kind, 0)
        change = memory_change(self.problem, op)
        if not self._admits(op):
            self.short.add(device)
            return False
        left = data.held_after_B if kind == "B" else 0
        self.held[device] += change.net - left
        self.pending[device] += left if data.W else 0
        if self._fits(device, self.held[device] + self.pending[device]):
            self.short.discard(device)
        else:
            self.short.add(device)
        return True

    def _admits(self, op: Op) -> bool:
        """Whether what an op holds while it runs fits; one of length zero holds nothing."""
        device = self.problem.stages[op.stage].device
        most = self.held[device] + memory_change(self.problem, op).at_start
        return not duration(self.problem, op) or self._fits(device, most)

    def _fits(self, device: int, amount: int) -> bool:
        room = self.rooms.get(device)
        return room is None or amount <= room
