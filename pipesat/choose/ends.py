"""Whether the table's order survives the errors of an estimate: rows timed again with other costs.

An estimate errs in ratios of costs more than in all of them alike, so three things are varied, one
at a time: all compute, the head alone, and W against B. Every row keeps its order and its split:
neither is searched again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any, Final, TypeAlias

from pipesat.choose.question import Question
from pipesat.choose.rows import Row
from pipesat.core.problem import Problem
from pipesat.core.timing import time_order
from pipesat.files.folder import changed_problem
from pipesat.heuristics.registry import GiveUp, never
from pipesat.layers.layer import Layer
from pipesat.placement.documents import Costs

LEAST_HEAD: Final = Fraction(32, 100)
"""Of its estimate, what a head may take: 2.6 blocks in public ratios, 8.2 estimated."""
W_AGAINST_B: Final = (Fraction(20, 100), Fraction(86, 100))
"""Of its estimate, what W / B may be: in public ratios of a Gemma-like block, in Zero Bubble's
table 9 at its nearest. Both as printed by the scripts in experiments/2026-11-22-roofline."""

_RATIO: Final = "W / B"
_FEW_OPS: Final = 10_000  # of all rows, timed six times in a moment

_Vary: TypeAlias = Callable[[Question, Row, Fraction], Problem]


@dataclass(frozen=True)
class End:
    """One end of a range: ``what`` is this share of the estimate, all else as it is.

    ``rows`` are those of the table that run and the chosen one, each in its own order, and what
    they take then.
    """

    what: str
    share: Fraction
    rows: tuple[tuple[Row, int], ...]

    @property
    def least(self) -> tuple[Row, int]:
        """The shortest row, and what it takes."""
        return min(self.rows, key=lambda pair: pair[1])

    @property
    def words(self) -> str:
        """The case in words: ``if the head alone takes 0.32 of its estimate``."""
        share = f"{float(self.share):.2f} of its estimate"
        if self.what != _RATIO:
            return f"if {self.what} takes {share}"
        return f"if the time of W, against B, is {share}"

    def of(self, row: Row) -> int:
        """What a row takes."""
        return next(time for other, time in self.rows if other is row)

    def document(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        rows = [
            {
                "schedule": row.name,
                "split": row.split,
                "placement": row.placement,
                "makespan": time,
            }
            for row, time in self.rows
        ]
        return {"varied": self.what, "share": float(self.share), "rows": rows}


def ends_of(
    question: Question, shown: Iterable[Row], chosen: Row | None, over: GiveUp = never
) -> Iterator[End]:
    """Yield both ends of every range; none where costs have no range, or nothing runs.

    No more once it is ``over``, unless that is the work of a moment.
    """
    if question.layers.estimate_range is None or chosen is None:
        return
    rows = [row for row in shown if row.runs]
    if all(row is not chosen for row in rows):
        rows.append(chosen)
    if sum(len(row.schedule) for row in rows) <= _FEW_OPS:
        over = never
    for what, vary, shares in _ranges(question):
        for share in shares:
            times = [(row, _time(vary(question, row, share), row)) for row in rows if not over()]
            if len(times) == len(rows):
                yield End(what, share, tuple(times))


def _ranges(question: Question) -> Iterator[tuple[str, _Vary, tuple[Fraction, Fraction]]]:
    """Yield what is varied, how, and between which shares of the estimate."""
    least, most = (Fraction(x, 1000) for x in question.layers.estimate_range or (1000, 1000))
    yield "all compute", _all_compute, (least, most)
    if least and any(layer.role == "head" for layer in question.layers.layers):
        yield "the head alone", _head, (LEAST_HEAD, 1 / least)  # all others take the least
    if question.parts is None:  # else W and B of blocks are not of the estimate
        yield _RATIO, _w_against_b, W_AGAINST_B


def _time(problem: Problem, row: Row) -> int:
    return time_order(problem, row.schedule.order).makespan


def _all_compute(question: Question, row: Row, share: Fraction) -> Problem:
    """Return a row's problem in which every op and pair takes a share of its time, rounded up."""
    del question
    document = row.problem.document
    stages = [
        {key: ceil(share * entry[key]) for key in ("F", "B", "W", "BW") if key in entry}
        for entry in document["stages"]
    ]
    overlap = document.get("overlap")
    if overlap is not None and "pairs" in overlap:
        pairs = [
            entry | {"time": ceil(share * entry["time"])} if "time" in entry else entry
            for entry in overlap["pairs"]
        ]
        overlap = overlap | {"pairs": pairs}
    return changed_problem(row.problem, stages=stages, overlap=overlap)


def _head(question: Question, row: Row, share: Fraction) -> Problem:
    def cost(layer: Layer, costs: Costs) -> Costs:
        if layer.role != "head":
            return costs
        BW = None if costs.BW is None else ceil(share * costs.BW)
        F, B, W = (ceil(share * time) for time in (costs.F, costs.B, costs.W))
        return replace(costs, F=F, B=B, W=W, BW=BW)

    return _with_costs(question, row, cost)


def _w_against_b(question: Question, row: Row, share: Fraction) -> Problem:
    """W / B of every layer is a share of what it was; B + W and the whole backward stay.

    Where activations are computed again, B takes as much longer, W as much shorter.
    """

    def cost(layer: Layer, costs: Costs) -> Costs:
        B, W = layer.costs.B, layer.costs.W
        if not B or not W:
            return costs
        moved = W - int(share * W * (B + W) / (B + share * W))
        return replace(costs, B=costs.B + moved, W=max(0, costs.W - moved))

    return _with_costs(question, row, cost)


def _with_costs(question: Question, row: Row, cost: Callable[[Layer, Costs], Costs]) -> Problem:
    """Return a row's problem with other costs of its layers."""
    changed = tuple(
        replace(
            layer,
            costs=cost(layer, layer.costs),
            recomputed=None if layer.recomputed is None else cost(layer, layer.recomputed),
        )
        for layer in question.layers.layers
    )
    other = replace(question, layers=replace(question.layers, layers=changed))
    return other.under(row.candidate, row.candidate.runtime).problem
