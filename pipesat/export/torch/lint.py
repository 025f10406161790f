"""torch's ``compute_only`` CSV: its grammar, and the rules that an order must keep to run.

torch parses with a prefix match and takes ``0F0junk`` for ``0F0``; this does not. torch's own
validator counts sets: it misses duplicates, unknown microbatches, everything across ranks, and that
the last stage must run its forwards in microbatch order (else losses are assigned to the wrong
microbatch, in some cases silently). A bad file fails on one rank and hangs the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from pipesat.core.deadlock import Spot, circle, stops
from pipesat.core.ops import Kind

Letter: TypeAlias = Literal["F", "I", "W", "B"]

LETTER_OF: Final[dict[Kind, Letter]] = {"F": "F", "B": "I", "W": "W", "BW": "B"}
KIND_OF: Final[dict[Letter, Kind]] = {"F": "F", "I": "B", "W": "W", "B": "BW"}

_ACTION = re.compile(r"(0|[1-9][0-9]{0,8})([FIWB])(0|[1-9][0-9]{0,8})")
_OVERLAP = re.compile(r"\(([^()]+)\)OVERLAP_F_B")
_NOT_COMPUTE = re.compile(r"[0-9]+((SEND|RECV)_[FB][0-9]+|UNSHARD|RESHARD|REDUCE_GRAD)")


def communication_in(text: str) -> int:
    """Number of cells of a readable CSV that communicate, or gather and reduce weights."""
    return sum(1 for _ in _NOT_COMPUTE.finditer(text.replace(" ", "")))


class Action(NamedTuple):
    """One compute action of torch."""

    stage: int
    letter: Letter
    microbatch: int

    @property
    def kind(self) -> Kind:
        """Which kind of op it is."""
        return KIND_OF[self.letter]

    def __str__(self) -> str:
        return f"{self.stage}{self.letter}{self.microbatch}"


Cell: TypeAlias = tuple[Action, ...]
"""One cell: a single action, or the members of an overlapped one."""


def cell_text(cell: Cell) -> str:
    """Write a cell."""
    if len(cell) == 1:
        return str(cell[0])
    return f"({';'.join(map(str, cell))})OVERLAP_F_B"


def parse_cell(text: str) -> Cell | None:
    """Parse a cell; ``None`` for one that computes nothing (empty, communication, FSDP)."""
    text = text.replace(" ", "")
    if not text or _NOT_COMPUTE.fullmatch(text):
        return None
    overlap = _OVERLAP.fullmatch(text)
    members = overlap[1].split(";") if overlap else [text]
    actions = []
    for member in members:
        action = parse_action(member)
        if action is None:
            raise ValueError(
                f"{text!r} is no action: write <stage><F|I|W|B><microbatch>, as in 0F3, "
                "or (0F2;7B0)OVERLAP_F_B"
            )
        actions.append(action)
    return tuple(actions)


def parse_action(text: str) -> Action | None:
    """Parse one compute action; ``None`` if the text is none."""
    if match := _ACTION.fullmatch(text):
        stage, letter, microbatch = match.groups()
        return Action(int(stage), letter, int(microbatch))  # type: ignore[arg-type]
    return None


Rows = Sequence[Sequence[Cell]]


class Complaint(NamedTuple):
    """One broken rule and the cell that breaks it: row and column count from 1, 0 for none."""

    row: int
    column: int
    message: str

    def __str__(self) -> str:
        place = f"row {self.row}" if self.row else "the file"
        if self.column:
            place += f", cell {self.column}"
        return f"{place}: {self.message}"


class _Place(NamedTuple):
    row: int
    column: int


def lint(rows: Rows, stages: int, microbatches: int) -> list[Complaint]:
    """Return every broken rule of an order for a pipeline of so many stages and microbatches.

    Row i is rank i. Rules: no empty row; every (stage, microbatch) has F and either B, or I and W,
    once each, F before the backward and I before W; no cycle of waiting across ranks; the last
    stage's forwards in microbatch order. Which rank a stage is on, the problem says.
    """
    places: dict[Action, _Place] = {}
    complaints = [
        Complaint(r, 0, "this rank has no action; torch needs one stage per rank at least")
        for r, row in enumerate(rows, 1)
        if not row
    ]
    for r, row in enumerate(rows, 1):
        for c, cell in enumerate(row, 1):
            for action in cell:
                complaints += _take(places, action, _Place(r, c), stages, microbatches)
    complaints += _counts(places, stages, microbatches)
    complaints += _local_order(rows, places)
    complaints += _last_stage(places, stages)
    if not complaints:
        complaints += _cycle(rows, places, stages)
    return sorted(complaints)


def _take(
    places: dict[Action, _Place], action: Action, here: _Place, stages: int, microbatches: int
) -> Iterator[Complaint]:
    if action.stage >= stages:
        yield Complaint(*here, f"{action} names stage {action.stage} of {stages} (from 0)")
    elif action.microbatch >= microbatches:
        yield Complaint(
            *here, f"{action} names microbatch {action.microbatch} of {microbatches} (from 0)"
        )
    elif action in places:
        there = places[action]
        yield Complaint(
            *here, f"{action} stands twice, first in row {there.row}, cell {there.column}"
        )
    else:
        places[action] = here


def _counts(places: dict[Action, _Place], stages: int, microbatches: int) -> Iterator[Complaint]:
    for stage in range(stages):
        for m in range(microbatches):
            has = {x: Action(stage, x, m) in places for x in _LETTERS}
            rows = [places[Action(stage, x, m)] for x in _LETTERS if has[x]]
            row = rows[0].row if rows else 0
            if not has["F"]:
                yield Complaint(row, 0, f"{stage}F{m} is missing")
            if has["B"] and (has["I"] or has["W"]):
                other: Letter = "I" if has["I"] else "W"
                place = places[Action(stage, other, m)]
                yield Complaint(*place, f"{stage}{other}{m}, but {stage}B{m} is the whole backward")
            elif not has["B"] and not (has["I"] and has["W"]):
                missing = "W" if has["I"] else "I" if has["W"] else "B"
                yield Complaint(row, 0, f"{stage}{missing}{m} is missing")


_LETTERS: tuple[Letter, ...] = ("F", "I", "W", "B")
_BEFORE: dict[Letter, tuple[Letter, ...]] = {"I": ("F",), "B": ("F",), "W": ("I", "F"), "F": ()}


def _local_order(rows: Rows, places: dict[Action, _Place]) -> Iterator[Complaint]:
    for action, place in places.items():
        for letter in _BEFORE[action.letter]:
            other = Action(action.stage, letter, action.microbatch)
            earlier = places.get(other)
            if earlier is None or earlier.row != place.row:
                continue
            cell = rows[place.row - 1][place.column - 1]  # its members run in turn
            late_in_cell = earlier == place and cell.index(other) > cell.index(action)
            if earlier.column > place.column or late_in_cell:
                yield Complaint(*place, f"{action} stands before {other} (cell {earlier.column})")


def _last_stage(places: dict[Action, _Place], stages: int) -> Iterator[Complaint]:
    forwards = [a for a in places if a.stage == stages - 1 and a.letter == "F"]
    for expected, action in enumerate(sorted(forwards, key=lambda a: places[a])):
        if action.microbatch != expected:
            yield Complaint(
                *places[action],
                f"{action}: the last stage must run its forwards in microbatch order, expected "
                f"{stages - 1}F{expected}; torch would assign losses to the wrong microbatch",
            )
            return


def _cycle(rows: Rows, places: dict[Action, _Place], stages: int) -> Iterator[Complaint]:
    """Complain about a circle of waiting between cells, members named."""

    def waits(row: int, column: int) -> Iterator[Spot]:
        cell = rows[row][column]
        for source in (source for action in cell for source in _awaited(action, stages)):
            if source in places and source not in cell:
                yield places[source].row - 1, places[source].column - 1
        if column:
            yield row, column - 1

    lengths = [*map(len, rows)]
    if stops(lengths, waits) == lengths:
        return
    members = circle({(r, c): waits(r, c) for r, row in enumerate(rows) for c in range(len(row))})
    names = " -> ".join(
        ";".join(map(str, rows[r][c])) + f" (row {r + 1}, cell {c + 1})" for r, c in members
    )
    row, column = members[0]
    yield Complaint(row + 1, column + 1, f"these wait for each other: {names}")


def _awaited(action: Action, stages: int) -> Iterator[Action]:
    stage, letter, microbatch = action
    if letter == "F":
        if stage:
            yield Action(stage - 1, "F", microbatch)
    elif letter in ("I", "B"):
        if stage + 1 < stages:
            yield Action(stage + 1, "I", microbatch)
            yield Action(stage + 1, "B", microbatch)
        else:
            yield Action(stage, "F", microbatch)
