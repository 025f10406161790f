"""A schedule document taken apart: where and when every op runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_NUMBER = "(0|[1-9][0-9]*)"
_OP = re.compile(f"{_NUMBER}(F|BW|B|W){_NUMBER}", re.ASCII)
_COPY = re.compile(f"{_NUMBER}(O|L){_NUMBER}", re.ASCII)
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


class Copy(NamedTuple):
    """A copy to the host (O) or back (L)."""

    stage: int
    kind: str
    microbatch: int
    start: int
    end: int


@dataclass
class Timed:
    """``modes`` has the names of those that are not kept, ``copies`` each device's copies."""

    rows: list[list[Slot]]
    where: dict[Op, list[Where]] = field(default_factory=dict)
    modes: dict[tuple[int, int], str] = field(default_factory=dict)
    copies: list[list[Copy]] = field(default_factory=list)

    def copy_of(self, kind: str, stage: int, microbatch: int) -> Copy | None:
        for copy in (copy for row in self.copies for copy in row):
            if copy[:3] == (stage, kind, microbatch):
                return copy
        return None


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
    return timed, [*wrong, *_modes(document, timed), *_copies(document, timed, devices)]


def _modes(document: dict[str, Any], timed: Timed) -> Iterator[str]:
    for entry in document.get("modes", []):
        if len(entry) != 3 or [type(x) for x in entry] != [int, int, str]:
            yield f"{entry!r} is not [stage, microbatch, mode]"
        elif tuple(entry[:2]) in timed.modes:
            yield f"{entry!r}: a second mode"
        else:
            timed.modes[entry[0], entry[1]] = entry[2]


def _copies(document: dict[str, Any], timed: Timed, devices: int) -> Iterator[str]:
    rows = document.get("copies", [[] for _ in range(devices)])
    if len(rows) != devices:
        yield f"copies: not one list for each of {devices} devices"
        return
    for row in rows:
        timed.copies.append([])
        for text, start, end in row:
            found = _COPY.fullmatch(text)
            if found is None:
                yield f"{text!r} is not a copy"
            else:
                copy = Copy(int(found[1]), found[2], int(found[3]), start, end)
                timed.copies[-1].append(copy)


def op_text(op: Op) -> str:
    return f"{op.stage}{op.kind}{op.microbatch}"
