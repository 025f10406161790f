"""The optimum of a small problem: a plain CP-SAT model by instants, written from the contract.

Memory is what intervals hold, [start, end); an op of length 0 is an instant that may not lie
strictly inside another op; pairs are a choice per two ops of a device.

The horizon loses nothing: in a feasible schedule, keep on every device the order of all starts and
ends, equal ones equal. The least times that obey this are longest paths over durations and delays,
so none exceeds the sum of all, and no interval of memory covers what it did not cover before.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

from ortools.sat.python import cp_model

from campaign.judge import values
from campaign.judge.bounds import lower_bound
from campaign.judge.reading import KINDS, Pipe
from campaign.judge.rules import broken_rules
from campaign.judge.scale import common_divisor, divided
from campaign.judge.timed import Op, op_text, read_timed
from campaign.judge.timing import retimed

LARGEST = 10**7
"""The horizon up to which CP-SAT is given the times as they are."""


@dataclass(frozen=True)
class Truth:
    """What is known about an optimum: ``lower <= optimum <= upper``; ``None``: not known.

    ``feasible`` and ``upper`` hold by ``schedule``, which the rules have passed.
    """

    lower: int
    upper: int | None = None
    feasible: bool | None = None
    schedule: dict[str, Any] | None = None

    @property
    def exact(self) -> bool:
        return self.feasible is False or self.upper == self.lower


@dataclass
class _Run:
    """One op's variables; ``runs`` is None where it always runs."""

    start: Any
    end: Any
    length: int
    runs: Any


class _Model:
    def __init__(self, pipe: Pipe) -> None:
        self.pipe, self.cp = pipe, cp_model.CpModel()
        self.horizon = horizon(pipe)
        self.run: dict[Op, _Run] = {}
        self.pairs: dict[tuple[Op, Op], Any] = {}
        self.fused: dict[tuple[int, int], Any] = {}
        self.routes_of = {s: (r, m) for r, m in pipe.routes for s in r}
        self.add_ops()
        self.add_pairs()
        self.add_waits()
        for device in range(pipe.devices):
            self.add_turns(device)
            self.add_memory(device)

    def var(self, name: str) -> Any:
        return self.cp.new_int_var(0, self.horizon, name)

    def add_ops(self) -> None:
        for s, stage in enumerate(self.pipe.stages):
            for m in range(self.routes_of[s][1]):
                fused = self.cp.new_bool_var(f"{s}fused{m}")
                self.fused[s, m] = fused
                if not stage.may_fuse:
                    self.cp.add(fused == 0)
                if not stage.may_split:
                    self.cp.add(fused == 1)
                for kind, runs in (("F", None), ("B", ~fused), ("W", ~fused), ("BW", fused)):
                    op = Op(s, kind, m)
                    start, end = self.var(f"start {op_text(op)}"), self.var(f"end {op_text(op)}")
                    self.run[op] = _Run(start, end, getattr(stage, kind), runs)

    def add_pairs(self) -> None:
        """Every op lasts its own time, or its pair's."""
        partners: dict[Op, list[Any]] = {op: [] for op in self.run}
        for one, other in combinations(self.run, 2):
            stages = self.pipe.stages
            if stages[one.stage].device != stages[other.stage].device or one[::2] == other[::2]:
                continue
            time = self.pipe.pair_time(one[:2], other[:2])
            if time is None:
                continue
            pair = self.cp.new_bool_var(f"{op_text(one)}+{op_text(other)}")
            a, b = self.run[one], self.run[other]
            self.cp.add(a.start == b.start).only_enforce_if(pair)
            for op, run in ((one, a), (other, b)):
                if run.runs is not None:
                    self.cp.add_implication(pair, run.runs)
                self.cp.add(run.end == run.start + time).only_enforce_if(pair)
                partners[op].append(pair)
            self.pairs[self._as_written(one, other)] = pair
        for op, run in self.run.items():
            alone = [~pair for pair in partners[op]]
            if alone:
                self.cp.add_at_most_one(partners[op])
            self.cp.add(run.end == run.start + run.length).only_enforce_if(alone)

    def _as_written(self, one: Op, other: Op) -> tuple[Op, Op]:
        """Members in the order of files."""
        if one[:2] == other[:2]:
            turned = other.microbatch < one.microbatch
        elif (other[:2], one[:2]) in self.pipe.pairs:
            turned = True
        else:
            turned = (one[:2], other[:2]) not in self.pipe.pairs and other.kind == "F"
        return (other, one) if turned else (one, other)

    def backward_end(self, s: int, m: int, after: Any) -> None:
        """``after`` is no earlier than the end of the backward that runs."""
        fused = self.fused[s, m]
        self.cp.add(after >= self.run[Op(s, "BW", m)].end).only_enforce_if(fused)
        self.cp.add(after >= self.run[Op(s, "B", m)].end).only_enforce_if(~fused)

    def add_waits(self) -> None:
        for route, microbatches in self.pipe.routes:
            for m in range(microbatches):
                for here, there in pairwise(route):
                    forth, back = self.pipe.delay[here, there]
                    enters = self.run[Op(here, "F", m)]
                    self.cp.add(self.run[Op(there, "F", m)].start >= enters.end + forth)
                    for kind in ("B", "BW"):
                        self.backward_end(there, m, self.run[Op(here, kind, m)].start - back)
                last = route[-1]
                for kind in ("B", "BW"):
                    forward = self.run[Op(last, "F", m)]
                    self.cp.add(self.run[Op(last, kind, m)].start >= forward.end)
                for s in route:
                    self.cp.add(self.run[Op(s, "W", m)].start >= self.run[Op(s, "B", m)].end)
            first = [self.run[Op(route[0], "F", m)] for m in range(microbatches)]
            for one, other in pairwise(first):  # microbatches are alike: numbered as they enter
                self.cp.add(one.start <= other.start)

    def add_turns(self, device: int) -> None:
        """Two ops that both run take turns, or are a pair."""
        here = [op for op in self.run if self.pipe.stages[op.stage].device == device]
        for one, other in combinations(here, 2):
            if one[::2] == other[::2]:
                continue  # F, B and W wait for each other anyhow, and BW excludes B and W
            a, b = self.run[one], self.run[other]
            first, second = self.cp.new_bool_var(""), self.cp.new_bool_var("")
            self.cp.add(a.end <= b.start).only_enforce_if(first)
            self.cp.add(b.end <= a.start).only_enforce_if(second)
            absent = [~run.runs for run in (a, b) if run.runs is not None]
            paired = [self.pairs[k] for k in ((one, other), (other, one)) if k in self.pairs]
            self.cp.add_bool_or([first, second, *absent, *paired])

    def add_memory(self, device: int) -> None:
        capacity = self.pipe.memory[device]
        if capacity is None:
            return
        held: list[Any] = []
        amounts: list[int] = []

        def hold(amount: int, start: Any, end: Any, when: Any) -> None:
            if amount:
                length = self.var("")
                held.append(self.cp.new_optional_interval_var(start, length, end, when, ""))
                amounts.append(amount)

        for (s, m), fused in self.fused.items():
            stage = self.pipe.stages[s]
            if stage.device != device:
                continue
            f, b, w, bw = (self.run[Op(s, kind, m)] for kind in ("F", "B", "W", "BW"))
            hold(stage.held_F, f.start, bw.end, fused)
            hold(stage.held_F, f.start, b.start, ~fused)
            hold(max(stage.held_F, stage.held_B), b.start, b.end, ~fused)
            hold(stage.held_B, b.end, w.end, ~fused)
        room = capacity - self.pipe.static[device]
        if room < 0:
            self.cp.add_bool_or([])
        elif held:
            self.cp.add_cumulative(held, amounts, room)

    def aim(self, objective: str) -> Any:
        goal = self.var("value")
        for device in range(self.pipe.devices):
            begin: Any = 0 if objective == "makespan" else self.var("")
            for op, run in self.run.items():
                if self.pipe.stages[op.stage].device == device:
                    when = [] if run.runs is None else [run.runs]
                    self.cp.add(run.start >= begin).only_enforce_if(when)
                    self.cp.add(goal >= run.end - begin).only_enforce_if(when)
        self.cp.minimize(goal)
        return goal


def horizon(pipe: Pipe) -> int:
    """Return a time that some optimal schedule does not exceed."""
    total = sum(a + b for a, b in pipe.delay.values()) * max(m for _, m in pipe.routes)
    for route, microbatches in pipe.routes:
        for s in route:
            stage = pipe.stages[s]
            most = {kind: max([getattr(stage, kind), *pipe.pair_times(s, kind)]) for kind in KINDS}
            total += microbatches * (most["F"] + max(most["BW"], most["B"] + most["W"]))
    return total + 1


def exact(pipe: Pipe, objective: str, seconds: float = 10.0) -> Truth:
    """Bracket the optimum of a problem; exactly, if it is small enough for ``seconds``.

    Times beyond what CP-SAT is trusted with are divided: without remainder where that is possible,
    else rounded down. The rounded optimum times the divisor is a lower bound (rounded starts keep
    every rule), and the order found is timed in the exact problem.
    """
    divisor = 1 if pipe.has_pairs else common_divisor(pipe)
    divisor *= max(1, horizon(pipe) // divisor // LARGEST)
    model = _Model(divided(pipe, divisor))
    model.aim(objective)
    floor = lower_bound(pipe, objective)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(model.cp)
    if status == cp_model.INFEASIBLE:
        return Truth(floor, None, False)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Truth(floor)
    document: dict[str, Any] | None = _schedule(model, solver)
    if divisor > 1:
        document = retimed(pipe, document, objective)
    broken = ["waits in a circle"] if document is None else broken_rules(pipe, "", document)
    assert not broken or divisor > 1, f"the oracle's own schedule: {broken}"
    lower = max(floor, round(solver.best_objective_bound) * divisor)
    if broken:
        return Truth(lower)
    timed, _ = read_timed(document, pipe.devices)
    return Truth(lower, values.value(timed, objective), True, document)


def _schedule(model: _Model, solver: Any) -> dict[str, Any]:
    """Return the model's answer as a schedule document; at one instant, inputs come first."""
    rows: list[list[list[Any]]] = [[] for _ in range(model.pipe.devices)]
    paired = {op: pair for pair, v in model.pairs.items() if solver.value(v) for op in pair}
    depth = _depths(model)
    entries = []
    for op, run in model.run.items():
        if run.runs is not None and not solver.boolean_value(run.runs):
            continue
        if op in paired and op == paired[op][1]:
            continue
        text = op_text(op)
        if op in paired:
            text = f"({text}+{op_text(paired[op][1])})"
        start, end = solver.value(run.start), solver.value(run.end)
        entries.append((start, end, depth[op], model.pipe.stages[op.stage].device, text))
    for start, end, _, device, text in sorted(entries):
        rows[device].append([text, start, end])
    return {"format": "pipesat.schedule/1", "problem_sha256": "", "devices": rows}


def _depths(model: _Model) -> dict[Op, int]:
    """How far along its microbatch's way an op is."""
    found = {}
    for route, microbatches in model.pipe.routes:
        last = len(route) - 1
        for m in range(microbatches):
            for place, s in enumerate(route):
                found[Op(s, "F", m)] = place
                for kind in ("B", "BW"):
                    found[Op(s, kind, m)] = 2 * last + 1 - place
                found[Op(s, "W", m)] = 2 * last + 2
    return found
