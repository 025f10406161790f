"""Megatron's own records: Primus' dump_pp_data, and logs of timers.

Primus (AMD-AGI/Primus, ``pp_visualizer.py``) writes ``config.json`` and ``pp_rank_{r}.json``: per
iteration lists ``fwd_start``, ``fwd_end``, ``bwd_*``, ``wgrad_*`` in ms, of schedules of its own
with ``*_minibatch`` and ``*_chunk``. Timers (``megatron/core/timers.py``) log how long each rank
took in all.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product, zip_longest
from typing import Any, Final

from pipesat.core.errors import BadInput, require
from pipesat.core.grouping import grouped
from pipesat.measure.timeline.readers.rows import (
    FileValue,
    Trace,
    TraceRow,
    TraceStatement,
    chunks_in,
)
from pipesat.problem.ops import Kind

_SERIES: Final[dict[str, Kind]] = {"fwd": "F", "bwd": "BW", "wgrad": "W"}
_TIMER: Final = re.compile(r"^\s*(forward|backward)-compute:((?:\s+rank +\d+: [\d.]+)+)", re.M)
_RANK: Final = re.compile(r"rank +(\d+): ([\d.]+)")
_ARGUMENT: Final = re.compile(r"^\W*(?:\w+:\s*)*(\w+) \.+ (\d+)\s*$", re.M)


def _is_config(content: Any) -> bool:
    return isinstance(content, dict) and "pp_size" in content


def _is_rank(content: Any) -> bool:
    return isinstance(content, dict) and any(
        isinstance(value, dict) and "fwd_start" in value for value in content.values()
    )


def is_primus(content: Any) -> bool:
    """Whether this is a file of Primus' dump_pp_data."""
    return _is_config(content) or _is_rank(content)


def read_primus(files: Sequence[FileValue], told: TraceStatement) -> Trace:
    """Read a folder of dump_pp_data: ``config.json`` and one file per pipeline rank."""
    configs = [file for file in files if _is_config(file.content)]
    if len(configs) > 1:
        raise BadInput(
            f"a second configuration, beside {configs[0].source}: are these files of one job?",
            source=configs[1].source,
        )
    ranks: dict[int, FileValue] = {}
    for place, file in enumerate(file for file in files if _is_rank(file.content)):
        said = re.search(r"pp_rank_(\d+)", file.source.rpartition("/")[2])
        rank = int(said[1]) if said else place
        if rank in ranks:
            raise BadInput(
                f"rank {rank} again, beside {ranks[rank].source}: are these files of one job?",
                source=file.source,
            )
        ranks[rank] = file
    config = (configs or [*ranks.values()])[0]
    size = config["pp_size"].whole_if_any() or len(ranks)
    require(
        sorted(ranks) == [*range(size)],
        f"expected pp_rank_0.json and so on, one for each of {size} ranks",
        source=config.source,
        where="ranks",
        value=sorted(ranks),
    )
    rows = [row for rank, file in ranks.items() for row in _primus_rows(rank, file)]
    stated = [config[key].whole_if_any() for key in ("vp_size", "vpp_size")]
    chunks = next(filter(None, (told.chunks, *stated)), 1)
    return Trace("Primus dump_pp_data", config.source, rows, max(chunks, chunks_in(rows)))


def _primus_rows(rank: int, file: FileValue) -> Iterator[TraceRow]:
    for key in file.content:
        if not key.isdecimal() or not isinstance(file.content[key], dict):
            raise BadInput("expected an iteration", source=file.source, where=key)
        for series, kind in _SERIES.items():
            starts, ends, chunks, microbatches = (
                file[key][f"{series}_{part}"] for part in ("start", "end", "chunk", "minibatch")
            )
            require(
                len(starts.content or ()) == len(ends.content or ()),
                "expected as many ends as starts",
                source=file.source,
                where=ends.where,
            )
            for start, end, *marks in zip_longest(starts, ends, chunks, microbatches):
                chunk, microbatch = (
                    None if mark is None else mark.whole_if_any() for mark in marks
                )
                times = 1000 * start.number(), 1000 * end.number()
                yield TraceRow(rank, chunk, microbatch, kind, *times, int(key))


def is_timers(content: Any) -> bool:
    """Whether this is a log with Megatron's timers."""
    return isinstance(content, str) and "time" in content and "across ranks (ms):" in content


def read_timers(files: Sequence[FileValue], told: TraceStatement) -> Trace:
    """Read the totals of a log: an op's time is its rank's total over the number of such ops.

    The first block, of the first steps, is left out if there are others.
    """
    log = files[0]
    stated = {name: int(value) for name, value in _ARGUMENT.findall(log.content)}
    totals = grouped(
        ((name, int(rank)), float(value))
        for name, block in _TIMER.findall(log.content)
        for rank, value in _RANK.findall(block)
    )
    require(
        totals,
        "its timers do not say what each rank took: run with --timing-log-level 2 "
        "--timing-log-option all",
        source=log.source,
    )
    world = len({rank for _, rank in totals})
    size = min(stated.get("pipeline_model_parallel_size", world), world)
    together = stated.get("micro_batch_size", 0) * stated.get("data_parallel_size", 0)
    microbatches = told.microbatches or stated.get("global_batch_size", 0) // max(together, 1)
    require(
        microbatches,
        "the log does not say how many microbatches a step has: give `microbatches`",
        source=log.source,
    )
    chunks = told.chunks or 1
    seen: dict[tuple[int, Kind], list[float]] = defaultdict(list)
    for (name, rank), values in totals.items():
        seen[rank * size // world, "F" if name == "forward" else "BW"] += values[1:] or values
    rows = []
    for (rank, kind), own in seen.items():
        each = 1000 * sorted(own)[len(own) // 2] / (microbatches * chunks)
        ops = product(range(chunks), range(microbatches))
        rows += [TraceRow(rank, *op, kind, 0.0, each, 0) for op in ops]
    notes = ["averages only: a rank's total over its microbatches, with synchronised timers"]
    return Trace("Megatron timers", log.source, rows, chunks, timed=False, notes=notes)
