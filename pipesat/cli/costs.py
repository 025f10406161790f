"""Numbers, lists and shares on the command line, with errors that name the option."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from pipesat.errors import BadInput
from pipesat.placements import Costs

_NUMBER = re.compile(r"[0-9]{1,13}")
_RATIO = re.compile(r"([0-9]{1,13})/([0-9]{1,13})")
_SHARE_OF_1F1B = re.compile(r"1f1b(?:\*([0-9]{1,9}(?:\.[0-9]{1,9})?))?")


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


def share_of_1f1b(text: str) -> Fraction | None:
    """Read ``1f1b*0.75`` (``1f1b`` is all of it); ``None`` if it is something else."""
    match = _SHARE_OF_1F1B.fullmatch(text.lower().replace(" ", ""))
    return None if match is None else Fraction(match[1] or 1)


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
    count, because = layers, "--layers"
    for field, values in given.items():
        if isinstance(values, list):
            if count is not None and len(values) != count:
                raise BadInput(
                    f"{len(values)} numbers, expected {count} as {because} says, or one for all",
                    where=_option(field),
                )
            count, because = len(values), _option(field) if layers is None else because
    entries = stages if count is None else count
    columns = {
        field: values if isinstance(values, list) else [values] * entries
        for field, values in given.items()
    }
    return [
        Costs(**{field: column[entry] for field, column in columns.items()})
        for entry in range(entries)
    ]


def _option(field: str) -> str:
    return "--" + field.replace("_", "-")
