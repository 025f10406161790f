"""The CP-SAT model that one writes first: intervals, no-overlap per device, cumulative memory.

No warm start, no order among microbatches, no bounds from elsewhere, no decomposition.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from answer import Answer, serial_time
from ortools.sat.python import cp_model

from pipesat.core.errors import NotApplicable
from pipesat.core.ops import Op
from pipesat.core.rules import awaited

if TYPE_CHECKING:
    from pipesat.core.ops import Item, Kind
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Order

STATUS = {cp_model.OPTIMAL: "optimal", cp_model.FEASIBLE: "feasible"}


@dataclass
class Model:
    """The model and its variables by (stage, microbatch)."""

    problem: Problem
    horizon: int
    cp: cp_model.CpModel = field(default_factory=cp_model.CpModel)
    start: dict[Op, cp_model.IntVar] = field(default_factory=dict)
    present: dict[Op, cp_model.LiteralT] = field(default_factory=dict)
    done: dict[tuple[int, str, int], cp_model.IntVar] = field(default_factory=dict)
    busy: list[list[cp_model.IntervalVar]] = field(default_factory=list)
    held: list[list[tuple[cp_model.IntervalVar, int]]] = field(default_factory=list)


def build(problem: Problem) -> Model:
    """The whole model, with the makespan as its objective."""
    if problem.overlap is not None:
        raise NotApplicable("overlapped pairs are not modelled")
    model = Model(problem, serial_time(problem))
    model.busy = [[] for _ in problem.devices]
    model.held = [[] for _ in problem.devices]
    for stage, m in enumerate(problem.microbatches):
        for microbatch in range(m):
            _add_microbatch(model, stage, microbatch)
    for op, start in model.start.items():
        if need := awaited(problem, op):
            end = model.done[need.event]
            row = model.cp.add(start >= end + need.delay)
            row.only_enforce_if(model.present[op])
    for device, data in enumerate(problem.devices):
        model.cp.add_no_overlap(model.busy[device])
        if data.room is not None and model.held[device]:
            intervals, amounts = zip(*model.held[device], strict=True)
            model.cp.add_cumulative(intervals, amounts, data.room)
    makespan = model.cp.new_int_var(0, model.horizon, "makespan")
    model.cp.add_max_equality(makespan, model.done.values())
    model.cp.minimize(makespan)
    return model


def _add_microbatch(model: Model, stage: int, microbatch: int) -> None:
    """Intervals of F, B, W and BW, and of the memory held between them."""
    cp, data = model.cp, model.problem.stages[stage]
    split = _choice(model, stage)
    optional: dict[Kind, cp_model.LiteralT] = {
        "F": cp.new_constant(1),
        "B": split,
        "W": split,
        "BW": split.negated(),
    }
    lengths: dict[Kind, int] = {"F": data.F, "B": data.B, "W": data.W, "BW": data.BW}
    for phase in "FBW":
        model.done[stage, phase, microbatch] = cp.new_int_var(0, model.horizon, "")
    for kind, length in lengths.items():
        op = Op(stage, kind, microbatch)
        start = cp.new_int_var(0, model.horizon, str(op))
        end = model.done[stage, "B" if kind == "BW" else kind, microbatch]
        interval = cp.new_optional_interval_var(start, length, end, optional[kind], "")
        model.start[op], model.present[op] = start, optional[kind]
        model.busy[data.device].append(interval)
    forward = model.start[Op(stage, "F", microbatch)]
    b = model.start[Op(stage, "B", microbatch)]
    after_b, after_w = (model.done[stage, phase, microbatch] for phase in "BW")
    cp.add(after_w == after_b).only_enforce_if(split.negated())
    a, kept = data.held_after_F, data.held_after_B
    for begin, end, amount in (
        (forward, after_b, a),
        (b, after_b, max(0, kept - a)),
        (after_b, after_w, kept),
    ):
        if amount:
            size = cp.new_int_var(0, model.horizon, "")
            always = begin is forward
            presence = cp.new_constant(1) if always else split
            interval = cp.new_optional_interval_var(begin, size, end, presence, "")
            model.held[data.device].append((interval, amount))


def _choice(model: Model, stage: int) -> cp_model.IntVar:
    """Whether the backward is split: free only where a fused one may pay."""
    data = model.problem.stages[stage]
    if data.may_split and data.fusing_may_pay:
        return model.cp.new_bool_var("")
    return model.cp.new_constant(int(data.may_split))


class _Watch(cp_model.CpSolverSolutionCallback):
    """Notes when solutions are found."""

    def __init__(self, began: float) -> None:
        super().__init__()
        self.began = began
        self.found: list[tuple[float, float]] = []

    def on_solution_callback(self) -> None:
        self.found.append((time.monotonic() - self.began, self.objective_value))


def solve(problem: Problem, *, limit: float, workers: int, seed: int) -> Answer:
    """Build and solve within ``limit`` seconds."""
    began = time.monotonic()
    model = build(problem)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    solver.parameters.max_time_in_seconds = max(0.0, limit - (time.monotonic() - began))
    watch = _Watch(began)
    status = solver.solve(model.cp, watch)
    found = status in STATUS
    infeasible = status == cp_model.INFEASIBLE
    proto = model.cp.proto
    return Answer(
        status="infeasible" if infeasible else STATUS.get(status, "unknown"),
        claimed=round(solver.objective_value) if found else None,
        bound=None if infeasible else round(solver.best_objective_bound),
        order=_order(model, solver) if found else None,
        found=watch.found,
        seconds=time.monotonic() - began,
        size=f"{len(proto.variables)} variables, {len(proto.constraints)} constraints",
    )


def _order(model: Model, solver: cp_model.CpSolver) -> Order:
    rows: list[list[tuple[int, int, Item]]] = [[] for _ in model.problem.devices]
    for op, start in model.start.items():
        if solver.boolean_value(model.present[op]):
            end = model.done[op.stage, "B" if op.kind == "BW" else op.kind, op.microbatch]
            device = model.problem.stages[op.stage].device
            rows[device].append((solver.value(start), solver.value(end), op))
    return tuple(tuple(op for _, _, op in sorted(row)) for row in rows)
