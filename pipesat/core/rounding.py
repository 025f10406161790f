"""Numbers as text, rounded to the side on which what is said of them stays true.

An upper limit is rounded up and a lower one down, exactly: 5/19 is at most 26.32 %, and 123.464 ms
are at least 123.4 ms. A figure that limits nothing goes to the nearest. A double counts as the
shortest decimal that it is nearest to: 0.05 is 1/20.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

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
