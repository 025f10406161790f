"""Runs made up for tests, and their traces as each program writes them; times in ms.

Orders and times come from here, not from the product: 1F1B and Megatron's interleaved order by
their definitions, and each op as early as its device and its input allow.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
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


def vescale(run: Sequence[Traced]) -> list[dict[str, object]]:
    """veScale's own: ranks by name, no microbatches; ranks of two tensor groups."""
    return [
        event
        | {"tid": rank * 10, "args": {"rank": rank, "step": op.step, "tp": tensor, "pp": op.rank}}
        for event, op in zip(ndtimeline(run), run, strict=True)
        for tensor in (0, 1)
        for rank in (2 * op.rank + tensor,)
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


def tasks(run: Sequence[Traced]) -> dict[str, dict[str, object]]:
    """``task_durations.json`` of Megatron's VPP simulator."""
    words = {"F": "forward", "B": "backward"}
    return {
        f"pp_{op.rank}-mbs_{op.microbatch}-model_chunk_{op.chunk}-task_type_{words[op.kind]}": {
            "duration_ms": op.end - op.start,
            "pp_rank": op.rank,
            "microbatch_id": op.microbatch,
            "model_chunk_id": op.chunk,
            "task_type": words[op.kind],
        }
        for op in run
        if op.step == 0
    }


def spans(run: Sequence[Traced], *, around: bool = True) -> list[tuple[str, float, float, int]]:
    """Megatron's spans: name, start, end and rank; one ``around`` each step."""
    words = {"F": "megatron.microbatch.forward", "B": "megatron.microbatch.backward"}
    found = [(words[op.kind], op.start, op.end, op.rank) for op in in_order(run)]
    for rank in {op.rank for op in run} if around else ():
        for step in {op.step for op in run}:
            own = [op for op in run if (op.rank, op.step) == (rank, step)]
            start, end = min(op.start for op in own), max(op.end for op in own)
            found.append(("megatron.train.iteration.forward_backward", start - 1, end + 1, rank))
    return found


def otlp(run: Sequence[Traced]) -> list[dict[str, object]]:
    """OTLP's JSON, one document per process, as a collector's file exporter writes lines."""

    def text(value: str) -> dict[str, str]:
        return {"stringValue": value}

    return [
        {
            "resourceSpans": [
                {
                    "resource": {
                        "attributes": [
                            {"key": "service.instance.id", "value": text(f"job-rank{rank}")}
                        ]
                    },
                    "scopeSpans": [
                        {
                            "spans": [
                                {
                                    "name": name,
                                    "startTimeUnixNano": str(round(start * 1e6)),
                                    "endTimeUnixNano": str(round(end * 1e6)),
                                }
                                for name, start, end, of in spans(run)
                                if of == rank
                            ]
                        }
                    ],
                }
            ]
        }
        for rank in sorted({op.rank for op in run})
    ]


def console(run: Sequence[Traced], *, around: bool = True) -> str:
    """What the console exporter of the Python SDK prints."""

    def stamp(ms: float) -> str:
        return datetime.fromtimestamp(1.7e9 + ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    return "\n".join(
        json.dumps(
            {
                "name": name,
                "context": {"trace_id": "0x1", "span_id": "0x2"},
                "start_time": stamp(start),
                "end_time": stamp(end),
                "resource": {"attributes": {"service.instance.id": f"job-rank{rank}"}},
            },
            indent=4,
        )
        for name, start, end, rank in spans(run, around=around)
    )


def jaeger(run: Sequence[Traced]) -> dict[str, object]:
    """What Jaeger's page downloads."""
    ranks = {op.rank for op in run}
    return {
        "data": [
            {
                "spans": [
                    {
                        "operationName": name,
                        "startTime": round(start * 1000),
                        "duration": round((end - start) * 1000),
                        "processID": f"p{rank}",
                    }
                    for name, start, end, rank in spans(run)
                ],
                "processes": {
                    f"p{rank}": {
                        "tags": [{"key": "service.instance.id", "value": f"job-rank{rank}"}]
                    }
                    for rank in ranks
                },
            }
        ]
    }


def nsys(path: Path, run: Sequence[Traced], *, kernels: bool = True, threads: bool = False) -> Path:
    """``nsys export --type sqlite`` of sail-sg's ranges: one process per rank.

    Kernels run at the op's times; ranges on the host are earlier and shorter. Backwards are
    launched by another thread of the process. With ``threads``, ranks are threads of one process.
    """
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE NVTX_EVENTS(start INT, end INT, globalTid INT, text TEXT)")
        db.execute("CREATE TABLE StringIds(id INT, value TEXT)")
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", [(1, "gemm"), (2, "ncclDevKernel")])
        if kernels:
            db.execute(
                "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INT, end INT, globalPid INT, "
                "deviceId INT, correlationId INT, shortName INT)"
            )
            db.execute(
                "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INT, end INT, globalTid INT, "
                "correlationId INT)"
            )
        for number, op in enumerate(in_order(run)):
            process = (1 << 48) + ((100 - op.rank) << 24)  # later ranks, lower process ids
            thread, launching = process + 7, process + 9
            if threads:
                process = 1 << 48
                thread = launching = process + 100 - op.rank
            start, end = round(op.start * 1e6), round(op.end * 1e6)
            host = (start - 5_000_000, start - 4_000_000) if kernels else (start, end)
            name = f"{op.kind}{op.microbatch}.{op.chunk}.0"
            db.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?)", (*host, thread, name))
            if kernels:
                middle = (start + end) // 2
                parts = ((1, start, middle), (1, middle, end), (2, end, end + 3_000_000))
                for part, (kind, a, b) in enumerate(parts):
                    key = 3 * number + part
                    db.execute(
                        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?)",
                        (a, b, process, op.rank, key, kind),
                    )
                    launched = host[0] + 1000 * part + 1
                    db.execute(
                        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?)",
                        (launched, launched + 10, launching, key),
                    )
    db.close()
    return path


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
