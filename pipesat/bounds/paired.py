"""Closed-form bounds of problems in which ops may run in pairs, device by device.

The ways of microbatches are those of plain problems, with the least times that ops can last on
them, alone or in pairs; what a device does meanwhile is counted
(:mod:`pipesat.bounds.paired_device`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from pipesat.bounds.device_terms import Crossing, DeviceTerms
from pipesat.bounds.devices import way_of, work_of
from pipesat.bounds.memory_counts import with_slacks_in_use
from pipesat.bounds.paired_device import PairedDevice, Ways, runs_on
from pipesat.bounds.paired_memory import Around, least_end_in_memory
from pipesat.bounds.paired_ranks import RankTimes, least_length_by_ranks, most_ranks
from pipesat.bounds.paired_waiting import Course
from pipesat.core.claims import Bound
from pipesat.problem.ops import KINDS, PHASE_OF, Kind, OpKind
from pipesat.problem.plain_problems import least_problem, of_each_class
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Objective

_MayPair: TypeAlias = Callable[[Kind, Kind], bool]


def with_least_times(problem: Problem) -> Problem:
    """Return the problem with the least time that every op can last, alone or in a pair.

    A relaxation for arguments that add up times of single ops: in any valid schedule an op lasts at
    least this long.
    """
    return _with_times(problem, problem, lambda *_: True)


def least_times_of_each_class(problem: Problem) -> list[Problem]:
    """As :func:`with_least_times`, by class; a partner may be of any class and in any mode."""
    least = least_problem(problem)
    return [_with_times(one, least, lambda *_: True) for one in of_each_class(problem)]


def until_first_backward(problem: Problem) -> Problem:
    """As :func:`with_least_times`, for the way to and of a stage's first backward.

    The forwards on this way run before any backward of the route, so none is in a pair with one.
    """
    return _with_times(problem, problem, lambda op, partner: op != "F" or partner == "F")


def after_last_forward(problem: Problem) -> Problem:
    """As :func:`with_least_times`, for the way of the last backwards of the stages.

    When a stage's last backward starts, all forwards of the route have ended.
    """
    return _with_times(problem, problem, lambda op, partner: op == "F" or partner != "F")


def _with_times(problem: Problem, partners: Problem, may_pair: _MayPair) -> Problem:
    """Least times of a problem's ops beside those of another, which is no harder."""
    if problem.overlap is None:
        return problem
    stages = []
    for stage, data in enumerate(problem.stages):
        f, b, w, bw = (_least(problem, partners, (stage, kind), may_pair) for kind in KINDS)
        stages.append(replace(data, F=f, B=b, W=w, BW=bw))
    return replace(problem, stages=tuple(stages))


def _least(problem: Problem, partners: Problem, op: OpKind, may_pair: _MayPair) -> int:
    """Least time of an op; ``may_pair`` says which kinds of the same route count as partners."""
    stage, kind = op
    data, overlap = problem.stages[stage], problem.overlap
    alone = int(getattr(data, kind))
    times = [alone]
    for other in problem.stages_on[data.device]:
        apart = problem.route_of[other] != problem.route_of[stage]
        for partner in PHASE_OF:
            with_it = int(getattr(partners.stages[other], partner))
            time = overlap.time(op, (other, partner), alone, with_it) if overlap else None
            if time is not None and (apart or may_pair(kind, partner)):
                times.append(time)
    return min(times)


MOST_RUNS = 24  # (stage, class, mode)s of a device: beyond, programmes take seconds
_MOST_CLASSES = 256  # whose ways are looked at, one by one
_WORTH_RANKS = 0.96  # of the longest device's length; shorter ones are not looked at by rank


def paired_bounds(problem: Problem, objective: Objective) -> Iterator[Bound]:
    """Yield the bounds of every device: a microbatch's pass, and the least length by counts.

    Where microbatches differ or have modes, those of the least problem, and the least length with
    every class's own ops.

    As for plain problems (:mod:`pipesat.bounds.device_terms`), a single route's window bounds the
    span, too: that of the device with the first stage. Another device's own may end as much later
    as it starts, so its last weight gradients may.
    """
    whole_problem, least_of_all = problem, least_problem(problem)
    alone = [] if least_of_all is problem else of_each_class(problem)
    problem = with_slacks_in_use(least_of_all)
    first, last = until_first_backward(problem), after_last_forward(problem)
    least, around, lengths = with_least_times(problem), list[Around](), list[int]()
    devices = range(len(problem.devices)) if 0 < len(alone) <= MOST_RUNS else ()
    runs = [runs_on(whole_problem, device) for device in devices]
    if max(map(len, runs), default=0) > MOST_RUNS:
        runs = []
    absolute = objective == "makespan"
    whole = absolute or len(problem.routes) == 1
    for device, stages in enumerate(problem.stages_on):
        if not stages:
            continue
        name, counts = problem.device_name(device), PairedDevice(problem, device)
        routes = list(problem.chunks_on[device].values())
        found = [way_of(first, last, chunks) for chunks in routes]
        work = [work_of(least, stage, problem.microbatches[stage]) for stage in stages]
        terms = DeviceTerms(work, found, problem.devices[device].slack)
        passes = terms.passes(absolute=absolute) | (terms.route_pass() if whole else {})
        for argument, value in passes.items():
            yield Bound(value, f"closed form: {argument} of {name}")
        own, before = terms.start * absolute, terms.start * whole
        until = terms.first_backward(absolute=absolute) - own
        after = [
            _after_forward(last, way, chunks[0]) for way, chunks in zip(found, routes, strict=True)
        ]
        home, beyond = [way.end * whole for way in found], before - own
        each = [counts]
        if runs:
            each.append(PairedDevice(least_of_all, device, runs=runs[device]))
        length = max(
            min(
                count.least_length(Ways(until, to_backward, min(home), way, beyond))
                for to_backward, way in zip(after, home, strict=True)
            )
            for count in each
        )
        yield Bound(before + length, f"closed form: load with pairs of {name}")
        lengths.append(before + length)
        known = Ways(until, min(after), min(home), min(home), beyond)
        around.append(Around(device, known, before))
    if whole:
        most = max(lengths, default=0) * _WORTH_RANKS
        longest = [a for a, length in zip(around, lengths, strict=True) if length >= most]
        yield from _by_rank(problem, around, longest, least)
        few = 0 < len(alone) <= _MOST_CLASSES
        each_alone = least_times_of_each_class(whole_problem) if few else []
        for number, route in enumerate(problem.routes if each_alone else ()):
            ways = [way_of(one, one, route.stages) for one in each_alone]
            longest_way = max(int(way.turn + way.home) for way in ways)
            yield Bound(longest_way, f"closed form: longest pass of route {number}")
    course = _course(first, last, around) if whole else None
    together = least_end_in_memory(problem, around, course)
    if runs:
        if any(one.links != least_of_all.links for one in alone):
            course = None  # what waits is counted beside the least delays
        together = max(together, least_end_in_memory(least_of_all, around, course, runs))
    yield Bound(together, "closed form: load and memory with pairs of all devices")


def _after_forward(last: Problem, way: Crossing, low: int) -> int:
    """From the end of the last F of a device's stages to that of their last backward."""
    data = last.stages[low]
    return int(way.trip + way.back) - data.least_backward_work + data.shortest_backward


def _course(first: Problem, last: Problem, devices: Sequence[Around]) -> Course:
    """Least times from the origin to the end, all devices' from the same."""
    ways = [way_of(first, last, [stage]) for stage in range(len(last.stages))]
    backward, forward = [0] * len(last.devices), [0] * len(last.devices)
    for device, around, before in devices:
        backward[device] = before + around.until_backward
        forward[device] = around.after_forward + around.after_backward
    begin, home = tuple(way.begin for way in ways), tuple(way.end for way in ways)
    return Course(begin, home, tuple(backward), tuple(forward))


def _by_rank(
    problem: Problem, devices: Sequence[Around], chosen: Sequence[Around], least: Problem
) -> Iterator[Bound]:
    """Yield bounds of chosen devices by the ranks of first backwards."""
    first = [0] * len(problem.devices)
    for device, ways, before in devices:
        first[device] = before + ways.until_backward
    ranks = RankTimes(problem, least, first)
    if not ranks.apply:
        return
    for device, ways, before in chosen:
        home = PairedDevice(problem, device)
        starts = ranks.backwards(device, most_ranks(home), own=ways.beyond > 0)
        length = least_length_by_ranks(home, ways, [start - before for start in starts])
        name = problem.device_name(device)
        yield Bound(before + length, f"closed form: load with pairs by rank of {name}")
