"""A schedule document taken apart: where and when every op runs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_NUMBER = "(0|[1-9][0-9]*)"
_OP = re.compile(f"{_NUMBER}(F|BW|B|W){_NUMBER}", re.ASCII)
_PAIR = re.compile(r"\(([^()+]+)\+([^()+]+)\)", re.ASCII)


class Op(NamedTuple):
    stage: int
    kind: str
    microbatch: int


class Slot(NamedTuple):
    """One entry of a device's list; two ops are a pair."""

    ops: tuple[Op, ...]
    start: int
    end: int


class Where(NamedTuple):
    device: int
    position: int
    start: int
    end: int


@dataclass
class Timed:
    rows: list[list[Slot]]
    where: dict[Op, list[Where]] = field(default_factory=dict)


def read_op(text: str) -> Op | None:
    found = _OP.fullmatch(text)
    return None if found is None else Op(int(found[1]), found[2], int(found[3]))


def read_slot(entry: Any) -> Slot | str:
    """Read ``[text, start, end]``, or say what is wrong with it."""
    if not isinstance(entry, list) or len(entry) != 3:
        return f"{entry!r} is not [op, start, end]"
    text, start, end = entry
    if not isinstance(text, str) or type(start) is not int or type(end) is not int:
        return f"{entry!r} has the wrong types"
    pair = _PAIR.fullmatch(text)
    ops = [read_op(word) for word in (pair.groups() if pair else [text])]
    known = tuple(op for op in ops if op is not None)
    return Slot(known, start, end) if len(known) == len(ops) else f"{text!r} is not an op"


def read_timed(document: Any, devices: int) -> tuple[Timed, list[str]]:
    """Return the schedule and everything about its form that is wrong."""
    wrong = []
    if not isinstance(document, dict) or document.get("format") != "pipesat.schedule/1":
        return Timed([]), ["format"]
    rows = document.get("devices")
    if not isinstance(rows, list) or len(rows) != devices:
        return Timed([]), [f"not one list for each of {devices} devices"]
    timed = Timed([[] for _ in rows])
    for device, row in enumerate(rows):
        for position, entry in enumerate(row):
            slot = read_slot(entry)
            if isinstance(slot, str):
                wrong.append(slot)
                continue
            timed.rows[device].append(slot)
            for op in slot.ops:
                here = Where(device, position, slot.start, slot.end)
                timed.where.setdefault(op, []).append(here)
    return timed, wrong


def op_text(op: Op) -> str:
    return f"{op.stage}{op.kind}{op.microbatch}"
