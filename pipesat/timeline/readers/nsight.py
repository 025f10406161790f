"""Nsight Systems' sqlite export: NVTX ranges whose names match patterns, and their kernels.

Patterns are regular expressions by kind (F, B, BW, W) with groups ``microbatch`` and ``chunk``, or
``stage``. A W without microbatch is of all that are still to come. Those of sail-sg's zero-bubble
Megatron ship as ``sail_sg.json``, from its ``tools/load_nsys_events.py`` at 39f2c186. An op lasts
from its first kernel to the end of its last, NCCL's left out; where no kernels were recorded, as
long as its range on the host.
"""

from __future__ import annotations

import json
import re
import sqlite3
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from pipesat.core.errors import BadInput
from pipesat.core.ops import KINDS, Kind
from pipesat.timeline.readers.rows import Row, Told, Trace, Value, chunks_in

_RANGES: Final = "SELECT start, end, globalTid, text FROM NVTX_EVENTS WHERE end IS NOT NULL"
_NAMES: Final = """SELECT e.start, e.end, e.globalTid, s.value FROM NVTX_EVENTS AS e
    JOIN StringIds AS s ON e.textId = s.id WHERE e.end IS NOT NULL"""
_KERNELS: Final = """SELECT runtime.globalTid, runtime.start, kernel.start, kernel.end
    FROM CUPTI_ACTIVITY_KIND_KERNEL AS kernel
    JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS runtime ON runtime.correlationId = kernel.correlationId
        AND runtime.globalTid / 16777216 = kernel.globalPid / 16777216
    JOIN StringIds AS s ON s.id = kernel.shortName WHERE s.value NOT LIKE 'nccl%'"""


_PROCESS: Final = 2**24
"""Threads of a process have numbers in one range of this length."""
_T = TypeVar("_T")
_Kernel: TypeAlias = tuple[int, ...]
"""Launched on the host, start and end on the GPU, in ns."""


def is_sqlite(content: Any) -> bool:
    """Whether this is a sqlite file."""
    return isinstance(content, Path)


def read_sqlite(exports: Sequence[Value], told: Told) -> Trace:
    """Read exports, one per node in order of their names; ranks begin one after the other."""
    given = told.patterns or json.loads(
        files("pipesat.timeline.readers").joinpath("sail_sg.json").read_text()
    )
    patterns = _compiled(given)
    rows: list[Row] = []
    host = False
    ranks = 0
    for export in exports:
        try:
            address = f"{export.content.resolve().as_uri()}?mode=ro"
            with closing(sqlite3.connect(address, uri=True)) as db:
                ranges, kernels = _ranges(db, patterns), _kernels(db)
        except sqlite3.Error as error:
            text = f"no export of Nsight Systems ({error})"
            raise BadInput(text, source=export.source) from None
        forward = {thread for thread, own in ranges.items() if any(r.kind == "F" for r in own)}
        apart = len(forward) > 1 == len({thread // _PROCESS for thread in forward})
        ranges, kernels = (_joined(one, 1 if apart else _PROCESS) for one in (ranges, kernels))
        timed = [[*_shared(_timed(own, kernels.get(of, [])))] for of, own in ranges.items()]
        host |= not kernels
        for own in sorted(filter(None, timed), key=lambda own: min(row.start for row in own)):
            rows += [r._replace(rank=ranks, start=r.start / 1000, end=r.end / 1000) for r in own]
            ranks += 1
    by_stage = all("stage" in pattern.groupindex for pattern in patterns.values())
    chunks = 0 if by_stage else chunks_in(rows)
    return Trace("Nsight Systems", exports[0].source, rows, chunks, host_times=host)


def _compiled(given: Mapping[str, str]) -> dict[Kind, re.Pattern[str]]:
    found = {}
    for kind, text in given.items():
        try:
            pattern = re.compile(text)
        except (re.error, TypeError) as error:
            said = f"expected a regular expression ({error})"
            raise BadInput(said, where=f"patterns.{kind}", value=text) from None
        if kind not in KINDS or "microbatch" not in pattern.groupindex:
            said = f"expected one of {', '.join(KINDS)}, with a group `microbatch`"
            raise BadInput(said, where=f"patterns.{kind}", value=text)
        found[kind] = pattern
    return found


def _ranges(
    db: sqlite3.Connection, patterns: Mapping[Kind, re.Pattern[str]]
) -> dict[int, list[Row]]:
    """Ranges by thread, in ns of the host."""
    found: dict[int, list[Row]] = defaultdict(list)
    columns = {row[1] for row in db.execute("PRAGMA table_info(NVTX_EVENTS)")}
    queries = [_RANGES, *([_NAMES] if "textId" in columns else [])]
    for start, end, thread, text in (row for query in queries for row in db.execute(query)):
        for kind, pattern in patterns.items():
            if text and (said := pattern.fullmatch(text)):
                parts = said.groupdict()
                place = int(parts.get("stage") or parts.get("chunk") or 0)
                microbatch = None if parts["microbatch"] is None else int(parts["microbatch"])
                found[thread].append(Row(0, place, microbatch, kind, start, end))
    return found


def _kernels(db: sqlite3.Connection) -> dict[int, list[_Kernel]]:
    """Kernels by the thread that launched them, which for backwards may be one of autograd."""
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
    found: dict[int, list[_Kernel]] = defaultdict(list)
    if "CUPTI_ACTIVITY_KIND_KERNEL" in tables:
        for thread, *kernel in db.execute(_KERNELS):
            found[thread].append((*kernel,))
    return found


def _joined(found: Mapping[int, list[_T]], group: int) -> dict[int, list[_T]]:
    joined: dict[int, list[_T]] = defaultdict(list)
    for thread, own in found.items():
        joined[thread // group] += own
    return joined


def _timed(ranges: Sequence[Row], kernels: Sequence[_Kernel]) -> Iterator[Row]:
    """Yield every range with the times of its kernels; those without any are left out."""
    launches = sorted(kernels)
    times = [kernel[0] for kernel in launches]
    for one in sorted(ranges, key=lambda row: (row.start, row.end)):
        own = launches[bisect_right(times, one.start - 1) : bisect_right(times, one.end)]
        if own:
            start, end = min(kernel[1] for kernel in own), max(kernel[2] for kernel in own)
            yield one._replace(start=start, end=end)
        elif not kernels:
            yield one


def _shared(timed: Iterator[Row]) -> Iterator[Row]:
    """Yield all ranges, those of no microbatch in equal parts for each whose W is still to come."""
    pending: dict[int | None, list[int | None]] = defaultdict(list)
    for one in timed:
        waiting = pending[one.stage]
        if one.kind == "W" and one.microbatch is None:
            each = (one.end - one.start) / max(1, len(waiting))
            for number, microbatch in enumerate(waiting):
                start = one.start + number * each
                yield one._replace(microbatch=microbatch, start=start, end=start + each)
            waiting.clear()
            continue
        yield one
        if one.kind == "BW":
            waiting.append(one.microbatch)
        elif one.kind == "W" and one.microbatch in waiting:
            waiting.remove(one.microbatch)
