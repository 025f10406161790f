"""Microbatches from their lengths in tokens: classes of a problem file (contract, section 8).

With x = length / reference, times scale by ``(1 - q) x + q x^2`` (q: the share of the reference's
time that grows with the square of the length, attention), held amounts and delays by x; each as a
factor ``n / 10^4``, n rounded up.

A sequence in slices: a slice of tokens a to b of it attends to all before b, so its time is that of
length b less that of length a; what it holds grows with b - a.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import groupby, pairwise
from math import ceil, isfinite
from numbers import Integral
from pathlib import Path
from typing import Any, Final, NamedTuple

from pipesat.core.amounts import share
from pipesat.core.arguments import public
from pipesat.core.complaint import InFile
from pipesat.core.errors import BadInput, require
from pipesat.core.settings import Slicing
from pipesat.core.strict_json import MOST, parse_json, read_text

DEN: Final = 10**4
_MOST_N: Final = 10**6


class Factors(NamedTuple):
    """Of times, and of held amounts and delays, in parts of :data:`DEN`."""

    time: int
    other: int


@public
def microbatches_from_lengths(
    lengths: Sequence[int],
    reference: float,
    quadratic: Fraction | float | str = 0,
    tolerance: Fraction | float = 0,
    source: str = "lengths",
) -> list[dict[str, Any]]:
    """Return ``microbatches`` of a problem document; they keep the numbers that the lengths have.

    Parameters
    ----------
    lengths
        Tokens of each microbatch.
    reference
        The length whose times and memory the stages have. A mean is rounded to a whole token.
    quadratic
        Share of the reference's time that grows with the square of the length, from 0 to 1, or
        ``"20%"``.
    tolerance
        By descending length, a length joins the current class if each of the class's factors is at
        most ``1 + tolerance`` times its own; the class has its first member's factors.

    Raises
    ------
    BadInput
        If a length is none, or its factor is outside 1 / 10^4 to 10^6 / 10^4.
    """
    require(
        0 <= tolerance <= 1000,
        "expected a number from 0 to 1000",
        where="tolerance",
        value=tolerance,
    )
    integral = (isinstance(x, Integral) and not isinstance(x, bool) for x in lengths)
    if all(integral):  # those of numpy and pandas
        lengths = [int(x) for x in lengths]
    whole = round(reference) if isfinite(reference) else 0
    factors = factors_of(lengths, whole, share("quadratic", quadratic), source)
    classes = _classes(factors, 1 + Fraction(str(tolerance)))
    return list(_entries(lengths, classes, factors))


def slices_from_lengths(
    lengths: Sequence[int],
    reference: int,
    quadratic: Fraction | float,
    slices: int,
    slicing: Slicing = "tokens",
    source: str = "lengths",
) -> list[dict[str, Any]]:
    """Return ``microbatches`` of a problem document: the slices of sequences, one after the other.

    Parameters
    ----------
    lengths, reference, quadratic
        As :func:`microbatches_from_lengths`, of whole sequences.
    slices
        How many each sequence is cut into.
    slicing
        Whether slices have equally many tokens, or take equally long: later ones are shorter then.

    Raises
    ------
    BadInput
        As :func:`microbatches_from_lengths`; or if a sequence has fewer tokens than slices.
    """
    q = Fraction(str(quadratic))

    def time(tokens: int) -> Fraction:
        x = Fraction(tokens, reference)
        return (1 - q) * x + q * x * x

    told, listed = set[tuple[int, int]](), list[dict[str, Any]]()
    for number, length in enumerate(lengths):
        if type(length) is not int or length < slices:
            raise BadInput(
                f"expected an integer from {slices}, a token for each slice",
                source=source,
                where=f"[{number}]",
                value=length,
            )
        cuts = [0]
        for part in range(1, slices):
            before = Fraction(part, slices)
            at = round(before * length)
            if slicing == "time":
                at = bisect_left(range(length), before * time(length), key=time)
            cuts.append(min(max(at, cuts[-1] + 1), length - slices + part))
        for a, b in pairwise([*cuts, length]):
            entry: dict[str, Any] = {"name": f"tokens {a} to {b - 1}", "count": 1}
            if (a, b) not in told:
                told.add((a, b))
                held = ceil(Fraction(b - a, reference) * DEN)
                own = Factors(ceil((time(b) - time(a)) * DEN), held)
                entry |= _said(own, source, number)
            listed.append(entry)
    return listed


def _said(own: Factors, source: str, number: int) -> dict[str, Any]:
    """What an entry says of its class's factors."""
    if not all(1 <= n <= _MOST_N for n in own):
        raise BadInput(
            f"its factor would be {max(own)}/10^4, expected 1 to 10^6 of these (see the reference)",
            source=source,
            where=f"[{number}]",
        )
    time, other = own
    return {"time": [time, DEN], "held": [other, DEN], "comm": [other, DEN]}


def factors_of(
    lengths: Sequence[int], reference: int, quadratic: Fraction | float, source: str = "lengths"
) -> dict[int, Factors]:
    """Return the factors of each length, in parts of 10^4."""
    require(
        type(reference) is int and 1 <= reference <= MOST,
        "expected an integer from 1 to 10^12",
        where="reference",
        value=reference,
    )
    require(0 <= quadratic <= 1, "expected a share from 0 to 1", where="quadratic", value=quadratic)
    _require(lengths, source)
    found: dict[int, Factors] = {}
    q = Fraction(str(quadratic))  # 0.3 is three tenths
    linear, square = (q.denominator - q.numerator) * reference, q.numerator
    den = q.denominator * reference * reference
    for number, length in enumerate(lengths):
        if length in found:
            continue
        time = -(-(linear * length + square * length * length) * DEN // den)
        found[length] = own = Factors(time, -(-length * DEN // reference))
        _said(own, source, number)
    return found


def _require(lengths: Sequence[Any], source: str) -> None:
    require(len(lengths), "expected at least one length", source=source)
    for number, length in enumerate(lengths):
        if type(length) is not int or not 1 <= length <= MOST:
            raise BadInput(
                "expected an integer from 1 to 10^12",
                source=source,
                where=f"[{number}]",
                value=InFile(length) if source else length,
            )


def read_lengths(path: str | Path) -> list[int]:
    """Read a JSON list, or a CSV of one column without a head."""
    text = read_text(Path(path))
    if text.lstrip().startswith("["):
        values: list[int] = parse_json(text, str(path))
        _require(values, str(path))
        return values
    found: list[int] = []
    for number, line in enumerate(text.splitlines(), 1):
        word = line.strip()
        if not word:
            continue
        if not (word.isascii() and word.isdigit()) or len(word) > 15:
            raise BadInput(
                "expected an integer, one per line, or a JSON list",
                source=str(path),
                where=f"line {number}",
                value=word,
            )
        found.append(int(word))
    _require(found, str(path))
    return found


def _classes(factors: dict[int, Factors], slack: Fraction) -> dict[int, int]:
    """Return the length that each length's class has its factors from."""
    found: dict[int, int] = {}
    first = None
    for length in sorted(factors, reverse=True):
        own = factors[length]
        joins = first is not None and all(
            of_class <= slack * n for of_class, n in zip(factors[first], own, strict=True)
        )
        if first is None or not joins:
            first = length
        found[length] = first
    return found


def _entries(
    lengths: Sequence[int], classes: dict[int, int], factors: dict[int, Factors]
) -> Iterator[dict[str, Any]]:
    """Yield a run of equal ones at a time; a class says its factors where it first stands."""
    told = set()
    for first, run in groupby(lengths, key=lambda length: classes[length]):
        entry: dict[str, Any] = {"name": str(first), "count": len(list(run))}
        if first not in told:
            told.add(first)
            entry |= _said(factors[first], "lengths", first)
        yield entry
