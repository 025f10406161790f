"""Closed-form lower bounds on makespan and span: arithmetic, no search.

One collector asks what a problem has: each argument comes once, for whatever it holds of.
docs/proofs/bounds.md derives them; :mod:`pipesat.bounds.device_terms` has those of one device.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipesat.bounds.chain_warm_up import least_warm_ups
from pipesat.bounds.devices import classes_of, terms_of
from pipesat.bounds.given_order import bounds_of_given_order
from pipesat.bounds.memory_counts import Number
from pipesat.bounds.modes import counted_bounds
from pipesat.bounds.paired import paired_bounds
from pipesat.core.arguments import public
from pipesat.core.claims import Bound
from pipesat.core.least import least_problem
from pipesat.core.problem import Problem
from pipesat.core.schedule import Objective


@public
def closed_form_bound(problem: Problem, objective: Objective) -> Bound:
    """Return the best closed-form bound and the name of its argument, in time units."""
    return max(closed_form_bounds(problem, objective), key=lambda bound: bound.value)


def closed_form_bounds(problem: Problem, objective: Objective) -> list[Bound]:
    """Return what :func:`closed_forms` yields."""
    return [*closed_forms(problem, objective)]


def closed_forms(problem: Problem, objective: Objective) -> Iterator[Bound]:
    """Yield the bound of every argument that applies, device by device, in time units.

    What takes longest comes last, so whoever has no time for all takes the first.
    """
    yield Bound(0, "closed form: nothing takes less than no time")
    overlap = problem.overlap
    if overlap is None or not overlap.listed:  # pairs of any other time have an argument of theirs
        yield from _of_devices(problem, objective)
    if overlap is None and objective == "makespan":
        yield from bounds_of_given_order(problem)
    if overlap is not None:
        yield from paired_bounds(problem, objective)
    yield from counted_bounds(problem, objective)


def _of_devices(problem: Problem, objective: Objective) -> Iterator[Bound]:
    """Yield those of every device alone; and, on a chain, their warm-ups.

    A single route's window lies within that of the device with its first stage, so it bounds the
    span, too.
    """
    problem, alone = classes_of(problem)
    absolute = objective == "makespan"
    terms = {
        device: terms_of(problem, alone, device)
        for device, stages in enumerate(problem.stages_on)
        if stages
    }
    for device, found in terms.items():
        values: dict[str, Number] = found.own_window(absolute=absolute)
        if absolute or len(problem.routes) == 1:
            values |= found.route_window()
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
