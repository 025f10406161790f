"""The table above the advice: which rows it has, how they are shown, and what goes with one.

The best of what users know, and ours. Megatron-LM's flags, and what recomputing and pairs take.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pipesat.advise.orders import KNOWN, SCHEDULES
from pipesat.advise.plan_tables import by_columns
from pipesat.advise.question import OFFLOAD, Question
from pipesat.advise.table_rows import (
    PLAINEST_FIRST,
    Row,
    advised_of,
    best_of,
    plain_of,
    published_in,
    rank,
    stages_text,
)
from pipesat.compare.hand_written import baseline
from pipesat.core.amounts import rounded_down
from pipesat.core.claims import percent
from pipesat.core.errors import Fault, NotApplicable
from pipesat.core.showing import Column, Table
from pipesat.layers.layout import layout_of_partition
from pipesat.layers.megatron import (
    NOT_WITH_LAYOUT,
    OVERLAP_WANTS,
    layout_text_of,
    recompute_options,
    size_options,
)
from pipesat.runtimes import EXPORTERS
from pipesat.runtimes.options import Options
from pipesat.schedule.metrics import peak_memory
from pipesat.schedule.schedule import Exported

_ALWAYS: Final = (*PLAINEST_FIRST, OFFLOAD)


def shown_rows(rows: Iterable[Row]) -> list[Row]:
    """Return the table: 1F1B on every split that differs, of all other schedules the best row.

    1F1B and interleaved 1F1B as shipped, the row to take, the fastest, and the same with nothing by
    hand are among them. Ours, and published schedules that few
    users know, are there where no other row is as good; what fits and does not run, only if nothing
    of its name does.
    """
    ranked = sorted(rows, key=rank)
    taken = [row for row in (advised_of(ranked), best_of(ranked), plain_of(ranked)) if row]
    kept: dict[tuple[str, str], Row] = {}
    running = {row.name for row in ranked if row.runs}
    for row in (*taken[:1], *ranked):
        if row.name in _ALWAYS and (row.runs or not row.fits or row.name not in running):
            split = row.split if row.name == "1f1b" else ""
            if all(row.partition != k.partition for k in kept.values() if k.name == row.name):
                kept.setdefault((row.name, split), row)
    shown = [*kept.values()]
    shipped = (best_of(ranked, name, shipped=True) for name in KNOWN)
    for one in (*taken, *shipped):
        shown += [one] if one is not None and one not in shown else []
    for row in (row for row in ranked if row.name not in _ALWAYS):
        if row not in shown and not any(_as_good(other, row) for other in shown):
            shown.append(row)
    return sorted(shown, key=lambda row: (not row.fits, *rank(row)[2:]))


def _as_good(other: Row, row: Row) -> bool:
    """Whether another row leaves no reason to take a row."""
    easier = not other.by_hand or row.by_hand != ""
    runs = other.fits >= row.fits and other.runs >= row.runs
    return runs and easier and other.makespan <= row.makespan and other.name != OFFLOAD


def table_of_rows(question: Question, rows: list[Row]) -> Table:
    """Return rows as a table; columns without an entry are left out."""
    paired = question.overlap is not None
    holds = not paired or any(max(row.peaks) for row in rows)
    cells = {
        Column("schedule", number=False): [_named(row) for row in rows],
        Column("split", number=False): [row.split for row in rows],
        Column("placement", number=False): [question.words(row.placement) for row in rows],
        Column("recomputes", number=False, spare=2): [
            _recomputes(row) if question.may_recompute else "" for row in rows
        ],
        Column("time"): [question.time(row.makespan) for row in rows],
        Column("tokens/s", spare=3): [_tokens(row.tokens_per_second(question)) for row in rows],
        Column("of\nideal", spare=4): [
            "" if paired else percent(row.share_of_ideal(question), 0) for row in rows
        ],
        Column("pairs", spare=1): [str(row.pairs) if paired else "" for row in rows],
        Column("memory"): [_memory(question, row) if holds else "" for row in rows],
        Column(f"runs in\n{question.runtime}", number=False): [_runs(row) for row in rows],
    }
    return by_columns(cells, "times and memory are an estimate" if question.layers.estimate else "")


def _named(row: Row) -> str:
    return row.name if row.group is None else f"{row.name}, groups of {row.group}"


def _memory(question: Question, row: Row) -> str:
    free = None if question.memory is None else question.memory - question.reserve
    return question.amount(max(row.peaks), within=free)


def _recomputes(row: Row) -> str:
    if row.candidate.first is not None:
        return f"first {row.candidate.first} of each"
    return stages_text(row.again) if row.again else "none"


def _tokens(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _runs(row: Row) -> str:
    if not row.fits:
        return "too large"
    if row.why_not:
        return "no"
    return "by hand" if row.by_hand else "yes"


def megatron_flags(question: Question, row: Row) -> str:
    """Return Megatron-LM's options for a row that it runs, one per line, as they are exported."""
    return megatron_export(question, row).data.decode()


def megatron_export(question: Question, row: Row) -> Exported:
    """Return what Megatron-LM is handed for a row that it runs."""
    published = published_in(row.name)
    lines = [f"# {row.name}: {published}"] if published else []
    lines += size_options(question.layers.tensor_parallel, question.layers.batch)
    if row.shape.stages > question.devices:
        each = row.shape.stages // question.devices
        lines.append(f"# {each} stages per rank (VPP), groups of {row.group or question.devices}")
        lines.append(f"# leave out {' and '.join(NOT_WITH_LAYOUT)}")
    if row.pairs:
        lines.append(f"# {OVERLAP_WANTS}")
    if row.again or row.candidate.first is not None:
        lines += recompute_options(row.candidate.first)
    lines.append(
        f"# --global-batch-size = {question.microbatches} x --micro-batch-size x data parallel size"
    )
    roles = {layer.role for layer in question.layers.layers}
    ends = {"embedding": "E (the embedding)", "head": "L (the loss)"}
    silent = " and ".join(text for role, text in ends.items() if role not in roles)
    if silent and not question.layers.hybrid:
        lines.append(f"# Megatron-LM wants {silent} in its layout, which times here do not count")
    text = layout_text_of(question.layers, row.partition, question.devices)
    if question.layers.hybrid:
        options = Options(pattern=text, flags=tuple(lines))
    else:
        counts = layout_of_partition(question.layers, row.partition).counts
        options = Options(layers=counts, layout=text, flags=tuple(lines))
    exported = EXPORTERS["megatron"](row.problem, row.schedule, options)
    if "order" not in exported.means:
        raise Fault(f"{row.name} is not the order that Megatron-LM runs")
    return exported


def needed_without(question: Question, row: Row) -> str:
    """Say what the plain schedule would need without recomputing; empty if it fits or is none."""
    if question.memory is None:
        return ""
    plain = question.candidate(row.shape, row.partition).problem
    name = SCHEDULES[row.shape.placement][0]
    try:
        peaks = peak_memory(plain, baseline(name, plain))
    except NotApplicable:
        return ""
    if max(peaks) <= question.memory:
        return ""
    needed = question.amount(max(peaks))
    there = question.amount(question.memory, rounded_down)
    return (
        f"without, {name} would need {needed} on rank {peaks.index(max(peaks))}, and there are "
        f"{there}"
    )
