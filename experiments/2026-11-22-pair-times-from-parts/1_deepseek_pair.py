"""The pair of DeepSeek's published trace: its own order, and the best order of the same parts.

    python experiments/2026-11-22-pair-times-from-parts/1_deepseek_pair.py

The table goes into README.md, the picture of the best order beside it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pipesat.parts.file import read_parts
from pipesat.workflows.pair_times import pair_times

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT))

from pipesat.core.claims import difference, percent  # noqa: E402
from pipesat.parts.answer import ChunkOp, LeastTime, PairTimes  # noqa: E402
from pipesat.parts.parts import Chunk, Parts, Plan, Shop, fault_of, timed  # noqa: E402  # noqa: E402
from pipesat.parts.picture import pictures_of  # noqa: E402

BEGIN, END = "<!-- begin deepseek -->\n", "<!-- end deepseek -->"
MEASURED = 129_012
"""us, the span of the pair in deepseek-ai/profile-data, train.json: 4 layers, H800, EP64."""

ITS_ORDER = {
    "main": ["F attn", "B mlp", "W mlp W", "F mlp", "B attn", "W attn W"],
    "comm": ["B combine", "F dispatch", "B dispatch", "F combine"],
}
"""Of every layer, on each stream."""

WALL = {
    "F attn": 4833,
    "B mlp": 5746,
    "W mlp W": 5333,
    "F mlp": 4289,
    "B attn": 9215,
    "W attn W": 2381,
}
"""us on the main stream in the first layer, gaps between kernels included."""

PAIR = (ChunkOp(0, "F"), ChunkOp(0, "BW"))


def with_times(parts: Parts, times: dict[str, int]) -> Parts:
    """The same parts, those that are named with other times."""
    (chunk,) = parts.chunks
    rows = {
        kind: tuple(
            part._replace(time=times.get(f"{kind} {part.name}", part.time))
            for part in chunk.of_kind(kind)
        )
        for kind in ("F", "B", "W")
    }
    changed: Chunk = replace(chunk, **rows)
    return replace(parts, chunks=(changed,))


def in_its_order(parts: Parts, shop: Shop) -> Plan:
    """The trace's order, every part as early as it allows."""
    rows = []
    for stream, names in enumerate(ITS_ORDER[name] for name in parts.streams):
        jobs = [n for n, job in enumerate(shop.jobs) if job.stream == stream]
        key = {n: f"{shop.jobs[n].kind} {shop.jobs[n].name}" for n in jobs}
        rows.append(tuple(sorted(jobs, key=lambda n: (shop.jobs[n].place, names.index(key[n])))))
    plan = timed(shop, tuple(rows))
    assert plan is not None
    assert fault_of(shop, plan) == ""
    return plan


def row(name: str, time: int, proof: str = "") -> str:
    off = percent(difference(time, MEASURED), 1, sign=True)
    return f"| {name} | {time:,} | {off} | {proof} |"


def rows_of(name: str, parts: Parts) -> Iterator[tuple[str, PairTimes, Plan]]:
    found = pair_times(parts, deterministic=True)
    least = found.together[PAIR]
    its = in_its_order(parts, least.shop)
    loads = least.shop.loads()
    for stream, load in zip(parts.streams, loads, strict=True):
        yield row(f"{name}: {stream} stream alone", load), found, its
    yield row(f"{name}: the trace's order", its.length), found, its
    yield row(f"{name}: the best order", least.plan.length, least.standing.verdict), found, its


def main() -> None:
    busy = read_parts(ROOT / "examples" / "parts-deepseek-like.json")
    lines = ["| | us | against measured | |", "| --- | ---: | ---: | --- |"]
    lines.append(row("measured: the pair's span", MEASURED))
    for text, found, its in rows_of("busy times", busy):
        lines.append(text)
        best, trace_order = found, its
    for text, _, _ in rows_of("calibration, wall times on the main stream", with_times(busy, WALL)):
        lines.append(text)
    table = "\n".join(lines) + "\n"
    print(table)
    readme = HERE / "README.md"
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    readme.write_text(pattern.sub(lambda _: BEGIN + table + END, readme.read_text()))
    draw(best, trace_order)


def draw(found: PairTimes, trace_order: Plan) -> None:
    """The trace's order above the best one, on one time scale."""
    least = found.together[PAIR]
    its = LeastTime(least.shop, trace_order, least.bound)
    chunk = found.parts.chunks[0]
    names = (replace(chunk, name="trace's order"), replace(chunk, name="best order"))
    both = [tuple(ChunkOp(n, op.kind) for op in PAIR) for n in (0, 1)]
    alone = {ChunkOp(n, op.kind): found.alone[op] for n in (0, 1) for op in PAIR}
    twice = PairTimes(
        replace(found.parts, chunks=names),
        alone,
        {both[0]: its, both[1]: least},  # type: ignore[dict-item]
    )
    for kind, data in pictures_of(twice, both).items():
        if kind == "png":
            (HERE / "deepseek-pair.png").write_bytes(data)


if __name__ == "__main__":
    main()
