"""Constraint families and objectives, each one function, in the words of proofs/model.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product

from ortools.sat.python import cp_model

from pipesat.bounds.given_order import HeadsAndTails
from pipesat.core.arrays import Ints
from pipesat.problem.ops import Phase
from pipesat.schedule.schedule import Objective
from pipesat.solver.model.left_out import lags_before, tail_after
from pipesat.solver.model.memory import (
    add_memory_by_order,
    add_memory_by_staircase,
    add_memory_of_backwards,
    staircase_applies,
)
from pipesat.solver.model.turns import classes_of
from pipesat.solver.model.variables import Task, Variables


def add_constraints(v: Variables) -> None:
    """Add all of them."""
    add_one_op_at_a_time(v)
    add_dataflow(v)
    add_microbatch_order(v)
    add_memory(v)


def add_one_op_at_a_time(v: Variables) -> None:
    """Ops on one device do not overlap."""
    for device in range(len(v.problem.devices)):
        intervals = [i for task in v.on_device(device) for i in task.intervals]
        if len(intervals) > 1:
            v.cp.add_no_overlap(intervals)


def add_dataflow(v: Variables) -> None:
    """Every op waits for its input and the input's travel."""
    for phase, stages in v.tasks.items():
        for stage, tasks in enumerate(stages):
            if not tasks:
                continue
            listed = v.problem.route(stage).classes is not None
            lags = [lags_before(least, v.kept, stage, phase) for least in v.least]
            for place, task in enumerate(tasks):
                for lag in lags[v.problem.class_of(stage, task.microbatch)]:
                    delay = lag.delay // v.times.unit
                    if lag.stage is None:
                        if listed or not place:
                            v.cp.add(task.start >= delay)
                        continue
                    source = v.tasks[lag.phase][lag.stage][task.microbatch]
                    constraint = v.cp.add(task.start >= source.end + delay)
                    if not isinstance(task.present, bool):
                        constraint.only_enforce_if(task.present)
    _add_slices(v)


def _add_slices(v: Variables) -> None:
    """Within a sequence forwards ascend and backwards descend, on every stage."""
    for stage, slices in enumerate(v.problem.slices_of):
        for phase in _BY_SLICE if slices > 1 else ():
            tasks, step = v.tasks[phase][stage], 1 if phase == "F" else -1
            for before, after in pairwise(tasks[::step]):
                if before.microbatch // slices == after.microbatch // slices:
                    v.cp.add(after.start >= before.end)


def add_microbatch_order(v: Variables) -> None:
    """Run F, backwards and W of a stage in microbatch order each (proofs/model.md: no loss)."""
    for phase, stages in v.tasks.items():
        for stage in range(len(stages)):
            for tasks in v.chains(stage, phase):
                _add_chain(v, tasks)
            if phase != "W":
                _add_turns(v, stage, phase)


def _add_chain(v: Variables, tasks: list[Task]) -> None:
    if all(task.present is True for task in tasks):
        for before, after in pairwise(tasks):
            _add_order(v, before, after, before.end)
        return
    for at, (before, after) in enumerate(pairwise(tasks)):
        # an absent W is placed, too, but takes no time: at the start of a pair of others
        length = v.length("W", before.stage, before.microbatch)
        pairs = v.pairs.partners(before)
        end = before.end if pairs else before.start + length * before.present
        _add_order(v, before, after, end, tasks[at + 2 :] if pairs else ())
        v.cp.add(after.start >= before.start)


def _add_turns(v: Variables, stage: int, phase: Phase) -> None:
    """Run microbatches of different classes in the order that all stages have."""
    tasks, route = v.tasks[phase][stage], v.problem.route_of[stage]
    for one, other, literal in v.turns.of(route) if tasks else ():
        for x, y, condition in ((one, other, literal), (other, one, ~literal)):
            last = tasks[v.turns.ends(route, x, phase)[1]]
            first = tasks[v.turns.ends(route, y, phase)[0]]
            apart = [~pair for pair in v.pairs.together(last, first)]
            v.cp.add(first.start >= last.end).only_enforce_if(condition, *apart)


def _add_order(
    v: Variables,
    before: Task,
    after: Task,
    end: cp_model.LinearExprT,
    further: Sequence[Task] = (),
) -> None:
    """One after the other, unless the first runs as a pair with the second, or with one further."""
    order = v.cp.add(after.start >= end)
    others = (after, *further)
    if together := [pair for other in others for pair in v.pairs.together(before, other)]:
        order.only_enforce_if([~pair for pair in together])
        v.cp.add(after.start >= before.start)


def add_memory(v: Variables) -> None:
    """Memory of each device stays within its capacity, by the encoding that suits the device."""
    for device in range(len(v.problem.devices)):
        stages = v.problem.stages_on[device]
        if v.problem.devices[device].slack is None or not v.kept.issuperset(stages):
            continue
        if staircase_applies(v.problem, device):
            add_memory_by_staircase(v, device)
            add_memory_of_backwards(v, device)
        else:
            add_memory_by_order(v, device)


_BY_SLICE: tuple[Phase, ...] = ("F", "B")


def add_objective(v: Variables, objective: Objective, lower: int, upper: int) -> cp_model.IntVar:
    """Minimise the makespan or the span, known to lie in ``[lower, upper]`` (model time)."""
    value = v.cp.new_int_var(lower, upper, objective)
    if objective == "span" and v.problem.chains_only and len(v.problem.routes) == 1:
        entry, *others = _begins(v)
        if not others:  # nothing comes before it, and nothing says when it is
            v.cp.add(entry == 0)
    for device, stages in v.problem.busy.items():
        if not v.kept.issuperset(stages):
            continue
        begin = _first_start(v, device) if objective == "span" else 0
        for stage in stages:
            # what the stage may end with
            for phase in ("B", "W") if v.problem.stages[stage].has_backward else ("F",):
                for *_, task in v.chains(stage, phase):
                    if task.present is True:
                        v.cp.add(task.end - begin <= value)
            for task in v.tasks["W"][stage]:
                if task.present is not True:
                    v.cp.add(task.end - begin <= value).only_enforce_if(task.present)
            _add_what_is_left_out(v, objective, stage, value)
        if v.pairs.all:
            _add_load(v, objective, stages, value)
    v.cp.minimize(value)
    return value


def _add_load(
    v: Variables, objective: Objective, stages: Sequence[int], value: cp_model.IntVar
) -> None:
    """Say that a device's work, less what its pairs save, takes its time.

    It follows from the rest, but no-overlap does not see it: it counts what has to run, not how
    many pairs there must be.
    """
    begin = 0
    if objective == "makespan":
        ways = [lags_before(least, (), s, "F") for s in stages for least in v.least]
        begin = min(lag.delay for (lag,) in ways) // v.times.unit
    work: list[cp_model.LinearExprT] = []
    for stage in stages:
        for m, split in enumerate(v.split[stage]):
            split_time = v.length("B", stage, m) + v.length("W", stage, m)
            fused = v.length("BW", stage, m)
            work.append(v.length("F", stage, m) + fused + (split_time - fused) * split)
    work += v.pairs.saved(stages, lambda op: v.length(op.kind, op.stage, op.microbatch))
    v.cp.add(begin + sum(work) <= value)


def _add_what_is_left_out(
    v: Variables, objective: Objective, stage: int, value: cp_model.IntVar
) -> None:
    """Count what must follow a stage's last backward on devices that are left out.

    For the span only with a single route: what goes on from its first F to its end there lies
    within the window of the device that holds its first stage.
    """
    if not v.problem.stages[stage].has_backward:
        return
    route = v.problem.route(stage)
    entry = None if objective == "makespan" else v.problem.stages[route.stages[0]].device
    for *_, last in classes_of(route):
        tail = tail_after(v.least_for(stage, last), v.kept, stage, entry) // v.times.unit
        if not tail:
            continue
        end = v.tasks["B"][stage][last].end + tail
        if objective == "makespan":
            v.cp.add(end <= value)
        elif v.problem.chains_only and len(v.problem.routes) == 1 and not _reaches_kept(v, stage):
            for begin in _begins(v):
                v.cp.add(end - begin <= value)


def add_heads_and_tails(
    v: Variables, line: HeadsAndTails, objective: Objective, value: cp_model.IntVar
) -> None:
    """Say of each op what is known of the least time before it, and after it up to ``value``.

    That counts work and memory of devices that are left out, which lags do not.
    """
    begin: cp_model.LinearExpr | int = 0
    if objective == "span":
        (route,) = v.problem.routes
        if first := v.tasks["F"][route.stages[0]]:
            begin = first[0].start
        else:
            begin = v.cp.new_int_var(-v.horizon, v.horizon, "first F of the route")
            for latest in _begins(v):
                v.cp.add(begin <= latest)
    parts: list[tuple[Phase, Ints, Ints]] = [
        ("F", line.head, line.forward + line.tail),
        ("B", line.head_back, line.backward + line.tail_back),
    ]
    for (phase, heads, tails), stage in product(parts, v.kept):
        place = v.problem.place_of[stage]
        for task, head, tail in zip(v.tasks[phase][stage], heads[place], tails[place], strict=True):
            v.cp.add(task.start - begin >= v.times.at_least(int(head)))
            v.cp.add(task.start + v.times.at_least(int(tail)) <= begin + value)


def _begins(v: Variables) -> Iterator[cp_model.LinearExpr]:
    """What the first op of the route's first stage starts by, from the first F of each class."""
    (route,) = v.problem.routes
    lowest = next(s for s in route.stages if s in v.kept)
    for first, *_ in classes_of(route):
        (lag,) = lags_before(v.least_for(lowest, first), v.kept, lowest, "F")
        yield v.tasks["F"][lowest][first].start - lag.delay // v.times.unit


def _reaches_kept(v: Variables, stage: int) -> bool:
    """Whether a kept stage lies before this one on its route."""
    return any(lag.stage is not None for lag in lags_before(v.least[0], v.kept, stage, "F"))


def _first_start(v: Variables, device: int) -> cp_model.IntVar:
    """No later than the first op of a device: the first F of its first stage of some route."""
    first = v.cp.new_int_var(0, v.horizon, f"first start on {device}")
    for stage in v.problem.stages_on[device]:
        for task, *_ in v.chains(stage, "F"):
            v.cp.add(first <= task.start)
    return first
