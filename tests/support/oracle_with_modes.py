"""The optimum of a tiny problem with memory modes, by the contract's words alone.

It reads a problem's document and shares no code with pipesat. A Boolean per op or copy, mode and
time says that it has started by then; memory is added up at every instant from what has started and
ended. Microbatches are plain numbers, one route, no pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from ortools.sat.python import cp_model

_KINDS = ("F", "B", "W", "BW")


class Way(NamedTuple):
    """One mode of a stage: lengths by kind (O and L of copies), what is held when."""

    name: str
    length: dict[str, int]
    backward: str
    a: int
    w: int
    x: int
    rest: int | None


class Found(NamedTuple):
    """An optimal schedule: ``[text, start, end]`` per device, copies, and the mode of each."""

    value: int
    devices: list[list[tuple[str, int, int]]]
    copies: list[list[tuple[str, int, int]]]
    modes: list[tuple[int, int, str]]


def ways_of(stage: Mapping[str, Any]) -> list[Way]:
    """The stage's own amounts and those of its modes."""
    own = {"held_after_F": 0, "held_after_B": 0, "held_in_backward": 0, "backward": "either"}
    ways = []
    for mode in [{"name": "keep"}, *stage.get("modes", [])]:
        data = own | dict(stage) | {k: v for k, v in mode.items() if k not in ("name", "offload")}
        if "BW" not in mode and ("B" in mode or "W" in mode or "BW" not in stage):
            data["BW"] = data["B"] + data["W"]
        length = {kind: data[kind] for kind in _KINDS}
        rest = None
        if "offload" in mode:
            length |= {"O": mode["offload"]["out"], "L": mode["offload"]["in"]}
            rest = mode["offload"]["held"]
        held = (data["held_after_F"], data["held_after_B"], data["held_in_backward"])
        ways.append(Way(mode["name"], length, data["backward"], *held, rest))
    return ways


class _Model:
    """All that may run in times 0 to ``horizon``; keys are (kind, stage, microbatch, way)."""

    def __init__(self, document: Mapping[str, Any], horizon: int) -> None:
        self.cp = cp_model.CpModel()
        self.document, self.horizon = document, horizon
        self.home = [stage["device"] for stage in document["stages"]]
        self.ways = [ways_of(stage) for stage in document["stages"]]
        self.begun: dict[tuple[str, int, int, int], list[cp_model.IntVar]] = {}
        for s in range(len(self.home)):
            for m in range(document["microbatches"]):
                self._choose(s, m)
        if document.get("mode_choice") == "stage":
            for s, ways in enumerate(self.ways):
                for number in range(len(ways)):
                    first = self.runs("F", s, 0, number)
                    for m in range(1, document["microbatches"]):
                        self.cp.add(self.runs("F", s, m, number) == first)

    def _choose(self, s: int, m: int) -> None:
        cp = self.cp
        for number, way in enumerate(self.ways[s]):
            for kind, length in way.length.items():
                begun = [cp.new_bool_var("") for _ in range(self.horizon - length + 1)]
                for earlier, later in pairwise(begun):
                    cp.add_implication(earlier, later)
                self.begun[kind, s, m, number] = begun
            use = self.runs("F", s, m, number)
            cp.add(self.runs("B", s, m, number) + self.runs("BW", s, m, number) == use)
            cp.add(self.runs("W", s, m, number) == self.runs("B", s, m, number))
            if way.backward != "either":
                cp.add(self.runs("B" if way.backward == "fused" else "BW", s, m, number) == 0)
            if way.rest is not None:
                cp.add(self.runs("O", s, m, number) == use)
                cp.add(self.runs("L", s, m, number) == use)
        cp.add(sum(self.runs("F", s, m, n) for n in range(len(self.ways[s]))) == 1)

    def runs(self, kind: str, s: int, m: int, number: int) -> cp_model.LinearExprT:
        """Whether it is there at all."""
        return self._started((kind, s, m, number), self.horizon)

    def _started(self, key: tuple[str, int, int, int], t: int) -> cp_model.LinearExprT:
        begun = self.begun.get(key, [])
        return begun[min(t, len(begun) - 1)] if begun and t >= 0 else 0

    def _ended(self, key: tuple[str, int, int, int], t: int) -> cp_model.LinearExprT:
        return self._started(key, t - self._length(key))

    def _length(self, key: tuple[str, int, int, int]) -> int:
        return self.ways[key[1]][key[3]].length.get(key[0], 0)

    def _any(self, kinds: str, s: int, m: int, t: int, *, ended: bool) -> cp_model.LinearExprT:
        ask = self._ended if ended else self._started
        return sum(
            ask((kind, s, m, n), t) for kind in kinds.split() for n in range(len(self.ways[s]))
        )

    def _delay(self, s: int, after: int, phase: str) -> int:
        if self.home[s] == self.home[after]:
            return 0
        comm = self.document.get("comm", {})
        for edge in comm.get("edges", []):
            if (edge["src"], edge["dst"]) == (s, after) and phase in edge:
                return int(edge[phase])
        return int(comm.get("default", 0))

    def constrain(self) -> None:
        """Data flow, one at a time on devices and channels, memory: at every instant."""
        stages = list(range(len(self.home)))
        for m in range(self.document["microbatches"]):
            for t in range(self.horizon + 1):
                self._wait(stages, m, t)
        for d, device in enumerate(self.document["devices"]):
            here = [key for key in self.begun if self.home[key[1]] == d]
            lanes = (
                ["F B W BW", "O L"]
                if device.get("copy_channels", 2) == 1
                else ["F B W BW", "O", "L"]
            )
            for t in range(self.horizon + 1):
                for lane in lanes:
                    self._run_one([key for key in here if key[0] in lane.split()], t)
                if device.get("memory") is not None:
                    held = sum(self._held(key, t) for key in here)
                    self.cp.add(held + device.get("static", 0) <= device["memory"])

    def _wait(self, stages: list[int], m: int, t: int) -> None:
        cp = self.cp
        for one, two in pairwise(stages):
            there = self._any("F", one, m, t - self._delay(one, two, "F"), ended=True)
            cp.add(self._any("F", two, m, t, ended=False) <= there)
            there = self._any("B BW", two, m, t - self._delay(one, two, "B"), ended=True)
            cp.add(self._any("B BW", one, m, t, ended=False) <= there)
        top = stages[-1]
        forward = self._any("F", top, m, t, ended=True)
        cp.add(self._any("B BW", top, m, t, ended=False) <= forward)
        for s in stages:
            back = self._any("B", s, m, t, ended=True)
            cp.add(self._any("W", s, m, t, ended=False) <= back)
            for n, way in enumerate(self.ways[s]):
                if way.rest is not None:
                    f, o, x = (("F", s, m, n), ("O", s, m, n), ("L", s, m, n))
                    cp.add(self._started(o, t) <= self._ended(f, t))
                    cp.add(self._started(x, t) <= self._ended(o, t))
                    for kind in ("B", "BW"):
                        cp.add(self._started((kind, s, m, n), t) <= self._ended(x, t))

    def _run_one(self, keys: list[tuple[str, int, int, int]], t: int) -> None:
        cp = self.cp
        cp.add(sum(self._started(key, t) - self._ended(key, t) for key in keys) <= 1)
        through = sum(
            self._started(key, t - 1) - self._ended(key, t) for key in keys if self._length(key)
        )
        for key in keys:
            if not self._length(key):
                cp.add(self._started(key, t) - self._started(key, t - 1) + through <= 1)

    def _held(self, key: tuple[str, int, int, int], t: int) -> cp_model.LinearExprT:
        kind, s, _, n = key
        way = self.ways[s][n]
        a, w, x, away = way.a, way.w, way.x, way.a - (way.rest or 0)
        started, ended = self._started(key, t), self._ended(key, t)
        if kind == "F":
            return a * started
        if kind == "B":
            most = max(a, w, x)
            return (most - a) * started + (w - most) * ended
        if kind == "BW":
            return (max(a, x) - a) * started - max(a, x) * ended
        if kind == "W":
            return -w * ended
        return away * started if kind == "L" else -away * ended

    def value(self, objective: str) -> cp_model.IntVar:
        """The objective; copies do not count."""
        cp = self.cp
        value = cp.new_int_var(0, self.horizon, "")
        for d in range(len(self.document["devices"])):
            origin = cp.new_int_var(0, self.horizon if objective == "span" else 0, "")
            for key, begun in self.begun.items():
                if self.home[key[1]] != d or key[0] in "OL":
                    continue
                for t, here in enumerate(begun):
                    if objective == "span":
                        cp.add(origin <= t).only_enforce_if(here)
                    now = [here, ~begun[t - 1]] if t else [here]
                    cp.add(value >= t + self._length(key) - origin).only_enforce_if(now)
        return value

    def found(self, solver: cp_model.CpSolver) -> Iterator[tuple[tuple[str, int, int, int], int]]:
        """Keys and starts of what runs."""
        for key, begun in self.begun.items():
            for t, here in enumerate(begun):
                if solver.boolean_value(here):
                    yield key, t
                    break


def solve(
    document: Mapping[str, Any], objective: str = "makespan", at_most: int | None = None
) -> Found | None:
    """Return an optimal schedule, or ``None`` if no schedule is valid.

    With ``at_most``, of those that are no longer; a small one makes for a small model.
    """
    m = document["microbatches"]
    comm = document.get("comm", {})
    delays = [comm.get("default", 0)] + [e.get(x, 0) for e in comm.get("edges", []) for x in "FB"]
    longest = sum(
        m * (max(sum(way.length.values()) for way in ways_of(stage)) + 2 * max(delays))
        for stage in document["stages"]
    )
    longest = longest if at_most is None else min(longest, at_most)
    windows = len(document["devices"]) if objective == "span" else 1
    # another device's window may begin when one's has ended and its data has arrived
    model = _Model(document, windows * (longest + max(delays)) if windows > 1 else longest)
    model.constrain()
    value = model.value(objective)
    if at_most is not None:
        model.cp.add(value <= at_most)
    model.cp.minimize(value)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model.cp)
    if status == cp_model.INFEASIBLE:
        return None
    if status != cp_model.OPTIMAL:
        raise AssertionError(solver.status_name(status))
    rows = _rows(model, solver)
    return Found(round(solver.objective_value), *rows)


def optimum(
    document: Mapping[str, Any], objective: str = "makespan", at_most: int | None = None
) -> int | None:
    """Return the least makespan or span, or ``None`` if no schedule (of ``at_most``) is valid."""
    found = solve(document, objective, at_most)
    return None if found is None else found.value


def _rows(model: _Model, solver: cp_model.CpSolver) -> tuple[Any, Any, Any]:
    devices: list[list[tuple[str, int, int]]] = [[] for _ in model.document["devices"]]
    copies: list[list[tuple[str, int, int]]] = [[] for _ in model.document["devices"]]
    modes = []
    for key, start in model.found(solver):
        kind, s, m, n = key
        lists = copies if kind in "OL" else devices
        lists[model.home[s]].append((f"{s}{kind}{m}", start, start + model._length(key)))
        if kind == "F" and n:
            modes.append((s, m, model.ways[s][n].name))
    for row in (*devices, *copies):
        row.sort(key=lambda timed: timed[1:])
    return devices, copies, modes
