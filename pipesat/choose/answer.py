"""What was found: a table of checked schedules, the best that runs, and what is proven of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.choose.families import named_rows, shown_rows
from pipesat.choose.plan import Plan
from pipesat.choose.question import Question
from pipesat.choose.rows import Row, require_same_question
from pipesat.core import amounts
from pipesat.core.amounts import Rounding, rounded, rounded_up
from pipesat.core.claims import Bound, Standing
from pipesat.core.progress import doing
from pipesat.layers.pipeline import shape_name

if TYPE_CHECKING:
    from pipesat.choose.ends import End


@dataclass(frozen=True, repr=False, slots=True)
class Answer:
    """Rows of checked schedules, the best one that the runtime can run, and what is proven of it.

    Attributes
    ----------
    chosen
        The best row that the runtime can run; ``None`` if there is none.
    plan
        Our search over partition, placement, recomputation and order; ``None`` where ops may pair:
        then orders are searched on the best splits found, and each bound is of one split.
    left_out
        What has no row, and why.
    untried
        Hand-written schedules in placements that no row was built of before time ended.
    fewer
        Which settings of interleaved 1F1B were not; empty: none.
    ends
        Rows timed again at the ends of an estimate's ranges.
    any_layers
        What no schedule is below whichever layers recompute, if the chosen row recomputes some of a
        stage: the plan's own bound is for whole stages.

    Raises
    ------
    Contradiction
        If a row that the answer names is no checked schedule of the question, or one that runs is
        better than the best.
    """

    question: Question
    rows: tuple[Row, ...]
    chosen: Row | None
    plan: Plan | None
    left_out: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0
    any_layers: Bound | None = None
    untried: tuple[str, ...] = ()
    fewer: str = ""
    ends: tuple[End, ...] = ()

    @doing("checking what the answer names")
    def __post_init__(self) -> None:
        named = named_rows(self.question, self.rows)
        require_same_question(self.question, self.rows, named, self.chosen)
        _ = self.standing

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
        homes = {shape.homes for shape in self.plan.question.shapes}
        if row.shape.homes not in homes or not all(row.partition):
            return None
        return self.plan.bound if row.candidate.first is None else self.any_layers

    def _bound_of_split(self, row: Row) -> Bound:
        """The best bound of the row's split; for Megatron-LM of any order, F paired with BW."""
        same = (row.partition, row.shape.homes)
        own = row.candidate.runtime
        runtime = own if self.question.any_order else None
        widest = self.question.candidate(row.partition, row.shape, (), runtime)
        found = [closed_form_bound(widest.problem, "makespan")]
        for other in self.rows:
            wider = other.candidate.runtime in (None, own)
            if other.bound is not None and wider and same == (other.partition, other.shape.homes):
                found.append(other.bound)
        return max(found, key=lambda bound: bound.value)

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
        searched = {shape.homes for shape in self.plan.question.shapes}
        return sorted({r.placement for r in self.rows if r.shape.homes not in searched})

    @property
    def shown(self) -> list[Row]:
        """The table: 1F1B and ours on every split, of all other schedules the best one."""
        return shown_rows(self.rows)

    @property
    def contradictions(self) -> tuple[str, ...]:
        """Proofs that a checked schedule refutes: faults of pipesat."""
        return () if self.plan is None else self.plan.contradictions


def parts_text(question: Question) -> str:
    """Say where times of pairs are from, and that they are a model; empty where there are none."""
    if question.parts is None:
        return ""
    return (
        f"times are the least that the parts of {question.parts.source} can take on their streams, "
        "in another order they take longer"
    )


def time_text(question: Question, value: int, towards: Rounding = rounded) -> str:
    """Show a time in milliseconds where its unit is known; a lower limit with ``rounded_down``."""
    return amounts.time_text(value, question.layers.time_unit, towards)


def memory_text(question: Question, value: int, towards: Rounding = rounded_up) -> str:
    """Show memory in GiB, MiB, ... where its unit is one of bytes: what is needed, rounded up."""
    return amounts.memory_text(value, question.layers.memory_unit, towards)
