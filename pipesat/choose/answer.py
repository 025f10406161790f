"""What was found: checked schedules, the best that the runtime can run, and what is proven of it.

Rows are timed again with other costs too: an estimate errs in ratios of costs more than in all of
them alike. So three things are varied, one at a time: all compute, the head alone, and W against B.
Every row keeps its order and its split: neither is searched again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any, Final, Literal, TypeAlias

from pipesat.choose.plan import Plan
from pipesat.choose.question import Question
from pipesat.choose.rows import Row, plain_of, rank
from pipesat.core.claims import Bound, Standing
from pipesat.core.progress import doing
from pipesat.core.timing import time_order
from pipesat.heuristics.registry import GiveUp
from pipesat.layers.layer import Layer
from pipesat.layers.pipeline import shape_name
from pipesat.placement.documents import Costs

NOT_BUILT: Final = "not built in time"


@dataclass(frozen=True, repr=False, slots=True)
class Answer:
    """Rows of checked schedules, the best that the runtime can run, and what is proven of it.

    Attributes
    ----------
    plan
        Our search over partition, placement, recomputation and order; ``None`` where ops may pair:
        then orders are searched on the best splits found, and each bound is of one split.
    left_out
        What has no row, and why.
    ends
        Rows timed again at the ends of an estimate's ranges.
    any_layers
        What no schedule is below whichever layers recompute, if the chosen row recomputes some of a
        stage: the plan's own bound is for whole stages.
    """

    question: Question
    rows: tuple[Row, ...]
    plan: Plan | None
    left_out: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0
    any_layers: Bound | None = None
    ends: tuple[End, ...] = ()

    @property
    def chosen(self) -> Row | None:
        """The best row that the runtime can run; ``None`` if there is none."""
        return min((row for row in self.rows if row.runs), key=rank, default=None)

    @property
    def plain(self) -> Row | None:
        """The best row that runs as it is exported, if the chosen one needs work by hand."""
        chosen = self.chosen
        return plain_of(self.rows) if chosen is not None and chosen.by_hand else None

    @property
    def best_not_run(self) -> Row | None:
        """The shortest row that fits and that the runtime cannot run, but for offloading."""
        left = (x for x in self.rows if x.fits and not x.runs and not x.candidate.offload)
        return min(left, key=rank, default=None)

    @property
    def bound(self) -> Bound | None:
        """What no schedule of any partition is below, in the shapes that were searched.

        ``None`` if the chosen row lies outside of these. Without a plan, of its own split.
        """
        row = self.chosen
        if row is None:
            return None
        if self.plan is None:
            return self._bound_of_split(row)
        homes = {shape.homes for shape in self.plan.space.shapes}
        if row.shape.homes not in homes or not all(row.partition):
            return None
        return self.plan.bound if row.candidate.first is None else self.any_layers

    def _bound_of_split(self, row: Row) -> Bound:
        """The best bound of the row's split in any order that the runtime runs, or any at all."""
        runtime = self.question.free
        found = [self.question.candidate(row.partition, row.shape, (), runtime)]
        for other in (one.candidate for one in self.rows):
            same = (other.partition, other.shape.homes) == (row.partition, row.shape.homes)
            found += [other] if same and other.runtime == runtime else []
        return max((one.bound for one in found), key=lambda bound: bound.value)

    @property
    def standing(self) -> Standing:
        """What is proven of the chosen row."""
        value = None if self.chosen is None else self.chosen.makespan
        bound = self.bound
        return Standing(value, None if bound is None else bound.value, of="the advice")

    @property
    def shapes(self) -> str:
        """Shapes that were searched, as a list in words."""
        if self.plan is None:
            return "" if self.chosen is None else self.chosen.placement
        names = [shape_name(s.shape) for s in self.plan.known.states if not s.why_not]
        return ", ".join(names)

    @property
    def not_searched(self) -> list[str]:
        """Placements that rows have and our search did not look at."""
        if self.plan is None:
            return []
        searched = {shape.homes for shape in self.plan.space.shapes}
        return sorted({r.placement for r in self.rows if r.shape.homes not in searched})

    @property
    def untried(self) -> list[str]:
        """Hand-written schedules in placements that no row was built of before time ended."""
        return [name for name, why in self.left_out if why == NOT_BUILT]

    @property
    def contradictions(self) -> tuple[str, ...]:
        """Proofs that a checked schedule refutes: faults of pipesat."""
        return () if self.plan is None else self.plan.contradictions


# Ends of an estimate's ranges

LEAST_HEAD: Final = Fraction(32, 100)
"""Of its estimate, what a head may take: 2.6 blocks in public ratios, 8.2 estimated."""
W_AGAINST_B: Final = (Fraction(20, 100), Fraction(86, 100))
"""Of its estimate, what W / B may be: in public ratios of a Gemma-like block, in Zero Bubble's
table 9 at its nearest. Both as printed by the scripts in experiments/2026-11-22-roofline."""

Varied: TypeAlias = Literal["all compute", "the head alone", "W / B"]


@dataclass(frozen=True)
class End:
    """One end of a range: ``what`` is this share of the estimate, all else as it is.

    ``rows`` are those of the table that run, each in its own order, and what they take then.
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
    """Yield both ends of every range until it is ``over``.

    None where costs have no range, or are of parts.
    """
    about, layers = question.layers.estimate_range, question.layers.layers
    if about is None or question.parts is not None:
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
        if over():
            return
        other = varied(question, what, share)
        problems = (other.under(row.candidate, row.candidate.runtime).problem for row in runs)
        times = (
            time_order(problem, row.schedule.order).makespan
            for problem, row in zip(problems, runs, strict=True)
        )
        yield End(what, share, tuple(zip(runs, times, strict=True)))


def varied(question: Question, what: Varied, share: Fraction) -> Question:
    """Return a question in which something takes a share of its estimate."""
    changed = tuple(
        _varied(layer, what, share) if what != "the head alone" or layer.role == "head" else layer
        for layer in question.layers.layers
    )
    return replace(question, layers=replace(question.layers, layers=changed))


def _varied(layer: Layer, what: Varied, share: Fraction) -> Layer:
    """Return a layer with other times; B + W and the whole backward stay where W / B changes.

    Where activations are computed again, B takes as much longer, W as much shorter.
    """
    B, W = layer.costs.B, layer.costs.W
    moved = W - int(share * W * (B + W) / (B + share * W)) if B and W else 0

    def cost(costs: Costs) -> Costs:
        if what == "W / B":
            return replace(costs, B=costs.B + moved, W=max(0, costs.W - moved))
        F, B, W = (ceil(share * time) for time in (costs.F, costs.B, costs.W))
        BW = None if costs.BW is None else ceil(share * costs.BW)
        return replace(costs, F=F, B=B, W=W, BW=BW)

    again = None if layer.recomputed is None else cost(layer.recomputed)
    return replace(layer, costs=cost(layer.costs), recomputed=again)
