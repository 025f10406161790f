"""The grammar of torch's ``compute_only`` CSV, parsed with full matches.

torch parses with a prefix match and takes ``0F0junk`` for ``0F0``; this does not.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, TypeAlias

from pipesat.core.ops import Copy, Kind

Letter: TypeAlias = Literal["F", "I", "W", "B"]

LETTER_OF: Final[dict[Kind, Letter]] = {"F": "F", "B": "I", "W": "W", "BW": "B"}
KIND_OF: Final[dict[Letter, Kind]] = {"F": "F", "I": "B", "W": "W", "B": "BW"}

_ACTION = re.compile(r"(0|[1-9][0-9]{0,8})([FIWB])(0|[1-9][0-9]{0,8})")
_COPY = re.compile(r"(0|[1-9][0-9]{0,8})([OL])(0|[1-9][0-9]{0,8})")
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
    """Parse a cell; ``None`` for one that computes nothing (empty, communication, FSDP).

    Raises
    ------
    ValueError
        If it is none of torch's actions.
    """
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


def parse_copy_word(text: str) -> Copy | None:
    """Parse a copy in torch's words, as ``2O3``: stages by place; ``None`` if the text is none."""
    if match := _COPY.fullmatch(text):
        stage, kind, microbatch = match.groups()
        return Copy(int(stage), kind, int(microbatch))  # type: ignore[arg-type]
    return None
