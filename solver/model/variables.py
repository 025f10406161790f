"""Variables: a start per F, backward and W, and whether a backward is split where that is free."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, product

from ortools.sat.python import cp_model

from pipesat.bounds.paired import least_times_of_each_class
from pipesat.problem.ops import PHASE_OF, Kind, Op, OpKind, Phase
from pipesat.problem.problem import Problem
from pipesat.problem.rules import duration
from pipesat.solver.model.alternatives import (
    Candidate,
    Choice,
    Literal,
    PairChoices,
    Running,
    add_pair_choices,
    choice_of,
)
from pipesat.solver.model.pairing import Gains, gains, time_that_gains, useful_variants
from pipesat.solver.model.times import Times
from pipesat.solver.model.turns import Name, Turns, add_turns, chains, precedes


@dataclass(eq=False, kw_only=True)
class Task(Running):
    """One phase of (stage, microbatch)."""

    stage: int
    phase: Phase
    microbatch: int

    @property
    def name(self) -> Name:
        """What it is, without its variables."""
        return Name(self.stage, self.phase, self.microbatch)


@dataclass
class Variables:
    """All tasks, indexed ``tasks[phase][stage][microbatch]``; a fused stage has no W tasks.

    ``kept`` are the stages that are modelled: all, or those of some devices (a relaxation); the
    others have no tasks.

    ``split[stage][microbatch]`` says whether the backward is split, ``pairs`` which tasks run as
    one, ``turns`` which microbatch comes first.
    """

    cp: cp_model.CpModel
    problem: Problem
    times: Times
    horizon: int
    kept: frozenset[int]
    tasks: dict[Phase, list[list[Task]]] = field(default_factory=dict)
    split: list[list[Literal]] = field(default_factory=list)
    pairs: PairChoices[Task] = field(default_factory=PairChoices)
    turns: Turns = field(default_factory=Turns)

    def length(self, kind: Kind, stage: int, microbatch: int) -> int:
        """How long an op lasts alone, in model time."""
        return duration(self.problem, Op(stage, kind, microbatch)) // self.times.unit

    @cached_property
    def least(self) -> list[Problem]:
        """By class, the problem as what is left out counts: each op at its least, alone or not."""
        return least_times_of_each_class(self.problem)

    def least_for(self, stage: int, microbatch: int) -> Problem:
        """The one of :attr:`least` that a microbatch is of."""
        return self.least[self.problem.class_of(stage, microbatch)]

    def chains(self, stage: int, phase: Phase) -> list[list[Task]]:
        """Tasks of a stage and phase that run by number, in lists; no tasks, no lists."""
        tasks = self.tasks[phase][stage]
        lists = chains(self.problem, stage, phase) if tasks else []
        return [[tasks[m] for m in own] for own in lists]

    @cached_property
    def earlier(self) -> dict[int, Task]:
        """By identity, the task that each one follows in its chain."""
        return {
            id(after): before
            for phase, stages in self.tasks.items()
            for stage in range(len(stages))
            for chain in self.chains(stage, phase)
            for before, after in pairwise(chain)
        }

    def on_device(self, device: int) -> list[Task]:
        """All tasks of a device."""
        return [
            task
            for stage in self.problem.stages_on[device]
            for phase in self.tasks.values()
            for task in phase[stage]
        ]


def splits(problem: Problem, stage: int, known: Gains) -> bool | None:
    """Whether all of a stage's alike backwards are split; ``None``: the model chooses for each."""
    found = {variant.split for variant in useful_variants(problem, stage, 0, known)}
    return None if len(found) > 1 else True in found


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
    known = gains(problem)
    for number in range(len(problem.stages)):
        if number not in kept:
            v.split.append([True] * problem.microbatches[number])
            for phase in v.tasks.values():
                phase.append([])
            continue
        choices = [
            choice_of(cp, number, m, useful_variants(problem, number, kind, known))
            for m in range(problem.microbatches[number])
            for kind in [problem.class_of(number, m)]
        ]
        v.split.append([choice.present(cp, "W") for choice in choices])
        for part, of_stages in v.tasks.items():
            data = problem.stages[number]
            there = {"F": True, "B": data.has_backward, "W": data.may_split}
            own = choices if there[part] else []
            of_stages.append([_task(v, choice, part) for choice in own])
    v.turns = add_turns(cp, problem)
    tasks = [task for stages in v.tasks.values() for row in stages for task in row]
    v.pairs = add_pair_choices(cp, _candidates(v, known), tasks, lambda _: horizon)
    return v


def _task(v: Variables, choice: Choice, phase: Phase) -> Task:
    task = Task(
        alternatives=choice.alternatives(v.cp, v.problem, phase, v.times.unit),
        present=choice.present(v.cp, phase),
        stage=choice.stage,
        phase=phase,
        microbatch=choice.microbatch,
    )
    # one that is absent may have to stand where the last one that is present ends, and a pair may
    # be shorter than its members
    alone = len(task.alternatives) == 1 and task.present is True and v.problem.overlap is None
    own = task.alternatives[0].length if alone and phase != "B" else 0
    latest = max(0, v.horizon - own)
    task.begin(v.cp, v.cp.new_int_var(0, latest, ""))
    return task


def _candidates(v: Variables, known: Gains) -> Iterator[Candidate[Task]]:
    """Yield every pair that gains something and may be in some schedule."""
    problem = v.problem
    for one, other in known:
        if one > other or one[0] not in v.kept:
            continue
        for x, y in product(_tasks_of(v, one), _tasks_of(v, other)):
            if one == other and x.microbatch >= y.microbatch:
                continue
            ops = Op(*one, x.microbatch), Op(*other, y.microbatch)
            time = time_that_gains(problem, known, *ops)
            if time is not None and not _apart(v, x, y):
                yield (x, y), ops, time // v.times.unit


def _apart(v: Variables, x: Task, y: Task) -> bool:
    """Whether one ends before the other starts; of a chain, all but neighbours do.

    So are two between which all may be absent.
    """
    alike = x.name[:2] == y.name[:2]
    for one, other in ((x, y), (y, x)) if alike else ():
        before = v.earlier.get(id(other))
        while before is not None and before is not one and before.present is not True:
            before = v.earlier.get(id(before))
        if before is one:
            return False
    return precedes(v.problem, x.name, y.name) or precedes(v.problem, y.name, x.name)


def _tasks_of(v: Variables, kind: OpKind) -> list[Task]:
    """Tasks that may run as a kind."""
    stage, name = kind
    never = name == "BW"
    tasks = v.tasks[PHASE_OF[name]][stage]
    return [x for x in tasks if name == "F" or v.split[stage][x.microbatch] is not never]
