"""A problem document as plain data, and its digest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any


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

    @property
    def least_backward(self) -> int:
        """Least compute of one microbatch's whole backward."""
        return min(self._either(self.B + self.W))

    @property
    def first_gradient(self) -> int:
        """Least time from the backward's start to the gradient of the input."""
        return min(self._either(self.B))

    def _either(self, split: int) -> list[int]:
        """``split`` where the backward may be split, a fused backward's time where it may fuse."""
        ways = [(self.may_split, split), (self.may_fuse, self.BW)]
        return [time for allowed, time in ways if allowed]


@dataclass(frozen=True)
class Pipe:
    """A problem. ``routes`` are (stages, microbatches); ``delay`` has (activation, gradient)."""

    memory: tuple[int | None, ...]
    static: tuple[int, ...]
    stages: tuple[Stage, ...]
    routes: tuple[tuple[tuple[int, ...], int], ...]
    delay: dict[tuple[int, int], tuple[int, int]]
    pair: tuple[int, int] | None

    @property
    def devices(self) -> int:
        return len(self.memory)

    def pair_time(self, forward: int, backward: int) -> int:
        """Time of an F of one stage and a BW of another as one pair."""
        assert self.pair is not None
        F, BW, (num, den) = self.stages[forward].F, self.stages[backward].BW, self.pair
        return max(F, BW, -(-(F + BW) * num // den))


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
    overlap = document.get("overlap")
    return Pipe(
        memory=tuple(device.get("memory") for device in document["devices"]),
        static=tuple(device.get("static", 0) for device in document["devices"]),
        stages=stages,
        routes=routes,
        delay=delay,
        pair=None if overlap is None else (overlap["FB"][0], overlap["FB"][1]),
    )


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
