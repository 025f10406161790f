"""One microbatch alone: whether it can pass the devices, and how.

Alone on its route, a microbatch runs F on every stage and then the backwards, the last stage's
first. Memory counts wherever time passes; ops of length zero that follow each other without delay
share an instant, and only the state after all of them matters. Call a place between two ops where
time passes a *stop*. At a stop all pending weight gradients run, which only frees memory. Between
two stops lies a *segment*: one op of any length, then ops of length zero without a delay.

Stopping wherever the state fits loses nothing: the rest of a segment, begun from a stop, holds no
more than it did as part of the longer one. So one pass that stops at the first place that fits
finds a way if there is one, in time proportional to the ops.

*Memory modes in which it needs least.* A microbatch alone runs F on the chunks s1, s2, ... of a
device and then their backwards in reverse, each chunk resting in between: from F (or O) to the
backward (or L) of s_i it holds ``rest_i``, while its F, copies and backward run ``peak_i``. So a
device needs

    max over i of (rest_1 + ... + rest_(i-1) + peak_i)

and, for a given slack, the modes with the least rest whose peak fits, chosen from s1 on, leave most
to all that follow: if they do not fit, none do. Where all microbatches of a stage run in one mode,
its peak must fit for every class; modes with less rest have less for every class, because a class
scales all of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

from pipesat.problem.ops import Kind, Op, Phase
from pipesat.problem.problem import Problem
from pipesat.problem.rules import duration, link_delay, memory_change
from pipesat.problem.variants import Variant, variants


class CourseStep(NamedTuple):
    """F or backward of a stage; ``apart`` if time surely passes between the step before and it."""

    stage: int
    phase: Phase
    apart: bool


@dataclass(frozen=True)
class PassageAlone:
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


def steps_of(problem: Problem, route: int) -> list[CourseStep]:
    """All steps of a microbatch of a route, on all devices."""
    stages = problem.routes[route].stages
    steps = []
    for stage in stages:
        before = problem.previous[stage]
        delay = 0 if before is None else link_delay(problem, before, "F")
        steps.append(CourseStep(stage, "F", delay > 0))
    return steps + [CourseStep(s, "B", link_delay(problem, s, "B") > 0) for s in reversed(stages)]


def steps_by_device(problem: Problem, route: int) -> dict[int, list[CourseStep]]:
    """Per device, its own steps; what lies between two of them takes as little time as it may."""
    own: dict[int, list[CourseStep]] = {}
    past: dict[int, int] = {}  # how often time had passed when a device's last step ended
    passed = 0
    for stage, phase, apart in steps_of(problem, route):
        data = problem.stages[stage]
        passed += apart
        own.setdefault(data.device, []).append(
            CourseStep(stage, phase, past.get(data.device, -1) < passed)
        )
        passed += (data.F if phase == "F" else data.shortest_backward) > 0
        past[data.device] = passed
    return own


def pass_alone(
    problem: Problem, steps: Sequence[CourseStep], slacks: Mapping[int, int | None]
) -> PassageAlone:
    """Let one microbatch pass with so much slack on every device; see the module's text."""
    walk = _Course(problem, slacks)
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
    return PassageAlone(tuple(kinds), tuple(stops), tuple(sorted(short)))


def need_alone(problem: Problem, steps: Sequence[CourseStep]) -> int:
    """Least slack of a device, whose steps these are, if all others have enough."""
    (device,) = {problem.stages[step.stage].device for step in steps}
    # with memory for everything at once, a microbatch passes; binary search
    stages = {step.stage: problem.stages[step.stage] for step in steps}.values()
    everything = sum(max(s.held_after_F, s.held_after_B, s.held_in_backward) for s in stages)
    return bisect_left(
        range(everything),
        True,
        key=lambda slack: pass_alone(problem, steps, {device: slack}).complete,
    )


class _Course:
    """What a microbatch holds on its way, per device; ``short`` are those over their slack."""

    def __init__(self, problem: Problem, slacks: Mapping[int, int | None]) -> None:
        self.problem, self.slacks = problem, slacks
        self.held: dict[int, int] = defaultdict(int)
        self.pending: dict[int, int] = defaultdict(int)  # by W's that start at the next stop
        self.short: set[int] = set()

    def kind(self, step: CourseStep, *, first: bool) -> Kind:
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
        slack = self.slacks.get(device)
        return slack is None or amount <= slack


Modes: TypeAlias = dict[int, int]
"""Mode of each stage, for one microbatch."""


class _Way(NamedTuple):
    """A mode of a stage: what is held between F and backward, and while either runs, per class."""

    rest: tuple[int, ...]
    peak: tuple[int, ...]
    mode: int


def modes_that_fit(problem: Problem, route: int) -> list[Modes]:
    """Modes of one microbatch of each class that fit into every device: keep wherever possible.

    Where nothing fits, those of the least need.
    """
    chosen: list[Modes] = [{} for _ in problem.routes[route].class_numbers]
    for device, per_route in zip(problem.devices, problem.chunks_on, strict=True):
        stages = per_route.get(route, ())
        for group in _together(problem, route):
            ways = [_ways(problem, stage, group) for stage in stages]
            modes: Sequence[int] | None = [0 for _ in stages]
            if device.slack is not None:
                modes = _kept_where_possible(ways, device.slack)
            if modes is None:
                modes = _modes_within(ways, _least_slack(ways)) or ()
            for of_class in group:
                chosen[of_class].update(zip(stages, modes, strict=True))
    return chosen


def need_of(problem: Problem, stages: Sequence[int]) -> int:
    """Least slack of a device for one microbatch on its chunks of one route, whatever its class."""
    return max(
        _least_slack([_ways(problem, stage, group) for stage in stages])
        for group in _together(problem, problem.route_of[stages[0]])
    )


def takes_time(problem: Problem, stages: Sequence[int]) -> bool:
    """Whether F and backward of these stages take time in every mode and class."""
    return all(
        variant.forward and variant.backward
        for stage in stages
        for of_class in problem.route(stage).class_numbers
        for variant in variants(problem, stage, of_class)
    )


def _together(problem: Problem, route: int) -> list[list[int]]:
    """Classes whose microbatches share their modes."""
    classes = list(problem.routes[route].class_numbers)
    return [classes] if problem.mode_choice == "stage" else [[of_class] for of_class in classes]


def _ways(problem: Problem, stage: int, classes: Sequence[int]) -> list[_Way]:
    """A stage's modes, those with the least rest first."""
    fused = [{v.mode: v for v in variants(problem, stage, of)} for of in classes]  # where it may
    return sorted(
        _Way(tuple(own[mode].rest for own in fused), tuple(_peak(own[mode]) for own in fused), mode)
        for mode in problem.modes_of(stage)
    )


def _peak(variant: Variant) -> int:
    """Most that is held from F on; a backward that takes no time holds nothing on top."""
    return variant.most if variant.backward else max(variant.held, variant.after)


def _least_slack(ways: Sequence[Sequence[_Way]]) -> int:
    enough = sum(max(max(way.peak) for way in of_stage) for of_stage in ways)
    return bisect_left(
        range(enough), True, key=lambda slack: _modes_within(ways, slack) is not None
    )


def _modes_within(
    ways: Sequence[Sequence[_Way]], slack: int, held: Sequence[int] = ()
) -> list[int] | None:
    """Per chunk the mode with the least rest that fits; ``None`` if there is none.

    ``held`` is what chunks before these hold, per class.
    """
    modes = []
    for of_stage in ways:
        way = next((way for way in of_stage if _fits(way, slack, held)), None)
        if way is None:
            return None
        modes.append(way.mode)
        held = _with(way, held)
    return modes


def _kept_where_possible(ways: Sequence[Sequence[_Way]], slack: int) -> list[int] | None:
    """As :func:`_modes_within`, but per chunk the first mode with which all others still fit."""
    modes: list[int] = []
    held: Sequence[int] = ()
    for at, of_stage in enumerate(ways):
        for way in sorted(of_stage, key=lambda way: way.mode):
            others = ways[at + 1 :]
            if (
                _fits(way, slack, held)
                and _modes_within(others, slack, _with(way, held)) is not None
            ):
                break
        else:
            return None
        modes.append(way.mode)
        held = _with(way, held)
    return modes


def _fits(way: _Way, slack: int, held: Sequence[int]) -> bool:
    return all(h + peak <= slack for h, peak in zip_longest(held, way.peak, fillvalue=0))


def _with(way: _Way, held: Sequence[int]) -> list[int]:
    return [h + rest for h, rest in zip_longest(held, way.rest, fillvalue=0)]
