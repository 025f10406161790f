"""What tuning a schedule in place has found: measured times of orders, and how sure they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import comb
from statistics import median
from typing import Any, Final

from pipesat.core.claims import Bound, difference, percent
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.core.showing import Displayed, Facts, Table, table_of
from pipesat.timeline.timeline import Timeline

OURS: Final = "pipesat"
RESOLUTION: Final = 0.01
"""Smaller gains count as noise, however narrow their interval: it is of one launch, and the medians
of one order differ from launch to launch, too (experiments/2026-11-23-tune)."""
HOLDS: Final = 0.05
"""A prediction holds if it is within this share of what was measured."""
_SURE: Final = 0.95


@dataclass(frozen=True)
class Gain:
    """By which share of another order's step ours is shorter, and an interval of this median.

    It contains the median of many such steps with a probability of 95 % at least, and is empty
    (``None``) of fewer than six pairs of steps, which cannot have such an interval. ``noise`` is
    how far the gains of single pairs lie apart: half of what is between the 10th and the 90th
    percentile, and 1 % at least.
    """

    value: float
    interval: tuple[float, float] | None
    noise: float = RESOLUTION

    @property
    def within_noise(self) -> bool:
        """Whether the steps do not show that one of the two is shorter."""
        if self.interval is None or abs(self.value) <= self.noise:
            return True
        low, high = self.interval
        return low <= 0 <= high

    def __str__(self) -> str:
        """Return the gain with its interval, and whether it is noise."""
        said = f"{percent(self.value, 1)} shorter"
        if self.interval is not None:
            low, high = (percent(end, 1) for end in self.interval)
            said += f" ({low} to {high})"
        return f"within noise of {percent(self.noise, 1)}: {said}" if self.within_noise else said


def gain_over(other: Sequence[float], ours: Sequence[float]) -> Gain:
    """Compare steps that ran in turns, pair by pair, so that what disturbed both does not count.

    The interval is between order statistics: the number of differences below their median is
    binomial, whatever their distribution.
    """
    found = sorted(1 - mine / theirs for theirs, mine in zip(other, ours, strict=True))
    count, tail, left = len(found), 0.0, 0
    while (tail := tail + comb(count, left) / 2**count) <= (1 - _SURE) / 2:
        left += 1
    interval = (found[left - 1], found[count - left]) if left else None
    low, high = spread(found)
    return Gain(median(found), interval, max(RESOLUTION, (high - low) / 2))


def spread(numbers: Sequence[float]) -> tuple[float, float]:
    """Return the 10th and the 90th percentile of some numbers."""
    ordered = sorted(numbers)
    low, high = (ordered[round(share * (len(ordered) - 1))] for share in (0.1, 0.9))
    return low, high


@dataclass(frozen=True)
class Round:
    """One round: what ran, its predicted step and the median of its measured ones, in us."""

    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """``(predicted - measured) / measured``."""
        return difference(self.predicted, self.measured) or 0.0

    def __str__(self) -> str:
        """Return the round in one line."""
        error = percent(self.error, 1, sign=True)
        return f"predicted {_ms(self.predicted)}, ran {_ms(self.measured)}: {error}"


@dataclass(frozen=True)
class TunedRow:
    """One order of the last run; ``predicted`` and the measured steps in us.

    ``gain`` is what our order saves of its step, ``None`` of our own; ``failed`` the assumption of
    the prediction that moves it most.
    """

    name: str
    timeline: Timeline
    predicted: float
    gain: Gain | None
    failed: str

    @property
    def steps(self) -> tuple[float, ...]:
        """All measured steps."""
        return self.timeline.makespans

    @property
    def spread(self) -> tuple[float, float]:
        """The 10th and the 90th percentile of the steps."""
        return spread(self.steps)

    def document(self) -> dict[str, Any]:
        """Return it for ``--json``, times in ms."""
        low, high = self.spread
        document = {
            "name": self.name,
            "measured": median(self.steps) / 1000,
            "low": low / 1000,
            "high": high / 1000,
            "steps": len(self.steps),
            "predicted": self.predicted / 1000,
            "failed_assumption": self.failed,
        }
        gain = self.gain
        if gain is None:
            unknown = ("gain", "gain_interval", "noise", "within_noise")
            return document | dict.fromkeys(unknown)
        return document | {
            "gain": gain.value,
            "gain_interval": gain.interval,
            "noise": gain.noise,
            "within_noise": gain.within_noise,
        }


@dataclass(frozen=True, repr=False)
class Tuned(Displayed):
    """What tuning ends with.

    Attributes
    ----------
    problem
        The problem with the costs of the last round.
    schedule
        The order that was found, timed with them.
    rows
        All orders of the last run, in turns; ours last.
    rounds
        Prediction and measurement of each round's order.
    stopped
        Why there was no further round.
    bound
        What no order on these costs goes below, in the problem's unit, ``None`` if unknown.
    us_per_unit
        Microseconds of a time unit.
    absent
        Why there is no 1F1B among the rows; empty: there is.
    """

    problem: Problem
    schedule: Schedule
    rows: tuple[TunedRow, ...]
    rounds: tuple[Round, ...]
    stopped: str
    bound: Bound | None
    us_per_unit: float
    absent: str = ""

    @property
    def ours(self) -> TunedRow:
        """The row of the order that was found."""
        return self.rows[-1]

    def facts(self) -> Facts:
        """Return what to take, what it gains, and how far to trust it."""
        ours = self.ours
        low, high = (f"{us / 1000:.2f}" for us in ours.spread)
        facts = [("Take", f"{ours.name}: {_ms(median(ours.steps))} a step ({low} to {high})")]
        facts += [(f"Over {row.name}", str(row.gain)) for row in self.rows if row.gain is not None]
        if self.absent:
            facts.append(("1F1B", f"does not exist here: {self.absent}"))
        if len(self.rows) == 1:
            facts.append(("Gain", "none: nothing better than this order was found"))
        error = difference(ours.predicted, median(ours.steps)) or 0.0
        holds = "holds" if abs(error) <= HOLDS else f"does not hold: {self.ours.failed}"
        facts += [
            ("Prediction", f"{_ms(ours.predicted)}, {percent(error, 1, sign=True)}: {holds}"),
            ("At first", f"{percent(self.rounds[0].error, 1, sign=True)} in the first round"),
            ("Rounds", f"{len(self.rounds)}: {self.stopped}"),
        ]
        if self.bound is not None:
            least = _ms(self.bound.value * self.us_per_unit)
            orders = f"no order that torch runs{self.problem.within_memory}"
            facts.append(("Bound", f"{orders} takes less than {least} with these costs"))
        steps = f"{len(ours.steps)} of each order, in turns; 10th to 90th percentile"
        facts += [("Steps", steps), ("Model", ours.timeline.environment.get("model", ""))]
        return facts

    def tables(self) -> Iterator[Table]:
        """Yield the orders that ran."""
        shown = ("name", "measured", "low", "high", "predicted", "gain")
        rows = [{name: row[name] for name in shown} for row in self.records()]
        yield table_of(rows, notes=["ms a step: median, 10th and 90th percentile"])

    def records(self) -> list[dict[str, Any]]:
        """Return a row per order, times in ms."""
        return [row.document() for row in self.rows]

    def document(self) -> dict[str, Any]:
        """Return everything for ``--json``, times in ms."""
        least = None if self.bound is None else self.bound.value * self.us_per_unit / 1000
        return {
            "rows": self.records(),
            "rounds": [asdict(one) | {"error": one.error} for one in self.rounds],
            "stopped": self.stopped,
            "prediction_holds": abs(self.rounds[-1].error) <= HOLDS,
            "lower_bound": least,
            "lower_bound_source": None if self.bound is None else self.bound.source,
            "environment": dict(self.ours.timeline.environment),
        }


def _ms(us: float) -> str:
    return f"{us / 1000:.2f} ms"
