"""What a plan may claim, worked out from the contract alone: no code of pipesat's is used.

A case is a layers document with options of ``pipesat plan``. Every partition of every shape, in
every choice of recomputation that the option allows, is a small problem; a plain CP-SAT model of
intervals and amounts held over intervals has its exact optimum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import combinations, pairwise, product
from math import ceil
from typing import Any, NamedTuple

from ortools.sat.python import cp_model

KINDS = ("F", "B", "W", "BW", "held_after_F", "held_after_B")

Cut = tuple[int, ...]
Flags = tuple[bool, ...]


class Shape(NamedTuple):
    """A placement: the device of every stage."""

    placement: str
    homes: tuple[int, ...]


class Choice(NamedTuple):
    """One problem of a case: a shape, how many layers each stage has, which stages recompute."""

    shape: Shape
    counts: Cut
    flags: Flags


@dataclass
class Case:
    """Layers and options; ``capacities`` has one value per device, ``None`` is unlimited."""

    document: dict[str, Any]
    devices: int
    microbatches: int
    placement: str = "chain"
    recompute: str = "never"
    objective: str = "makespan"
    capacities: list[int | None] = field(default_factory=list)
    latency: int = 0
    bandwidth: Fraction | None = None
    known: dict[Choice, int | None] = field(default_factory=dict)

    # The layers

    @cached_property
    def layers(self) -> list[dict[str, Any]]:
        """All layers with every key; ``recompute`` is a mapping of costs or ``None``."""
        return [_filled(entry, k) for k, entry in enumerate(self.document["layers"])]

    def amount(self, layer: int, kind: str, again: bool) -> int:
        """One cost of a layer on a stage that recomputes, or does not."""
        entry = self.layers[layer]
        costs = entry["recompute"] if again and entry["recompute"] else entry
        return int(costs[kind])

    # The space

    @property
    def shapes(self) -> list[Shape]:
        """Every placement that the option names."""
        p = self.devices
        made = {
            "chain": Shape("chain", (*range(p),)),
            "vee": Shape("vee", (*range(p), *reversed(range(p)))),
            "loop": Shape("loop", (*range(p), *range(p))),
        }
        return [*made.values()] if self.placement == "any" else [made[self.placement]]

    def cuts(self, shape: Shape) -> Iterator[Cut]:
        """Every partition into stages of at least one layer that keeps flags and ties."""
        count = len(self.layers)
        for inner in combinations(range(1, count), len(shape.homes) - 1):
            bounds = (0, *inner, count)
            counts = tuple(b - a for a, b in pairwise(bounds))
            if self.keeps_rules(shape, counts):
                yield counts

    def keeps_rules(self, shape: Shape, counts: Cut) -> bool:
        """Whether flags and ties are kept."""
        stage = stages_of(counts)
        number = {entry["name"]: k for k, entry in enumerate(self.layers)}
        for k, entry in enumerate(self.layers):
            if entry["first"] and stage[k] != 0:
                return False
            if entry["last"] and stage[k] != len(counts) - 1:
                return False
            if entry["with_next"] and stage[k] != stage[k + 1]:
                return False
            if entry["tied_to"] and entry["tie"] == "same_device":
                other = number[entry["tied_to"]]
                if shape.homes[stage[k]] != shape.homes[stage[other]]:
                    return False
        return True

    def flags(self, shape: Shape, counts: Cut) -> Iterator[Flags]:
        """Every choice of recomputation that the option allows on a partition."""
        if self.recompute == "never":
            yield (False,) * len(counts)
        elif self.recompute == "where-needed":
            yield self._needed(shape, counts)
        else:
            bounds = [sum(counts[:s]) for s in range(len(counts) + 1)]
            free = [
                any(self.layers[k]["recompute"] for k in range(bounds[s], bounds[s + 1]))
                for s in range(len(counts))
            ]
            yield from product(*((False, True) if one else (False,) for one in free))

    def choices(self, shape: Shape) -> Iterator[Choice]:
        """All problems of a shape."""
        for counts in self.cuts(shape):
            for flags in self.flags(shape, counts):
                yield Choice(shape, counts, flags)

    def _needed(self, shape: Shape, counts: Cut) -> Flags:
        """Stages that do not fit with the usual microbatches in flight, greediest savings first."""
        p, m, stages = self.devices, self.microbatches, len(counts)
        if shape.placement == "chain":
            flying = [min(m, p - s) for s in range(stages)]
        elif shape.placement == "vee":
            flying = [min(p, m)] * stages
        else:  # interleaved 1F1B: 2 (p - 1 - d) + p + 1 chunks ahead, p at a time
            flying = [0] * stages
            for d in range(p):
                left = 2 * (p - 1 - d) + p + 1
                for begin in range(0, m, p):
                    for s in (d, p + d):
                        now = min(left, p, m - begin)
                        flying[s] += now
                        left -= now
        flags = [False] * stages
        static = self.static(shape, counts)
        bounds = [sum(counts[:s]) for s in range(stages + 1)]

        def held(s: int, again: bool) -> int:
            layers = range(bounds[s], bounds[s + 1])
            return flying[s] * sum(self.amount(k, "held_after_F", again) for k in layers)

        for d, cap in enumerate(self.capacities):
            own = [s for s in range(stages) if shape.homes[s] == d]
            saving = sorted(((held(s, False) - held(s, True), s) for s in own), reverse=True)
            for saved, s in saving:
                taken = static[d] + sum(held(x, flags[x]) for x in own)
                if cap is None or saved <= 0 or taken <= cap:
                    break
                flags[s] = True
        return tuple(flags)

    # One problem

    def static(self, shape: Shape, counts: Cut) -> list[int]:
        """Static memory per device; shared weights count once where both layers are on one."""
        home = [shape.homes[s] for s in stages_of(counts)]
        taken = [int(self.document.get("reserve", 0))] * self.devices
        number = {entry["name"]: k for k, entry in enumerate(self.layers)}
        for k, entry in enumerate(self.layers):
            taken[home[k]] += entry["weights"]
            if entry["tied_to"] and home[k] == home[number[entry["tied_to"]]]:
                taken[home[k]] -= entry["tied_weights"]
        return taken

    def stage_amounts(self, choice: Choice) -> list[dict[str, Any]]:
        """Sums over the layers of every stage, and whether its backward is fused."""
        result, begin = [], 0
        for count, again in zip(choice.counts, choice.flags, strict=True):
            part = range(begin, begin + count)
            begin += count
            sums: dict[str, Any] = {k: sum(self.amount(i, k, again) for i in part) for k in KINDS}
            result.append(sums | {"fused": any(self.layers[i]["fused"] for i in part)})
        return result

    def delays(self, choice: Choice) -> list[int]:
        """Delay of each hop between consecutive stages."""
        found, end = [], 0
        for s, count in enumerate(choice.counts[:-1]):
            end += count
            size = self.layers[end - 1]["output"] if end else 0
            wire = 0 if self.bandwidth is None else ceil(Fraction(size) / self.bandwidth)
            homes = choice.shape.homes
            found.append(0 if homes[s] == homes[s + 1] else self.latency + wire)
        return found

    def optimum(self, choice: Choice) -> int | None:
        """Least value of any schedule of one problem; ``None`` if there is none."""
        if choice not in self.known:
            self.known[choice] = _solved(self, choice)
        return self.known[choice]

    def best(self, shape: Shape) -> int | None:
        """Least value over all problems of a shape."""
        values = [self.optimum(choice) for choice in self.choices(shape)]
        return min((value for value in values if value is not None), default=None)


def stages_of(counts: Sequence[int]) -> list[int]:
    """Stage of every layer."""
    return [s for s, count in enumerate(counts) for _ in range(count)]


def _filled(entry: dict[str, Any], number: int) -> dict[str, Any]:
    costs = {"held_after_F": 0, "held_after_B": 0}
    rest = {
        "name": f"layer {number}",
        "weights": 0,
        "output": 0,
        "first": False,
        "last": False,
        "with_next": False,
        "fused": False,
        "tied_to": "",
        "tie": "same_device",
        "tied_weights": entry.get("weights", 0),
        "recompute": None,
    }
    full = costs | rest | {"BW": entry["B"] + entry["W"]} | entry
    if again := full["recompute"]:
        full["recompute"] = costs | {"BW": again["B"] + again["W"]} | again
    return full


class _Model:
    """Starts and ends of every F, backward and W of one problem."""

    def __init__(self, case: Case, choice: Choice) -> None:
        self.case, self.choice = case, choice
        self.stages, self.delays = case.stage_amounts(choice), case.delays(choice)
        self.cp = cp_model.CpModel()
        self.m = case.microbatches
        self.horizon = (
            1
            + sum(self.delays) * 2 * self.m
            + self.m * sum(s["F"] + max(s["B"] + s["W"], s["BW"]) for s in self.stages)
        )
        self.busy: list[list[cp_model.IntervalVar]] = [[] for _ in range(case.devices)]
        self.held: list[list[tuple[cp_model.IntervalVar, int]]] = [[] for _ in range(case.devices)]
        self.value = self.cp.new_int_var(0, self.horizon, "value")
        late = self.horizon if case.objective == "span" else 0
        self.first = [self.cp.new_int_var(0, late, "") for _ in range(case.devices)]
        self.begin: dict[tuple[str, int, int], cp_model.IntVar] = {}
        self.end: dict[tuple[str, int, int], cp_model.IntVar] = {}
        for s in range(len(self.stages)):
            for j in range(self.m):
                self._microbatch(s, j)
        for s in range(len(self.stages)):
            for j in range(self.m):
                self._waits(s, j)
        for d in range(case.devices):
            self.cp.add_no_overlap(self.busy[d])
            self._memory(d)
            self.cp.add(self.value >= self._load(d))
        self._in_order()
        self.cp.minimize(self.value)

    def _load(self, d: int) -> int:
        """Least compute time of a device: ops do not overlap, whatever their order."""
        own = [s for s, home in zip(self.stages, self.choice.shape.homes, strict=True) if home == d]
        times = (min(s["BW"], s["BW"] if s["fused"] else s["B"] + s["W"]) for s in own)
        return self.m * (sum(times) + sum(s["F"] for s in own))

    def _in_order(self) -> None:
        """Microbatches are alike: sorting a stage's F's and its backwards changes nothing.

        The j-th F of a stage is after the j-th of the stage before it, the j-th backward after the
        j-th of the stage after it, and as many microbatches are held at every time.
        """
        for phase, s, j in product("FB", range(len(self.stages)), range(self.m - 1)):
            self.cp.add(self.begin[phase, s, j] <= self.begin[phase, s, j + 1])

    def _time(self) -> cp_model.IntVar:
        return self.cp.new_int_var(0, self.horizon, "")

    def _microbatch(self, s: int, j: int) -> None:
        cp, stage, d = self.cp, self.stages[s], self.choice.shape.homes[s]
        apart = cp.new_constant(0) if stage["fused"] else cp.new_bool_var("")
        whole = ~apart
        for phase in "FBW":
            self.begin[phase, s, j], self.end[phase, s, j] = self._time(), self._time()
        (f, fe), (b, be), (w, we) = ((self.begin[x, s, j], self.end[x, s, j]) for x in "FBW")
        self.busy[d] += [
            cp.new_interval_var(f, stage["F"], fe, ""),
            cp.new_optional_interval_var(b, stage["B"], be, apart, ""),
            cp.new_optional_interval_var(b, stage["BW"], be, whole, ""),
            cp.new_optional_interval_var(w, stage["W"], we, apart, ""),
        ]
        cp.add(w >= be)
        cp.add(we == be).only_enforce_if(whole)
        cp.add(w == be).only_enforce_if(whole)
        cp.add(f >= self.first[d])
        cp.add(self.value >= we - self.first[d])
        a, rest = stage["held_after_F"], stage["held_after_B"]
        for start, stop, there, amount in (
            (f, b, None, a),
            (b, be, apart, max(a, rest)),
            (b, be, whole, a),
            (be, we, apart, rest),
        ):
            size = self._time()
            interval = (
                cp.new_interval_var(start, size, stop, "")
                if there is None
                else cp.new_optional_interval_var(start, size, stop, there, "")
            )
            self.held[d].append((interval, amount))

    def _waits(self, s: int, j: int) -> None:
        cp, last = self.cp, len(self.stages) - 1
        if s > 0:
            cp.add(self.begin["F", s, j] >= self.end["F", s - 1, j] + self.delays[s - 1])
        after = self.end["F", s, j] if s == last else self.end["B", s + 1, j] + self.delays[s]
        cp.add(self.begin["B", s, j] >= after)

    def _memory(self, d: int) -> None:
        cap = self.case.capacities[d]
        if cap is None:
            return
        room = cap - self.case.static(self.choice.shape, self.choice.counts)[d]
        if room < 0:
            self.cp.add_bool_or([])
            return
        pairs = [(interval, amount) for interval, amount in self.held[d] if amount]
        self.cp.add_cumulative([i for i, _ in pairs], [amount for _, amount in pairs], room)


def _solved(case: Case, choice: Choice) -> int | None:
    model = _Model(case, choice)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    status = solver.solve(model.cp)
    if status == cp_model.INFEASIBLE:
        return None
    assert status == cp_model.OPTIMAL, solver.status_name(status)
    return round(solver.objective_value)
