"""1F1B and interleaved 1F1B of our own, the group sizes that Megatron-LM takes, and their times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from typing import Any

from campaign.judge import values
from campaign.judge.claims import Judged
from campaign.judge.exact import Truth

Rows = list[list[str]]


def takes_group(devices: int, microbatches: int, size: int) -> bool:
    """Megatron-LM's guard with several stages per rank: no group has fewer than a microbatch each.

    megatron-core 0.19.2 asserts size >= devices, size <= microbatches, and that the last group is
    full or has at least ``devices``.
    """
    return devices <= size <= microbatches and not 0 < microbatches % size < devices


def shipped_group(runtime: str, devices: int, microbatches: int) -> int | None:
    """Group size of interleaved 1F1B where nobody states one; ``None``: the runtime refuses.

    Megatron-LM has groups of one microbatch per rank. torch has max(1, m // p) rounds, all alike.
    """
    if runtime == "megatron":
        return devices if takes_group(devices, microbatches, devices) else None
    rounds = max(1, microbatches // devices)
    return None if microbatches % rounds else microbatches // rounds


def in_turns(devices: int, chunks: int, microbatches: int, group: int) -> Rows:
    """The order of (interleaved) 1F1B: warm-up, one F and one BW in turn, the remaining BW's.

    Stage c p + d is chunk c of device d. Warm-up of one chunk: p - 1 - d, of several:
    2 (p - 1 - d) + (v - 1) g (Narayanan et al., SC 2021; Megatron-LM's schedules.py).
    """
    groups = [range(k, min(k + group, microbatches)) for k in range(0, microbatches, group)]
    rows = []
    for d in range(devices):
        forth = [f"{c * devices + d}F{m}" for own in groups for c in range(chunks) for m in own]
        back = [
            f"{c * devices + d}BW{m}"
            for own in groups
            for c in reversed(range(chunks))
            for m in own
        ]
        warm = devices - 1 - d
        warm = min(len(forth), warm if chunks == 1 else 2 * warm + (chunks - 1) * group)
        steady = [op for both in zip(forth[warm:], back, strict=False) for op in both]
        rows.append([*forth[:warm], *steady, *back[len(forth) - warm :]])
    return rows


def scheduled(problem: dict[str, Any], rows: Sequence[Sequence[str]]) -> dict[str, Any] | None:
    """Time lists of single ops as early as possible; ``None`` if they wait for each other."""
    judged = Judged(problem, "makespan", Truth(0))
    pipe, done = judged.pipe, dict[tuple[int, str, int], int]()
    places, free = [0] * len(rows), [0] * len(rows)
    made: list[list[list[Any]]] = [[] for _ in rows]
    moving = True
    while moving:
        moving = False
        for device, row in enumerate(rows):
            while places[device] < len(row):
                text = row[places[device]]
                stage, kind, m = split_op(text)
                ready = _ready(pipe, done, stage, kind, m)
                if ready is None:
                    break
                start = max(ready, free[device])
                end = start + int(getattr(pipe.modes(stage, m)["keep"], kind))
                done[stage, "B" if kind == "BW" else kind, m] = free[device] = end
                made[device].append([text, start, end])
                places[device] += 1
                moving = True
    if any(place < len(row) for place, row in zip(places, rows, strict=True)):
        return None
    head = {"format": "pipesat.schedule/1", "problem_sha256": judged.sha256}
    return head | {"devices": made}


def split_op(text: str) -> tuple[int, str, int]:
    stage = text.rstrip("0123456789").rstrip("FBW")
    microbatch = text[len(text.rstrip("0123456789")) :]
    return int(stage), text[len(stage) : len(text) - len(microbatch)], int(microbatch)


def _ready(pipe: Any, done: dict[Any, int], stage: int, kind: str, m: int) -> int | None:
    """When an op's inputs are there; ``None``: not yet."""
    route, _ = pipe.routes[pipe.route_of[stage]]
    place = route.index(stage)
    if kind == "W":
        return done.get((stage, "B", m))
    if kind == "F":
        before, way = route[place - 1 : place], 0
    else:
        before, way = route[place + 1 : place + 2], 1
        if not before:
            return done.get((stage, "F", m))
    if not before:
        return 0
    end = done.get((before[0], "F" if kind == "F" else "B", m))
    link = (before[0], stage) if kind == "F" else (stage, before[0])
    return None if end is None else end + int(pipe.delay_of(*link, m)[way])


def built(problem: dict[str, Any], rows: Rows) -> tuple[int, list[int]] | None:
    """Makespan and peaks of an order; ``None`` if it breaks a rule, memory among them."""
    made = scheduled(problem, rows)
    judged = Judged(problem, "makespan", Truth(0))
    timed = None if made is None else judged.judge(made)[0]
    return None if timed is None else (values.makespan(timed), values.peaks(judged.pipe, timed))


def cuts(count: int, stages: int) -> Iterator[tuple[int, ...]]:
    """Every way to cut layers into stages that all have one, as layers per stage."""
    for inner in combinations(range(1, count), stages - 1):
        yield tuple(b - a for a, b in pairwise((0, *inner, count)))


def most_work(works: Sequence[int], cut: Sequence[int], homes: Sequence[int]) -> int:
    """Work of the busiest device."""
    loads, begin = [0] * (max(homes) + 1), 0
    for size, home in zip(cut, homes, strict=True):
        loads[home] += sum(works[begin : begin + size])
        begin += size
    return max(loads)
