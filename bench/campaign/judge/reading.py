"""A problem document as plain data, and its digest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from campaign.judge.amounts import KEEP, Stage, scaled, way_of

KINDS = ("F", "B", "W", "BW")


Kinds = tuple[tuple[int, str], tuple[int, str]]


@dataclass(frozen=True)
class Pipe:
    """A problem. ``routes`` are (stages, microbatches).

    ``ways[stage][class]`` has a stage's amounts by mode, ``stages`` those of mode keep and class 0;
    ``delay[link][class]`` has (activation, gradient); ``classes`` has each microbatch's class by
    route, None where they are a number. ``pairs`` has the times, or the factors, of listed pairs by
    (stage, kind) of both, in the order of the file; ``pair`` is FB's factor.
    """

    memory: tuple[int | None, ...]
    static: tuple[int, ...]
    stages: tuple[Stage, ...]
    routes: tuple[tuple[tuple[int, ...], int], ...]
    delay: dict[tuple[int, int], tuple[tuple[int, int], ...]]
    pair: tuple[int, int] | None
    pairs: dict[Kinds, int | tuple[int, int]]
    ways: tuple[tuple[dict[str, Stage], ...], ...]
    classes: tuple[tuple[int, ...] | None, ...]
    order: str
    mode_choice: str
    channels: tuple[int, ...]

    @property
    def devices(self) -> int:
        return len(self.memory)

    @property
    def has_pairs(self) -> bool:
        return self.pair is not None or bool(self.pairs)

    @cached_property
    def plain(self) -> bool:
        """Whether there are neither lists of microbatches nor modes, nor held_in_backward."""
        lists = any(classes is not None for classes in self.classes)
        return not lists and all(
            len(row) == 1 and not any(a.held_x for a in row.values())
            for rows in self.ways
            for row in rows
        )

    @cached_property
    def route_of(self) -> dict[int, int]:
        return {s: number for number, (route, _) in enumerate(self.routes) for s in route}

    def class_of(self, stage: int, microbatch: int) -> int:
        classes = self.classes[self.route_of[stage]]
        return 0 if classes is None else classes[microbatch]

    def modes(self, stage: int, microbatch: int) -> dict[str, Stage]:
        """Amounts of a microbatch by mode."""
        return self.ways[stage][self.class_of(stage, microbatch)]

    def delay_of(self, here: int, there: int, microbatch: int) -> tuple[int, int]:
        """Delays of a microbatch between two stages, of its activation and its gradient."""
        return self.delay[here, there][self.class_of(here, microbatch)]

    def pair_time(
        self, one: tuple[int, str], other: tuple[int, str], a: Stage, b: Stage
    ) -> int | None:
        """Time of two kinds of ops of one device, of these amounts; None if they may not pair."""
        for kinds in ((one, other), (other, one)):
            said = self.pairs.get(kinds)
            if isinstance(said, tuple):
                both = getattr(a, one[1]) + getattr(b, other[1])
                return max(1, scaled(both, [*said]))
            if said is not None:  # recomputed microbatches have no pairs by time
                return said if a.listed and b.listed else None
        if self.pair is None or {one[1], other[1]} != {"F", "BW"}:
            return None
        F, BW = (a.F, b.BW) if one[1] == "F" else (b.F, a.BW)
        num, den = self.pair
        return max(F, BW, -(-(F + BW) * num // den))

    def pair_times(self, stage: int, kind: str, amounts: Stage) -> list[int]:
        """Times of all pairs that an op of this kind and these amounts can be in."""
        if not self.has_pairs:
            return []
        home = self.stages[stage].device
        here = [s for s, other in enumerate(self.stages) if other.device == home]
        times = [
            self.pair_time((stage, kind), (s, k), amounts, other)
            for s, k in product(here, KINDS)
            for row in self.ways[s]
            for other in row.values()
        ]
        return [time for time in times if time is not None]

    def least(self, stage: int, kind: str, amounts: Stage) -> int:
        """Least time that an op lasts, alone or in a pair."""
        return min([int(getattr(amounts, kind)), *self.pair_times(stage, kind, amounts)])

    def most(self, stage: int, kind: str) -> int:
        """Longest time that an op of this kind lasts, of any class and mode, or its pair."""
        found = [amounts for row in self.ways[stage] for amounts in row.values()]
        return max(max([int(getattr(a, kind)), *self.pair_times(stage, kind, a)]) for a in found)

    def least_share(self, stage: int, kind: str, amounts: Stage) -> Fraction:
        """Least part of a device's time that is an op's: its own time, or half of a pair's."""
        halves = [Fraction(time, 2) for time in self.pair_times(stage, kind, amounts)]
        return min([Fraction(getattr(amounts, kind)), *halves])


def pipe_of(document: dict[str, Any]) -> Pipe:
    """Fill in the defaults of a valid document."""
    entries = document["stages"]
    listed = document.get(
        "routes", [{"stages": [*range(len(entries))], "microbatches": document.get("microbatches")}]
    )
    lists = [_microbatches(route["microbatches"]) for route in listed]
    routes = tuple(
        (tuple(r["stages"]), count) for r, (count, _, _) in zip(listed, lists, strict=True)
    )
    kinds_of = {s: kinds for r, (_, _, kinds) in zip(routes, lists, strict=True) for s in r[0]}
    ways = tuple(_ways(entry, s, kinds_of.get(s, [{}])) for s, entry in enumerate(entries))
    stages = tuple(rows[0][KEEP] for rows in ways)
    comm = document.get("comm", {})
    usual = comm.get("default", 0)
    edges = {(edge["src"], edge["dst"]): edge for edge in comm.get("edges", [])}
    delay = {}
    for route, _ in routes:
        for here, there in pairwise(route):
            edge = edges.get((here, there), {})
            apart = stages[here].device != stages[there].device
            both = (edge.get("F", usual), edge.get("B", usual)) if apart else (0, 0)
            delay[here, there] = tuple(
                (scaled(both[0], kind.get("comm")), scaled(both[1], kind.get("comm")))
                for kind in kinds_of[here]
            )
    overlap = document.get("overlap", {})
    entries = overlap.get("pairs", [])
    return Pipe(
        memory=tuple(device.get("memory") for device in document["devices"]),
        static=tuple(device.get("static", 0) for device in document["devices"]),
        stages=stages,
        routes=routes,
        delay=delay,
        pair=tuple(overlap["FB"]) if "FB" in overlap else None,
        pairs={
            (_kind(a), _kind(b)): e["time"] if "time" in e else tuple(e["factor"])
            for e in entries
            for a, b in [e["ops"]]
        },
        ways=ways,
        classes=tuple(classes for _, classes, _ in lists),
        order=document.get("order", "free"),
        mode_choice=document.get("mode_choice", "microbatch"),
        channels=tuple(device.get("copy_channels", 2) for device in document["devices"]),
    )


def _microbatches(said: Any) -> tuple[int, tuple[int, ...] | None, list[dict[str, Any]]]:
    """How many there are, the class of each, and the classes' definitions."""
    if isinstance(said, int):
        return said, None, [{}]
    numbers: dict[str, int] = {}
    kinds, classes = [], []
    for entry in said:
        if entry["name"] not in numbers:
            numbers[entry["name"]] = len(kinds)
            kinds.append(entry)
        classes += [numbers[entry["name"]]] * entry["count"]
    return len(classes), tuple(classes), kinds


def _ways(
    entry: dict[str, Any], stage: int, kinds: list[dict[str, Any]]
) -> tuple[dict[str, Stage], ...]:
    modes = [{"name": KEEP}, *entry.get("modes", [])]
    return tuple(
        {mode["name"]: way_of(entry, mode, kind, stage) for mode in modes} for kind in kinds
    )


def _kind(text: str) -> tuple[int, str]:
    digits = text.rstrip("FBW")
    return int(digits), text[len(digits) :]


def digest(document: dict[str, Any]) -> str:
    """SHA-256 of the canonical form: UTF-8, sorted keys, no spaces."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def load(path: Path) -> Any:
    """Read a JSON file; NaN and repeated keys are a failure of whoever wrote it."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in pairs}) == len(pairs), f"{path}: a repeated key"
        return dict(pairs)

    def refuse(word: str) -> None:
        raise AssertionError(f"{path}: {word} is not JSON")

    return json.loads(
        path.read_text(encoding="utf-8"), object_pairs_hook=unique, parse_constant=refuse
    )
