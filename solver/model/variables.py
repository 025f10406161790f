"""Variables: a start per F, backward and W, and whether a backward is split where that is free."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TypeAlias

from ortools.sat.python import cp_model

from pipesat.core.ops import Op, Phase
from pipesat.core.problem import Problem, Stage
from pipesat.solver.model.times import Times

Literal: TypeAlias = cp_model.IntVar | bool
"""A Boolean variable (or its negation), or a known truth value."""


@dataclass
class Task:
    """One phase of (stage, microbatch): its start, its end and the intervals it may occupy.

    ``present`` is False or a literal where a W may be absent because its backward is fused.
    """

    stage: int
    phase: Phase
    microbatch: int
    start: cp_model.IntVar
    end: cp_model.LinearExpr
    intervals: list[cp_model.IntervalVar]
    present: Literal = True


@dataclass
class Variables:
    """All tasks, indexed ``tasks[phase][stage][microbatch]``; a fused stage has no W tasks.

    ``kept`` are the stages that are modelled: all, or those of some devices (a relaxation); the
    others have no tasks.

    ``split[stage][microbatch]`` says whether the backward is split.
    """

    cp: cp_model.CpModel
    problem: Problem
    times: Times
    horizon: int
    kept: frozenset[int]
    tasks: dict[Phase, list[list[Task]]] = field(default_factory=dict)
    split: list[list[Literal]] = field(default_factory=list)

    def on_device(self, device: int) -> list[Task]:
        """All tasks of a device."""
        return [
            task
            for stage in self.problem.stages_on[device]
            for phase in self.tasks.values()
            for task in phase[stage]
        ]


def splits(stage: Stage) -> bool | None:
    """Whether a stage's backwards are split; ``None``: the model chooses per microbatch.

    Where fusing never pays (see :attr:`pipesat.core.problem.Stage.fusing_may_pay`), splitting
    dominates and the choice is not modelled.
    """
    if not stage.may_split:
        return False
    return None if stage.fusing_may_pay else True


def add_variables(
    cp: cp_model.CpModel,
    problem: Problem,
    times: Times,
    horizon: int,
    devices: Collection[int] | None = None,
) -> Variables:
    """Create the variables of some devices, by default of all.

    Starts range over ``[0, horizon]``, in model time.
    """
    chosen = range(len(problem.devices)) if devices is None else devices
    kept = frozenset(s for device in chosen for s in problem.stages_on[device])
    v = Variables(cp, problem, times, horizon, kept)
    v.tasks = {"F": [], "B": [], "W": []}
    for number, stage in enumerate(problem.stages):
        if number not in kept:
            v.split.append([True] * problem.microbatches[number])
            for phase in v.tasks.values():
                phase.append([])
            continue
        microbatches = range(problem.microbatches[number])
        choice = splits(stage)
        v.split.append(
            [
                cp.new_bool_var(f"split {number} {m}") if choice is None else choice
                for m in microbatches
            ]
        )
        v.tasks["F"].append([_fixed(v, number, "F", m) for m in microbatches])
        v.tasks["B"].append([_backward(v, number, m) for m in microbatches])
        v.tasks["W"].append(
            [] if choice is False else [_fixed(v, number, "W", m) for m in microbatches]
        )
    return v


def _fixed(v: Variables, stage: int, phase: Phase, microbatch: int) -> Task:
    length = v.times.duration[phase][stage]
    present: Literal = True
    if phase == "W":
        present = v.split[stage][microbatch]
    # one that is absent may have to stand where the last one that is present ends
    latest = v.horizon - length if present is True else v.horizon
    start = v.cp.new_int_var(0, latest, str(Op(stage, phase, microbatch)))
    if present is True:
        interval = v.cp.new_fixed_size_interval_var(start, length, "")
    else:
        interval = v.cp.new_optional_fixed_size_interval_var(start, length, present, "")
    return Task(stage, phase, microbatch, start, start + length, [interval], present)


def _backward(v: Variables, stage: int, microbatch: int) -> Task:
    lengths = {kind: v.times.duration[kind][stage] for kind in ("B", "BW")}
    split = v.split[stage][microbatch]
    start = v.cp.new_int_var(0, v.horizon, str(Op(stage, "B", microbatch)))
    if isinstance(split, bool):
        length = lengths["B" if split else "BW"]
        interval = v.cp.new_fixed_size_interval_var(start, length, "")
        return Task(stage, "B", microbatch, start, start + length, [interval])
    intervals = [
        v.cp.new_optional_fixed_size_interval_var(start, lengths["B"], split, ""),
        v.cp.new_optional_fixed_size_interval_var(start, lengths["BW"], ~split, ""),
    ]
    end = start + lengths["BW"] + (lengths["B"] - lengths["BW"]) * split
    return Task(stage, "B", microbatch, start, end, intervals)
