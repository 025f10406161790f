"""Printed figures against exact fractions: limits on their side of the truth, others nearest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

NUMBER = r"(<?[\d,]+(?:\.\d+)?)"


class Shown(NamedTuple):
    """A number as printed: its value, its last decimal's unit, and whether it is only above."""

    value: Fraction
    step: Fraction
    less: bool


def shown(text: str, percent: bool = True) -> Shown:
    digits = text.lstrip("<").replace(",", "")
    unit = 100 if percent else 1
    decimals = len(digits.partition(".")[2])
    return Shown(Fraction(digits) / unit, Fraction(1, unit * 10**decimals), text.startswith("<"))


def upper(text: str, exact: Fraction, percent: bool = True) -> bool:
    """Whether a printed upper limit is the least one with its digits."""
    found = shown(text, percent)
    return not found.less and exact <= found.value < exact + found.step


def lower(text: str, exact: Fraction, percent: bool = True) -> bool:
    """Whether a printed lower limit is the largest one with its digits."""
    found = shown(text, percent)
    if found.less:
        return 0 < exact < found.step
    return exact - found.step < found.value <= exact


def nearest(text: str, exact: Fraction, percent: bool = True) -> bool:
    """Whether a printed figure is nearest to the exact one; "1" and "100 %" only if exact."""
    found = shown(text, percent)
    if found.less:
        return 0 < exact < found.step
    off = abs(exact - found.value)
    return off <= found.step / 2 or (off < found.step and abs(exact - 1) <= found.step / 2)


def share(part: int, whole: int) -> Fraction:
    return Fraction(part, whole) if whole else Fraction(0)


def false_change(text: str, value: int, reference: int) -> str | None:
    """Hold "3.2 % shorter" or "longer" against two times."""
    found = re.search(NUMBER + r" % (shorter|longer)", text)
    if found is None:
        return None
    exact = share(abs(value - reference), reference)
    holds = nearest(found[1], exact)
    right = (value < reference) == (found[2] == "shorter")
    return None if holds and right else f"{found[0]!r}, but {value} against {reference}"


def false_gaps(text: str, value: int, bound: int) -> Iterator[str]:
    """Hold every printed limit on what is left to gain against its value and bound."""
    for found in re.finditer(rf"\bgap +{NUMBER} %|at most {NUMBER} % less is possible", text):
        if not upper(found[1] or found[2], share(value - bound, value)):
            yield f"{found[0]!r} with value {value} and bound {bound}"
