"""A problem document as plain data, and its digest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

KINDS = ("F", "B", "W", "BW")


@dataclass(frozen=True)
class Stage:
    device: int
    F: int
    B: int
    W: int
    BW: int
    held_F: int
    held_B: int
    may_split: bool
    may_fuse: bool


Kinds = tuple[tuple[int, str], tuple[int, str]]


@dataclass(frozen=True)
class Pipe:
    """A problem. ``routes`` are (stages, microbatches); ``delay`` has (activation, gradient).

    ``pairs`` has the times of listed pairs by (stage, kind) of both, in the order of the file;
    ``pair`` is FB's factor.
    """

    memory: tuple[int | None, ...]
    static: tuple[int, ...]
    stages: tuple[Stage, ...]
    routes: tuple[tuple[tuple[int, ...], int], ...]
    delay: dict[tuple[int, int], tuple[int, int]]
    pair: tuple[int, int] | None
    pairs: dict[Kinds, int]

    @property
    def devices(self) -> int:
        return len(self.memory)

    @property
    def has_pairs(self) -> bool:
        return self.pair is not None or bool(self.pairs)

    def pair_time(self, one: tuple[int, str], other: tuple[int, str]) -> int | None:
        """Time of two kinds of ops of one device as a pair; None if they may not pair."""
        for kinds in ((one, other), (other, one)):
            if kinds in self.pairs:
                return self.pairs[kinds]
        if self.pair is None or {one[1], other[1]} != {"F", "BW"}:
            return None
        (forward, _), (backward, _) = (one, other) if one[1] == "F" else (other, one)
        F, BW, (num, den) = self.stages[forward].F, self.stages[backward].BW, self.pair
        return max(F, BW, -(-(F + BW) * num // den))

    def pair_times(self, stage: int, kind: str) -> list[int]:
        """Times of all pairs that an op of this kind can be in."""
        home = self.stages[stage].device
        here = [s for s, other in enumerate(self.stages) if other.device == home]
        times = [self.pair_time((stage, kind), (s, k)) for s in here for k in KINDS]
        return [time for time in times if time is not None]

    def least(self, stage: int, kind: str) -> int:
        """Least time that an op lasts, alone or in a pair."""
        return min([int(getattr(self.stages[stage], kind)), *self.pair_times(stage, kind)])

    def least_share(self, stage: int, kind: str) -> Fraction:
        """Least part of a device's time that is an op's: its own time, or half of a pair's."""
        halves = [Fraction(time, 2) for time in self.pair_times(stage, kind)]
        return min([Fraction(getattr(self.stages[stage], kind)), *halves])

    def backwards(self, stage: int) -> list[tuple[str, ...]]:
        """The ways in which a stage may run its backward."""
        data = self.stages[stage]
        return [("B", "W")] * data.may_split + [("BW",)] * data.may_fuse


def pipe_of(document: dict[str, Any]) -> Pipe:
    """Fill in the defaults of a valid document."""
    stages = tuple(_stage(entry) for entry in document["stages"])
    if "routes" in document:
        routes = tuple((tuple(r["stages"]), r["microbatches"]) for r in document["routes"])
    else:
        routes = ((tuple(range(len(stages))), document["microbatches"]),)
    comm = document.get("comm", {})
    usual = comm.get("default", 0)
    edges = {(edge["src"], edge["dst"]): edge for edge in comm.get("edges", [])}
    delay = {}
    for route, _ in routes:
        for here, there in pairwise(route):
            edge = edges.get((here, there), {})
            apart = stages[here].device != stages[there].device
            both = (edge.get("F", usual), edge.get("B", usual))
            delay[here, there] = both if apart else (0, 0)
    overlap = document.get("overlap", {})
    entries = overlap.get("pairs", [])
    return Pipe(
        memory=tuple(device.get("memory") for device in document["devices"]),
        static=tuple(device.get("static", 0) for device in document["devices"]),
        stages=stages,
        routes=routes,
        delay=delay,
        pair=tuple(overlap["FB"]) if "FB" in overlap else None,
        pairs={(_kind(a), _kind(b)): e["time"] for e in entries for a, b in [e["ops"]]},
    )


def _kind(text: str) -> tuple[int, str]:
    digits = text.rstrip("FBW")
    return int(digits), text[len(digits) :]


def _stage(entry: dict[str, Any]) -> Stage:
    backward = entry.get("backward", "either")
    return Stage(
        device=entry["device"],
        F=entry["F"],
        B=entry["B"],
        W=entry["W"],
        BW=entry.get("BW", entry["B"] + entry["W"]),
        held_F=entry.get("held_after_F", 0),
        held_B=entry.get("held_after_B", 0),
        may_split=backward != "fused",
        may_fuse=backward != "split",
    )


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
