"""Closed-form lower bounds on makespan and span: arithmetic, no search.

One collector asks what a problem has: each argument comes once, for whatever it holds of.
docs/proofs/bounds.md derives them; :mod:`pipesat.bounds.device_terms` has those of one device.

*Warm-ups of a chain.* Before its first backward a device runs forwards only, one after the other.
So the time from its first op to its first backward, its *warm-up*, is that of k whole forwards and
of some idling. A device's warm-up outlasts that of the next one by a fixed time, the way to it and
back. The k are limited by memory, and a device that has little time to spare cannot idle long:
together this bounds the whole schedule, where each device alone would be fine.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pipesat.bounds.devices import classes_of, terms_of
from pipesat.bounds.feasibility import certain_activations
from pipesat.bounds.given_order import bounds_of_given_order
from pipesat.bounds.graph_paths import chain_of, graph_bounds
from pipesat.bounds.memory_counts import Number
from pipesat.bounds.modes import counted_bounds
from pipesat.bounds.own_ways import bounds_of_own_ways
from pipesat.bounds.paired import paired_bounds
from pipesat.bounds.paired_passing import paired_passing_bounds
from pipesat.bounds.passing import passing_bounds
from pipesat.core.arguments import public
from pipesat.core.claims import Bound
from pipesat.problem.plain_problems import least_problem
from pipesat.problem.problem import Problem
from pipesat.problem.rules import link_delay
from pipesat.schedule.schedule import Objective


@public
def closed_form_bound(problem: Problem, objective: Objective) -> Bound:
    """Return the best closed-form bound and the name of its argument, in time units."""
    return max(closed_form_bounds(problem, objective), key=lambda bound: bound.value)


def closed_form_bounds(problem: Problem, objective: Objective) -> list[Bound]:
    """Return what :func:`closed_forms` yields."""
    return [*closed_forms(problem, objective)]


def closed_forms(problem: Problem, objective: Objective) -> Iterator[Bound]:
    """Yield the bound of every argument that applies, device by device, in time units.

    What takes longest comes last, so a caller without time for all takes the first.
    """
    best = 0
    for bound in _uncounted(problem, objective):
        best = max(best, bound.value)
        yield bound
    if problem.chains_only:
        yield from counted_bounds(problem, objective, best)


def _uncounted(problem: Problem, objective: Objective) -> Iterator[Bound]:
    """Yield those that count no modes."""
    yield Bound(0, "closed form: nothing takes less than no time")
    if not problem.chains_only:
        yield from _of_graphs(problem, objective)
        return
    overlap = problem.overlap
    if overlap is None or not overlap.listed:  # pairs of any other time have an argument of theirs
        yield from _of_devices(problem, objective)
    if overlap is None:
        yield from bounds_of_own_ways(problem, objective)
        yield from bounds_of_given_order(problem, objective)
        yield from passing_bounds(problem, objective)
    if overlap is not None:
        yield from paired_bounds(problem, objective)
        yield from paired_passing_bounds(problem, objective)


def _of_graphs(problem: Problem, objective: Objective) -> Iterator[Bound]:
    """Yield those of graphs, and of a chain that has less to do and to obey."""
    yield from graph_bounds(problem, objective)
    found = chain_of(problem)
    if found is not None:
        chain, kept = found
        whole = len(kept) == len(problem.stages)
        way = "without the slices' rule" if whole else f"on the way through stages {_few(kept)}"
        for bound in closed_forms(chain, objective):
            yield Bound(bound.value, f"{bound.source}, {way}")


def _few(stages: Sequence[int]) -> str:
    most = 8
    return ", ".join(map(str, stages[:most])) + (" ..." if len(stages) > most else "")


def _of_devices(problem: Problem, objective: Objective) -> Iterator[Bound]:
    """Yield those of every device alone; and, on a chain, their warm-ups.

    A single route's window lies within that of the device with its first stage, so it bounds the
    span, too.
    """
    problem, alone = classes_of(problem)
    absolute = objective == "makespan"
    terms = {device: terms_of(problem, alone, device) for device in problem.busy}
    for device, found in terms.items():
        values: dict[str, Number] = found.own_window(absolute=absolute)
        if absolute or len(problem.routes) == 1:
            values |= found.route_window(absolute=absolute)
        name = problem.device_name(device)
        for argument, value in values.items():
            yield Bound(value, f"closed form: {argument} of {name}")
    if problem.overlap is None and problem.one_stage_per_device:
        line = [problem.stages[s].device for s in problem.routes[0].stages]
        least = least_problem(problem)  # they count forwards of one length
        if len(alone) > 1:
            terms = {device: terms_of(least, [least], device) for device in terms}
        without_head = [terms[device].without_head(absolute=absolute) for device in line]
        warm_ups = least_warm_ups(least, without_head)
        tight = problem.device_name(line[warm_ups.tight])
        yield Bound(warm_ups.length, f"closed form: warm-ups + load of {tight}")


class WarmUps(NamedTuple):
    """The least length of the schedule, and the shortest warm-ups within it.

    ``forwards[d]`` are the whole forwards before the first backward on the route's stage d;
    ``tight`` is the stage, counted along the route, that fails in less time.
    """

    length: int
    forwards: tuple[int, ...]
    tight: int


def least_warm_ups(problem: Problem, without_idling: Sequence[int]) -> WarmUps:
    """Find the least length in which every device finds the time to idle in its warm-up.

    ``without_idling[d]``, in time units, is what the device of the route's stage d needs at least
    if it never idles before its first backward. For a single route with one stage per device, and
    without overlapped pairs.

    From the last stage to the first, the shortest warm-up x[d] is taken with ``x[d] >= x[d+1] +
    F[d] + backward[d+1] + delays`` and ``k F[d] <= x[d] <= k F[d] + length - without_idling[d]``
    for some k from 1 to what memory admits. A longer one would make none of the others shorter.
    """
    (route,) = problem.routes
    stages, certain = [problem.stages[s] for s in route.stages], certain_activations(problem)
    mosts = []
    for number, stage in zip(route.stages, stages, strict=True):
        slack, held = problem.devices[stage.device].slack, certain[number]
        fit = slack // held if slack is not None and held else route.microbatches
        mosts.append(max(1, min(fit, route.microbatches)))
    further = [
        stage.F
        + link_delay(problem, number, "F")
        + after.shortest_backward
        + link_delay(problem, number, "B")
        for number, stage, after in zip(route.stages, stages, stages[1:], strict=False)
    ]

    def within(length: int) -> list[int]:
        """Forwards of the shortest warm-ups, from the last stage on, until one lacks the time."""
        counts: list[int] = []
        warm_up = stages[-1].F
        for d in reversed(range(len(stages))):
            if counts:
                warm_up += further[d]
            forward, most = stages[d].F, mosts[d]
            count = min(warm_up // forward, most) if forward else most
            if warm_up > count * forward + length - without_idling[d]:
                if count == most:
                    break
                count += 1
                warm_up = count * forward
            counts.append(count)
        return counts

    # who may idle for the whole way, from the first F to its backward, has always time enough
    way, least, last = stages[-1].F + sum(further), max(without_idling), len(stages) - 1
    # the longer the whole, the further the warm-ups get along the line
    more = bisect_left(range(way), last + 1, key=lambda more: len(within(least + more)))
    forwards = tuple(reversed(within(least + more)))
    if not more:
        return WarmUps(least, forwards, without_idling.index(least))
    return WarmUps(least + more, forwards, last - len(within(least + more - 1)))
