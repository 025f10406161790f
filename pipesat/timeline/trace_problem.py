"""The problem of a trace, and how well its costs predict the steps that were measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, median
from typing import Any, Final, NamedTuple

from pipesat.core.amounts import in_unit
from pipesat.core.errors import BadInput, Deadlock
from pipesat.core.ops import Kind, Op
from pipesat.core.problem import Problem
from pipesat.core.timing import linearize
from pipesat.files.problem_file import parse_problem
from pipesat.files.strict_json import FORMAT
from pipesat.heuristics import BASELINES
from pipesat.timeline.steps import Step, Steps, inputs_of
from pipesat.timeline.trace_costs import (
    CLASSES,
    Classes,
    Costs,
    Error,
    Lengths,
    Part,
    Replays,
    Stall,
    error_of,
)

UNIT: Final = "MiB"
COUNTED: Final = "activations"
"""Unit of memory where none is given: one for each microbatch that a stage holds."""


class Memory(NamedTuple):
    """What a trace cannot say: capacity and static memory by device, what stages hold after F."""

    memory: str | None = None
    static: str | None = None
    held: str | None = None


def problem_of(
    costs: Costs,
    number: int,
    delay: float,
    given: Memory,
    classes: Classes | None = None,
    name: str = "",
) -> Problem:
    """Return the problem of one step, with the costs of its replica, in us.

    Without memory given, a stage holds one activation per microbatch from F to the end of its last
    backward, and a device has room for as many as its order held. Of a backward that did not run in
    both forms, the other one is not known: such a stage has only the form that ran.
    """
    steps, step = costs.steps, costs.steps.steps[number]
    stages, devices = [], []
    held = given.held is not None
    holds = _each("held", given.held, len(steps.homes), up=True) if held else None
    groups = [0 if classes is None else classes.of(costs.sizes[number][m]) for m in _numbers(steps)]
    usual = max(groups, key=groups.count)
    for stage, home in enumerate(steps.homes):
        own: Any = _amounts(costs, number, stage, classes, usual)
        both = {"B", "BW"} <= own.keys()
        form = "either" if both else "split" if "B" in own else "fused"
        if form == "fused":
            own = {"B": 0, "W": own["BW"], **own}
        after = 1 if holds is None else holds[stage]
        entry: dict[str, Any] = {"device": home, **own, "backward": form}
        stages.append(entry | {"held_after_F": after, "held_after_B": after})
    if (given.memory or given.static) and not held:
        raise BadInput("expected what stages hold after F, too", where="held", value=None)
    room: Sequence[int | None] = (
        _each("memory", given.memory, steps.devices) if held else most_held(step.order)
    )
    static = _each("static", given.static or "0", steps.devices, up=True)
    for rank, (capacity, taken) in enumerate(zip(room, static, strict=True)):
        devices.append({"name": f"rank {rank}", "memory": capacity, "static": taken})
    document: dict[str, Any] = {
        "format": FORMAT,
        "name": name,
        "time_unit": "us",
        "memory_unit": UNIT if held else COUNTED,
        "microbatches": steps.microbatches
        if classes is None
        else _listed(costs, number, classes, groups, usual),
        "devices": devices,
        "stages": stages,
        "comm": {"default": round(delay)},
    }
    return parse_problem(document, "problem of the trace")


def _each(where: str, text: str | None, count: int, *, up: bool = False) -> list[Any]:
    """Return one amount per device or stage; ``None``: unlimited."""
    if text is None:
        return [None] * count
    found = in_unit(where, text, UNIT, up=up)
    values = found if isinstance(found, list) else [found] * count
    if len(values) != count:
        raise BadInput(f"expected one amount, or {count}", where=where, value=text)
    return values


def _numbers(steps: Steps) -> range:
    return range(steps.microbatches)


def _amounts(
    costs: Costs, number: int, stage: int, classes: Classes | None, group: int
) -> dict[Kind, int]:
    """Return the times of a stage's ops of one class, in us."""
    replica = costs.steps.steps[number].replica
    return {
        part[1]: round(time * (1.0 if classes is None else classes.ratios.get((part, group), 1.0)))
        for (of, part), time in costs.medians.items()
        if of == replica and part[0] == stage
    }


def _listed(
    costs: Costs, number: int, classes: Classes, groups: Sequence[int], usual: int
) -> list[dict[str, Any]]:
    """Return the list of microbatches: a class's first entry has its times, but for the usual's."""
    entries: list[dict[str, Any]] = []
    for place, group in enumerate(groups):
        name = f"class {group + 1}"
        if entries and entries[-1]["name"] == name:
            entries[-1]["count"] += 1
            continue
        entries.append({"name": name, "count": 1})
        if group != usual and group not in groups[:place]:
            entries[-1]["stages"] = {
                str(stage): _amounts(costs, number, stage, classes, group)
                for stage in range(len(costs.steps.homes))
            }
    return entries


def most_held(order: Sequence[Sequence[Op]]) -> list[int]:
    """Return the most microbatches of its stages that each device holds, from F to BW or W."""
    most = []
    for row in order:
        held = [0]
        for op in row:
            held.append(held[-1] + (op.kind == "F") - (op.kind in ("W", "BW")))
        most.append(max(held))
    return most


_WORTH = 0.002  # of the step: what another class has to improve


@dataclass(frozen=True)
class Prediction:
    """Predicted against measured steps; times in us.

    Attributes
    ----------
    measured
        What steps took, of all replicas.
    medians, own
        Errors without link delay: of medians by stage, and of the ops' own times.
    classes
        Groups of microbatches, where these differ; ``None``: they do not.
    by_class
        Error with these classes, fitted on half of the steps (those of every second replica) and
        judged by the others.
    delay
        Delay of every link that makes predictions right in the median; 0: none is needed.
    seen_delay
        Median time from the end of what an op waited for to its start; ``None``: none waited, or
        the trace cannot tell.
    resolves
        The middle size of the errors of such a prediction, as a part of the step.
    stalls
        Ops that took far longer than else, with what each of their steps lost to them.
    noise
        How much ops of a stage and kind vary, as a part of their mean.
    slowest
        What the slowest replica takes, over the mean one; ``None``: there is one.
    """

    measured: tuple[float, ...]
    medians: Error
    own: Error
    classes: Classes | None
    by_class: Error | None
    delay: float
    seen_delay: float | None
    resolves: float
    stalls: tuple[Stall, ...]
    lost: Mapping[tuple[int, int], float]
    noise: Mapping[Part, float]
    slowest: float | None


def replays_of(costs: Costs) -> Replays:
    """Return the replays of all steps."""
    problem = problem_of(costs, 0, 0, Memory())
    orders = {step.order for step in costs.steps.steps}
    try:
        return Replays(costs, {order: linearize(problem, order) for order in orders})
    except Deadlock as error:
        text = f"the ops of its ranks wait for each other: {error}"
        raise BadInput(text, source=costs.steps.trace.source) from None


def predict(costs: Costs) -> Prediction:
    """Predict every step of a trace from its costs, and compare.

    How many classes there are, the steps decide that they are fitted on: one more has to make the
    middle size of their errors smaller.
    """
    replays, steps = replays_of(costs), costs.steps.steps
    classes = by_class = None
    length: Lengths = costs.by_median
    fit, judge = costs.halves

    def missed(length: Lengths, on: Sequence[int]) -> float:
        """Return the middle size of the errors of some steps."""
        found = zip(replays.makespans(length, on=on), on, strict=True)
        return median(abs(time / (steps[n].length or 1.0) - 1) for time, n in found)

    if costs.vary:
        tried = [costs.fitted(count, fit) for count in range(2, CLASSES + 1)]
        for one in tried:
            if missed(costs.by_class(one), fit) + _WORTH < missed(length, fit):
                classes, length = one, costs.by_class(one)
        judged = replays.makespans(length, on=judge)
        by_class = error_of(judged, [steps[number] for number in judge])
    return Prediction(
        tuple(step.length for step in steps),
        error_of(replays.makespans(costs.by_median), steps),
        error_of(replays.makespans(costs.own), steps),
        classes,
        by_class,
        replays.delay_that_explains(length) if costs.steps.trace.timed else 0.0,
        _seen(costs.steps),
        missed(length, range(len(steps))),
        tuple(costs.stalls),
        _lost(costs, replays),
        costs.noise,
        _slowest(steps),
    )


def _lost(costs: Costs, replays: Replays) -> dict[tuple[int, int], float]:
    """Return what each step with stalls lost to them: timed with them and without, in us."""
    stalled = {stall[:3] for stall in costs.stalls}
    steps = costs.steps.steps
    on = [
        n
        for n, s in enumerate(steps)
        if any(stall[:2] == (s.replica, s.iteration) for stall in costs.stalls)
    ]

    def smooth(number: int, op: Op) -> float:
        step = steps[number]
        usual = (step.replica, step.iteration, op) in stalled
        return (costs.expected if usual else costs.own)(number, op)

    if not on:
        return {}
    with_them, without = (replays.makespans(length, on=on) for length in (costs.own, smooth))
    return {
        (steps[n].replica, steps[n].iteration): a - b
        for n, a, b in zip(on, with_them, without, strict=True)
    }


def _seen(found: Steps) -> float | None:
    """Return the median delay of ops that were waited for, by a device with nothing else to do."""
    seen = []
    for step in found.steps:
        for row in step.order:
            for before, op in pairwise(row):
                source = inputs_of(op, found.homes, step.times)
                if source is not None and step.times[source][1] > step.times[before][1]:
                    seen.append(step.times[op][0] - step.times[source][1])
    known = seen and found.trace.timed and not found.trace.waits_inside
    return median(seen) if known else None


def _slowest(steps: tuple[Step, ...]) -> float | None:
    """Return the median, over iterations, of the slowest replica's step over the mean one."""
    lengths: dict[int, list[float]] = defaultdict(list)
    for step in steps:
        lengths[step.iteration].append(step.length)
    several = [max(own) / fmean(own) for own in lengths.values() if len(own) > 1]
    return median(several) if several else None


def laid_out(found: Steps) -> Steps:
    """Give ops that are known by their lengths alone the order of Megatron's 1F1B."""
    problem = problem_of(Costs(found), 0, 0, Memory())
    name = "1f1b" if found.placement == "chain" else "interleaved-1f1b"
    order: Any = BASELINES[name](problem).order
    return replace(found, steps=tuple(replace(step, order=order) for step in found.steps))
