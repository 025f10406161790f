"""Numbers and amounts as text, rounded to the side on which what is said of them stays true.

An upper limit is rounded up and a lower one down, exactly: 5/19 is at most 26.32 %, and 123.464 ms
are at least 123.4 ms. A figure that limits nothing goes to the nearest. A double counts as the
shortest decimal that it is nearest to: 0.05 is 1/20.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import count
from math import isfinite
from numbers import Integral
from typing import Final, TypeAlias

from pipesat.core.errors import BadInput, require

Number: TypeAlias = int | float | Fraction
Rounding: TypeAlias = Callable[[Number, int], str]


def rounded_up(number: Number, digits: int = 0) -> str:
    """Show an upper limit: the least number with so many decimals that is no less."""
    return _shown(math.ceil(exactly(number) * 10**digits), digits)


def rounded_down(number: Number, digits: int = 0) -> str:
    """Show a lower limit: the largest number with so many decimals that is no more."""
    return _shown(math.floor(exactly(number) * 10**digits), digits)


def rounded(number: Number, digits: int = 0, *, apart: int | None = None) -> str:
    """Show a figure that is no limit, as the nearest number, but ``apart`` only if it is that."""
    exact = exactly(number)
    steps = round(exact * 10**digits)
    if apart is not None and steps == apart * 10**digits:
        steps += (exact > apart) - (exact < apart)
    return _shown(steps, digits)


def significant(number: Number, digits: int, towards: Rounding = rounded) -> str:
    """Show a number of 0 or more with so many digits, decimals only: ``1.25``, ``40``, ``0.0031``.

    Zeros at the end of decimals are left out. ``towards`` is one of the functions above.
    """
    exact = exactly(number)
    before = math.floor(math.log10(exact)) + 1 if exact else 1
    text = towards(exact, max(0, digits - before))
    return text.rstrip("0").rstrip(".") if "." in text else text


def exactly(number: Number) -> Fraction:
    """Return a number as a fraction."""
    return Fraction(repr(float(number))) if isinstance(number, float) else Fraction(number)


def _shown(steps: int, digits: int) -> str:
    whole, rest = divmod(abs(steps), 10**digits)
    return f"{'-' if steps < 0 else ''}{whole}" + (f".{rest:0{digits}}" if digits else "")


_MEASURE: Final = re.compile(r"(?:(1e-[0-9]{1,2}|[0-9]{1,15}(?:\.[0-9]{1,9})?) ?)?([^\W\d_]+)")
_SHARE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(%?)")
_FACTOR = re.compile(r"([0-9]{1,13})/([0-9]{1,13})")
_RATE: Final = re.compile(r"[0-9]{1,13}(\.[0-9]{1,12})?|[0-9]{1,13}/[0-9]{1,13}")
MOST_BYTES: Final = 10**15
_BYTES: Final = {"b": Fraction(1)} | {
    f"{letter}{i}b": Fraction(base**power)
    for power, letter in enumerate("kmgt", 1)
    for i, base in (("", 1000), ("i", 1024))
}
_TIMES: Final = ("s", "ms", "us", "ns")
_MICRO: Final = ("\u00b5s", "\u03bcs")  # micro sign, Greek mu
_SECONDS: Final = {name: Fraction(1, 1000**n) for n, name in enumerate(_TIMES)} | dict.fromkeys(
    _MICRO, Fraction(1, 10**6)
)
SHARE: Final = re.compile(r"1e-(\d{1,2}) (.+?)s?")
"""Units of memory that are a power of ten of another one, as ``1e-4 stage activation``."""
_EVERY: Final = 60  # digits
_PLAIN: Final = 100  # milliseconds: from here on one decimal is enough


def amount(option: str, text: str) -> int:
    """Read ``40GiB``, ``512 MiB``, ``80GB`` or ``1000B`` as bytes (GiB: 1024^3, GB: 1000^3).

    Raises
    ------
    BadInput
        If it has no unit or is no amount.
    """
    size = _measured(text.lower(), _BYTES) if text.strip()[:1].isdecimal() else None
    if size is None:
        raise BadInput("expected an amount with its unit, as 40GiB", where=option, value=text)
    require(size <= MOST_BYTES, f"expected at most {MOST_BYTES} bytes", where=option, value=text)
    return int(size)


def _measured(text: str, sizes: Mapping[str, Fraction]) -> Fraction | None:
    """Read ``40gib``, or a unit: a name alone, or a number of it as ``1e-3 gib``."""
    match = _MEASURE.fullmatch(text.strip())
    size = sizes.get(match[2]) if match else None
    return Fraction(match[1] or 1) * size if match and size else None


def unit_for(amounts: Sequence[object]) -> str:
    """Return a unit in which all amounts are whole numbers; empty if any of them has no unit.

    It is a binary one or one that they name, or a part of it as ``1e-1 GiB``: of those with the
    fewest digits the largest.
    """
    texts = [one.strip() for one in amounts if isinstance(one, str)]
    sizes = [_measured(text.lower(), _BYTES) for text in texts]
    if not texts or len(texts) < len(amounts) or None in sizes:
        return ""
    names = {match[2] for match in map(_MEASURE.fullmatch, texts) if match} | {*_UNITS}

    def digits(unit: str) -> int:
        each = _BYTES[unit.lower()]
        return next(n for n in count() if all((10**n * x / each).denominator == 1 for x in sizes))

    unit = min(sorted(names), key=lambda name: (digits(name), -_BYTES[name.lower()]))
    return f"1e-{parts} {unit}" if (parts := digits(unit)) else unit


def in_bytes(where: str, given: int | str | Sequence[int | str]) -> int | list[int]:
    """Return bytes: numbers of them, or texts with their unit.

    Raises
    ------
    BadInput
        As :func:`amount`.
    """
    if isinstance(given, int | str):
        return given if isinstance(given, int) else amount(where, given)
    return [one if isinstance(one, int) else amount(where, one) for one in given]


def in_unit(
    where: str,
    given: int | str | Sequence[int | str],
    unit: str,
    *,
    limit: bool = False,
    free: bool = False,
) -> int | list[int]:
    """Return memory in a file's unit: numbers of it, or texts such as 80GiB if it is one of bytes.

    A ``limit`` is rounded down: all that is held is whole numbers of units, so nothing less fits.
    What stays ``free`` is rounded up.
    A text of several, separated by commas, is a list.

    Raises
    ------
    BadInput
        If it is neither, or no whole number of units.
    """
    if isinstance(given, str) and "," in given:
        given = given.split(",")
    if isinstance(given, str | int | Integral):
        return _of_unit(where, given, unit, limit=limit, free=free)
    return [_of_unit(where, each, unit, limit=limit, free=free) for each in given]


def _of_unit(where: str, given: int | str, unit: str, *, limit: bool, free: bool) -> int:
    if not isinstance(given, str):
        return given
    word = given.strip()
    if re.fullmatch("[0-9]{1,13}", word):
        return int(word)
    each = bytes_of(unit)
    stated = f" in {unit}" if unit else ", as no memory unit is stated: give each its unit, or none"
    plain = f"a whole number{stated}"
    if each is None:
        raise BadInput(f"expected {plain}", where=where, value=given)
    size = _measured(word.lower(), _BYTES) if word[:1].isdecimal() else None
    if size is None or size > MOST_BYTES:
        raise BadInput(f"expected an amount as 40GiB or 80GB, or {plain}", where=where, value=given)
    number = size / each
    if number.denominator > 1 and not limit and not free:
        near, fits = significant(number, 6), unit_for([word])
        raise BadInput(
            f"expected {plain}, and it is {near}. In the memory unit '{fits}' it is one",
            where=where,
            value=given,
        )
    return math.ceil(number) if free else math.floor(number)


def one_in_unit(
    where: str, given: int | str, unit: str, *, limit: bool = False, free: bool = False
) -> int:
    """Return one amount as of :func:`in_unit`.

    Raises
    ------
    BadInput
        If it is none, or there are several.
    """
    value = in_unit(where, given, unit, limit=limit, free=free)
    if isinstance(value, list):
        raise BadInput("expected one amount for all devices", where=where, value=given)
    return value


def rate(where: str, given: float | Fraction | str) -> Fraction:
    """Return ``50``, ``0.5`` or ``1/3``, a number or a text: above 0, at most 10^13.

    Raises
    ------
    BadInput
        If it is none.
    """
    if not isinstance(given, str):
        found = Fraction(str(given)) if isfinite(given) else Fraction(0)
    elif _RATE.fullmatch(word := given.strip()) and word.rpartition("/")[2].strip("0") not in (
        "",
        ".",
    ):
        found = Fraction(word)
    else:
        found = Fraction(0)
    require(found > 0, "expected a number above 0, as 50, 0.5 or 1/3", where=where, value=given)
    return found


def factor(where: str, text: str) -> tuple[int, int]:
    """Return ``3/4`` as (num, den), each from 1 to 10^12.

    Raises
    ------
    BadInput
        If it is none.
    """
    match = _FACTOR.fullmatch(text)
    found = (0, 0) if match is None else (int(match[1]), int(match[2]))
    require(
        all(1 <= number <= 10**12 for number in found),
        "expected NUM/DEN, as in 3/4",
        where=where,
        value=text,
    )
    return found


def share(where: str, given: float | Fraction | str, most: int = 1) -> Fraction:
    """Return a share: ``5%``, ``0.05``, or a number; above 1, up to ``most``, in percent alone.

    Raises
    ------
    BadInput
        If it is none.
    """
    if isinstance(given, str):
        match = _SHARE.fullmatch(given.strip())
        value = Fraction(match[1]) / (100 if match[2] else 1) if match else Fraction(-1)
    else:
        value = Fraction(str(given)) if isfinite(given) else Fraction(-1)
    require(
        0 <= value <= (most if "%" in str(given) else 1),
        "expected a share from 0 to 1, or a percentage as in 5%",
        where=where,
        value=given,
    )
    return value


def readable(size: Number, towards: Rounding = rounded) -> str:
    """Show bytes with three digits: ``1.25 GiB``; ``towards`` says how they are rounded."""
    value, unit = Fraction(size), "B"
    for unit in _UNITS:
        if value < 1000 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{significant(value, 3, towards)} {unit}"


_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def _bytes_shown(text: str) -> Fraction:
    number, unit = text.split()
    power: int = 1024 ** _UNITS.index(unit)
    return Fraction(number) * power


@cache
def bytes_of(unit: str) -> Fraction | None:
    """Return the bytes of a unit of memory, as MiB or 1e-1 GiB; ``None`` if it is none of bytes."""
    return _measured(unit.lower(), _BYTES) or None


@cache
def seconds_of(unit: str) -> Fraction | None:
    """Return the seconds of a unit of time, as us or 100 us; ``None`` if it is none of seconds."""
    return _measured(unit, _SECONDS) or None


def whole_times(times: Mapping[str, Sequence[Number]], unit: str) -> tuple[int, str]:
    """Return how many of the next finer unit one is, in which all times are whole, and that unit.

    Raises
    ------
    BadInput
        If there is none down to nanoseconds, or the unit is not one of time.
    """
    scale = 1
    while odd := next(((k, v) for k, row in times.items() for v in row if v * scale % 1), None):
        require(
            unit in _TIMES[:-1],
            "expected an integer, or decimals of s, ms or us (time=ms) down to whole ns",
            where=odd[0],
            value=float(odd[1]),
        )
        unit, scale = _TIMES[_TIMES.index(unit) + 1], 1000 * scale
    return scale, unit


def memory_text(
    value: int, unit: str, towards: Rounding = rounded_up, *, within: int | None = None
) -> str:
    """Show memory in GiB, MiB, ... where its unit is one of bytes: what is needed, rounded up.

    Parts of another unit, as ``1e-4 stage activation``, are shown in that one, exactly. ``within``
    is a capacity that is shown beside it, rounded down. What fits is never shown as more than that;
    what does not fit always is.
    """
    each = bytes_of(unit)
    if each is not None:
        text = readable(value * each, towards)
        if within is None or value > within:
            return text
        limit = readable(within * each, rounded_down)
        return min(text, limit, key=_bytes_shown)
    number, unit = in_whole_units(value, unit)
    return f"{number} {unit}".rstrip()


def in_whole_units(value: int, unit: str) -> tuple[str, str]:
    """Show an amount in a unit that is a part of another one in the latter, exactly."""
    if not (share := SHARE.fullmatch(unit)):
        return f"{value:,}", unit
    parts = 10 ** int(share[1])
    decimals = f"{value % parts:0{share[1]}d}".rstrip("0") if parts > 1 else ""
    return f"{value // parts:,}.{decimals}".rstrip("."), f"{share[2]}s"


def time_text(value: Number, unit: str, towards: Rounding = rounded) -> str:
    """Show a time in milliseconds where its unit is known; a lower limit with ``rounded_down``."""
    second = seconds_of(unit)
    if second is None:
        text = f"{value:,}" if isinstance(value, int) else significant(value, 6, towards)
        return f"{text} {unit}".rstrip()
    milliseconds = 1000 * value * second
    if milliseconds < _PLAIN:
        return f"{significant(milliseconds, 4, towards)} ms"
    whole, _, tenth = towards(milliseconds, 1).partition(".")
    return f"{int(whole):,}.{tenth} ms"


def exact_text(value: int, unit: str) -> str:
    """Show every digit; a unit with a number in front is multiplied out: ``500 us``, ``0.5 GiB``.

    Parts of what is no unit of time or bytes are shown as :func:`in_whole_units` does.
    """
    match = _MEASURE.fullmatch(unit)
    if match is None or not match[1]:
        number, unit = in_whole_units(value, unit) if SHARE.fullmatch(unit) else (value, unit)
        return f"{number} {unit}".rstrip()
    return f"{significant(value * Fraction(match[1]), _EVERY)} {match[2]}"


def memory_cell(value: int, unit: str) -> str:
    """Show memory as a table's cell does: parts of a unit without it, as the table names it."""
    if bytes_of(unit) is None and SHARE.fullmatch(unit):
        return in_whole_units(value, unit)[0]
    return memory_text(value, unit)


def time_cell(value: float | None, unit: str, towards: Rounding = rounded) -> str:
    """Show a time as a table's cell does: a plain number, in ms where the unit is known."""
    if value is None:
        return "-"
    return time_text(round(value), unit, towards).split()[0].replace(",", "")


def unit_of_cells(unit: str) -> str:
    """Return the unit of :func:`time_cell`."""
    return "ms" if seconds_of(unit) else unit
