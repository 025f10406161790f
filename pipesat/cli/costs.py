"""Numbers, lists and shares on the command line, with errors that name the option."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pipesat.core.errors import BadInput
from pipesat.core.ops import KINDS, Kind
from pipesat.placement.documents import Costs
from pipesat.placement.from_numbers import costs_of as from_numbers
from pipesat.placement.pair_entries import TimeOrFactor

_NUMBER = re.compile(r"[0-9]{1,13}")
_SHARE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(%?)")
_PAIR_TIME = re.compile(r"(?:(F|BW|B|W)\+(F|BW|B|W)=)?([0-9]{1,18})(?:/([0-9]{1,18}))?")
_RATIO = re.compile(r"([0-9]{1,13})/([0-9]{1,13})")


def numbers(option: str, text: str) -> int | list[int]:
    """Read ``12`` or ``12,13,14``.

    Raises
    ------
    BadInput
        If it is neither.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(map(_NUMBER.fullmatch, words)):
        raise BadInput(
            "expected a whole number or several, separated by commas", where=option, value=text
        )
    values = [int(word) for word in words]
    return values[0] if len(values) == 1 else values


def ratio(option: str, text: str) -> tuple[int, int]:
    """Read ``3/4``.

    Raises
    ------
    BadInput
        If it is none.
    """
    match = _RATIO.fullmatch(text)
    if match is None:
        raise BadInput("expected NUM/DEN, as in 3/4", where=option, value=text)
    return int(match[1]), int(match[2])


def pair_times(option: str, texts: Sequence[str]) -> dict[tuple[Kind, Kind], TimeOrFactor]:
    """Read ``F+BW=129``, or ``129`` for these two kinds, each two kinds at most once.

    ``F+BW=3/4`` is a factor of what the two take alone.

    Raises
    ------
    BadInput
        If one is neither, or kinds are named twice.
    """
    found: dict[tuple[Kind, Kind], TimeOrFactor] = {}
    for text in texts:
        match = _PAIR_TIME.fullmatch(text)
        if match is None:
            expected = (
                "expected KIND+KIND=TIME or =NUM/DEN, kinds of F, B, W and BW, as in F+BW=129"
            )
            raise BadInput(expected, where=option, value=text)
        named = [kind for kind in KINDS if kind in (match[1] or "F", match[2] or "BW")]
        kinds = named[0], named[-1]
        if kinds in found:
            expected = f"expected each combination once; {kinds[0]}+{kinds[1]} is there already"
            raise BadInput(expected, where=option, value=text)
        found[kinds] = int(match[3]) if match[4] is None else (int(match[3]), int(match[4]))
    return found


def layers_per_stage(text: str | None, placements: object) -> list[int]:
    """Read ``--layers`` beside ``--placements``; empty if it is not given.

    Raises
    ------
    BadInput
        If it is unreadable, or nothing asks for other placements.
    """
    if text is None:
        return []
    if not placements:
        why = "says how --placements may cut the stages, which is not given"
        raise BadInput(why, where="--layers", value=text)
    values = numbers("--layers", text)
    return [values] if isinstance(values, int) else values


def costs_of(options: Mapping[str, str | None], layers: int | None, stages: int) -> list[Costs]:
    """Return the costs of layers, or of ``stages`` stages where nothing speaks of layers.

    ``options`` has a text per field of :class:`Costs`. One number stands for all entries; lists
    have one number per entry.

    Raises
    ------
    BadInput
        If a text is unreadable, or lists differ in length.
    """
    given = {field: numbers(_option(field), text) for field, text in options.items() if text}
    return from_numbers(given, layers, stages, _option)


def _option(field: str) -> str:
    return "--" + field.replace("_", "-")
