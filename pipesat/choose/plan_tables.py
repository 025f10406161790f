"""The tables of a plan: its stages, and its splits beside those that frameworks make."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from itertools import compress
from typing import Any, Final

from pipesat.choose.candidates import Candidate
from pipesat.choose.comparison import Cell, SplitRow
from pipesat.core.claims import percent
from pipesat.core.errors import NotApplicable
from pipesat.core.metrics import peak_memory
from pipesat.core.problem import Problem
from pipesat.core.schedule import Objective
from pipesat.core.showing import Column, Table, number
from pipesat.core.stage import COSTS
from pipesat.layers.layer import Layers
from pipesat.layers.megatron import layout_text_of

_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(\.\w+)*")

_LIKE = {
    "loop": "in a loop, interleaved-1f1b and interleaved-zb stand for 1F1B and ZB-H1",
    "vee": "in a V, zb-v stands for ZB-H1",
}


def stage_table(stages: Sequence[dict[str, Any]], devices: Sequence[dict[str, Any]]) -> Table:
    """Return a line per stage; a device's memory stands with its first stage."""
    most = max([device["load"] for device in devices], default=0)
    some_again = any(stage["recompute"] for stage in stages)
    several = len(stages) > len(devices)
    columns = [
        Column("stage"),
        Column("device"),
        Column("layers", number=False),
        Column("recom-\npute", number=False),
        Column("F"),
        Column("B"),
        Column("W"),
        Column("load", spare=2),
        Column("static", spare=3),
        Column("activa-\ntions", spare=4),
        Column("peak"),
        Column("cap", spare=1),
        Column("of cap", spare=1),
    ]
    shown: set[int] = set()
    rows = []
    for stage in stages:
        device = devices[stage["device"]]
        cells = [str(stage["stage"]), str(stage["device"]), _layers_text(stage)]
        cells += ["yes" if stage["recompute"] else "", *(str(stage[kind]) for kind in "FBW")]
        again = stage["device"] in shown
        shown.add(stage["device"])
        rows.append([*cells, *([""] * 6 if again else _of_device(device, most))])
    needed = [True, several, True, some_again] + [True] * (len(columns) - 4)
    return Table([*compress(columns, needed)], [[*compress(row, needed)] for row in rows])


def _of_device(device: dict[str, Any], most: int) -> list[str]:
    cap = device["memory"]
    return [
        percent(device["load"] / most if most else 0.0, 0),
        str(device["static"]),
        str(device["activations"]),
        str(device["peak"]),
        "-" if cap is None else str(cap),
        "-" if not cap else percent(device["peak"] / cap, 0),
    ]


def _layers_text(stage: dict[str, Any]) -> str:
    names, first = stage["layers"], stage["first_layer"]
    if not names:
        return "none"
    where = f"{first}" if len(names) == 1 else f"{first}-{first + len(names) - 1}"
    ends = names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]}"
    if ends == f"layer {where}":
        return where
    longest = 26
    return f"{where}  {ends if len(ends) <= longest else ends[: longest - 1] + '…'}"


def split_table(
    rows: Sequence[SplitRow], objective: Objective, placement: str, *, free: bool
) -> Table:
    """Return a line per split: the hand-written schedules on it, the best found, the bound."""
    heads = list(dict.fromkeys(name for row in rows for name in row.cells))
    columns = [
        Column("split", number=False),
        *(Column(head) for head in heads),
        Column("best order\nfound"),
        Column("bound of\nthis split", spare=2),
    ]
    longest, notes, lines, beyond = 30, [], [], False
    for row in rows:
        name = row.name if len(row.name) <= longest else row.name[: longest - 1] + "…"
        cells = [_cell(row.cells.get(head)) for head in heads]
        beyond = beyond or any(cell.startswith("(") for cell in cells)
        bound = row.bound(objective)
        least = None if bound is None else bound.value
        lines.append([name, *cells, number(row.best(objective)), number(least)])
        if row.why_not:
            notes.append(f"{row.name}: {row.why_not}")
    if beyond:
        notes.insert(0, "(in parentheses: needs more memory than there is)")
    if placement in _LIKE:
        notes.append(_LIKE[placement])
    if free:
        notes.append(
            "the splits above the plan recompute on the stages that 1F1B would not fit on; their "
            "bounds are for that choice"
        )
    return Table(columns, lines, notes=notes)


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
    peaks = peak_memory(problem, chosen.schedules[0])
    return [
        {
            "device": number,
            "load": load_of(problem, number),
            "static": device.static,
            "activations": peaks[number] - device.static,
            "peak": peaks[number],
            "memory": device.memory,
        }
        for number, device in enumerate(problem.devices)
    ]


def load_of(problem: Problem, device: int) -> int:
    """Least compute time of a device."""
    return sum(
        (problem.stages[s].F + problem.stages[s].least_backward_work) * problem.microbatches[s]
        for s in problem.stages_on[device]
    )


def layout_text(chosen: Candidate | None, layers: Layers) -> str | None:
    """Megatron-LM's layout, or a hybrid model's pattern; ``None`` if it has none, as in a V."""
    if chosen is None or chosen.shape.placement == "vee":
        return None
    with contextlib.suppress(NotApplicable):
        return layout_text_of(layers, chosen.partition)
    return None


def module_names(chosen: Candidate | None, layers: Layers) -> list[list[str]] | None:
    """Module names per stage, if the layers are named as modules are: at least one with a dot."""
    if chosen is None:
        return None
    names = [[layers.layers[k].name for k in part] for part in chosen.partition]
    flat = [name for stage in names for name in stage]
    if all(map(_DOTTED.fullmatch, flat)) and any("." in name for name in flat):
        return names
    return None
