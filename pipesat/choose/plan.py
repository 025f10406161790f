"""The plan: the best partition with its schedule, and what is proven about both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from pipesat.choose.candidates import Candidate, Question
from pipesat.choose.comparison import SplitRow, gains
from pipesat.choose.plan_tables import devices_of, layout_text, split_table, stage_table, stages_of
from pipesat.choose.search import Findings
from pipesat.core.amounts import rounded_down, time_text
from pipesat.core.attached import attached
from pipesat.core.claims import Bound, Standing, Status, percent, ratio, require_best
from pipesat.core.errors import Contradiction
from pipesat.core.metrics import peak_memory
from pipesat.core.result import Result
from pipesat.core.showing import Displayed, Facts, Table, sentences
from pipesat.core.summary import peak_text
from pipesat.layers.pipeline import shape_name
from pipesat.layers.stages import remarks

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_ROOM: Final = 0.03  # of a device's memory, less than this free is told
_NOT_COMPLETE: Final = (
    "some partitions are only known by the bound of a simpler question: too many, or too many ways "
    "to recompute, or not reached in time"
)


@dataclass(frozen=True, repr=False, slots=True)
class Plan(Displayed):
    """What a search found.

    Attributes
    ----------
    result
        Of the best partition's problem: its ``status`` speaks of the orders of this partition.
    status
        ``optimal``: no schedule of any partition of any shape that was considered is better.
    bound
        What none of them is below.
    complete
        Whether, in every shape, every partition was solved, bounded by itself or left out because
        of its stages' closed forms; else the bound is that of a simpler question.
    contradictions
        Proofs that a checked schedule refutes: faults of pipesat. Then no bound is claimed at all.
    """

    known: Findings
    chosen: Candidate | None
    result: Result | None
    bound: Bound | None
    rows: tuple[SplitRow, ...]
    left_out: tuple[tuple[str, str], ...]
    seconds: float
    contradictions: tuple[str, ...] = ()

    @property
    def question(self) -> Question:
        """What was asked."""
        return self.known.question

    @property
    def value(self) -> int | None:
        """Value of the best schedule."""
        return None if self.chosen is None else self.chosen.value(self.question.objective)

    @property
    def standing(self) -> Standing:
        """What is proven of the value over all partitions."""
        bound = None if self.bound is None else self.bound.value
        return Standing(self.value, bound, of="all partitions")

    @property
    def status(self) -> Status:
        """What is proven over all partitions."""
        return self.standing.status

    @property
    def gap(self) -> float | None:
        """``(value - bound) / value``; 0 where both are 0."""
        return self.standing.gap

    @property
    def complete(self) -> bool:
        """Whether every partition of every shape is accounted for."""
        return self.known.complete

    def facts(self) -> Facts:
        """Return what was found, what is proven over all partitions, and what it gains."""
        if self.chosen is None or self.result is None or self.value is None:
            return [("Take", "nothing: no plan was found in time, none is proven impossible")]
        problem, schedule = self.result.problem, self.result.schedule
        time = time_text(self.value, problem.time_unit)
        shape, order = shape_name(self.chosen.shape), self.chosen.schedules[0].source
        doubts = [
            *self.remarks,
            *([] if self.complete or self.status == "optimal" else [_NOT_COMPLETE]),
        ]
        peaks = "" if schedule is None else peak_text(problem, peak_memory(problem, schedule))
        return [
            (
                "Take",
                f"{shape} on {self.chosen.shape.devices} devices, order of {order}: {time} a"
                f" step ({self.question.objective})",
            ),
            ("Layers", layout_text(self.chosen, self.question.layers) or self._sizes()),
            ("Proof", self._proof()),
            ("This split", "" if self.status == "optimal" else self.result.proof()),
            ("Gain", sentences(self.gains)),
            ("Limit", self._busiest()),
            ("Memory", peaks),
            ("Doubt", sentences(doubts)),
            ("Searched", f"{len(self.known.candidates)} partitions, {self.seconds:.1f} s"),
        ]

    def _proof(self) -> str:
        """Say what is proven over all partitions of the placements that were searched."""
        names = [shape_name(state.shape) for state in self.known.states if not state.why_not]
        where = f", over all partitions of {', '.join(names)}"
        if self.bound is None:
            return self.standing.verdict + where
        unit = self.question.layers.time_unit
        least = time_text(self.bound.value, unit, rounded_down)
        return self.standing.proof(least) + where

    def _sizes(self) -> str:
        """Return how many layers every stage has: in a V there is no layout string."""
        parts = () if self.chosen is None else self.chosen.partition
        return f"{', '.join(str(len(part)) for part in parts)} per stage"

    def _busiest(self) -> str:
        loads = [device["load"] for device in devices_of(self.chosen)]
        busiest = max(range(len(loads)), key=loads.__getitem__)
        busy = percent(ratio(loads[busiest], self.value), 1)
        return f"the bottleneck is device {busiest}, busy {busy} of the time"

    def details(self) -> Facts:
        """Return what proves it, how it was found, and what was left out."""
        own, chosen = None if self.result is None else self.result.bound, self.chosen
        left = [(shape_name(s.shape), s.why_not) for s in self.known.states if s.why_not]
        return [
            ("proven by", "" if self.bound is None else self.bound.source),
            ("of this split", "" if own is None else own.source),
            ("partition", "" if chosen is None else chosen.proposed_by),
            ("solves", str(self.known.solves)),
            *(("left out", f"{name}: {why}") for name, why in (*left, *self.left_out)),
        ]

    def tables(self) -> Iterator[Table]:
        """Yield the stages, then the splits of frameworks beside the plan's.

        Raises
        ------
        Contradiction
            If a stage breaks the choice of recomputation, or a split found is better than the plan.
        """
        require_consistent(self)
        chosen, objective = self.chosen, self.question.objective
        if chosen is not None:
            yield stage_table(stages_of(self.chosen, self.question.layers), devices_of(self.chosen))
        if self.rows:
            placement = "" if chosen is None else chosen.shape.placement
            yield split_table(self.rows, objective, placement, free=self.question.space.free)

    def records(self) -> list[dict[str, Any]]:
        """Return a row per stage: device, layers, costs."""
        return stages_of(self.chosen, self.question.layers)

    def plot(self) -> Figure | None:
        """Draw time and memory of every stage; return a matplotlib figure."""
        return cast("Figure | None", attached("figure_of_plan")(self))

    def save(self, folder: str | Path, log: Sequence[str] = ()) -> str | None:
        """Write what ``pipesat plan -o`` writes; return the path of its schedule, if there is one.

        ``log`` are lines of ``solver.log``.

        Raises
        ------
        BadInput
            If the folder cannot be written.
        """
        return cast("str | None", attached("save_plan")(self, folder, log))

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the numbers do not say."""
        if self.chosen is None:
            return ()
        own = remarks(self.question.layers, self.chosen.partition, self.chosen.shape)
        dropped = (f"no bound is claimed: {text}" for text in self.contradictions)
        estimate = self.question.layers.estimate
        said = (f"all times and memory are an estimate: {estimate}",) if estimate else ()
        return (*said, *own, *_too_full(self), *dropped, *_better_elsewhere(self))

    @property
    def gains(self) -> tuple[str, ...]:
        """Which part of the gain comes from the partition, and which from the order."""
        return tuple(gains(self.rows, self.question.objective)) if len(self.rows) > 1 else ()


def require_consistent(plan: Plan) -> None:
    """Raise ``Contradiction`` unless flags obey the choice and the best is the best."""
    known, space = plan.known, plan.question.space
    for candidate in all_candidates(known, plan.rows):
        allowed = space.settled(candidate.shape, candidate.partition, candidate.recompute)
        if allowed != candidate.recompute:
            raise Contradiction(
                f"recomputation is {space.choice}, but stages of {candidate.proposed_by} have "
                f"{candidate.recompute}, expected {allowed}"
            )
    found = ((c.proposed_by, c.value(known.question.objective)) for c in known.candidates)
    require_best("the plan", known.value, found)


def all_candidates(known: Findings, rows: Sequence[SplitRow]) -> list[Candidate]:
    """Return the candidates of the search and of the comparison."""
    return [*known.candidates, *(row.candidate for row in rows if row.candidate is not None)]


def _too_full(plan: Plan) -> Iterator[str]:
    """A device that a real run may not fit on: hardly anything is free for what no layer says."""
    reserve = plan.question.layers.reserve
    for number, device in enumerate(devices_of(plan.chosen)):
        memory, peak = device["memory"], device["peak"]
        if memory and memory - peak + reserve < _ROOM * memory:
            unit = f" {plan.question.layers.memory_unit}".rstrip()
            yield (
                f"device {number} fills {percent(peak / memory, 1)} of its memory, {memory - peak}"
                f"{unit} are left. Fragments and communication buffers have no room. A reserve "
                "keeps some free"
            )
            return


def _better_elsewhere(plan: Plan) -> Iterator[str]:
    """Splits given by hand that were no part of the search, and are better than its best."""
    for row in plan.rows:
        value = row.best(plan.question.objective)
        if value is not None and plan.value is not None and value < plan.value:
            yield (
                f"{row.name}, with {value}, is better than the plan: it is outside of what was "
                "searched (another placement, or a stage without layers)"
            )
