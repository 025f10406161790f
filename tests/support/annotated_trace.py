"""A small trace in the form of torch's profiler: annotations, launches and kernels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

MAPPING = ROOT / "examples" / "parts-map-deepseek.json"
TOTALS = [17479, 26761, 18415, 34736, 23077, 21224, 29947, 37363, 14158, 9554]
"""us of four layers, in the order of the mapping's parts (published by DeepSeek)."""
SIDE_STREAM = 11355
"""us of mlp(W) on a third stream."""


def annotation(name: str, start: float, length: float, thread: int = 1) -> dict[str, Any]:
    """A range of the host."""
    place = {"pid": 1, "tid": thread, "ts": start, "dur": length}
    return {"ph": "X", "cat": "user_annotation", "name": name} | place


def kernel(
    number: int, launched: float, stream: int, start: float, length: float, thread: int = 1
) -> list[dict[str, Any]]:
    """A launch on a thread, and the kernel that it started."""
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1}
    ran = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": stream}
    return [
        launch | {"tid": thread, "ts": launched, "dur": 0.5, "args": {"correlation": number}},
        ran | {"ts": start, "dur": length, "args": {"correlation": number, "stream": stream}},
    ]


def write_annotated_trace(path: Path) -> None:
    """Write a trace with a kernel per part of the shipped mapping, of the published totals."""
    events = []
    for number, (rule, total) in enumerate(
        zip(json.loads(MAPPING.read_text())["parts"], TOTALS, strict=True)
    ):
        at, thread = 100 * number, 1 if rule["annotation"] else 2
        if rule["annotation"]:
            events.append(annotation(rule["annotation"], at, 50))
        stream = {"main": 7, "comm": 20}[rule["stream"]]
        events += kernel(number, at + 1, stream, 10**6 * number, total, thread)
    events += kernel(99, 801, 24, 0, SIDE_STREAM)  # launched in mlp(W)
    path.write_text(json.dumps({"traceEvents": events}))
