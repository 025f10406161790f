"""The optimum of a tiny problem by the contract's words alone: memory at every instant.

It reads a problem's document and shares no code with pipesat. A Boolean per item (an op alone or a
pair) and time says that the item has started by then; memory is added up at every instant from what
has started and ended, so ops of length zero need no rule of their own. That no member of a pair
waits for the other needs none either: it would have to start when the pair has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, pairwise
from typing import Any

from ortools.sat.python import cp_model

_Op = tuple[str, int, int]
_Item = tuple[_Op, ...]


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
        self.lasts: dict[_Item, int] = {}
        self.begun: dict[_Item, list[cp_model.IntVar]] = {}
        self.items: dict[_Op, list[_Item]] = {}
        for stages, microbatches in self.routes:
            for s in stages:
                for m in range(microbatches):
                    for kind in ("F", "B", "W", "BW"):
                        self._add_item(((kind, s, m),), self.stages[s][kind])
        overlap = document.get("overlap") or {}
        for pair, time in pairs_of(overlap, self.stages, list(self.items)):
            self._add_item(pair, time)
        for stages, microbatches in self.routes:
            for s in stages:
                for m in range(microbatches):
                    self._run_each(s, m)

    def _add_item(self, item: _Item, time: int) -> None:
        begun = [self.cp.new_bool_var("") for _ in range(self.horizon - time + 1)]
        for earlier, later in pairwise(begun):
            self.cp.add_implication(earlier, later)
        self.begun[item], self.lasts[item] = begun, time
        for op in item:
            self.items.setdefault(op, []).append(item)

    def _run_each(self, s: int, m: int) -> None:
        """F, and B with W or BW, each alone or in one pair."""
        cp = self.cp
        runs = {kind: self.started((kind, s, m), self.horizon) for kind in ("F", "B", "W", "BW")}
        cp.add(runs["F"] == 1)
        cp.add(runs["B"] + runs["BW"] == 1)
        cp.add(runs["W"] == runs["B"])
        if (backward := self.stages[s]["backward"]) != "either":
            cp.add(runs["BW"] == (backward == "fused"))

    def item_started(self, item: _Item, t: int) -> cp_model.LinearExprT:
        """1 if the item has started at or before t."""
        begun = self.begun[item]
        return begun[min(t, len(begun) - 1)] if begun and t >= 0 else 0

    def item_ended(self, item: _Item, t: int) -> cp_model.LinearExprT:
        """1 if the item has ended at or before t."""
        return self.item_started(item, t - self.lasts[item])

    def started(self, op: _Op, t: int) -> cp_model.LinearExprT:
        """1 if the op has started at or before t."""
        return sum(self.item_started(item, t) for item in self.items[op])

    def ended(self, op: _Op, t: int) -> cp_model.LinearExprT:
        """1 if the op has ended at or before t."""
        return sum(self.item_ended(item, t) for item in self.items[op])

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
            ops = [op for op in self.items if self.stages[op[1]]["device"] == d]
            items = [item for item in self.begun if item[0] in ops]
            for t in range(self.horizon + 1):
                self._run_one(items, t)
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

    def _run_one(self, items: list[_Item], t: int) -> None:
        """One item runs from t to t + 1; one of length zero at t lies inside none."""
        cp, begun, ended = self.cp, self.item_started, self.item_ended
        cp.add(sum(begun(item, t) - ended(item, t) for item in items) <= 1)
        through = sum(begun(i, t - 1) - ended(i, t) for i in items if self.lasts[i])
        for item in items:
            if not self.lasts[item]:
                cp.add(begun(item, t) - begun(item, t - 1) + through <= 1)

    def _held(self, op: _Op, t: int) -> cp_model.LinearExprT:
        """What an op adds to the memory held from t to t + 1, by what it has taken and freed."""
        kind, s, _ = op
        a, w = self.stages[s]["held_after_F"], self.stages[s]["held_after_B"]
        if kind == "F":
            return a * self.started(op, t)
        if kind == "W":
            return -w * self.ended(op, t)
        left = w if kind == "B" else 0
        most = max(a, left, self.stages[s]["held_in_backward"])
        return (most - a) * self.started(op, t) - (most - left) * self.ended(op, t)

    def value(self, objective: str) -> cp_model.IntVar:
        """A variable for the objective, to be minimised."""
        cp = self.cp
        value = cp.new_int_var(0, self.horizon, "")
        for d in range(len(self.devices)):
            origin = cp.new_int_var(0, self.horizon if objective == "span" else 0, "")
            for item, begun in self.begun.items():
                if self.stages[item[0][1]]["device"] != d:
                    continue
                for t, here in enumerate(begun):
                    if objective == "span":
                        cp.add(origin <= t).only_enforce_if(here)
                    now = [here, ~begun[t - 1]] if t else [here]
                    cp.add(value >= t + self.lasts[item] - origin).only_enforce_if(now)
        return value


def pairs_of(
    overlap: Mapping[str, Any], stages: list[dict[str, Any]], ops: list[_Op]
) -> Iterator[tuple[_Item, int]]:
    """Every two ops that may run as one, and how long that takes."""
    listed = {frozenset(entry["ops"]): entry["time"] for entry in overlap.get("pairs", [])}
    for one, other in combinations(ops, 2):
        if stages[one[1]]["device"] != stages[other[1]]["device"] or one[1:] == other[1:]:
            continue
        kinds = frozenset(f"{stage}{kind}" for kind, stage, _ in (one, other))
        if kinds in listed:
            yield (one, other), listed[kinds]
        elif "FB" in overlap and {one[0], other[0]} == {"F", "BW"}:
            num, den = overlap["FB"]
            times = [stages[stage][kind] for kind, stage, _ in (one, other)]
            yield (one, other), max(*times, -(-sum(times) * num // den))


class Undecided(AssertionError):
    """The effort allowed was not enough; ``found`` is the best schedule's value, if any."""

    def __init__(self, found: int | None) -> None:
        super().__init__(f"undecided, best found {found}")
        self.found = found


def optimum(
    document: Mapping[str, Any],
    objective: str = "makespan",
    at_most: int | None = None,
    effort: float | None = None,
) -> int | None:
    """Return the least makespan or span, or ``None`` if no schedule is valid.

    With ``at_most``, the least that is no more than that; a small one makes for a small model.
    ``effort`` limits CP-SAT's deterministic time, about seconds.

    Raises
    ------
    Undecided
        If that was not enough.
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
    if effort is not None:
        solver.parameters.max_deterministic_time = effort
    status = solver.solve(model.cp)
    if status == cp_model.INFEASIBLE:
        return None
    if status != cp_model.OPTIMAL:
        found = round(solver.objective_value) if status == cp_model.FEASIBLE else None
        raise Undecided(found)
    return round(solver.objective_value)


def _with_defaults(stage: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {"held_after_F": 0, "held_after_B": 0, "held_in_backward": 0}
    return defaults | {"backward": "either", "BW": stage["B"] + stage["W"]} | dict(stage)
