"""The optimum of a tiny problem of any kind, by the contract's words alone.

It reads a problem's document and shares no code with pipesat. A Boolean per item (an op alone, a
pair or a copy) and time says that it has started by then; memory is added up at every instant from
what has started and ended. Ops have a mode each, and pairs the time of their members' classes and
modes; those of no length are left out, as their members in turn do as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, pairwise, permutations
from typing import Any, NamedTuple

from ortools.sat.python import cp_model

_KINDS = ("F", "B", "W", "BW")
_Key = tuple[str, int, int, int]
"""Kind, stage, microbatch and mode of an op or copy."""
_Item = tuple[_Key, ...]


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


def ways_of(
    stage: Mapping[str, Any], kind: Mapping[str, Any] | None = None, number: int = 0
) -> list[Way]:
    """The stage's own amounts and those of its modes, for the microbatches of a class."""
    kind = kind or {}
    outright = kind.get("stages", {}).get(str(number), {})
    own = {"held_after_F": 0, "held_after_B": 0, "held_in_backward": 0, "backward": "either"}
    ways = []
    for mode in [{"name": "keep"}, *stage.get("modes", [])]:
        data = own | dict(stage) | {k: v for k, v in mode.items() if k not in ("name", "offload")}
        stated = "BW" in mode or (not ({"B", "W"} & mode.keys()) and "BW" in stage)
        for key in (*_KINDS, "held_after_F", "held_after_B", "held_in_backward"):
            if key in outright:
                data[key] = outright[key]
            elif key in data:
                data[key] = _up(data[key], kind.get("held" if "held" in key else "time"))
        if not stated and "BW" not in outright:
            data["BW"] = data["B"] + data["W"]
        length = {name: data[name] for name in _KINDS}
        rest = None
        if "offload" in mode:
            out, back, rest = (
                _up(mode["offload"][key], kind.get("held")) for key in ("out", "in", "held")
            )
            length |= {"O": out, "L": back}
        held = (data["held_after_F"], data["held_after_B"], data["held_in_backward"])
        ways.append(Way(mode["name"], length, data["backward"], *held, rest))
    return ways


def _up(amount: int, factor: list[int] | None) -> int:
    return amount if factor is None else -(-amount * factor[0] // factor[1])


def _longest(way: Way) -> int:
    """What one microbatch takes in a mode, split or whole, its copies included."""
    length = way.length
    copies = length.get("O", 0) + length.get("L", 0)
    return length["F"] + max(length["B"] + length["W"], length["BW"]) + copies


class _Route(NamedTuple):
    """Stages of a route, the definition of each microbatch's class, and whether it has a rule."""

    stages: list[int]
    kinds: list[Mapping[str, Any]]
    listed: bool


def _routes(document: Mapping[str, Any]) -> list[_Route]:
    everything = {"stages": [*range(len(document["stages"]))]}
    given = document.get("routes") or [everything | {"microbatches": document["microbatches"]}]
    routes = []
    for route in given:
        said = route["microbatches"]
        entries = [{"count": said, "name": ""}] if isinstance(said, int) else said
        first = {entry["name"]: entry for entry in reversed(entries)}
        kinds = [first[entry["name"]] for entry in entries for _ in range(entry["count"])]
        routes.append(_Route(route["stages"], kinds, not isinstance(said, int)))
    return routes


class _Model:
    """All that may run in times 0 to ``horizon``."""

    def __init__(self, document: Mapping[str, Any], horizon: int) -> None:
        self.cp = cp_model.CpModel()
        self.document, self.horizon = document, horizon
        self.home = [stage["device"] for stage in document["stages"]]
        self.routes = _routes(document)
        self.route = {s: route for route in self.routes for s in route.stages}
        self.ways = {
            (s, m): ways_of(document["stages"][s], kind, s)
            for route in self.routes
            for s in route.stages
            for m, kind in enumerate(route.kinds)
        }
        self.begun: dict[_Item, list[cp_model.IntVar]] = {}
        self.lasts: dict[_Item, int] = {}
        self.items: dict[_Key, list[_Item]] = {}
        for (s, m), ways in self.ways.items():
            for number, way in enumerate(ways):
                for kind, length in way.length.items():
                    self._add_item(((kind, s, m, number),), length)
        for one, other in combinations(list(self.items), 2):
            if time := self._together(one, other):
                self._add_item((one, other), time)
        for s, m in self.ways:
            self._choose(s, m)
        if document.get("mode_choice") == "stage":
            for (s, m), ways in self.ways.items():
                for number in range(len(ways)):
                    self.cp.add(self.runs("F", s, m, number) == self.runs("F", s, 0, number))

    def _add_item(self, item: _Item, length: int) -> None:
        begun = [self.cp.new_bool_var("") for _ in range(self.horizon - length + 1)]
        for earlier, later in pairwise(begun):
            self.cp.add_implication(earlier, later)
        self.begun[item], self.lasts[item] = begun, length
        for key in item:
            self.items.setdefault(key, []).append(item)

    def _together(self, one: _Key, other: _Key) -> int | None:
        """How long two ops take as one; nothing if they may not, or take no time."""
        (kind, s, m, _), (kind_2, s_2, m_2, _) = one, other
        if self.home[s] != self.home[s_2] or (s, m) == (s_2, m_2) or {kind, kind_2} & {"O", "L"}:
            return None
        alone = [self._length(key) for key in (one, other)]
        overlap = self.document.get("overlap") or {}
        named = sorted((f"{s}{kind}", f"{s_2}{kind_2}"))
        for entry in overlap.get("pairs", []):
            if sorted(entry["ops"]) == named:
                if "factor" in entry:
                    return max(1, _up(sum(alone), entry["factor"]))
                ways = [self.ways[key[1:3]][key[3]] for key in (one, other)]
                kept = all(way.name == "keep" or way.rest is not None for way in ways)
                return int(entry["time"]) if kept else None
        if "FB" in overlap and {kind, kind_2} == {"F", "BW"}:
            return max(*alone, _up(sum(alone), overlap["FB"]))
        return None

    def _choose(self, s: int, m: int) -> None:
        cp = self.cp
        for number, way in enumerate(self.ways[s, m]):
            use = self.runs("F", s, m, number)
            cp.add(self.runs("B", s, m, number) + self.runs("BW", s, m, number) == use)
            cp.add(self.runs("W", s, m, number) == self.runs("B", s, m, number))
            if way.backward != "either":
                cp.add(self.runs("B" if way.backward == "fused" else "BW", s, m, number) == 0)
            if way.rest is not None:
                cp.add(self.runs("O", s, m, number) == use)
                cp.add(self.runs("L", s, m, number) == use)
        cp.add(sum(self.runs("F", s, m, n) for n in range(len(self.ways[s, m]))) == 1)

    def runs(self, kind: str, s: int, m: int, number: int) -> cp_model.LinearExprT:
        """Whether it is there at all."""
        return self._started((kind, s, m, number), self.horizon)

    def _item_started(self, item: _Item, t: int) -> cp_model.LinearExprT:
        begun = self.begun[item]
        return begun[min(t, len(begun) - 1)] if begun and t >= 0 else 0

    def _item_ended(self, item: _Item, t: int) -> cp_model.LinearExprT:
        return self._item_started(item, t - self.lasts[item])

    def _started(self, key: _Key, t: int) -> cp_model.LinearExprT:
        return sum(self._item_started(item, t) for item in self.items.get(key, ()))

    def _ended(self, key: _Key, t: int) -> cp_model.LinearExprT:
        return sum(self._item_ended(item, t) for item in self.items.get(key, ()))

    def _length(self, key: _Key) -> int:
        return self.ways[key[1:3]][key[3]].length.get(key[0], 0)

    def _keys(self, kinds: str, s: int, m: int) -> list[_Key]:
        ways = range(len(self.ways[s, m]))
        return [(kind, s, m, number) for kind in kinds.split() for number in ways]

    def _any(self, kinds: str, s: int, m: int, t: int, *, ended: bool) -> cp_model.LinearExprT:
        ask = self._ended if ended else self._started
        return sum(ask(key, t) for key in self._keys(kinds, s, m))

    def _delay(self, s: int, after: int, phase: str, kind: Mapping[str, Any]) -> int:
        if self.home[s] == self.home[after]:
            return 0
        comm = self.document.get("comm", {})
        delay = comm.get("default", 0)
        for edge in comm.get("edges", []):
            if (edge["src"], edge["dst"]) == (s, after) and phase in edge:
                delay = edge[phase]
        return _up(delay, kind.get("comm"))

    def constrain(self) -> None:
        """Data flow, order, one at a time on devices and channels, memory: at every instant."""
        for route in self.routes:
            for m, kind in enumerate(route.kinds):
                for t in range(self.horizon + 1):
                    self._wait(route.stages, m, t, kind)
            if route.listed:
                self._keep_order(route)
        for d, device in enumerate(self.document["devices"]):
            here = [key for key in self.items if self.home[key[1]] == d]
            lanes = (
                ["F B W BW", "O L"]
                if device.get("copy_channels", 2) == 1
                else ["F B W BW", "O", "L"]
            )
            for t in range(self.horizon + 1):
                for lane in lanes:
                    keys = {key for key in here if key[0] in lane.split()}
                    self._run_one([item for item in self.begun if keys.issuperset(item)], t)
                if device.get("memory") is not None:
                    held = sum(self._held(key, t) for key in here)
                    self.cp.add(held + device.get("static", 0) <= device["memory"])

    def _keep_order(self, route: _Route) -> None:
        """Forwards and backwards of every stage by number, or in one order of all stages."""
        rule = self.document.get("order", "free")
        microbatches = range(len(route.kinds))
        if rule == "free":
            return
        before = {two: self.cp.new_bool_var("") for two in permutations(microbatches, 2)}
        for (one, other), first in before.items():
            self.cp.add(first + before[other, one] == 1)
            if rule == "given":
                self.cp.add(first == (one < other))
        for one, two, three in permutations(microbatches, 3):
            self.cp.add_bool_or([~before[one, two], ~before[two, three], before[one, three]])
        for (one, other), first in before.items():
            for s in route.stages:
                for kinds in ("F", "B BW"):
                    keys = {*self._keys(kinds, s, one), *self._keys(kinds, s, other)}
                    pairs = [i for i in self.begun if len(i) == 2 and keys.issuperset(i)]
                    for t in range(self.horizon + 1):
                        done = self._any(kinds, s, one, t, ended=True)
                        beside = sum(
                            self._item_started(i, t) - self._item_ended(i, t) for i in pairs
                        )
                        begun = self._any(kinds, s, other, t, ended=False)
                        self.cp.add(begun <= done + beside).only_enforce_if(first)

    def _wait(self, stages: list[int], m: int, t: int, kind: Mapping[str, Any]) -> None:
        cp = self.cp
        for one, two in pairwise(stages):
            there = self._any("F", one, m, t - self._delay(one, two, "F", kind), ended=True)
            cp.add(self._any("F", two, m, t, ended=False) <= there)
            there = self._any("B BW", two, m, t - self._delay(one, two, "B", kind), ended=True)
            cp.add(self._any("B BW", one, m, t, ended=False) <= there)
        top = stages[-1]
        forward = self._any("F", top, m, t, ended=True)
        cp.add(self._any("B BW", top, m, t, ended=False) <= forward)
        for s in stages:
            back = self._any("B", s, m, t, ended=True)
            cp.add(self._any("W", s, m, t, ended=False) <= back)
            for n, way in enumerate(self.ways[s, m]):
                if way.rest is not None:
                    f, o, x = (("F", s, m, n), ("O", s, m, n), ("L", s, m, n))
                    cp.add(self._started(o, t) <= self._ended(f, t))
                    cp.add(self._started(x, t) <= self._ended(o, t))
                    for back_kind in ("B", "BW"):
                        cp.add(self._started((back_kind, s, m, n), t) <= self._ended(x, t))

    def _run_one(self, items: list[_Item], t: int) -> None:
        cp, begun, ended = self.cp, self._item_started, self._item_ended
        cp.add(sum(begun(item, t) - ended(item, t) for item in items) <= 1)
        through = sum(begun(i, t - 1) - ended(i, t) for i in items if self.lasts[i])
        for item in items:
            if not self.lasts[item]:
                cp.add(begun(item, t) - begun(item, t - 1) + through <= 1)

    def _held(self, key: _Key, t: int) -> cp_model.LinearExprT:
        kind, s, m, n = key
        way = self.ways[s, m][n]
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
            for item, begun in self.begun.items():
                if self.home[item[0][1]] != d or item[0][0] in "OL":
                    continue
                for t, here in enumerate(begun):
                    if objective == "span":
                        cp.add(origin <= t).only_enforce_if(here)
                    now = [here, ~begun[t - 1]] if t else [here]
                    cp.add(value >= t + self.lasts[item] - origin).only_enforce_if(now)
        return value

    def found(self, solver: cp_model.CpSolver) -> Iterator[tuple[_Item, int]]:
        """Items and starts of what runs."""
        for item, begun in self.begun.items():
            for t, here in enumerate(begun):
                if solver.boolean_value(here):
                    yield item, t
                    break


class Undecided(AssertionError):
    """The effort allowed was not enough; ``found`` is the best schedule's value, if any."""

    def __init__(self, found: int | None) -> None:
        super().__init__(f"undecided, best found {found}")
        self.found = found


def solve(
    document: Mapping[str, Any],
    objective: str = "makespan",
    at_most: int | None = None,
    effort: float | None = None,
) -> Found | None:
    """Return an optimal schedule, or ``None`` if no schedule is valid.

    With ``at_most``, of those that are no longer; a small one makes for a small model. ``effort``
    limits CP-SAT's deterministic time, about seconds.

    Raises
    ------
    Undecided
        If that was not enough.
    """
    routes = _routes(document)
    comm = document.get("comm", {})
    delays = [comm.get("default", 0)] + [e.get(x, 0) for e in comm.get("edges", []) for x in "FB"]
    most = max(_up(max(delays), kind.get("comm")) for route in routes for kind in route.kinds)
    longest = sum(
        max(map(_longest, ways_of(document["stages"][s], kind, s))) + 2 * most
        for route in routes
        for s in route.stages
        for kind in route.kinds
    )
    longest = longest if at_most is None else min(longest, at_most)
    windows = len(document["devices"]) if objective == "span" else 1
    # another device's window may begin when one's has ended and its data has arrived
    model = _Model(document, windows * (longest + most) if windows > 1 else longest)
    model.constrain()
    value = model.value(objective)
    if at_most is not None:
        model.cp.add(value <= at_most)
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
    rows = _rows(model, solver)
    return Found(round(solver.objective_value), *rows)


def optimum(
    document: Mapping[str, Any],
    objective: str = "makespan",
    at_most: int | None = None,
    effort: float | None = None,
) -> int | None:
    """Return the least makespan or span, or ``None`` if no schedule (of ``at_most``) is valid."""
    found = solve(document, objective, at_most, effort)
    return None if found is None else found.value


def _rows(model: _Model, solver: cp_model.CpSolver) -> tuple[Any, Any, Any]:
    devices: list[list[tuple[str, int, int]]] = [[] for _ in model.document["devices"]]
    copies: list[list[tuple[str, int, int]]] = [[] for _ in model.document["devices"]]
    modes = []
    for item, start in model.found(solver):
        home = model.home[item[0][1]]
        text = "+".join(f"{s}{kind}{m}" for kind, s, m, _ in item)
        text = text if len(item) == 1 else f"({text})"
        lists = copies if item[0][0] in "OL" else devices
        lists[home].append((text, start, start + model.lasts[item]))
        for kind, s, m, n in item:
            if kind == "F" and n:
                modes.append((s, m, model.ways[s, m][n].name))
    for row in (*devices, *copies):
        row.sort(key=lambda timed: timed[1:])
    return devices, copies, modes
