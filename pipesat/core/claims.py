"""What pipesat says of a value: what is proven of it, what beats it, by how much it differs.

Every table, sentence, file and picture takes gaps, statuses, ratios and changes from here; no one
else computes them. A claim that contradicts itself cannot be built: :class:`Contradiction` is
raised in its place, so it is never printed. What can be gained at most is a limit and rounded up.
How two known values differ is exact, and goes to the nearest (:mod:`pipesat.core.amounts`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

from pipesat.core.amounts import Number, exactly, rounded, rounded_up
from pipesat.core.errors import Contradiction

Status: TypeAlias = Literal["optimal", "feasible", "infeasible", "unknown"]


class Bound(NamedTuple):
    """A value that no schedule can go below, and the argument that proves it.

    ``value`` is in the problem's time unit. ``source`` is a formula of proofs/bounds.md by name, or
    ``CP-SAT``: the search has shown it for the whole problem. ``CP-SAT on rank 3 alone`` has shown
    it for a relaxation, in which the other devices may do anything at any time.
    """

    value: int
    source: str

    def __repr__(self) -> str:
        return f"{self.value} ({self.source})"


@dataclass(frozen=True)
class Standing:
    """A checked value, or none, and a bound that no schedule goes below, or none.

    Attributes
    ----------
    infeasible
        Whether it is proven that no schedule exists.
    of
        What the value is of, for the message of a contradiction.

    Raises
    ------
    Contradiction
        If the bound is above the value, or there is a value of what is infeasible.
    """

    value: int | None
    bound: int | None
    infeasible: bool = False
    of: str = "value"

    def __post_init__(self) -> None:
        if self.value is None:
            return
        if self.infeasible:
            raise Contradiction(
                f"{self.of}: proven infeasible, but a checked schedule has {self.value}"
            )
        if self.bound is not None and self.bound > self.value:
            raise Contradiction(
                f"{self.of}: proven to be at least {self.bound}, but a checked schedule has "
                f"{self.value}"
            )

    @property
    def proven(self) -> bool:
        """Whether nothing better exists."""
        return self.value is not None and self.value == self.bound

    @property
    def status(self) -> Status:
        """``optimal`` if and only if the checked value is the bound."""
        if self.infeasible:
            return "infeasible"
        if self.value is None:
            return "unknown"
        return "optimal" if self.proven else "feasible"

    @property
    def gap(self) -> float | None:
        """``(value - bound) / value``; 0 where both are 0, ``None`` where one is unknown."""
        return None if self._gap is None else float(self._gap)

    @property
    def _gap(self) -> Fraction | None:
        if self.value is None or self.bound is None:
            return None
        return Fraction(self.value - self.bound, self.value or 1)

    def gap_text(self, digits: int = 2) -> str:
        """Show the gap: what can be gained at most."""
        return at_most(self._gap, digits)

    @property
    def verdict(self) -> str:
        """What is proven, in a few words."""
        if self.value is None:
            return "proven infeasible" if self.infeasible else "no schedule found"
        if self.proven:
            return "proven optimal"
        return "no bound known" if self.gap is None else f"gap {self.gap_text()}"

    def proof(self, bound: str, source: str = "", of: str = "of these stages") -> str:
        """Say what is proven in a sentence; ``bound`` is the bound as text, rounded down.

        ``of`` is what it is a limit of: a split with its placement, or many.
        """
        by = f" ({source})" if source else ""
        if self.value is None or self.gap is None:
            return self.verdict
        if self.proven:
            return f"{self.verdict}{by}"
        return (
            f"at most {self.gap_text()} less is possible: no schedule {of} takes less than "
            f"{bound}{by}"
        )

    def require_status(self, status: Status) -> None:
        """Raise :class:`Contradiction` unless this is the status of value and bound."""
        if status != self.status:
            raise Contradiction(
                f"{self.of}: said to be {status}, but with value {self.value} and bound "
                f"{self.bound} it is {self.status}"
            )


@dataclass(frozen=True)
class Period:
    """Time per microbatch of one route in a long run, in the problem's time unit.

    Attributes
    ----------
    value
        T / k of a checked schedule whose k microbatches can be repeated every T, again and again.
    lower_bound
        What no family of valid schedules, one for each number m of microbatches, has a smaller
        limit of makespan / m than.

    Raises
    ------
    Contradiction
        If the bound is above the value.
    """

    value: Fraction
    lower_bound: Fraction

    def __post_init__(self) -> None:
        if self.lower_bound > self.value:
            raise Contradiction(
                f"period: proven to be at least {self.lower_bound}, but a checked schedule has "
                f"{self.value}"
            )

    @property
    def document(self) -> dict[str, int | float]:
        """What a result file says of it."""
        both = {"value": self.value, "lower_bound": self.lower_bound}
        return {k: int(x) if x.denominator == 1 else float(x) for k, x in both.items()}

    def text(self, value: str, bound: str) -> str:
        """Say it in a sentence, with both as texts; the bound is rounded down."""
        proven = "proven least" if self.value == self.lower_bound else f"at least {bound}"
        return f"a long run takes {value} a microbatch, {proven}"


class Uneven(NamedTuple):
    """A device whose share of all work costs more than the order does."""

    device: int
    share: Fraction
    equal: Fraction

    def __str__(self) -> str:
        return f"{percent(self.share, 0)} of all work, an equal share is {percent(self.equal, 0)}"


def uneven(loads: Sequence[int], value: int) -> Uneven | None:
    """Return the device by which the split, not the order, costs time; ``None`` if none does.

    No order of these ops takes less than the largest load, so an order can save at most ``value -
    load``. An even split would save ``load - equal share`` of that device. The split is to blame if
    that is more, and more than a tenth of the share.

    Raises
    ------
    Contradiction
        If a device has more work than the schedule takes.
    """
    load, total, devices = max(loads, default=0), sum(loads), len(loads)
    if load > value:
        raise Contradiction(f"a device works {load} in a schedule of {value}")
    over = devices * load - total  # devices times what an even split saves of the load
    if over <= devices * (value - load) or 10 * over <= total:
        return None
    return Uneven(loads.index(load), Fraction(load, total), Fraction(1, devices))


def tenable(value: int | None, bound: Bound | None) -> tuple[Bound | None, tuple[str, ...]]:
    """Return the bound if a checked value agrees with it; else ``None``, and what was wrong.

    Where proof and checked schedule contradict each other the proof is dropped: the schedule can be
    checked again by anyone.
    """
    if value is None or bound is None or bound.value <= value:
        return bound, ()
    return None, (
        f"{bound.source} says at least {bound.value}, but a checked schedule has {value}",
    )


def require_best(name: str, value: int | None, others: Iterable[tuple[str, int | None]]) -> None:
    """Raise :class:`Contradiction` if another one, of the same problem, is better than the best.

    Parameters
    ----------
    others
        Name and value of everything else that was built for the problem and passed the checker.
    """
    for other, theirs in others:
        if theirs is not None and (value is None or theirs < value):
            has = "has no schedule" if value is None else f"has {value}"
            raise Contradiction(f"{name} is called the best and {has}, but {other} has {theirs}")


def ratio(value: int | None, base: int | None) -> float | None:
    """``value / base``, exactly 1 only if they are equal; ``None`` where it has no meaning."""
    if value is None or not base:
        return None
    quotient = value / base
    if quotient == 1 and value != base:  # too large for a double to tell them apart
        quotient = math.nextafter(1.0, math.inf if value > base else 0.0)
    return quotient


def times(quotient: float | None, unknown: str = "-", *, limit: bool = False) -> str:
    """Show a ratio, an upper ``limit`` rounded up; ``1`` only if it is exactly 1."""
    if quotient is None or quotient == 1:
        return unknown if quotient is None else "1"
    return rounded_up(quotient, 4) if limit else rounded(quotient, 4, apart=1)


def ratio_to_least(value: int | None, least: int | None, of: str) -> float | None:
    """Ratio of a value to one that it cannot be below.

    Raises
    ------
    Contradiction
        If it is below.
    """
    if value is not None and least is not None and value < least:
        raise Contradiction(f"{of} has {value}, below {least}, which nothing is said to be below")
    return ratio(value, least)


def excess(value: int | None, least: int | None, of: str) -> Fraction | None:
    """By which share a value exceeds the least, exactly; as :func:`ratio_to_least`."""
    ratio_to_least(value, least, of)
    return None if value is None or not least else Fraction(value - least, least)


def difference(value: float | None, reference: float | None) -> float | None:
    """``(value - reference) / reference``; ``None`` where it has no meaning."""
    if value is None or not reference:
        return None
    return (value - reference) / reference


def change(value: int, reference: int, digits: int = 2) -> str:
    """Say how a time differs from another: ``3.20 % shorter``, ``0.50 % longer`` or ``equal``."""
    if value == reference:
        return "equal"
    word = "shorter" if value < reference else "longer"
    if not reference:
        return word
    return f"{percent(Fraction(abs(value - reference), reference), digits)} {word}"


def against(value: int, reference: int, name: str, digits: int = 2) -> str:
    """Say how a time differs from a named one: ``3.20 % shorter than 1F1B``, or as long as it."""
    if value == reference:
        return f"as long as {name}"
    return f"{change(value, reference, digits)} than {name}"


Steps: TypeAlias = Sequence[tuple[str, int]]
"""What a step changes, and the time after it: the last is the time at the end."""


def factors(start: int, steps: Steps) -> dict[str, float | None]:
    """Return the factor of each step, time after it by time before: ``whole`` is their product."""
    before = [start, *(value for _, value in steps)]
    found = {name: ratio(value, time) for (name, value), time in zip(steps, before, strict=False)}
    return found | {"whole": ratio(before[-1], start)}


def change_in_steps(start: int, steps: Steps) -> str:
    """Say how a time differs from another, and which step's factor each part of that is."""
    before = [start, *(value for _, value in steps)]
    each = [
        f"{name} {change(value, time, 2)}"
        for (name, value), time in zip(steps, before, strict=False)
    ]
    return ": ".join([change(before[-1], start, 2), *([", ".join(each)] if each[1:] else [])])


@dataclass(frozen=True)
class Tried:
    """How many of a schedule's settings were tried, or cannot be the best of its name.

    The only way to call one the best: while settings are left, the words say how many.

    Attributes
    ----------
    name
        What all of them are settings of.

    Raises
    ------
    Contradiction
        If more were tried than there are, or there are none.
    """

    name: str
    tried: int
    total: int

    def __post_init__(self) -> None:
        if not 0 <= self.tried <= self.total or not self.total:
            raise Contradiction(f"{self.name}: {self.tried} of {self.total} settings were tried")

    @property
    def left(self) -> str:
        """``7 of 12 settings of 1F1B``: those that were not tried."""
        return f"{self.total - self.tried} of {self._settings} of {self.name}"

    @property
    def text(self) -> str:
        """``5 of 12 settings tried``."""
        return f"{self.tried} of {self._settings} tried"

    @property
    def _settings(self) -> str:
        return f"{self.total} {plural(self.total, 'setting')}"

    @property
    def best(self) -> str:
        """Name the best of them."""
        if self.tried < self.total:
            return f"the best {self.name} so far, with {self.text}"
        if self.total == 1:
            return self.name
        return f"the best of all {self._settings} of {self.name}"

    def gain(self, value: int, best: int, digits: int = 1) -> str:
        """Say how a time differs from that of the best of them."""
        return against(value, best, self.best, digits)


def plural(count: int, word: str, ending: str = "s") -> str:
    """Return the word for so many things."""
    return word if count == 1 else word + ending


def as_given(share: Fraction) -> str:
    """Show a share that a user gave as a percentage."""
    return f"{float(100 * share):.15g} %"


def at_most(share: Number | None, digits: int = 2) -> str:
    """Show a share that is an upper limit as a percentage, rounded up; ``-`` for ``None``."""
    if share is None:
        return "-"
    return f"{rounded_up(100 * exactly(share), digits) if share else 0} %"


def percent(
    share: Number | None, digits: int = 2, *, unknown: str = "-", sign: bool = False
) -> str:
    """Show a share that is no limit as a percentage; ``0 %`` and ``100 %`` only if exact.

    Parameters
    ----------
    unknown
        What stands for ``None``.
    sign
        Whether to write a plus sign.
    """
    if share is None:
        return unknown
    side = "-" if share < 0 else "+" if sign and share else ""
    text = rounded(abs(100 * exactly(share)), digits, apart=100)
    if not float(text):
        text = f"<{10.0**-digits:.{digits}f}" if share else "0"
    return f"{side}{text} %"
