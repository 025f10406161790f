"""Timelines and traces for tests, with times in ms."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from pipesat.problem.ops import parse_item
from pipesat.runtimes.timeline import DeviceRun, Ran, TrainingStep, TransferCall


def ran(text: str, start: float, end: float, waited: float = 0.0) -> Ran:
    op = parse_item(text)
    return Ran(op, 1000.0 * start, 1000.0 * end, 1000.0 * waited)  # type: ignore[arg-type]


def step(
    *rows: tuple[tuple[str, float, float, float], ...],
    calls: tuple[tuple[TransferCall, ...], ...] = ((), ()),
) -> TrainingStep:
    """Ops as (op, start, end, waited), in ms."""
    return TrainingStep(
        tuple(
            DeviceRun(tuple(ran(*op) for op in row), transfers)
            for row, transfers in zip(rows, calls, strict=True)
        )
    )


def trace(
    rank: int | None,
    *ranges: tuple[str, float, float],
    base: int | None = 0,
    cat: str = "user_annotation",
) -> dict[str, object]:
    """Ranges as (name, start, end) in ms."""
    events = [
        {
            "ph": "X",
            "cat": cat,
            "name": f"PP:{name}",
            "pid": 1,
            "tid": 1,
            "ts": 1000.0 * start,
            "dur": 1000.0 * (end - start),
        }
        for name, start, end in ranges
    ]
    noise = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1.0, "dur": 2.0}
    result: dict[str, object] = {"traceEvents": [noise, {"ph": "M", "name": "x"}, *events]}
    if rank is not None:
        result["distributedInfo"] = {"rank": rank}
    if base is not None:
        result["baseTimeNanoseconds"] = base
    return result


def files(tmp_path: Path, *documents: object, packed: bool = False) -> list[Path]:
    paths = []
    for number, content in enumerate(documents):
        path = tmp_path / f"trace{number}.json{'.gz' * packed}"
        data = json.dumps(content).encode()
        path.write_bytes(gzip.compress(data) if packed else data)
        paths.append(path)
    return paths


TRACES = (
    trace(
        0,
        ("0F0", 3, 5),
        ("0SEND_F0", 5, 5),
        ("0F1", 5, 7),
        ("0RECV_B0", 7, 7),
        ("0B0", 7, 17),
        ("0B1", 17, 23),
    ),
    trace(1, ("1RECV_F0", 3, 3), ("1F0", 3, 8), ("1B0", 8, 12), ("1F1", 12, 14), ("1B1", 14, 18)),
)
"""Two stages, two microbatches, 1F1B, with the waits inside the ranges as torch has them."""
