"""Ops and overlapped pairs: what a device executes, and their text form.

An op's text is ``<stage><kind><microbatch>`` (``0F3``, ``7B0``, ``7W0``, ``2BW5``); an overlapped
pair's is ``(<F op>+<BW op>)``. ``str(op)`` and :func:`parse_item` are inverse to each other.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["F", "B", "W", "BW"]
"""F forward, B backward for the input, W backward for the weights, BW both fused."""

CopyKind: TypeAlias = Literal["O", "L"]
"""O copies what a stage holds out to the host, L loads it again."""

Phase: TypeAlias = Literal["F", "B", "W"]
"""What an op completes: B and BW both complete the phase ``B`` (the input gradient is there)."""

PHASE_OF: Final[dict[Kind, Phase]] = {"F": "F", "B": "B", "BW": "B", "W": "W"}


Event: TypeAlias = tuple[int, Phase, int]
"""A phase of (stage, phase, microbatch) is completed: what other ops wait for."""


class Op(NamedTuple):
    """One compute op: ``kind`` of ``stage`` on ``microbatch``.

    ``mode`` is the memory mode of that (stage, microbatch): 0 keep, i + 1 the stage's ``modes[i]``.
    Its text leaves the mode out.
    """

    stage: int
    kind: Kind
    microbatch: int
    mode: int = 0

    @property
    def event(self) -> Event:
        """What has happened when it ends."""
        return self.stage, PHASE_OF[self.kind], self.microbatch

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"

    def __repr__(self) -> str:
        return str(self)


class Pair(NamedTuple):
    """A forward and a fused backward that run at the same time on one device."""

    forward: Op
    backward: Op

    def __str__(self) -> str:
        return f"({self.forward}+{self.backward})"

    def __repr__(self) -> str:
        return str(self)


class Unreadable(NamedTuple):
    """A text that is no op; only the reader of schedule files makes these, for the checker."""

    text: str

    def __str__(self) -> str:
        return self.text


class Copy(NamedTuple):
    """A copy between device and host: ``O`` out, once F has ended, ``L`` back (load) after it.

    It runs on a copy channel of the stage's device and occupies no compute.
    """

    stage: int
    kind: CopyKind
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"

    def __repr__(self) -> str:
        return str(self)


Item: TypeAlias = Op | Pair
"""What stands in an order: one op, or one overlapped pair."""

_NUMBER = r"(0|[1-9][0-9]{0,8})"
_OP = re.compile(rf"{_NUMBER}(F|BW|B|W){_NUMBER}")
_COPY = re.compile(rf"{_NUMBER}(O|L){_NUMBER}")
_PAIR = re.compile(rf"\({_NUMBER}F{_NUMBER}\+{_NUMBER}BW{_NUMBER}\)")


def parse_item(text: str) -> Item:
    """Parse an op's or an overlapped pair's text.

    Raises
    ------
    ValueError
        If the whole text is not exactly one op or pair.
    """
    if match := _OP.fullmatch(text):
        stage, kind, microbatch = match.groups()
        return Op(int(stage), kind, int(microbatch))  # type: ignore[arg-type]
    if match := _PAIR.fullmatch(text):
        f_stage, f_microbatch, b_stage, b_microbatch = map(int, match.groups())
        return Pair(Op(f_stage, "F", f_microbatch), Op(b_stage, "BW", b_microbatch))
    raise ValueError(f"{text!r} is not an op: write <stage><F|B|W|BW><microbatch>, as in 0F3")


def parse_copy(text: str) -> Copy:
    """Parse a copy's text.

    Raises
    ------
    ValueError
        If the whole text is not exactly one copy.
    """
    if match := _COPY.fullmatch(text):
        stage, kind, microbatch = match.groups()
        return Copy(int(stage), kind, int(microbatch))  # type: ignore[arg-type]
    raise ValueError(f"{text!r} is not a copy: write <stage><O|L><microbatch>, as in 0O3")


def members(item: Item) -> tuple[Op, ...]:
    """Return the ops of an item: itself, or a pair's forward and backward."""
    return (item.forward, item.backward) if isinstance(item, Pair) else (item,)
