"""The tables of a plan: its stages, and its splits beside those that frameworks make."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pipesat.advise.candidates import Candidate
from pipesat.advise.comparison import Cell, SplitRow
from pipesat.core.claims import percent, ratio
from pipesat.core.errors import NotApplicable
from pipesat.core.showing import Column, Line, Table, number
from pipesat.layers.layer import Layers
from pipesat.layers.megatron import layout_text_of
from pipesat.problem.problem import Problem
from pipesat.problem.stage import COSTS
from pipesat.schedule.metrics import peak_memory

_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(\.\w+)*")
_LONGEST: Final = 30  # names
_LIKE: Final = {
    "loop": "in a loop, interleaved-1f1b and interleaved-zb stand for 1F1B and ZB-H1",
    "vee": "in a V, zb-v stands for ZB-H1",
}


def by_columns(
    cells: Mapping[Column, Sequence[str]], title: str = "", notes: Sequence[str] = ()
) -> Table:
    """Return a table of columns; those without an entry are left out."""
    shown = {column: texts for column, texts in cells.items() if any(texts)}
    return Table(
        [*shown],
        [[*line] for line in zip(*shown.values(), strict=True)],
        title,
        [*filter(None, notes)],
    )


def stage_table(candidate: Candidate, layers: Layers, units: str) -> Table:
    """Return a line per stage; a device's memory stands with its first stage."""
    stages, devices = stages_of(candidate, layers), devices_of(candidate)
    several, most = len(stages) > len(devices), max(device["load"] for device in devices)
    firsts = {stage["device"]: stage["stage"] for stage in reversed(stages)}

    def of_device(text: Callable[[dict[str, Any]], str]) -> list[str]:
        own = {firsts[d["device"]]: text(d) for d in devices if d["device"] in firsts}
        return [own.get(stage["stage"], "") for stage in stages]

    return by_columns(
        {
            Column("stage"): [str(s["stage"]) for s in stages],
            Column("device"): [str(s["device"]) if several else "" for s in stages],
            Column("layers", number=False): [_layers_text(s) for s in stages],
            Column("recom-\npute", number=False): ["yes" * s["recompute"] for s in stages],
            **{Column(kind): [str(s[kind]) for s in stages] for kind in "FBW"},
            Column("load", spare=2): of_device(lambda d: percent(ratio(d["load"], most) or 0.0, 0)),
            Column("static", spare=3): of_device(lambda d: number(d["static"])),
            Column("activa-\ntions", spare=4): of_device(lambda d: number(d["activations"])),
            Column("peak"): of_device(lambda d: number(d["peak"])),
            Column("cap", spare=1): of_device(lambda d: number(d["memory"])),
            Column("of cap", spare=1): of_device(
                lambda d: percent(ratio(d["peak"], d["memory"]), 0)
            ),
        },
        notes=[units],
    )


def _layers_text(stage: dict[str, Any]) -> str:
    names, first = stage["layers"], stage["first_layer"]
    if not names:
        return "none"
    where = f"{first}" if len(names) == 1 else f"{first}-{first + len(names) - 1}"
    ends = names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]}"
    return where if ends == f"layer {where}" else f"{where}  {_short(ends)}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def split_table(rows: Sequence[SplitRow], free: bool, units: str) -> Table:
    """Return a line per split: its hand-written schedules, the best found, its memory and bound.

    Below a split that is better than the plan stands why it is not taken.
    """
    heads = dict.fromkeys(name for row in rows for name in row.cells)
    cells = {head: [_cell(row.cells.get(head)) for row in rows] for head in heads}
    bounds = [row.bound for row in rows]
    notes = [units]
    notes += [f"{row.name} ({row.placement}): {row.why_not}" for row in rows if row.why_not]
    if any(text.startswith("(") for texts in cells.values() for text in texts):
        notes.insert(0, "(in parentheses: needs more memory than there is)")
    placements = dict.fromkeys(row.shape.placement for row in rows)
    notes += [_LIKE[placement] for placement in placements if placement in _LIKE]
    if free:
        notes.append(
            "the splits above the plan recompute on the stages that 1F1B would not fit on; their "
            "bounds are for that choice"
        )
    table = by_columns(
        {
            Column("split", number=False): [row.short for row in rows],
            Column("placement", number=False): [row.placement for row in rows],
            **{Column(head): texts for head, texts in cells.items()},
            Column("best order\nfound"): [number(row.best) for row in rows],
            Column("most memory\non a device", spare=1): [_fullest(row) for row in rows],
            Column("bound of\nthis split", spare=2): [
                number(None if bound is None else bound.value) for bound in bounds
            ],
        },
        notes=notes,
    )
    lines: list[Line] = []
    better = [id(row) for row in better_outside(rows)]
    for row, line in zip(rows, table.lines, strict=True):
        lines += [line, *([f"  not taken: {row.outside}"] if id(row) in better else [])]
    return replace(table, lines=lines)


def better_outside(rows: Sequence[SplitRow]) -> list[SplitRow]:
    """Return splits that were no part of the search, and are better than the plan, the last row."""
    value = rows[-1].best if rows else None
    found = [(row, row.best) for row in rows if row.outside]
    return [row for row, best in found if best is not None and (value is None or best < value)]


def _fullest(row: SplitRow) -> str:
    """Show the peak of the fullest device, and which it is."""
    if row.fullest is None or not any(row.peaks):
        return ""
    text = f"{row.peaks[row.fullest]} on {row.fullest}"
    return f"({text})" if row.best is None else text


def _cell(cell: Cell | None) -> str:
    if cell is None or cell.value is None:
        return "-"
    return str(cell.value) if cell.fits else f"({cell.value})"


def stages_of(chosen: Candidate | None, layers: Layers) -> list[dict[str, Any]]:
    """Every stage: device, layers, costs."""
    if chosen is None:
        return []
    return [
        {
            "stage": number,
            "device": stage.device,
            "layers": [layers.layers[k].name for k in part],
            "first_layer": part.start,
            "recompute": flag,
        }
        | {kind: getattr(stage, kind) for kind in COSTS}
        for number, (part, stage, flag) in enumerate(
            zip(chosen.partition, chosen.problem.stages, chosen.flags, strict=True)
        )
    ]


def devices_of(chosen: Candidate | None) -> list[dict[str, Any]]:
    """Every device: load, memory by kind, capacity."""
    if chosen is None:
        return []
    problem = chosen.problem
    peaks, loads = peak_memory(problem, chosen.schedules[0]), loads_of(problem)
    return [
        {
            "device": number,
            "load": loads[number],
            "static": device.static,
            "activations": peaks[number] - device.static,
            "peak": peaks[number],
            "memory": device.memory,
        }
        for number, device in enumerate(problem.devices)
    ]


def works_of(problem: Problem) -> list[int]:
    """Least compute time of every stage."""
    counts = zip(problem.stages, problem.microbatches, strict=True)
    return [(stage.F + stage.least_backward_work) * count for stage, count in counts]


def loads_of(problem: Problem) -> list[int]:
    """Least compute time of every device."""
    each = works_of(problem)
    return [sum(each[stage] for stage in own) for own in problem.stages_on]


def layout_text(chosen: Candidate | None, layers: Layers) -> tuple[str | None, str]:
    """Megatron-LM's layout, or a hybrid model's pattern; else ``None`` and why there is none.

    Nothing is said of a V, in which Megatron-LM places nothing.
    """
    if chosen is None or chosen.shape.placement == "vee":
        return None, ""
    try:
        return layout_text_of(layers, chosen.partition, chosen.shape.devices), ""
    except NotApplicable as error:
        return None, str(error)


def module_names(chosen: Candidate | None, layers: Layers) -> list[list[str]] | None:
    """Module names per stage, if the layers are named as modules are: at least one with a dot."""
    if chosen is None:
        return None
    names = [[layers.layers[k].name for k in part] for part in chosen.partition]
    flat = [name for stage in names for name in stage]
    return names if all(map(_DOTTED.fullmatch, flat)) and any("." in x for x in flat) else None
