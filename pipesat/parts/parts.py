"""Chunks of a model as parts on streams; one op's, or two that run together, as a job shop.

Every part runs once, without a break, on its stream, which runs one part at a time; it starts when
the parts before it have ended. The least time in which all are done is what the op, or the pair of
ops, takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, NamedTuple, TypeAlias

from pipesat.core.deadlock import sequenced
from pipesat.core.ops import Kind

PartKind: TypeAlias = Literal["F", "B", "W"]
PART_KINDS: Final[tuple[PartKind, ...]] = ("F", "B", "W")


class Part(NamedTuple):
    """What one layer of a chunk runs on one stream without a break.

    Attributes
    ----------
    stream
        Number of the stream.
    time
        In time units.
    after
        Of a part of W: number of the part of B, of the same layer, that it follows.
    """

    name: str
    stream: int
    time: int
    after: int | None = None


@dataclass(frozen=True)
class Chunk:
    """``repeat`` equal layers; F and B are chains of parts, W parts follow their part of B."""

    name: str
    repeat: int
    F: tuple[Part, ...]
    B: tuple[Part, ...]
    W: tuple[Part, ...]

    def of_kind(self, kind: PartKind) -> tuple[Part, ...]:
        """One layer's parts of a kind."""
        parts: tuple[Part, ...] = getattr(self, kind)
        return parts


@dataclass(frozen=True)
class Parts:
    """Chunks, and which stage is which.

    Attributes
    ----------
    stages
        Per stage, the number of its chunk.
    devices
        Per stage, its device.
    source
        The file, for messages.
    """

    time_unit: str
    streams: tuple[str, ...]
    chunks: tuple[Chunk, ...]
    stages: tuple[int, ...]
    devices: tuple[int, ...]
    source: str = "parts"


Rows: TypeAlias = tuple[tuple[int, ...], ...]
"""Per stream, the numbers of its jobs in order of execution."""


class Job(NamedTuple):
    """One part of one layer of one op.

    Attributes
    ----------
    member
        0 for the first op, 1 for the second.
    kind
        F, B or W.
    place
        How many layers of its op come before it.
    part
        Number of the part in its layer, of its kind.
    before
        Numbers of the jobs that must have ended; lower than its own.
    """

    member: int
    kind: PartKind
    layer: int
    place: int
    part: int
    name: str
    stream: int
    time: int
    before: tuple[int, ...]


@dataclass(frozen=True)
class Shop:
    """Jobs on so many streams, numbered so that every job comes after those it waits for."""

    streams: int
    jobs: tuple[Job, ...]

    def loads(self) -> list[int]:
        """Per stream, the time of all its jobs."""
        loads = [0] * self.streams
        for job in self.jobs:
            loads[job.stream] += job.time
        return loads


@dataclass(frozen=True)
class Plan:
    """An order of the jobs on every stream, with starts as early as it allows."""

    rows: Rows
    starts: tuple[int, ...]
    length: int


def shop_of(streams: int, ops: Sequence[tuple[Chunk, Kind]]) -> Shop:
    """Return the shop of ops that run together; F, B, W or BW of a chunk each."""
    jobs: list[Job] = []
    for member, (chunk, op_kind) in enumerate(ops):
        first_of_B: int | None = None  # with no B beside them, W's parts wait for nothing
        for kind in PART_KINDS:
            if kind not in op_kind:
                continue
            first = len(jobs)
            if kind == "B":
                first_of_B = first
            for place in range(chunk.repeat):
                layer = place if kind == "F" else chunk.repeat - 1 - place
                for k, (name, stream, time, after) in enumerate(chunk.of_kind(kind)):
                    before = (len(jobs) - 1,) if len(jobs) > first else ()
                    if kind == "W":
                        before = ()
                    if first_of_B is not None and after is not None:
                        before = (first_of_B + place * len(chunk.B) + after,)
                    jobs.append(Job(member, kind, layer, place, k, name, stream, time, before))
    return Shop(streams, tuple(jobs))


def timed(shop: Shop, rows: Rows) -> Plan | None:
    """Start every job as early as the rows allow; ``None`` if jobs would wait for each other."""
    waits = [list(job.before) for job in shop.jobs]
    for row in rows:
        for first, second in pairwise(row):
            waits[second].append(first)
    order = sequenced(waits)
    if order is None:
        return None
    ends = [0] * len(waits)
    for number in order:
        start = max((ends[other] for other in waits[number]), default=0)
        ends[number] = start + shop.jobs[number].time
    starts = tuple(end - job.time for end, job in zip(ends, shop.jobs, strict=True))
    return Plan(rows, starts, max(ends, default=0))


def rows_by_start(shop: Shop, starts: Sequence[int]) -> Rows:
    """Return the order of each stream's jobs by their starts.

    Of jobs of no time at one instant, those with lower numbers come first, as they may be waited
    for; and before a job that starts then, as they must not lie inside it.
    """
    rows: list[list[int]] = [[] for _ in range(shop.streams)]
    numbers = range(len(shop.jobs))
    for number in sorted(numbers, key=lambda n: (starts[n], shop.jobs[n].time > 0, n)):
        rows[shop.jobs[number].stream].append(number)
    return tuple(map(tuple, rows))


def fault_of(shop: Shop, plan: Plan) -> str:
    """Say which rule a plan breaks, from its starts alone; empty if none."""
    if len(plan.starts) != len(shop.jobs) or min(plan.starts, default=0) < 0:
        return "not every part has a start of at least 0"
    ends = [start + job.time for start, job in zip(plan.starts, shop.jobs, strict=True)]
    if plan.length != max(ends, default=0):
        return f"the length is {plan.length}, but the last part ends at {max(ends, default=0)}"
    for number, job in enumerate(shop.jobs):
        if any(ends[other] > plan.starts[number] for other in job.before):
            return f"part {number} starts before one that it follows has ended"
    for stream in range(shop.streams):
        on = [n for n, job in enumerate(shop.jobs) if job.stream == stream]
        on.sort(key=lambda n: (plan.starts[n], ends[n]))
        for first, second in pairwise(on):
            if ends[first] > plan.starts[second]:
                return f"parts {first} and {second} overlap on stream {stream}"
    return ""
