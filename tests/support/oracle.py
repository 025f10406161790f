"""Two independent ways to the optimum of a tiny problem, to test bounds and the model against."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from ortools.sat.python import cp_model

from pipesat.core.checker import check
from pipesat.core.errors import Deadlock
from pipesat.core.ops import Item, Op
from pipesat.core.problem import Problem
from pipesat.core.schedule import Objective, Order
from pipesat.core.timing import time_order


def brute_force(problem: Problem, objective: Objective) -> int | None:
    """Least objective over all orders, each timed and checked; ``None`` if none is valid."""
    best: int | None = None
    for order in all_orders(problem):
        try:
            schedule = time_order(problem, order, objective)
        except Deadlock:
            continue
        value = schedule.value(objective)
        if (best is None or value < best) and not check(problem, schedule):
            best = value
    return best


def all_orders(problem: Problem) -> Iterator[Order]:
    """Every order, in every choice of split and fused backwards; no symmetry is used."""
    per_device = [
        [row for chosen in itertools.product(*chains) for row in _interleavings(chosen)]
        for chains in _chains(problem)
    ]
    yield from itertools.product(*per_device)


def order_count(problem: Problem) -> int:
    """Number of orders: per device, multinomials summed over the choices of fused backwards."""
    total = 1
    for chains in _chains(problem):
        count = 0
        for chosen in itertools.product(*chains):
            lengths = [len(chain) for chain in chosen]
            count += math.factorial(sum(lengths)) // math.prod(map(math.factorial, lengths))
        total *= count
    return total


def _chains(problem: Problem) -> list[list[list[tuple[Item, ...]]]]:
    """Per device and (stage, microbatch), the ways to run it: F B W, or F BW."""
    result: list[list[list[tuple[Item, ...]]]] = [[] for _ in problem.devices]
    for number, stage in enumerate(problem.stages):
        for m in range(problem.microbatches[number]):
            ways: list[tuple[Item, ...]] = []
            if stage.may_split:
                ways.append((Op(number, "F", m), Op(number, "B", m), Op(number, "W", m)))
            if stage.may_fuse:
                ways.append((Op(number, "F", m), Op(number, "BW", m)))
            result[stage.device].append(ways)
    return result


def _interleavings(chains: tuple[tuple[Item, ...], ...]) -> Iterator[tuple[Item, ...]]:
    if not any(chains):
        yield ()
        return
    for number, chain in enumerate(chains):
        if chain:
            rest = (*chains[:number], chain[1:], *chains[number + 1 :])
            for tail in _interleavings(rest):
                yield (chain[0], *tail)


Times = dict[tuple[str, int, int], cp_model.IntVar]
"""Of a phase of a stage's microbatch."""


def plain_model_optimum(problem: Problem, objective: Objective = "makespan") -> int | None:
    """Optimal objective by a plain CP-SAT model, or ``None`` if infeasible.

    Intervals and ``add_cumulative``; no symmetry, no staircase, no order literals: memory is stated
    as the contract does, as amounts held over intervals.
    """
    cp = cp_model.CpModel()
    horizon = sum(
        (s.F + s.B + s.W + s.BW + 10) * m
        for s, m in zip(problem.stages, problem.microbatches, strict=True)
    )
    busy: list[list[cp_model.IntervalVar]] = [[] for _ in problem.devices]
    held: list[list[tuple[cp_model.IntervalVar, int]]] = [[] for _ in problem.devices]
    value = cp.new_int_var(0, horizon, objective)
    origins = [
        cp.new_int_var(0, horizon if objective == "span" else 0, "") for _ in problem.devices
    ]
    ends: Times = {}
    starts: Times = {}
    for number, stage in enumerate(problem.stages):
        for m in range(problem.microbatches[number]):
            split = cp.new_bool_var("")
            cp.add(split == 0) if not stage.may_split else None
            cp.add(split == 1) if not stage.may_fuse else None
            for phase in "FBW":
                starts[phase, number, m] = cp.new_int_var(0, horizon, "")
                ends[phase, number, m] = cp.new_int_var(0, horizon, "")
            f, b, w = ((starts[x, number, m], ends[x, number, m]) for x in "FBW")
            device = stage.device
            busy[device].append(cp.new_interval_var(f[0], stage.F, f[1], ""))
            busy[device].append(cp.new_optional_interval_var(b[0], stage.B, b[1], split, ""))
            busy[device].append(cp.new_optional_interval_var(b[0], stage.BW, b[1], ~split, ""))
            busy[device].append(cp.new_optional_interval_var(w[0], stage.W, w[1], split, ""))
            cp.add(w[0] >= b[1])
            cp.add(f[0] >= origins[device])
            cp.add(value >= b[1] - origins[device])
            cp.add(value >= w[1] - origins[device]).only_enforce_if(split)
            a, kept = stage.held_after_F, stage.held_after_B
            sizes = (cp.new_int_var(0, horizon, "") for _ in range(3))
            during = cp.new_optional_interval_var(b[0], next(sizes), b[1], split, "")
            after = cp.new_optional_interval_var(b[1], next(sizes), w[1], split, "")
            held[device] += [
                (cp.new_interval_var(f[0], next(sizes), b[1], ""), a),
                (during, max(0, kept - a)),
                (after, kept),
            ]
    _wait_for_inputs(cp, problem, starts, ends)
    for device, data in enumerate(problem.devices):
        cp.add_no_overlap(busy[device])
        if data.memory is not None:
            intervals = [i for i, amount in held[device] if amount]
            amounts = [amount for _, amount in held[device] if amount]
            cp.add_cumulative(intervals, amounts, data.memory - data.static)
    cp.minimize(value)
    return _optimum(cp)


def _optimum(cp: cp_model.CpModel) -> int | None:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(cp)
    if status == cp_model.INFEASIBLE:
        return None
    assert status == cp_model.OPTIMAL
    return round(solver.objective_value)


def _wait_for_inputs(cp: cp_model.CpModel, problem: Problem, starts: Times, ends: Times) -> None:
    for (phase, number, m), start in starts.items():
        before, after = problem.previous[number], problem.next[number]
        if phase == "F" and before is not None:
            delay = problem.links[before, number].F if (before, number) in problem.links else 0
            cp.add(start >= ends["F", before, m] + delay)
        if phase == "B" and after is None:
            cp.add(start >= ends["F", number, m])
        if phase == "B" and after is not None:
            delay = problem.links[number, after].B if (number, after) in problem.links else 0
            cp.add(start >= ends["B", after, m] + delay)
