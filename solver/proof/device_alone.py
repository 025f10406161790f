"""Bounds by one device alone: all of its memory over time, its modes, copies and pairs.

The other devices count with the least time that a microbatch needs there. The model is asked
whether the device can be done by some time; "no" is a bound (docs/proofs/search.md).
"""

from __future__ import annotations

from ortools.sat.python import cp_model

from pipesat.bounds.paired import least_times_of_each_class
from pipesat.problem.problem import Problem
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import FOUND, PROOFS, Runner, Share
from pipesat.solver.model.left_out import lags_before, tail_after
from pipesat.solver.model.over_time import PARTS, OverTime
from pipesat.solver.model.pairing import gains
from pipesat.solver.proof.questions import Questions

_SHARE = 1 / 16  # of the gap, at first
_LIMIT = 2.0  # seconds per question at first: rather a smaller one of every device
_OF_STRONGEST = 2  # times as long for the device that has proven most
# (stage, microbatch)s of a device whose ops may pair: of more, with modes, it is hardly ever solved
_MOST_PAIRED = 12


class DevicesAlone(Questions):
    """Asks one device after the other; ``possible`` are lengths that one alone can keep to."""

    def __init__(self, problem: Problem, incumbent: Incumbent, *, seed: int) -> None:
        super().__init__(problem, incumbent, runner=Runner(incumbent.clock), seed=seed)
        self.possible: dict[int, int] = {}
        self.open = [
            device
            for device, stages in problem.busy.items()
            if problem.devices[device].slack is not None
            if sum(problem.microbatches[s] for s in stages) <= _MOST_PAIRED
            or not (gains(problem) and problem.has_modes)
        ]
        self.share = Share(_SHARE, _LIMIT)
        self.finished = not self.open
        self.strongest: int | None = None  # that has proven most

    def step(self, runner: Runner) -> None:
        """Ask one question, unless there is none left."""
        self.runner = runner
        self.finished = not self._ask()

    def _ask(self) -> bool:
        bound, value = self.incumbent.bound.value, self.incumbent.value
        if value is None or not self.incumbent.trusts(PROOFS):
            return False
        self.open = [one for one in self.open if self.possible.get(one, value) > bound]
        if not self.open or bound >= value:
            return False
        device = self.open.pop(0)
        target = self.share.target(bound, min(self.possible.get(device, value), value))
        absolute = self.incumbent.objective == "makespan"
        model = DeviceAlone(self.problem, device, target, absolute=absolute)
        longer = _OF_STRONGEST if device == self.strongest else 1
        solver, status = self.solve(model.cp, longer * self.share.limit)
        if status == cp_model.INFEASIBLE:
            what = "with modes" if self.problem.has_modes else "memory over time"
            source = f"CP-SAT on {self.problem.device_name(device)} alone, {what}"
            self.refute(target, self.share, source)
            self.strongest = device
            self.open.insert(0, device)  # it may prove the next share as well
        elif status in FOUND:
            self.possible[device] = solver.value(model.value)
            self.open.append(device)
        elif self.share.share > self.share.least:
            self.share.less()
            self.open.insert(0, device)  # it may prove less
        else:
            self.open.append(device)
            if self.share.in_vain(of=len(self.open)):
                self.open.sort(key=lambda one: one != self.strongest)
        return True


class DeviceAlone(OverTime):
    """Whether a device can be done by ``most``; ``value`` is when, in a solution.

    Times are from the origin (``absolute``), or from the device's first op at the earliest.
    """

    def __init__(self, problem: Problem, device: int, most: int, *, absolute: bool) -> None:
        stages = problem.stages_on[device]
        super().__init__(problem, stages, most)
        self.device = device
        self.add_rules(stages)
        self.value = self.cp.new_int_var(0, most, "")
        self.heads: list[int] = []
        self.least = least_times_of_each_class(problem)
        for stage in stages:
            self._add_lags(stage, frozenset(stages), absolute=absolute)
        self._add_numbers()
        self.add_device(device)
        if self.choices.all:
            self.add_load(device, min(self.heads) if absolute else 0, self.value)

    def _add_numbers(self) -> None:
        """Number alike microbatches by the first F: equal variants keep to it in all parts."""
        for chunks in self.problem.chunks_on[self.device].values():
            for alike in self.alike(chunks[0]):
                self.add_order(self.row(chunks[0], alike), "F")
            self.add_order_of_a_variant(chunks, PARTS)

    def _add_lags(self, stage: int, kept: frozenset[int], *, absolute: bool) -> None:
        """Count what lies between the device's ops of a microbatch, and before and after them."""
        for microbatch, passage in enumerate(self.row(stage)):
            least = self.least[self.problem.class_of(stage, microbatch)]
            for part in ("F", "B"):
                for source, phase, delay in lags_before(least, kept, stage, part):
                    if source is not None:
                        before = self.passages[source, microbatch].tasks[phase].end
                        self.cp.add(passage.tasks[part].start >= before + delay)
                    elif absolute:
                        self.heads.append(delay)
                        self.cp.add(passage.tasks[part].start >= delay)
            if absolute:
                tail = tail_after(least, kept, stage)
                self.cp.add(self.value >= passage.tasks["B"].end + tail)
            self.add_end(passage, self.value)
