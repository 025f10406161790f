"""The problem of a trace, and how well its costs predict the steps that were measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from statistics import fmean, median
from typing import Any, Final, NamedTuple

import numpy as np

from pipesat.core.amounts import in_unit, unit_for
from pipesat.core.arrays import Floats
from pipesat.core.errors import BadInput, Deadlock, require, said_of
from pipesat.core.grouping import grouped
from pipesat.heuristics import BASELINES
from pipesat.kernels.timing import last_ends
from pipesat.measure.timeline.steps import WholeSteps, inputs_of
from pipesat.measure.timeline.trace_costs import CLASSES, Classes, Part, Stall, TraceCosts
from pipesat.problem.building import Backward
from pipesat.problem.costs import one_each
from pipesat.problem.ops import Op
from pipesat.problem.problem import (
    Device,
    Link,
    MicrobatchClass,
    Problem,
    Route,
    Stage,
    links_between,
)
from pipesat.problem.problem_checks import valid
from pipesat.schedule.timing import linearize

_UNIT: Final = "MiB"
COUNTED: Final = "activations"
"""Unit of memory where none is given: one for each microbatch that a stage holds."""


class Memory(NamedTuple):
    """What a trace cannot say: capacity and static memory by device, what stages hold after F."""

    memory: str | None = None
    static: str | None = None
    held: str | None = None


_UNKNOWN: Final = Memory()


def problem_of(
    costs: TraceCosts,
    number: int,
    delay: float,
    given: Memory = _UNKNOWN,
    classes: Classes | None = None,
    name: str = "",
    split: float | None = None,
) -> Problem:
    """Return the problem of one step, with the costs of its replica, in us.

    Without memory given, a stage holds one activation per microbatch from F to the end of its last
    backward, and a device has memory for as many as its order held. Of a backward that did not run
    in both forms, the other one is not known: such a stage has only the form that ran, but with
    ``split``, the part of a whole backward that B is assumed to take (else B and W are written as
    halves, which no schedule of it has).
    """
    steps, step = costs.steps, costs.steps.steps[number]
    held = given.held is not None
    require(
        (not given.memory and not given.static) or held,
        "expected it too, what stages hold after F",
        where="held",
    )
    groups = [0] * steps.microbatches if classes is None else costs.groups(classes)[number].tolist()
    usual = max(groups, key=groups.count)

    said = [one for text in filter(None, given) for one in text.split(",")]
    unit = unit_for([f"1{_UNIT}", *said]) or _UNIT

    def one_of(where: str, text: str | None, count: int) -> list[Any]:
        """Return one amount per device or stage; ``None``: unlimited."""
        limit = where == "memory"
        found = None if text is None else in_unit(where, text, unit, limit=limit)
        return one_each(found, count, where)

    def amounts(stage: int, group: int) -> dict[str, Any]:
        """Return the times of a stage's ops of one class."""
        found: dict[str, Any] = {}
        for place, (of, kind) in enumerate(costs.parts):
            if of == stage:
                ratio = 1.0 if classes is None else classes.ratios[place, group]
                found[kind] = round(costs.median(number, (of, kind)) * ratio)
        if "B" in found:
            return found
        b = round(found["BW"] * (0.5 if split is None else split))
        return found | {"B": b, "W": found["BW"] - b}

    holds = one_of("held", given.held, len(steps.homes)) if held else [1] * len(steps.homes)
    stages = list[Stage]()
    for stage, (home, after) in enumerate(zip(steps.homes, holds, strict=True)):
        ran = {kind for of, kind in costs.parts if of == stage}
        form: Backward = "fused" if split is None else "either"
        form = "split" if "BW" not in ran else "either" if "B" in ran else form
        held_after = {"held_after_F": after, "held_after_B": after}
        stages.append(Stage(home, **amounts(stage, usual), **held_after, backward=form))
    slack = one_of("memory", given.memory, steps.devices) if held else most_held(step.order)
    static = one_of("static", given.static or "0", steps.devices)
    devices = (
        Device(f"rank {rank}", capacity, taken)
        for rank, (capacity, taken) in enumerate(zip(slack, static, strict=True))
    )
    link, numbers = Link(round(delay), round(delay)), range(len(stages))
    route = Route((*numbers,), steps.microbatches)
    if classes is not None:
        found, definitions = [*dict.fromkeys(groups)], []
        for group in found:
            outright = ((s, tuple(amounts(s, group).items())) for s in numbers if group != usual)
            definitions.append(MicrobatchClass(f"class {group + 1}", outright=tuple(outright)))
        each = tuple(map(found.index, groups))
        route = replace(route, classes=each, definitions=tuple(definitions))
    problem = Problem(
        devices=tuple(devices),
        stages=tuple(stages),
        routes=(route,),
        links=links_between(steps.homes, [numbers], lambda *_: link),
        name=name,
        time_unit="us",
        memory_unit=unit if held else COUNTED,
    )
    with said_of("problem of the trace"):
        return valid(problem)


def most_held(order: Sequence[Sequence[Op]]) -> list[int]:
    """Return the most microbatches of its stages that each device holds, from F to BW or W."""
    changes = ([(op.kind == "F") - (op.kind in ("W", "BW")) for op in row] for row in order)
    return [max(accumulate(own, initial=0)) for own in changes]


_WORTH: Final = 0.002  # of the step: what another class has to improve
_RIGHT: Final = 0.0005  # of the step: a prediction that errs by less needs no link delay
_FAR: Final = 2  # so many times the delay that was seen is more than links do


class Error(NamedTuple):
    """Predicted over measured steps, less 1: the median, and 5th and 95th percentile."""

    median: float
    low: float
    high: float


def error_of(predicted: Floats, measured: Floats) -> Error:
    """Compare predictions with what steps took."""
    low, high = np.quantile(predicted / measured - 1, (0.05, 0.95), method="nearest")
    return Error(float(np.median(predicted / measured - 1)), float(low), float(high))


@dataclass(frozen=True)
class Prediction:
    """Predicted against measured steps; times in us.

    Attributes
    ----------
    measured
        What steps took, of all replicas.
    medians, own
        Errors without link delay: of medians by stage of the same steps, and of the ops' own times.
    classes
        Groups of microbatches, where these differ; ``None``: they do not.
    by_class
        Error with these classes, fitted on half of the steps (those of every second replica) and
        judged by the others, each with the medians of its replica's other steps; ``None``: there
        are no classes, or no others.
    delay
        Delay of every link that makes predictions right in the median; 0: none is needed.
    seen_delay
        Median time from the end of what an op waited for to its start; ``None``: none waited, or
        the trace cannot tell.
    resolves
        The middle size of the errors of a prediction of steps from others, as a part of the step,
        with the link delay that was given, else seen, else none; ``None``: there are no others.
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
    resolves: float | None
    stalls: tuple[Stall, ...]
    lost: Mapping[tuple[int, int], float]
    noise: Mapping[Part, float]
    slowest: float | None

    @property
    def seen_alone(self) -> float | None:
        """The delay that was seen, if the fitted one is far above; else ``None``."""
        seen = None if self.seen_delay is None else max(0.0, self.seen_delay)
        return None if seen is None or self.delay <= _FAR * seen else seen


Replay = Callable[..., Floats]
"""Of times of ops, a row per step, and a delay of every link: what steps take, in us."""


def replay_of(costs: TraceCosts) -> Replay:
    """Return what times all steps again, as early as possible: those of one order in one pass."""
    problem, column = problem_of(costs, 0, 1), {str(op): n for n, op in enumerate(costs.ops)}
    alike = grouped((step.order, number) for number, step in enumerate(costs.steps.steps))
    try:
        lines = [(linearize(problem, order), rows) for order, rows in alike.items()]
    except Deadlock as error:
        raise BadInput(
            f"the ops of its ranks wait for each other: {error}", source=costs.steps.trace.source
        ) from None

    def makespans(times: Floats, delay: float = 0.0) -> Floats:
        found = np.empty(len(times))
        for line, rows in lines:
            table = times[np.ix_(rows, [column[str(item)] for item in line.item])]
            late = line.arrays.delay * np.float64(delay)
            ends = last_ends(line.arrays, table, late, len(problem.devices), False)
            found[rows] = ends.max(axis=(1, 2))
        return found

    return makespans


def predict(costs: TraceCosts, given_delay: float | None = None) -> Prediction:
    """Predict every step of a trace from its costs, and compare.

    How many classes there are, the steps decide that they are fitted on: one more has to make the
    middle size of their errors smaller.
    """
    replay, steps, measured = replay_of(costs), costs.steps, costs.measured
    classes = by_class = None
    times, unseen = costs.by_median, costs.unseen
    fit, judge = costs.halves

    def missed(times: Floats, delay: float = 0.0) -> Floats:
        """Return the size of each step's error."""
        return abs(replay(times, delay) / measured - 1)

    if costs.vary:
        for one in [costs.fitted(count, fit) for count in range(2, CLASSES + 1)]:
            new = costs.by_class(one, costs.by_median)
            if np.median(missed(new)[fit]) + _WORTH < np.median(missed(times)[fit]):
                classes, times = one, new
    judged = np.isfinite(unseen).all(axis=1)
    if classes is not None:
        unseen = costs.by_class(classes, unseen)
        judged &= np.isin(np.arange(len(judged)), judge)
        by_class = error_of(replay(unseen)[judged], measured[judged]) if judged.any() else None
    seen = _seen(steps)
    errors = missed(unseen, max(0.0, seen or 0.0) if given_delay is None else given_delay)[judged]
    own = replay(costs.own)
    lost = own - replay(np.where(costs.stalled, costs.expected, costs.own))
    return Prediction(
        tuple(measured.tolist()),
        error_of(replay(costs.by_median), measured),
        error_of(own, measured),
        classes,
        by_class,
        _delay_that_explains(replay, times, measured) if steps.trace.timed else 0.0,
        seen,
        float(np.median(errors)) if len(errors) else None,
        tuple(costs.stalls),
        {
            (steps.steps[n].replica, steps.steps[n].iteration): float(lost[n])
            for n in np.flatnonzero(costs.stalled.any(axis=1))
        },
        costs.noise,
        _slowest(steps),
    )


def _delay_that_explains(replay: Replay, times: Floats, measured: Floats) -> float:
    """Return the delay of every link that lets predictions be right in the median; 0: none."""

    def error(delay: float) -> float:
        return error_of(replay(times, delay), measured).median

    low, high = 0.0, float(np.median(measured))
    if error(0.0) > -_RIGHT or error(high) < 0:
        return 0.0
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if error(middle) < 0 else (low, middle)
    return high


def _seen(found: WholeSteps) -> float | None:
    """Return the median delay of ops that were waited for, by a device with nothing else to do.

    Steps whose clocks did not agree tell none.
    """
    if not found.trace.timed:
        return None
    seen = []
    for step in (one for one in found.steps if not one.shifted):
        for row in step.order:
            for before, op in pairwise(row):
                source = inputs_of(op, found.homes, step.times)
                if source is None or op in step.waiting:
                    continue
                if step.times[source][1] > step.times[before][1]:
                    seen.append(step.times[op][0] - step.times[source][1])
    return median(seen) if seen else None


def _slowest(found: WholeSteps) -> float | None:
    """Return the median, over iterations, of the slowest replica's step over the mean one."""
    lengths = grouped((step.iteration, step.length) for step in found.steps)
    several = [max(own) / fmean(own) for own in lengths.values() if len(own) > 1]
    return median(several) if several else None


def laid_out(found: WholeSteps) -> WholeSteps:
    """Give ops that are known by their lengths alone the order of Megatron's 1F1B."""
    name = "1f1b" if found.placement == "chain" else "interleaved-1f1b"
    order: Any = BASELINES[name](problem_of(TraceCosts(found), 0, 0)).order
    return replace(found, steps=tuple(replace(step, order=order) for step in found.steps))
