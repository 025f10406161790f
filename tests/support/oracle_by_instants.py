"""The optimum of a tiny problem by the contract's words alone: memory at every instant.

It reads a problem's document and shares no code with pipesat. A Boolean per op and time says that
the op has started by then; memory is added up at every instant from what has started and ended, so
ops of length zero need no rule of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from ortools.sat.python import cp_model

_Op = tuple[str, int, int]


class _Model:
    """Ops of all (stage, microbatch) with their starts, for times 0 to ``horizon``."""

    def __init__(self, document: Mapping[str, Any], horizon: int) -> None:
        self.cp = cp_model.CpModel()
        self.horizon = horizon
        self.stages = [_with_defaults(stage) for stage in document["stages"]]
        everything = {"stages": list(range(len(self.stages)))}
        routes = document.get("routes") or [
            everything | {"microbatches": document.get("microbatches")}
        ]
        self.routes = [(route["stages"], route["microbatches"]) for route in routes]
        self.devices = document["devices"]
        self.comm = document.get("comm", {})
        self.begun: dict[_Op, list[cp_model.IntVar]] = {}
        for stages, microbatches in self.routes:
            for s in stages:
                for m in range(microbatches):
                    self._add_ops(s, m)

    def _add_ops(self, s: int, m: int) -> None:
        data, cp = self.stages[s], self.cp
        for kind in ("F", "B", "W", "BW"):
            last = self.horizon - data[kind]
            begun = [cp.new_bool_var("") for _ in range(last + 1)]
            for earlier, later in pairwise(begun):
                cp.add_implication(earlier, later)
            self.begun[kind, s, m] = begun
        runs = {kind: self.started((kind, s, m), self.horizon) for kind in ("F", "B", "W", "BW")}
        cp.add(runs["F"] == 1)
        cp.add(runs["B"] + runs["BW"] == 1)
        cp.add(runs["W"] == runs["B"])
        if data["backward"] != "either":
            cp.add(runs["BW"] == (data["backward"] == "fused"))

    def started(self, op: _Op, t: int) -> cp_model.LinearExprT:
        """1 if the op has started at or before t."""
        begun = self.begun[op]
        return begun[min(t, len(begun) - 1)] if begun and t >= 0 else 0

    def ended(self, op: _Op, t: int) -> cp_model.LinearExprT:
        """1 if the op has ended at or before t."""
        return self.started(op, t - self.stages[op[1]][op[0]])

    def delay(self, s: int, after: int, phase: str) -> int:
        """Travel time between consecutive stages."""
        if self.stages[s]["device"] == self.stages[after]["device"]:
            return 0
        for edge in self.comm.get("edges", []):
            if (edge["src"], edge["dst"]) == (s, after) and phase in edge:
                return int(edge[phase])
        return int(self.comm.get("default", 0))

    def constrain(self) -> None:
        """Data flow, one op at a time, memory: at every instant."""
        for stages, microbatches in self.routes:
            for m in range(microbatches):
                for t in range(self.horizon + 1):
                    self._wait(stages, m, t)
        for d, device in enumerate(self.devices):
            ops = [op for op in self.begun if self.stages[op[1]]["device"] == d]
            for t in range(self.horizon + 1):
                self._run_one(ops, t)
                if device.get("memory") is not None:
                    held = sum(self._held(op, t) for op in ops)
                    self.cp.add(held + device.get("static", 0) <= device["memory"])

    def _wait(self, stages: list[int], m: int, t: int) -> None:
        """What has started by t has had its input by t."""
        cp = self.cp
        for before, s in pairwise(stages):
            forward = t - self.delay(before, s, "F")
            cp.add(self.started(("F", s, m), t) <= self.ended(("F", before, m), forward))
            back = t - self.delay(before, s, "B")
            gradient = self.ended(("B", s, m), back) + self.ended(("BW", s, m), back)
            begun = self.started(("B", before, m), t) + self.started(("BW", before, m), t)
            cp.add(begun <= gradient)
        top = stages[-1]
        begun = self.started(("B", top, m), t) + self.started(("BW", top, m), t)
        cp.add(begun <= self.ended(("F", top, m), t))
        for s in stages:
            cp.add(self.started(("W", s, m), t) <= self.ended(("B", s, m), t))

    def _run_one(self, ops: list[_Op], t: int) -> None:
        """One op runs from t to t + 1; one of length zero at t lies inside none."""
        cp = self.cp
        cp.add(sum(self.started(op, t) - self.ended(op, t) for op in ops) <= 1)
        through = sum(self.started(op, t - 1) - self.ended(op, t) for op in ops if self._lasts(op))
        for op in ops:
            if not self._lasts(op):
                cp.add(self.started(op, t) - self.started(op, t - 1) + through <= 1)

    def _lasts(self, op: _Op) -> int:
        return int(self.stages[op[1]][op[0]])

    def _held(self, op: _Op, t: int) -> cp_model.LinearExprT:
        """What an op adds to the memory held from t to t + 1, by what it has taken and freed."""
        kind, s, _ = op
        a, w = self.stages[s]["held_after_F"], self.stages[s]["held_after_B"]
        if kind == "F":
            return a * self.started(op, t)
        if kind == "B":
            return max(0, w - a) * self.started(op, t) + (w - max(a, w)) * self.ended(op, t)
        return -(w if kind == "W" else a) * self.ended(op, t)

    def value(self, objective: str) -> cp_model.IntVar:
        """A variable for the objective, to be minimised."""
        cp = self.cp
        value = cp.new_int_var(0, self.horizon, "")
        for d in range(len(self.devices)):
            origin = cp.new_int_var(0, self.horizon if objective == "span" else 0, "")
            for op, begun in self.begun.items():
                if self.stages[op[1]]["device"] != d:
                    continue
                for t, here in enumerate(begun):
                    if objective == "span":
                        cp.add(origin <= t).only_enforce_if(here)
                    now = [here, ~begun[t - 1]] if t else [here]
                    cp.add(value >= t + self._lasts(op) - origin).only_enforce_if(now)
        return value


def optimum(
    document: Mapping[str, Any], objective: str = "makespan", at_most: int | None = None
) -> int | None:
    """Return the least makespan or span, or ``None`` if no schedule is valid.

    With ``at_most``, the least that is no more than that; a small one makes for a small model.
    """
    stages = [_with_defaults(stage) for stage in document["stages"]]
    counts = dict.fromkeys(range(len(stages)), document.get("microbatches"))
    for route in document.get("routes", []):
        counts |= dict.fromkeys(route["stages"], route["microbatches"])
    comm = document.get("comm", {})
    delays = [comm.get("default", 0)] + [e.get(x, 0) for e in comm.get("edges", []) for x in "FB"]
    way = 2 * max(delays)
    longest = sum(
        counts[s] * (x["F"] + max(x["B"] + x["W"], x["BW"]) + way) for s, x in enumerate(stages)
    )
    if at_most is not None:
        longest = min(longest, at_most)
    windows = len(document["devices"])  # one device's may begin when another's has ended
    horizon = windows * (longest + max(delays)) if objective == "span" else longest
    model = _Model(document, horizon)
    model.constrain()
    value = model.value(objective)
    model.cp.add(value <= longest)
    model.cp.minimize(value)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model.cp)
    if status == cp_model.INFEASIBLE:
        return None
    if status != cp_model.OPTIMAL:
        raise AssertionError(solver.status_name(status))
    return round(solver.objective_value)


def _with_defaults(stage: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {"held_after_F": 0, "held_after_B": 0, "backward": "either"}
    return defaults | {"BW": stage["B"] + stage["W"]} | dict(stage)
