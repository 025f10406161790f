"""How well costs predict the steps of a trace, and what is left to a link delay and to stalls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from pipesat.core.errors import BadInput, Deadlock
from pipesat.core.ops import Op
from pipesat.core.timing import linearize
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
from pipesat.timeline.trace_problem import Memory, problem_of

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
    """Return the replays of all steps.

    Raises
    ------
    BadInput
        If the orders of the ranks contradict each other.
    """
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
