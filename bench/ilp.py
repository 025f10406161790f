"""An ILP in the style of the Zero Bubble paper's (Qi et al., ICLR 2024, appendix), with HiGHS.

End times E are continuous; for two ops x, y of a device whose order is open, a binary says that x
runs before y, and two rows with a big constant M keep them apart:

    E[y] >= E[x] + duration(y) - M (1 - o[x, y]),    E[x] >= E[y] + duration(x) - M o[x, y].

Memory when x starts is a sum over the ops before it: what x takes + sum of o[y, x] times what y
leaves taken <= room, for every x that takes memory. As in that paper's code, the microbatches of a
stage run in order, pairs whose order follows from this and from the data flow have no binary, and M
is the time of everything one after the other. New here: several stages per device, uneven stages,
memory that B takes at its start, the makespan as the objective.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import highspy
from answer import Answer, serial_time

from pipesat.core.errors import NotApplicable
from pipesat.core.ops import Op
from pipesat.core.rules import awaited, duration, memory_change

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Order, Schedule

INFINITE = highspy.kHighsInf
TOLERANCE = 1e-6  # HiGHS's own, of feasibility


@dataclass
class Model:
    """Rows of the matrix, and columns by op, by open pair, and of the makespan.

    Times are in units of the longest op, because HiGHS's tolerances are absolute.
    """

    problem: Problem
    unit: int
    rows: list[tuple[float, list[int], list[float]]] = field(default_factory=list)  # >= the first
    ends: dict[Op, int] = field(default_factory=dict)
    before: dict[tuple[Op, Op], int] = field(default_factory=dict)
    makespan: int = 0

    def time(self, op: Op) -> float:
        """Duration of an op in the model's unit."""
        return duration(self.problem, op) / self.unit

    @property
    def columns(self) -> int:
        """How many there are."""
        return len(self.ends) + len(self.before) + 1


def build(problem: Problem) -> Model:
    """The whole model."""
    if problem.overlap is not None:
        raise NotApplicable("overlapped pairs are not modelled")
    if any(stage.may_split and stage.fusing_may_pay for stage in problem.stages):
        raise NotApplicable("the choice between split and fused backwards is not modelled")
    lengths = [t for s in problem.stages for t in (s.F, s.B, s.W, s.BW)]
    model = Model(problem, max(1, *lengths))
    ops = [
        Op(number, kind, microbatch)
        for number, stage in enumerate(problem.stages)
        for kind in (("F", "B", "W") if stage.may_split else ("F", "BW"))
        for microbatch in range(problem.microbatches[number])
    ]
    model.ends = {op: column for column, op in enumerate(ops)}
    devices: list[list[Op]] = [[] for _ in problem.devices]
    for op in ops:
        devices[problem.stages[op.stage].device].append(op)
    for row in devices:
        for number, x in enumerate(row):
            for y in row[:number]:
                if not (precedes(problem, x, y) or precedes(problem, y, x)):
                    model.before[y, x] = len(model.ends) + len(model.before)
    model.makespan = len(model.ends) + len(model.before)
    _add_precedences(model)
    _add_order(model)
    for device, row in enumerate(devices):
        _add_memory(model, device, row)
    return model


def precedes(problem: Problem, x: Op, y: Op) -> bool:
    """Whether x runs before y in every solution: by data flow and order of microbatches."""
    if problem.route_of[x.stage] != problem.route_of[y.stage] or x.microbatch > y.microbatch:
        return False
    if (x.stage, x.kind) == (y.stage, y.kind):
        return x.microbatch < y.microbatch
    if x.kind == "W":
        return False
    if y.kind == "W":
        return _position(problem, x) <= _position(problem, Op(y.stage, "B", y.microbatch))
    return _position(problem, x) < _position(problem, y)


def _position(problem: Problem, op: Op) -> int:
    """Place of an F, B or BW on its microbatch's way through its route and back."""
    stages = problem.routes[problem.route_of[op.stage]].stages
    out = stages.index(op.stage)
    return out if op.kind == "F" else 2 * len(stages) - 1 - out


def _add_precedences(model: Model) -> None:
    for y, end in model.ends.items():
        need = awaited(model.problem, y)
        if need is not None:
            stage, phase, microbatch = need.event
            fused = phase == "B" and not model.problem.stages[stage].may_split
            x = Op(stage, "BW" if fused else phase, microbatch)
            apart = need.delay / model.unit + model.time(y)
            model.rows.append((apart, [end, model.ends[x]], [1, -1]))
        if y.microbatch:
            x = y._replace(microbatch=y.microbatch - 1)
            model.rows.append((model.time(y), [end, model.ends[x]], [1, -1]))
        if y.kind in ("W", "BW"):
            model.rows.append((0, [model.makespan, end], [1, -1]))


def _add_order(model: Model) -> None:
    big = serial_time(model.problem) / model.unit
    for (x, y), o in model.before.items():
        ends = [model.ends[y], model.ends[x], o]
        model.rows.append((model.time(y) - big, ends, [1, -1, -big]))
        model.rows.append((model.time(x), ends, [-1, 1, big]))


def _add_memory(model: Model, device: int, ops: list[Op]) -> None:
    room = model.problem.devices[device].room
    if room is None:
        return
    changes = {op: memory_change(model.problem, op) for op in ops}
    for x in ops:
        if changes[x].at_start <= 0:
            continue
        columns, factors, left = [], [], room - changes[x].at_start
        for y in ops:
            kept = sum(changes[y])
            if x == y or not kept:
                continue
            if precedes(model.problem, y, x):
                left -= kept
            elif (y, x) in model.before:
                columns.append(model.before[y, x])
                factors.append(-kept / room)
            elif (x, y) in model.before:  # y is before x where x is not before y
                left -= kept
                columns.append(model.before[x, y])
                factors.append(kept / room)
        model.rows.append((-left / room, columns, factors))


def solve(
    problem: Problem, *, limit: float, workers: int, seed: int, started: bool = False
) -> Answer:
    """Build and solve within ``limit`` seconds, from the first list schedule if ``started``."""
    began = time.monotonic()
    model = build(problem)
    highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.silent()
    highs.setOptionValue("threads", workers)
    highs.setOptionValue("random_seed", seed)
    highs.setOptionValue("mip_rel_gap", 0.0)
    highs.setOptionValue("mip_abs_gap", 0.5 / model.unit)
    highs.passModel(_matrix(model))
    found: list[tuple[float, float]] = []
    highs.cbMipImprovingSolution.subscribe(
        lambda event: found.append(
            (time.monotonic() - began, event.data_out.objective_function_value * model.unit)
        )
    )
    if started:
        _start(highs, model)
    highs.setOptionValue("time_limit", max(0.0, limit - (time.monotonic() - began)))
    highs.run()
    return _answer(model, highs, found, time.monotonic() - began)


def _matrix(model: Model) -> Any:
    lp = highspy.HighsLp()
    columns = model.columns
    lp.num_col_, lp.num_row_ = columns, len(model.rows)
    lp.col_cost_ = [float(column == model.makespan) for column in range(columns)]
    ends = [model.time(op) for op in model.ends]
    lp.col_lower_ = [*ends, *[0.0] * len(model.before), 0.0]
    lp.col_upper_ = [*[INFINITE] * len(ends), *[1.0] * len(model.before), INFINITE]
    kinds = highspy.HighsVarType
    lp.integrality_ = [
        *[kinds.kContinuous] * len(ends),
        *[kinds.kInteger] * len(model.before),
        kinds.kContinuous,
    ]
    lp.row_lower_ = [float(low) for low, _, _ in model.rows]
    lp.row_upper_ = [INFINITE] * len(model.rows)
    starts = [0]
    for _, indices, _ in model.rows:
        starts.append(starts[-1] + len(indices))
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = starts
    lp.a_matrix_.index_ = [index for _, indices, _ in model.rows for index in indices]
    lp.a_matrix_.value_ = [float(value) for _, _, values in model.rows for value in values]
    return lp


def _start(highs: Any, model: Model) -> None:
    from pipesat.heuristics.list_scheduling import list_schedules

    schedule: Schedule = next(list_schedules(model.problem))
    ends = {timed.item: timed.end for _, timed in schedule}
    values = [ends[op] / model.unit for op in model.ends]
    values += [float(ends[x] < ends[y]) for x, y in model.before]
    values.append(schedule.makespan / model.unit)
    solution = highspy.HighsSolution()
    solution.col_value = values
    highs.setSolution(solution)


def _answer(model: Model, highs: Any, found: list[tuple[float, float]], seconds: float) -> Answer:
    status, info = highs.getModelStatus(), highs.getInfo()
    solved = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    optimal = status == highspy.HighsModelStatus.kOptimal
    infeasible = status == highspy.HighsModelStatus.kInfeasible
    low = info.mip_dual_bound
    known = not infeasible and math.isfinite(low) and abs(low) < INFINITE
    value = info.objective_function_value * model.unit
    return Answer(
        status="infeasible"
        if infeasible
        else "optimal"
        if optimal and solved
        else "feasible"
        if solved
        else "unknown",
        claimed=round(value) if solved else None,
        bound=max(0, math.ceil((low - TOLERANCE) * model.unit)) if known else None,
        order=_order(model, highs.getSolution().col_value) if solved else None,
        found=found,
        seconds=seconds,
        size=f"{model.columns} columns ({len(model.before)} binary), {len(model.rows)} rows",
    )


def _order(model: Model, values: list[float]) -> Order:
    rows: list[list[tuple[float, Op]]] = [[] for _ in model.problem.devices]
    for op, column in model.ends.items():
        rows[model.problem.stages[op.stage].device].append((values[column], op))
    return tuple(tuple(op for _, op in sorted(row)) for row in rows)
