"""Ops and pairs of ops: what a device executes, and their text form.

An op's text is ``<stage><kind><microbatch>`` (``0F3``, ``7B0``, ``7W0``, ``2BW5``); a pair's is
``(<op>+<op>)``, as in ``(0F2+7BW0)``. ``str(op)`` and :func:`parse_item` are inverse to each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["F", "B", "W", "BW"]
"""F forward, B backward for the input, W backward for the weights, BW both fused."""

KINDS: Final[tuple[Kind, ...]] = ("F", "B", "W", "BW")

OpKind: TypeAlias = tuple[int, Kind]
"""All ops of one stage and kind: (stage, kind), as in ``0F``."""

CopyKind: TypeAlias = Literal["O", "L"]
"""O copies what a stage holds out to the host, L loads it again."""

Phase: TypeAlias = Literal["F", "B", "W"]
"""What an op completes: B and BW both complete the phase ``B`` (the input gradient is there)."""

PHASES: Final[tuple[Phase, ...]] = ("F", "B", "W")

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
    """Two ops that run as one on one device.

    :func:`pipesat.problem.rules.in_order` gives the order of the members that files use.
    """

    first: Op
    second: Op

    def __str__(self) -> str:
        return f"({self.first}+{self.second})"

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
"""What stands in an order: one op, or one pair."""

_NUMBER = r"(0|[1-9][0-9]{0,8})"
_KIND = r"(F|BW|B|W)"
_OP = re.compile(rf"{_NUMBER}{_KIND}{_NUMBER}")
_COPY = re.compile(rf"{_NUMBER}(O|L){_NUMBER}")
_PAIR = re.compile(rf"\({_NUMBER}{_KIND}{_NUMBER}\+{_NUMBER}{_KIND}{_NUMBER}\)")
_OP_KIND = re.compile(rf"{_NUMBER}{_KIND}")


def parse_item(text: str) -> Item:
    """Parse an op's or a pair's text; the members of a pair stay in the order of the text.

    Raises
    ------
    ValueError
        If the whole text is not exactly one op or pair.
    """
    known = text if isinstance(text, str) else ""
    if match := _OP.fullmatch(known):
        return _op(*match.groups())
    if match := _PAIR.fullmatch(known):
        groups = match.groups()
        return Pair(_op(*groups[:3]), _op(*groups[3:]))
    raise ValueError(f"{text!r} is not an op: write <stage><F|B|W|BW><microbatch>, as in 0F3")


def _op(stage: str, kind: str, microbatch: str) -> Op:
    return Op(int(stage), kind, int(microbatch))  # type: ignore[arg-type]


def parse_kind(text: str) -> OpKind:
    """Parse ``<stage><kind>``, as in ``7BW``.

    Raises
    ------
    ValueError
        If the whole text is not exactly that.
    """
    if isinstance(text, str) and (match := _OP_KIND.fullmatch(text)):
        stage, kind = match.groups()
        return int(stage), kind  # type: ignore[return-value]
    raise ValueError(f"{text!r} is not a kind of op: write <stage><F|B|W|BW>, as in 0F")


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
    """Return the ops of an item: itself, or a pair's two."""
    return (item.first, item.second) if isinstance(item, Pair) else (item,)


def with_ops(item: Item, change: Callable[[Op], Op]) -> Item:
    """Return an item with its ops changed."""
    return Pair(*map(change, item)) if isinstance(item, Pair) else change(item)
