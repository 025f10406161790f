"""Variables of the cyclic model: for every op of a period, where in the period and how late."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ortools.sat.python import cp_model

from pipesat.core.ops import Phase
from pipesat.core.problem import Problem
from pipesat.core.rules import link_delay
from pipesat.solver.model.pairing import NO_GAINS
from pipesat.solver.model.times import Times
from pipesat.solver.model.variables import splits
from pipesat.solver.model.variants import Literal

Linear: TypeAlias = cp_model.LinearExpr | int
"""What is linear in the variables, or a number."""

PHASES: tuple[Phase, ...] = ("F", "B", "W")


class PeriodOp(NamedTuple):
    """Key of an op of the period: microbatch j of the first period, in one phase of a stage."""

    stage: int
    phase: Phase
    microbatch: int


@dataclass
class PeriodTask:
    """An op of the period.

    It starts at ``time = origin of its device + offset + period x count``, with the offset in
    ``[0, period - length]``: the device's origin is an op's start, so no op lies across it.
    """

    offset: cp_model.IntVar
    count: Linear
    length: Linear
    time: Linear
    intervals: list[cp_model.IntervalVar]

    @property
    def end(self) -> Linear:
        """When it ends, in model time."""
        return self.time + self.length


@dataclass
class Cycle:
    """The cyclic model's variables. Times are in model time, as ``times`` has them.

    Every stage has F, B and W tasks; the W of a backward that is fused lasts no time and stands
    where the BW ends, so that "W has ended" and "the backward has ended" are the same.
    ``split[s][j]`` says whether a backward is split.
    """

    cp: cp_model.CpModel
    problem: Problem
    times: Times
    period: int
    microbatches: tuple[int, ...]
    tasks: dict[PeriodOp, PeriodTask] = field(default_factory=dict)
    split: dict[tuple[int, int], Literal] = field(default_factory=dict)
    horizon: int = 0

    def per_period(self, stage: int) -> range:
        """Microbatches of the first period that pass a stage."""
        return range(self.microbatches[self.problem.route_of[stage]])


def add_variables(
    cp: cp_model.CpModel,
    problem: Problem,
    times: Times,
    period: int,
    microbatches: tuple[int, ...],
) -> Cycle:
    """Create the variables for one period, in model time."""
    v = Cycle(cp, problem, times, period, microbatches)
    counts = _most_periods(v)
    v.horizon = len(problem.routes) * (counts + 1) * period
    for stages in problem.stages_on:
        if not stages:
            continue
        origin = cp.new_int_var(0, v.horizon, "")
        for stage in stages:
            same_route = problem.route_of[stage] == problem.route_of[stages[0]]
            domain = (0 if same_route else -counts, counts)
            for j in v.per_period(stage):
                _add_tasks(v, stage, j, origin, domain)
        first = v.tasks[PeriodOp(stages[0], "F", 0)]
        cp.add(first.offset == 0)
        cp.add(first.count == 0)
    return v


def _most_periods(v: Cycle) -> int:
    """Periods that an op may lie behind the first op of its device, without loss.

    Keep every op's place in the period and start it as soon as its input allows: each of the at
    most 2 S + 1 steps of a microbatch through the S stages of its route then waits less than one
    period, which makes no time between two of its ops longer and so costs no memory. Sorting
    microbatches into order (model.md) keeps them within these limits. One period more, because
    the microbatches of a period start at different times.
    """
    most = 0
    for route in v.problem.routes:
        work = 0
        for s in route.stages:
            work += sum(v.times.duration[kind][s] for kind in ("F", "BW", "B", "W"))
            work += link_delay(v.problem, s, "F") + link_delay(v.problem, s, "B")
        most = max(most, work // v.period + 2 * len(route.stages) + 3)
    return most


def _add_tasks(
    v: Cycle, stage: int, j: int, origin: cp_model.IntVar, domain: tuple[int, int]
) -> None:
    """Create F, B and W of one stage and microbatch."""
    cp, duration = v.cp, {kind: times[stage] for kind, times in v.times.duration.items()}
    choice = splits(v.problem, stage, NO_GAINS)
    split: Literal = cp.new_bool_var("") if choice is None else choice
    v.split[stage, j] = split
    lengths: dict[Phase, Linear] = {
        "F": duration["F"],
        "B": duration["BW"] + (duration["B"] - duration["BW"]) * split,
        "W": duration["W"] * split,
    }
    for phase in PHASES:
        if phase == "W" and split is False:
            backward = v.tasks[PeriodOp(stage, "B", j)]
            v.tasks[PeriodOp(stage, "W", j)] = PeriodTask(
                backward.offset, backward.count, 0, backward.end, []
            )
            continue
        length = lengths[phase]
        offset = cp.new_int_var(0, v.period, "")
        cp.add(offset + length <= v.period)
        count = cp.new_int_var(*domain, "")
        time = origin + offset + v.period * count
        intervals = []
        if isinstance(length, int):
            intervals = [cp.new_fixed_size_interval_var(offset, length, "")]
        elif phase == "W":
            intervals = [cp.new_optional_fixed_size_interval_var(offset, duration["W"], split, "")]
        else:
            intervals = [
                cp.new_optional_fixed_size_interval_var(offset, duration["B"], split, ""),
                cp.new_optional_fixed_size_interval_var(offset, duration["BW"], ~split, ""),
            ]
        v.tasks[PeriodOp(stage, phase, j)] = PeriodTask(offset, count, length, time, intervals)
        if phase == "W" and choice is None:
            backward = v.tasks[PeriodOp(stage, "B", j)]
            cp.add(offset == backward.offset + duration["BW"]).only_enforce_if(~split)
            cp.add(count == backward.count).only_enforce_if(~split)
