"""Numbers, lists and shares on the command line, with errors that name the option."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pipesat.errors import BadInput
from pipesat.new_problem import costs_of as from_numbers
from pipesat.placements import Costs

_NUMBER = re.compile(r"[0-9]{1,13}")
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
            "expected a whole number or several, parted by commas", where=option, value=text
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
        raise BadInput("says how --placements may cut the stages, which is not given",
                       where="--layers", value=text)  # fmt: skip
    values = numbers("--layers", text)
    return [values] if isinstance(values, int) else values


def statement_of(layers: Sequence[int]) -> str:
    """What ``--layers`` states, to be repeated with every result that rests on it."""
    equal = len(set(layers)) == 1
    made = f"every stage is made of {layers[0]} equal layers" if equal else (
        f"the stages are made of {', '.join(map(str, layers))} layers, equal within a stage"
    )  # fmt: skip
    return f"as --layers states, {made}"


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
