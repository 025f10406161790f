"""Rows timed again with other costs: an estimate errs in ratios of costs more than in all alike.

So three things are varied, one at a time: all compute, the head alone, and W against B. Every row
keeps its order and its split: neither is searched again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from pipesat.advise.question import Question
from pipesat.advise.table_rows import Row
from pipesat.core.progress import doing
from pipesat.heuristics.registry import GiveUp
from pipesat.layers.layer import Layer, at_speed
from pipesat.schedule.timing import time_order

LEAST_HEAD: Final = Fraction(32, 100)
"""Of its estimate, what a head may take: 2.6 blocks in public ratios, 8.2 estimated."""
W_AGAINST_B: Final = (Fraction(20, 100), Fraction(86, 100))
"""Of its estimate, what W / B may be: in public ratios of a Gemma-like block, in Zero Bubble's
table 9 at its nearest. Both as printed by the scripts in experiments/roofline."""

Varied: TypeAlias = Literal["all compute", "the head alone", "W / B"]


@dataclass(frozen=True)
class End:
    """One end of a range: ``what`` is this share of the estimate, all else as it is.

    ``rows`` are those of the table that run, each in its own order, and what they take then. None:
    time ended before.
    """

    what: Varied
    share: Fraction
    rows: tuple[tuple[Row, int], ...]

    @property
    def least(self) -> tuple[Row, int]:
        """The shortest row, and what it takes."""
        return min(self.rows, key=lambda pair: pair[1])

    @property
    def words(self) -> str:
        """The case in words: ``if the head alone takes 0.32 of its estimate``."""
        return f"if {self.what} takes {float(self.share):.2f} of its estimate"

    @property
    def case(self) -> str:
        """The case in short: ``the head alone x 0.32``."""
        return f"{self.what} x {float(self.share):.2f}"

    def of(self, row: Row) -> int:
        """What a row takes."""
        return next(time for other, time in self.rows if other is row)

    def document(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        rows = [
            {"schedule": x.name, "split": x.split, "placement": x.placement, "makespan": time}
            for x, time in self.rows
        ]
        return {"varied": self.what, "share": float(self.share), "rows": rows}


@doing("timing rows at the ends of the estimate's range")
def ends_of(question: Question, rows: Iterable[Row], over: GiveUp) -> Iterator[End]:
    """Yield both ends of every range; once it is ``over``, without rows.

    None where costs have no range.
    """
    about, layers = question.layers.estimate_range, question.layers.layers
    if about is None:
        return
    least, most = (Fraction(x, 1000) for x in about)
    heads = least and any(layer.role == "head" for layer in layers)
    ranges: dict[Varied, tuple[Fraction, ...]] = {
        "all compute": (least, most),
        "the head alone": (LEAST_HEAD, 1 / least) if heads else (),  # all others take the least
        "W / B": W_AGAINST_B,
    }
    runs = [row for row in rows if row.runs]
    for what, share in ((what, share) for what, shares in ranges.items() for share in shares):
        other, times = varied(question, what, share), []
        for row in () if over() else runs:
            own = row.candidate
            again = own.shape, own.partition, own.recompute
            problem = other.candidate(*again, first=own.first, offload=own.offload).problem
            times.append((row, time_order(problem, row.schedule.order).makespan))
        yield End(what, share, tuple(times))


def varied(question: Question, what: Varied, share: Fraction) -> Question:
    """Return a question in which something takes a share of its estimate."""
    changed = tuple(
        _varied(layer, what, share) if what != "the head alone" or layer.role == "head" else layer
        for layer in question.layers.layers
    )
    return replace(question, layers=replace(question.layers, layers=changed), known={})


def _varied(layer: Layer, what: Varied, share: Fraction) -> Layer:
    """Return a layer with other times; B + W and the whole backward stay where W / B changes.

    Where activations are computed again, B takes as much longer, W as much shorter.
    """
    if what != "W / B":
        return layer.with_costs(partial(at_speed, 1 / share, False))
    B, W = layer.costs.B, layer.costs.W
    moved = W - int(share * W * (B + W) / (B + share * W)) if B and W else 0
    return layer.with_costs(lambda one: replace(one, B=one.B + moved, W=max(0, one.W - moved)))
