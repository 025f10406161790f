"""Amounts of memory with units, as users write them."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from pipesat.core.errors import BadInput
from pipesat.core.rounding import Rounding, rounded, rounded_up, significant

_AMOUNT: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([KMGT]i?B|B)", re.IGNORECASE)
MOST_BYTES: Final = 10**15
_POWERS: Final = {"B": 0, "K": 1, "M": 2, "G": 3, "T": 4}
SECONDS: Final = {
    "s": Fraction(1),
    "ms": Fraction(1, 10**3),
    "us": Fraction(1, 10**6),
    "ns": Fraction(1, 10**9),
}
"""Of the units of time that are shown as milliseconds."""
_PLAIN: Final = 100  # milliseconds: from here on one decimal is enough


def amount(option: str, text: str) -> int:
    """Read ``40GiB``, ``512 MiB``, ``80GB`` or ``1000B`` as bytes (GiB: 1024^3, GB: 1000^3).

    Raises
    ------
    BadInput
        If it has no unit or is no amount.
    """
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise BadInput("expected an amount with its unit, as 40GiB", where=option, value=text)
    unit = match[2].upper()
    base = 1024 if "I" in unit else 1000
    count = int(Fraction(match[1]) * base ** _POWERS[unit[0]])
    if count > MOST_BYTES:
        raise BadInput(f"expected at most {MOST_BYTES} bytes", where=option, value=text)
    return count


def amounts(option: str, text: str) -> int | list[int]:
    """Read one amount, or several separated by commas.

    Raises
    ------
    BadInput
        As :func:`amount`.
    """
    values = [amount(option, word) for word in text.split(",")]
    return values[0] if len(values) == 1 else values


def readable(size: int, towards: Rounding = rounded) -> str:
    """Show bytes with three digits: ``1.25 GiB``; ``towards`` says how they are rounded."""
    value, unit = Fraction(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1000 or unit == "TiB":
            break
        value /= 1024
    return f"{significant(value, 3, towards)} {unit}"


def bytes_of(unit: str) -> int | None:
    """Return the bytes of a unit of memory; ``None`` if it is not one of bytes."""
    try:
        return amount("memory_unit", f"1{unit}")
    except BadInput:
        return None


def memory_text(value: int, unit: str, towards: Rounding = rounded_up) -> str:
    """Show memory in GiB, MiB, ... where its unit is one of bytes: what is needed, rounded up."""
    each = bytes_of(unit)
    return f"{value:,} {unit}".rstrip() if each is None else readable(value * each, towards)


def time_text(value: int, unit: str, towards: Rounding = rounded) -> str:
    """Show a time in milliseconds where its unit is known; a lower limit with ``rounded_down``."""
    second = SECONDS.get(unit)
    if second is None:
        return f"{value:,} {unit}".rstrip()
    milliseconds = 1000 * value * second
    if milliseconds < _PLAIN:
        return f"{significant(milliseconds, 4, towards)} ms"
    whole, _, tenth = towards(milliseconds, 1).partition(".")
    return f"{int(whole):,}.{tenth} ms"
