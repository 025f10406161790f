"""Can any schedule fit into memory? Decided by arithmetic, with the reason.

What is left of a valid schedule without some of its microbatches is valid, and microbatches that
pass alone can pass one after the other. So a problem is feasible exactly if one microbatch of each
route passes alone; where microbatches differ, one of each class (:func:`of_each_class`). Where
stages have memory modes, it is in the modes of least need (:mod:`pipesat.bounds.one_microbatch`).
That is exact where F and backward take time in every mode; where one may take none, less is asked:
that a microbatch passes with the least of each amount over the modes.

Where every op takes time, one on a device that holds the chunks s1 < s2 < ... of its route needs
``max over s of (sum of held_after_F up to s + excess of s)``, the excess being what the
backward takes at its start (:func:`holding_of`). With ops of length zero it may need less
(:mod:`pipesat.bounds.one_microbatch`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from typing import NamedTuple

from pipesat.bounds.graphs import one_at_a_time, peaks_one_at_a_time, require_memory
from pipesat.bounds.one_microbatch import (
    PassageAlone,
    modes_that_fit,
    need_alone,
    need_of,
    pass_alone,
    steps_by_device,
    steps_of,
    takes_time,
)
from pipesat.core.amounts import memory_text, rounded_down
from pipesat.core.arguments import public
from pipesat.core.errors import Infeasible, NotApplicable
from pipesat.problem.ops import Item, Kind, Op
from pipesat.problem.plain_problems import of_each_class
from pipesat.problem.problem import Problem, Stage, once
from pipesat.problem.rules import round_trip
from pipesat.problem.variants import variant_of
from pipesat.schedule.schedule import Order


class ChunkHolding(NamedTuple):
    """What one microbatch holds on one chunk: after F, and what its backward takes on top."""

    activation: int
    excess: int


class Need(NamedTuple):
    """Least capacity of a device (static part included) and the stages that make it so."""

    device: int
    capacity: int
    stages: tuple[int, ...]


def holdings(problem: Problem) -> list[ChunkHolding]:
    """Holding of one microbatch on each stage; where they differ, of the largest."""
    per_class = [[holding_of(stage) for stage in one.stages] for one in of_each_class(problem)]
    return (
        per_class[0]
        if len(per_class) == 1
        else [_largest(of) for of in zip(*per_class, strict=True)]
    )


def holding_of(stage: Stage) -> ChunkHolding:
    """Holding of one microbatch on a stage of these amounts."""
    variant = variant_of(stage, split=not stage.may_fuse)
    return ChunkHolding(variant.held, variant.most - variant.held)


def _largest(found: Sequence[ChunkHolding]) -> ChunkHolding:
    activation = max(holding.activation for holding in found)
    return ChunkHolding(activation, max(map(sum, found)) - activation)


def passes_in_an_instant(problem: Problem, stage: int) -> bool:
    """Whether F, everything after it and the backward of a stage may take no time at all."""
    data = problem.stages[stage]
    return data.F == data.shortest_backward == round_trip(problem, stage) == 0


@once
def certain_activations(problem: Problem) -> list[int]:
    """What a microbatch surely holds after F on each stage: what to prove bounds from.

    An interval of length zero holds nothing, so where F, everything after it and the backward
    take no time at all, a schedule may run them in one instant and hold nothing. For the same
    reason nothing is certain about what a backward takes on top: B may be over in an instant.
    Worked out once for a problem: every device's bounds ask.
    """
    return [
        0 if passes_in_an_instant(problem, number) else stage.held_after_F
        for number, stage in enumerate(problem.stages)
    ]


def _most_held(chunks: Sequence[ChunkHolding]) -> int:
    """Most that a microbatch holds on a device; ``chunks`` are its holdings there, in order."""
    held = accumulate(chunk.activation for chunk in chunks)
    return max(own + chunk.excess for own, chunk in zip(held, chunks, strict=True))


@public
def smallest_capacities(problem: Problem) -> list[Need]:
    """Smallest capacity of every device with which a schedule exists, if all others have enough.

    These are sufficient together, too, unless ops of length zero on several devices share instants.
    Of more than chains, they are what one sequence after the other needs: enough, maybe not least.
    """
    if not problem.chains_only:
        return capacities_one_at_a_time(problem)
    least = _most([_smallest_capacities(one) for one in of_each_class(problem)])
    if not problem.has_modes:
        return least
    return [
        by_modes if _exact(problem, by_modes.device) else relaxed
        for relaxed, by_modes in zip(least, _capacities_by_modes(problem), strict=True)
    ]


def _exact(problem: Problem, device: int) -> bool:
    """Whether counting op by op gives the smallest capacity of a device, with its modes."""
    return takes_time(problem, problem.stages_on[device])


def _capacities_by_modes(problem: Problem) -> list[Need]:
    return _needs(problem, lambda _, chunks: need_of(problem, chunks))


def _needs(problem: Problem, slack: Callable[[int, Sequence[int]], int]) -> list[Need]:
    """Every device's need, by the least memory for one microbatch on its chunks of a route."""
    found = []
    for device, per_route in enumerate(problem.chunks_on):
        needs = {chunks: slack(route, chunks) for route, chunks in per_route.items()}
        chunks = max(needs, key=lambda chunks: needs[chunks], default=())
        static = problem.devices[device].static
        found.append(Need(device, static + needs.get(chunks, 0), chunks))
    return found


def _most(found: Sequence[Sequence[Need]]) -> list[Need]:
    """Return every device's largest need."""
    return [max(needs, key=lambda need: need.capacity) for needs in zip(*found, strict=True)]


def _smallest_capacities(problem: Problem) -> list[Need]:
    own = [steps_by_device(problem, number) for number in range(len(problem.routes))]
    held = holdings(problem)

    def slack(route: int, chunks: Sequence[int]) -> int:
        stages = [problem.stages[stage] for stage in chunks]
        if all(stage.F and stage.shortest_backward for stage in stages):
            return _most_held([held[s] for s in chunks])
        return need_alone(problem, own[route][stages[0].device])

    return _needs(problem, slack)


def capacities_one_at_a_time(problem: Problem) -> list[Need]:
    """Capacity of every device for one sequence after the other, as they hold least."""
    peaks = peaks_one_at_a_time(problem)
    return [
        Need(device, data.static + peak, stages)
        for device, (data, peak, stages) in enumerate(
            zip(problem.devices, peaks, problem.stages_on, strict=True)
        )
    ]


def capacities_by_order(problem: Problem) -> list[Need]:
    """Capacity of every device with which one microbatch may pause after any op.

    That is all it takes for those who count memory op by op: they are on the safe side where ops of
    length zero share an instant.
    """
    if not problem.chains_only:
        return capacities_one_at_a_time(problem)
    if problem.has_modes:
        return _capacities_by_modes(problem)
    return _most([_capacities_by_order(one) for one in of_each_class(problem)])


def _capacities_by_order(problem: Problem) -> list[Need]:
    held = holdings(problem)
    return _needs(problem, lambda _, own: _most_held([held[s] for s in own]))


@public
def preflight(problem: Problem) -> None:
    """Pass if a schedule exists.

    Where memory modes and ops of length zero meet on one device, pass unless it is clear that none
    does.

    Raises
    ------
    Infeasible
        Naming every device that is too small: its need, its capacity, the stages responsible.
    """
    if not problem.chains_only:
        require_memory(problem)
        return
    if not lacking(problem, capacities_by_order(problem)):
        return
    if short := lacking(problem, smallest_capacities(problem)):
        raise Infeasible("; ".join(_sentence(problem, need) for need in short))
    for one in of_each_class(problem):
        for route in range(len(problem.routes)):
            _passage(one, route)


def sure_order(problem: Problem) -> Order:
    """Return an order that is valid whenever any is: one microbatch after the other.

    Microbatches are kept wherever that fits. Where memory modes and ops of length zero meet on one
    device, it may exceed a capacity.

    Raises
    ------
    Infeasible
        If there is none.
    NotApplicable
        If routes are more than chains, and none was found.
    """
    preflight(problem)
    if not problem.chains_only:
        if (order := one_at_a_time(problem)) is None:
            raise NotApplicable("no order was found in which one sequence after the other fits")
        return order
    if problem.has_modes:
        return _sure_order_in_modes(problem)
    rows: list[list[Item]] = [[] for _ in problem.devices]
    alone = of_each_class(problem)
    for number, route in enumerate(problem.routes):
        ops = [_ops_alone(one, number) for one in alone[: len(route.class_numbers)]]
        for microbatch in range(route.microbatches):
            for stage, kind in ops[route.classes[microbatch] if route.classes else 0]:
                rows[problem.stages[stage].device].append(Op(stage, kind, microbatch))
    return tuple(map(tuple, rows))


def _sure_order_in_modes(problem: Problem) -> Order:
    if lacking(problem, capacities_by_order(problem)):  # then only ops that share instants fit
        kept = replace(problem, stages=tuple(replace(s, modes=()) for s in problem.stages))
        with contextlib.suppress(Infeasible):
            return sure_order(kept)
    rows: list[list[Item]] = [[] for _ in problem.devices]
    for number, route in enumerate(problem.routes):
        chosen = modes_that_fit(problem, number)
        for microbatch in range(route.microbatches):
            modes = chosen[route.classes[microbatch] if route.classes else 0]
            forwards = [Op(stage, "F", microbatch, modes[stage]) for stage in route.stages]
            for op in forwards:
                rows[problem.stages[op.stage].device].append(op)
            for op in reversed(forwards):
                fused = problem.amounts(op.stage, microbatch, op.mode).may_fuse
                kinds: tuple[Kind, ...] = ("BW",) if fused else ("B", "W")
                row = rows[problem.stages[op.stage].device]
                row += [op._replace(kind=kind) for kind in kinds]
    return tuple(map(tuple, rows))


def _ops_alone(problem: Problem, route: int) -> list[tuple[int, Kind]]:
    """(stage, kind) of one microbatch's ops; W's of some length follow at the next stop."""
    steps, passage = steps_of(problem, route), _passage(problem, route)
    ops: list[tuple[int, Kind]] = []
    for begin, end in pairwise(passage.stops):
        segment = list(zip(steps[begin:end], passage.kinds[begin:end], strict=True))
        for step, kind in segment:
            ops.append((step.stage, kind))
            if kind == "B" and not problem.stages[step.stage].W:
                ops.append((step.stage, "W"))
        split = [step.stage for step, kind in segment if kind == "B"]
        ops += [(stage, "W") for stage in split if problem.stages[stage].W]
    return ops


def _passage(problem: Problem, route: int) -> PassageAlone:
    slacks = {device: data.slack for device, data in enumerate(problem.devices)}
    passage = pass_alone(problem, steps_of(problem, route), slacks)
    if passage.complete:
        return passage
    step = steps_of(problem, route)[passage.stops[-1]]
    names = " or ".join(problem.device_name(device) for device in passage.short)
    raise Infeasible(
        "every device has memory for one microbatch if all others have enough memory, but not all "
        f"together: after the start of one's {step.phase} on stage {step.stage}, wherever time "
        f"passes next, {names} holds too much"
    )


def lacking(problem: Problem, needs: Sequence[Need]) -> list[Need]:
    """Those needs that exceed the capacities."""
    return [
        need
        for need in needs
        if (memory := problem.devices[need.device].memory) is not None and need.capacity > memory
    ]


def _sentence(problem: Problem, need: Need) -> str:
    device, capacity, stages = need
    said = partial(memory_text, unit=problem.memory_unit)
    data = problem.devices[device]
    memory = said(data.memory or 0, towards=rounded_down)
    which = f"stage {stages[0]}" if len(stages) == 1 else f"stages {', '.join(map(str, stages))}"
    reason = f"its static {said(data.static)}" + (
        f" and one microbatch's {said(capacity - data.static)} on {which}" if stages else ""
    )
    if any(problem.stages[stage].modes for stage in stages):
        reason += " in the modes of least need"
    sure = not problem.has_modes or _exact(problem, device)
    most = f"; the smallest capacity that works is {said(capacity)}"
    return (
        f"{problem.device_name(device)} has a capacity of {memory} but needs "
        + ("" if sure else "at least ")
        + f"{said(capacity, within=data.memory)} ({reason})"
        + (most if sure else "")
    )
