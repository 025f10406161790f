"""What a plan may claim, worked out from the contract alone: no code of pipesat's is used.

A case is a layers document with options of ``pipesat plan``. Every partition of every shape, in
every choice of recomputation that the option allows, is a small problem for the exact model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import combinations, pairwise, product
from math import ceil
from typing import Any, NamedTuple

from tests.oracle.exact import Undecided, optimum

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
    left_open: bool = False

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
            if self.recompute == "always":
                yield tuple(free)
            else:
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

    def problem(self, choice: Choice) -> dict[str, Any]:
        """The document of one problem."""
        stages = self.stage_amounts(choice)
        for stage, home in zip(stages, choice.shape.homes, strict=True):
            stage |= {"device": home, "backward": "fused" if stage.pop("fused") else "either"}
        static = self.static(choice.shape, choice.counts)
        delays = enumerate(self.delays(choice))
        return {
            "microbatches": self.microbatches,
            "devices": [
                {"memory": cap, "static": taken}
                for cap, taken in zip(self.capacities, static, strict=True)
            ],
            "stages": stages,
            "comm": {"edges": [{"src": s, "dst": s + 1, "F": d, "B": d} for s, d in delays]},
        }

    def optimum(self, choice: Choice) -> int | None:
        """Least value of any schedule of one problem; ``None`` if there is none."""
        if choice not in self.known:
            self.known[choice] = optimum(self.problem(choice), self.objective)
        return self.known[choice]

    def best(self, shape: Shape) -> int | None:
        """Least value over all problems of a shape; with ``left_open``, one that some have."""
        least: int | None = None
        for choice in self.choices(shape):
            if choice in self.known:
                found = self.known[choice]
            else:  # only one that is shorter counts
                most = None if least is None else least - 1
                try:
                    found = optimum(self.problem(choice), self.objective, most, 0.02)
                except Undecided as undecided:
                    found, self.left_open = undecided.found, True
            if found is not None and (least is None or found < least):
                least = found
        return least


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
