"""A problem document as plain data, by the contract's words: no code of pipesat's is used."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

Document = dict[str, Any]
KINDS = ("F", "B", "W", "BW")
HELD = ("held_after_F", "held_after_B", "held_in_backward")
KEEP = "keep"


class Op(NamedTuple):
    """An op, or a copy out (O) or back (L), of one microbatch of a stage."""

    stage: int
    kind: str
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"


class Amounts(NamedTuple):
    """What one microbatch of a stage takes in a mode.

    ``time`` is by kind; ``a``, ``w`` and ``x`` are held after F, after B and in the backward;
    ``copies`` are the times out and back and what stays meanwhile; ``listed`` says whether pairs
    with a stated time hold in this mode.
    """

    time: dict[str, int]
    a: int
    w: int
    x: int
    backward: str
    copies: tuple[int, int, int] | None
    listed: bool

    @property
    def ways(self) -> list[tuple[str, ...]]:
        """How the backward may run."""
        split, fused = ("B", "W"), ("BW",)
        alone: dict[str, list[tuple[str, ...]]]
        alone = {"none": [()], "split": [split], "fused": [fused]}
        return alone.get(self.backward, [split, fused])

    def change(self, kind: str) -> tuple[int, int]:
        """Memory that an op takes at its start, and its change from before it to after it."""
        most = max(self.a, self.x)
        return {
            "F": (self.a, 0 if self.backward == "none" else self.a),
            "B": (max(most, self.w) - self.a, self.w - self.a),
            "W": (0, -self.w),
            "BW": (most - self.a, -self.a),
        }[kind]


class Route(NamedTuple):
    """Stages in order, the class of each microbatch, whether these are a list with a rule.

    ``edges`` say which stage feeds which; so many ``slices`` are one sequence.
    """

    stages: list[int]
    classes: list[Mapping[str, Any]]
    listed: bool
    edges: list[tuple[int, int]]
    slices: int

    @property
    def sequences(self) -> list[range]:
        """Microbatches that stay together: the slices of a sequence; without slices, each alone."""
        return [range(m, m + self.slices) for m in range(0, len(self.classes), self.slices)]


class Pipe:
    """All that a document says, defaults filled in; ``modes`` by (stage, microbatch) and name."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.home = [stage["device"] for stage in document["stages"]]
        devices = document["devices"]
        self.devices = range(len(devices))
        self.memory = [device.get("memory") for device in devices]
        self.static = [device.get("static", 0) for device in devices]
        self.channels = [device.get("copy_channels", 2) for device in devices]
        self.order, self.choice = document.get("order", "free"), document.get("mode_choice", "")
        everything = {"stages": [*range(len(self.home))]}
        given = document.get("routes") or [everything | {"microbatches": document["microbatches"]}]
        self.routes = [_route(one) for one in given]
        self.route = {s: route for route in self.routes for s in route.stages}
        self.modes = {
            (s, m): _modes(document["stages"][s], kind, s)
            for route in self.routes
            for s in route.stages
            for m, kind in enumerate(route.classes)
        }
        self.comm = document.get("comm") or {}
        self.overlap = document.get("overlap") or {}

    def delay(self, here: int, there: int, microbatch: int, phase: str) -> int:
        """Delay between neighbouring stages, forth for F and back for B."""
        if self.home[here] == self.home[there]:
            return 0
        found = self.comm.get("default", 0)
        for edge in self.comm.get("edges", []):
            if (edge["src"], edge["dst"]) == (here, there):
                found = edge.get(phase, found)
        return up(found, self.route[here].classes[microbatch].get("comm"))

    def together(self, one: Op, other: Op, a: Amounts, b: Amounts) -> int | None:
        """Time of two ops as a pair, with these amounts; nothing if they may not be one."""
        if self.home[one.stage] != self.home[other.stage] or one[::2] == other[::2]:
            return None
        alone = a.time[one.kind], b.time[other.kind]
        named = sorted(f"{op.stage}{op.kind}" for op in (one, other))
        for entry in self.overlap.get("pairs", []):
            if sorted(entry["ops"]) == named:
                if "factor" in entry:
                    return max(1, up(sum(alone), entry["factor"]))
                return int(entry["time"]) if a.listed and b.listed else None
        if "FB" in self.overlap and {one.kind, other.kind} == {"F", "BW"}:
            return max(*alone, up(sum(alone), self.overlap["FB"]))
        return None

    def waits(self, op: Op) -> list[tuple[Op, int]]:
        """Ops that have to end first if they run, and how long before."""
        s, kind, m = op
        route, backwards = self.route[s], ("B", "BW")
        if kind == "W":
            return [(Op(s, "B", m), 0)]
        if kind == "F":
            before = [a for a, b in route.edges if b == s]
            found = [(Op(a, "F", m), self.delay(a, s, m, "F")) for a in before]
            return [*found, *([(Op(s, "F", m - 1), 0)] if m % route.slices else [])]
        after = [b for a, b in route.edges if a == s]
        found = [(Op(b, k, m), self.delay(s, b, m, "B")) for b in after for k in backwards]
        if not after:
            found.append((Op(s, "F", m), 0))
        if (m + 1) % route.slices:
            found += [(Op(s, k, m + 1), 0) for k in backwards]
        return found

    @property
    def horizon(self) -> int:
        """A time that some optimal schedule does not exceed: all times and delays one by one."""
        total = 0
        for (s, m), modes in self.modes.items():
            longest = 0
            for amounts in modes.values():
                time = amounts.time
                copies = sum(amounts.copies[:2]) if amounts.copies else 0
                backward = max(sum(time[kind] for kind in way) for way in amounts.ways)
                longest = max(longest, time["F"] + backward + copies)
            waits = [[delay for _, delay in self.waits(Op(s, kind, m))] for kind in "FB"]
            total += longest + sum(max(delays, default=0) for delays in waits)
        pairs = [entry.get("time", 0) for entry in self.overlap.get("pairs", [])]
        return int(total + max(pairs, default=0) + 1)


def up(amount: int, factor: list[int] | None) -> int:
    """An amount times a factor [numerator, denominator], rounded up."""
    return amount if factor is None else -(-amount * factor[0] // factor[1])


def _route(given: Mapping[str, Any]) -> Route:
    said = given["microbatches"]
    entries = [{"count": said, "name": ""}] if isinstance(said, int) else said
    first = {entry["name"]: entry for entry in reversed(entries)}
    classes = [first[entry["name"]] for entry in entries for _ in range(entry["count"])]
    stages, listed = given["stages"], not isinstance(said, int)
    edges = [(a, b) for a, b in given.get("edges", pairwise(stages))]
    return Route(stages, classes, listed, edges, given.get("slices", 1))


def _modes(stage: Mapping[str, Any], kind: Mapping[str, Any], number: int) -> dict[str, Amounts]:
    """A stage's own amounts and those of its modes, for the microbatches of a class."""
    outright = kind.get("stages", {}).get(str(number), {})
    found = {}
    for mode in [{"name": KEEP}, *stage.get("modes", [])]:
        data = {"backward": "either", **stage, **mode}
        if stage.get("backward") == "none":
            data["backward"] = "none"
        sums = not {"B", "W"}.isdisjoint(mode) or "BW" not in stage
        if sums and "BW" not in mode:
            data.pop("BW", None)
        for key in (*KINDS, *HELD):
            if key in data or key != "BW":
                data[key] = up(data.get(key, 0), kind.get("held" if key in HELD else "time"))
            if key in outright:
                data[key] = outright[key]
        data.setdefault("BW", data["B"] + data["W"])
        offload = mode.get("offload")
        copies = offload and tuple(up(offload[x], kind.get("held")) for x in ("out", "in", "held"))
        found[mode["name"]] = Amounts(
            {key: data[key] for key in KINDS},
            *(data[key] for key in HELD),
            data["backward"],
            copies,
            mode["name"] == KEEP or offload is not None,
        )
    return found
