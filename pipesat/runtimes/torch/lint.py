"""torch's ``compute_only`` CSV: its grammar, and the rules that an order must keep to run.

torch parses with a prefix match and takes ``0F0junk`` for ``0F0``; this does not. torch's own
validator counts sets: it misses duplicates, unknown microbatches, everything across ranks, and that
the last stage must run its forwards in microbatch order (else losses are assigned to the wrong
microbatch, in some cases silently). A bad file fails on one rank and hangs the others.

A ``compute_comms`` dump has sends and receives too. That of some releases also says where each send
and each reduction of gradients is waited for; releases that differ so refuse each other's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final, Literal, NamedTuple, TypeAlias

from pipesat.core.torch_releases import RELEASES
from pipesat.problem.ops import Kind
from pipesat.schedule.deadlock import Spot, circle

Letter: TypeAlias = Literal["F", "I", "W", "B"]

LETTER_OF: Final[dict[Kind, Letter]] = {"F": "F", "B": "I", "W": "W", "BW": "B"}
KIND_OF: Final[dict[Letter, Kind]] = {"F": "F", "I": "B", "W": "W", "B": "BW"}

_ACTION = re.compile(r"(0|[1-9][0-9]{0,8})([FIWB])(0|[1-9][0-9]{0,8})")
_OVERLAP = re.compile(r"\(([^()]+)\)OVERLAP_F_B")
_NOT_COMPUTE = re.compile(
    r"([0-9]+)((?:SEND|RECV|WAIT_SEND)_[FB][0-9]+|UNSHARD|RESHARD|(?:WAIT_)?REDUCE_GRAD)"
)
WAIT: Final = "WAIT_"
"""How actions begin, after the stage, that some releases of torch have."""
_WAITS_FROM: Final = next(release.version for release in RELEASES if release.waits)


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
    actions = [parse_action(one) for one in (overlap[1].split(";") if overlap else [text])]
    if None in actions:
        raise ValueError(
            f"{text!r} is no action: write <stage><F|I|W|B><microbatch>, as in 0F3, "
            "or (0F2;7B0)OVERLAP_F_B"
        )
    return tuple(one for one in actions if one is not None)


def parse_action(text: str) -> Action | None:
    """Parse one compute action; ``None`` if the text is none."""
    if match := _ACTION.fullmatch(text):
        stage, letter, microbatch = match.groups()
        return Action(int(stage), letter, int(microbatch))  # type: ignore[arg-type]
    return None


Rows = Sequence[Sequence[Cell]]
Texts: TypeAlias = Sequence[Sequence[str]]
"""The cells of a file as they stand there, without blanks."""


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


def communication_in(texts: Texts) -> int:
    """Number of cells of a readable CSV that communicate, or gather and reduce weights."""
    return sum(_NOT_COMPUTE.fullmatch(text) is not None for row in texts for text in row)


def lint_waits(texts: Texts) -> Iterator[Complaint]:
    """Yield where torch refuses the waits of a file that has any.

    One wait after each send, for that send; at most one reduction of gradients of a rank is open.
    """
    if not any(WAIT in text for row in texts for text in row):
        return
    for r, row in enumerate(texts, 1):
        left: dict[str, int] = {}
        for c, text in enumerate(row, 1):
            if WAIT in text:
                if left.pop(begun := text.replace(WAIT, ""), None) is None:
                    yield Complaint(r, c, f"{text} waits for no {begun} before it")
            elif "SEND_" in text or "REDUCE_GRAD" in text:
                others = [o for o in left if o == text or "SEND_" not in o + text]
                if others:
                    yield Complaint(r, c, f"{text} begins before {others[0]} is waited for")
                left[text] = c
        for text, c in left.items():
            yield Complaint(
                r, c, f"nothing waits for {text}, as torch wants it from {_WAITS_FROM} on"
            )


def never_reduced(rows: Rows, texts: Texts) -> list[int]:
    """Return the stages whose gradients a file with sends and receives never reduces.

    torch scales them by the number of microbatches as it reduces them: without, they are that many
    times too large (ran, 2.13).
    """
    cells = {text for row in texts for text in row}
    if not any("SEND_" in text for text in cells):
        return []
    stages = {action.stage for row in rows for cell in row for action in cell}
    return sorted(stage for stage in stages if f"{stage}REDUCE_GRAD" not in cells)


def lint(rows: Rows, stages: int, microbatches: int) -> list[Complaint]:
    """Return every broken rule of an order for a pipeline of so many stages and microbatches.

    Row i is rank i. Rules: no empty row; every (stage, microbatch) has F and either B, or I and W,
    once each, F before the backward and I before W; no cycle of waiting across ranks; the last
    stage's forwards in microbatch order. Which rank a stage is on, the problem says.
    """
    places: dict[Action, Spot] = {}
    found = []
    for r, row in enumerate(rows, 1):
        if not row:
            text = "this rank has no action; torch needs one stage per rank at least"
            found.append(Complaint(r, 0, text))
        for c, cell in enumerate(row, 1):
            for action in cell:
                if action.stage >= stages:
                    text = f"{action} names stage {action.stage} of {stages} (from 0)"
                elif action.microbatch >= microbatches:
                    text = f"{action} names microbatch {action.microbatch} of {microbatches}"
                elif action in places:
                    text = "{} stands twice, first in row {}, cell {}".format(
                        action, *places[action]
                    )
                else:
                    places[action] = r, c
                    continue
                found.append(Complaint(r, c, text))
    for stage, microbatch in product(range(stages), range(microbatches)):
        found += _lacking(places, stage, microbatch)
    found += _local_order(rows, places)
    forwards = [a for a in places if a[:2] == (stages - 1, "F")]
    for expected, action in enumerate(sorted(forwards, key=places.__getitem__)):
        if action.microbatch != expected:
            text = (
                f"{action}: the last stage must run its forwards in microbatch order, expected "
                f"{stages - 1}F{expected}; torch would assign losses to the wrong microbatch"
            )
            found.append(Complaint(*places[action], text))
            break
    return sorted(found or _cycle(rows, places))


def _lacking(places: dict[Action, Spot], stage: int, microbatch: int) -> Iterator[Complaint]:
    """Complain where there is not exactly F and either B or I and W."""
    has = {
        x: places[a] for x in LETTER_OF.values() if (a := Action(stage, x, microbatch)) in places
    }
    row = next(iter(has.values()), (0, 0))[0]
    if "F" not in has:
        yield Complaint(row, 0, f"{stage}F{microbatch} is missing")
    half: Letter | None = "I" if "I" in has else "W" if "W" in has else None
    if "B" in has and half is not None:
        whole = f"{stage}B{microbatch} is the whole backward"
        yield Complaint(*has[half], f"{stage}{half}{microbatch}, but {whole} (in parts: I and W)")
    elif "B" not in has and not {"I", "W"} <= has.keys():
        missing = "B" if half is None else "W" if half == "I" else "I"
        yield Complaint(row, 0, f"{stage}{missing}{microbatch} is missing")


_BEFORE: dict[Letter, str] = {"I": "F", "B": "F", "W": "IF", "F": ""}


def _local_order(rows: Rows, places: dict[Action, Spot]) -> Iterator[Complaint]:
    for action, place in places.items():
        for letter in _BEFORE[action.letter]:
            other = action._replace(letter=letter)  # type: ignore[arg-type]
            there = places.get(other, (0, 0))
            cell = rows[place[0] - 1][place[1] - 1]  # its members run in turn
            late_in_cell = there == place and cell.index(other) > cell.index(action)
            if there[0] == place[0] and (there[1] > place[1] or late_in_cell):
                yield Complaint(*place, f"{action} stands before {other} (cell {there[1]})")


def _cycle(rows: Rows, places: dict[Action, Spot]) -> Iterator[Complaint]:
    """Complain about a circle of waiting between cells, members named."""
    waits: dict[Spot, list[Spot]] = {}
    for r, row in enumerate(rows, 1):
        for c, cell in enumerate(row, 1):
            sources = (source for action in cell for source in _awaited(action))
            found = [places[source] for source in sources if source in places]
            waits[r, c] = [spot for spot in found if spot != (r, c)] + [(r, c - 1)] * (c > 1)
    members = circle(waits)
    names = [f"{';'.join(map(str, rows[r - 1][c - 1]))} (row {r}, cell {c})" for r, c in members]
    if names:
        yield Complaint(*members[0], f"these wait for each other: {' -> '.join(names)}")


def _awaited(action: Action) -> Iterator[Action]:
    """Yield what may send an action its input: of a backward, I or B of the next stage."""
    by, letters = {"F": (-1, "F"), "W": (0, "")}.get(action.letter, (1, "IB"))
    for letter in letters:
        yield Action(action.stage + by, letter, action.microbatch)  # type: ignore[arg-type]
