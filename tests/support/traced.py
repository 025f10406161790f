"""Runs made up for tests, and their traces as each program writes them; times in ms.

Orders and times come from here, not from the product: 1F1B and Megatron's interleaved order by
their definitions, and each op as early as its device and its input allow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

Length = Callable[[int, str, int, int], float]
"""Time of an op of a stage, kind and microbatch in a step."""


class Traced(NamedTuple):
    """One op that ran: ``stage`` among all, ``chunk`` on its rank."""

    step: int
    rank: int
    chunk: int
    stage: int
    kind: str
    microbatch: int
    start: float
    end: float


def rank_order(p: int, m: int, v: int, rank: int) -> list[tuple[str, int, int]]:
    """Megatron's order of one rank: (kind, chunk, microbatch)."""
    warm = min(p - rank - 1, m) if v == 1 else min(2 * (p - rank - 1) + (v - 1) * p, m * v)
    units = [(c, k) for g in range(0, m, p) for c in range(v) for k in range(g, min(g + p, m))]
    forward = [("F", c, k) for c, k in units]
    backward = [("B", v - 1 - c, k) for c, k in units]
    both = [op for pair in zip(forward[warm:], backward, strict=False) for op in pair]
    return [*forward[:warm], *both, *backward[len(forward) - warm :]]


def made_up(
    p: int = 4,
    m: int = 8,
    v: int = 1,
    *,
    steps: int = 3,
    length: Length = lambda stage, kind, microbatch, step: 20.0 if kind == "F" else 40.0,
    delay: float = 0.0,
    apart: float = 10.0,
) -> list[Traced]:
    """Run Megatron's order on p ranks of v chunks; stage c p + r is chunk c of rank r."""
    found: list[Traced] = []
    begin = 100.0
    for step in range(steps):
        orders = [rank_order(p, m, v, rank) for rank in range(p)]
        ends: dict[tuple[str, int, int], float] = {}
        place, free = [0] * p, [begin] * p
        while any(place[r] < len(orders[r]) for r in range(p)):
            for rank in range(p):
                while place[rank] < len(orders[rank]):
                    kind, chunk, k = orders[rank][place[rank]]
                    stage = chunk * p + rank
                    last = stage == p * v - 1
                    needs = ("F", stage - 1, k) if kind == "F" else ("B", stage + 1, k)
                    if kind == "B" and last:
                        needs = ("F", stage, k)
                    if kind == "F" and stage == 0:
                        came = begin
                    elif needs not in ends:
                        break
                    else:
                        came = ends[needs] + (delay if needs[1] != stage else 0.0)
                    start = max(free[rank], came)
                    end = start + length(stage, kind, k, step)
                    ends[kind, stage, k] = free[rank] = end
                    found.append(Traced(step, rank, chunk, stage, kind, k, start, end))
                    place[rank] += 1
        begin = max(free) + apart
    return found


def in_order(run: Sequence[Traced]) -> list[Traced]:
    return sorted(run, key=lambda op: op.start)


# As programs write them


def primus(folder: Path, run: Sequence[Traced], *, config: bool = True) -> Path:
    """``dump_pp_data``: numbers of iterations from 1, times from each iteration's start."""
    folder.mkdir(exist_ok=True)
    ranks = sorted({op.rank for op in run})
    for rank in ranks:
        content: dict[str, dict[str, list[float]]] = {}
        for step in sorted({op.step for op in run}):
            zero = min(op.start for op in run if op.step == step)
            content[str(step + 1)] = {
                f"{word}_{part}": [
                    getattr(op, part) - zero
                    for op in in_order(run)
                    if (op.rank, op.step, op.kind) == (rank, step, kind)
                ]
                for word, kind in (("fwd", "F"), ("bwd", "B"))
                for part in ("start", "end")
            }
        (folder / f"pp_rank_{rank}.json").write_text(json.dumps(content))
    if config:
        sizes = {"pp_size": len(ranks), "vp_size": max(op.chunk for op in run) + 1}
        sizes |= {"num_mbs": max(op.microbatch for op in run) + 1, "train_iters": 3}
        (folder / "config.json").write_text(json.dumps(sizes))
    return folder


def ndtimeline(*runs: Sequence[Traced]) -> list[dict[str, object]]:
    """NDTimeline's Chrome trace; each run is a replica."""
    words = {"F": "forward-compute", "B": "backward-compute"}
    return [
        {
            "name": words[op.kind],
            "ph": "X",
            "pid": replica,
            "tid": (op.rank * len(runs) + replica) * 5,
            "ts": op.start * 1000,
            "dur": (op.end - op.start) * 1000,
            "args": {"step": op.step, "model_chunk": op.chunk, "mb_id": op.microbatch},
        }
        for replica, run in enumerate(runs)
        for op in run
    ]


def torch_traces(
    run: Sequence[Traced], prefix: str = "PP:", *, receives: bool = True
) -> list[dict[str, object]]:
    """torch's profiler, one document per rank: a range begins when the rank turns to the op.

    ``gloo:recv`` begins before the ranges of earlier ops, and ends when its op has waited for it.
    """
    documents = []
    last = max(op.stage for op in run)
    begins = {n: min(op.start for op in run if op.step == n) for n in {op.step for op in run}}
    for rank in sorted({op.rank for op in run}):
        events, before = [], 0.0
        for op in in_order(run):
            if op.rank == rank:
                since = max(before, begins[op.step])
                events.append(
                    {
                        "ph": "X",
                        "cat": "user_annotation",
                        "name": f"{prefix}{op.stage}{op.kind}{op.microbatch}",
                        "ts": since * 1000,
                        "dur": (op.end - since) * 1000,
                    }
                )
                if receives and op.stage != (0 if op.kind == "F" else last):
                    times = {"ts": since * 1000 - 30_000, "dur": (op.start - since) * 1000 + 30_000}
                    events.append(
                        {"ph": "X", "cat": "user_annotation", "name": "gloo:recv", **times}
                    )
                before = op.end
        documents.append({"traceEvents": events, "distributedInfo": {"rank": rank}})
    return documents


def recorded(run: Sequence[Traced]) -> dict[str, object]:
    """``pipesat.timeline/1`` as :mod:`pipesat.record` writes it, without a problem."""
    steps = []
    for step in sorted({op.step for op in run}):
        own = [op for op in in_order(run) if op.step == step]
        zero = min(op.start for op in own)
        rows = [
            [
                [
                    f"{op.stage}{op.kind.replace('B', 'BW')}{op.microbatch}",
                    *(1000 * (time - zero) for time in (op.start, op.end)),
                    0,
                    None,
                ]
                for op in own
                if op.rank == rank
            ]
            for rank in sorted({op.rank for op in own})
        ]
        steps.append({"devices": [{"ops": row} for row in rows]})
    head = {"format": "pipesat.timeline/1", "problem_sha256": "", "us_per_time_unit": 1}
    return head | {"steps": steps}


def timer_log(totals: Sequence[Mapping[str, Sequence[float]]], arguments: str = "") -> str:
    """A log with Megatron's timers: per block, ms by timer and rank."""
    blocks = []
    for number, block in enumerate(totals):
        lines = [f" iteration {number + 1:8d}/ 100 | elapsed time per iteration (ms): 1.0 |"]
        lines.append("times across ranks (ms):")
        for name, values in block.items():
            lines.append(f"  {name}:")
            lines += [f"     rank {rank:2d}: {ms:.2f}" for rank, ms in enumerate(values)]
        blocks.append("\n".join(lines))
    return "\n".join([arguments, *blocks])
