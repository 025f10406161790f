"""The rows of an answer: a candidate with a schedule and a name, and what its runtime makes of it.

Every schedule has been through the checker.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

from pipesat.advise.candidates import Candidate
from pipesat.advise.orders import SOME_SETTINGS
from pipesat.advise.question import OFFLOAD, Question
from pipesat.check.checker import check
from pipesat.compare.hand_written import baseline, baselines
from pipesat.core.amounts import seconds_of
from pipesat.core.claims import ratio
from pipesat.core.errors import Contradiction, NotApplicable, require_applicable
from pipesat.core.showing import ranges
from pipesat.layers.layout import layout_of_partition
from pipesat.layers.megatron import OVERLAP, layout_option, refusal
from pipesat.layers.pipeline import Pipeline
from pipesat.problem.ops import Op
from pipesat.problem.problem import Problem
from pipesat.runtimes.as_run import as_run
from pipesat.runtimes.options import Checkpointing, Options
from pipesat.schedule.metrics import mode_counts, pair_counts, peak_memory
from pipesat.schedule.schedule import Schedule

OURS: Final = "ours"
SEARCHED: Final = "searched"
"""A split that was found with an order, or by moving layers of another."""
TIE: Final = Fraction(1, 1000)
"""Share of a time below which an estimate says nothing of which of two is shorter."""
_OWN: Final = "pipesat"  # the source of hand-written schedules that no one else has published
PLAINEST_FIRST: Final = (
    "1f1b",
    "interleaved-1f1b",
    "zb-h1",
    "interleaved-zb",
    "zb-v",
    "dualpipev",
    "interleaved-overlapped",
)
"""What the table always has. Of two rows that are as fast, the plainer one is advised: one of these
by its place, then another published schedule, ours, and what offloads."""
_FULL: Final = "full activation checkpointing, which its configuration sets"
_NO_COPIES: Final = "no runtime copies beside its ops yet: docs/memory.md has what runs"


def credited(source: str) -> str:
    """Return the name of the published schedule that a schedule's source names, else ``ours``.

    What a search has changed names another source: ``v-auto, justified`` is no one's but ours.
    """
    name = source.removesuffix(SOME_SETTINGS)
    return name if published_in(name) else OURS


def published_in(name: str) -> str:
    """Return the paper or program that a schedule was published in; empty for ours."""
    entry = baselines().get(name)
    return "" if entry is None or entry.source == _OWN else entry.source


@dataclass(frozen=True)
class Row:
    """One schedule on one split.

    Attributes
    ----------
    name
        Of the published schedule that its order is, or :data:`OURS`.
    split
        ``even``, ``balanced`` or :data:`SEARCHED`.
    candidate
        Its stages and their problem: rows of the same stages share what is known of them.
    fits
        Whether it keeps to the memory; else it needs more, and is only shown.
    why_not
        Why the runtime cannot run it today; empty: it can.
    by_hand
        What its configuration cannot say, and the user's own code has to.
    setting
        What its configuration has to say besides what is exported.
    group
        Microbatches per group of an interleaved schedule, ``None``: one per device.
    shipped
        Whether a framework has it so, with nothing chosen but the number of stages.
    """

    name: str
    split: str
    candidate: Candidate
    schedule: Schedule
    fits: bool
    why_not: str = ""
    by_hand: str = ""
    setting: str = ""
    group: int | None = None
    shipped: bool = False

    @property
    def shape(self) -> Pipeline:
        """Where its stages lie."""
        return self.candidate.shape

    @property
    def partition(self) -> tuple[range, ...]:
        """Layers of every stage."""
        return self.candidate.partition

    @property
    def problem(self) -> Problem:
        """What its schedule is one of."""
        return self.candidate.problem

    @property
    def makespan(self) -> int:
        """Of the schedule, in the layers' time unit."""
        return self.schedule.makespan

    @property
    def runs(self) -> bool:
        """Whether it fits and the runtime can run it."""
        return self.fits and not self.why_not

    @cached_property
    def peaks(self) -> list[int]:
        """Peak memory of every device."""
        return peak_memory(self.problem, self.schedule)

    @property
    def placement(self) -> str:
        """``chain``, ``vee`` or ``loop of 3``."""
        return self.shape.geometry.label

    @property
    def again(self) -> tuple[int, ...]:
        """Stages that recompute."""
        return tuple(stage for stage, flag in enumerate(self.candidate.recompute) if flag)

    @property
    def offloaded(self) -> int:
        """How many (stage, microbatch) are copied to the host."""
        return mode_counts(self.problem, self.schedule).get(OFFLOAD, 0)

    @property
    def pairs(self) -> int:
        """How many times two ops run together."""
        return sum(pair_counts(self.schedule).values())

    def layout(self, question: Question) -> str | None:
        """Which layers every stage has, in Megatron-LM's letters; ``None``: one has no letter."""
        with contextlib.suppress(NotApplicable):
            return layout_of_partition(question.layers, self.partition).text
        return None

    def share_of_ideal(self, question: Question) -> float | None:
        """Time of the layers' own work, shared by all devices by their speed, over the makespan.

        ``None`` where ops may run together: then the work is not a sum.
        """
        if question.overlap is not None:
            return None
        speed, work = self.shape.together, question.microbatches * question.work
        return ratio(work * speed.denominator, speed.numerator * self.makespan)

    def tokens_per_second(self, question: Question) -> float | None:
        """``None`` where the tokens or the unit of time are unknown."""
        second = seconds_of(question.layers.time_unit)
        if question.tokens is None or second is None or not self.makespan:
            return None
        return question.microbatches * question.tokens / float(self.makespan * second)

    def document(self, question: Question) -> dict[str, Any]:
        """Return the row ready for JSON; what is unknown is ``None``."""
        return {
            "schedule": self.name,
            "published": published_in(self.name) or None,
            "split": self.split,
            "placement": self.placement,
            "layout": self.layout(question),
            "layers_per_stage": [len(part) for part in self.partition],
            "group": self.group,
            "recompute": [*self.again],
            "recompute_first": self.candidate.first,
            "offloaded": self.offloaded,
            "pairs": self.pairs,
            "makespan": self.makespan,
            "tokens_per_second": self.tokens_per_second(question),
            "share_of_ideal": self.share_of_ideal(question),
            "peak_memory": max(self.peaks),
            "fits": self.fits,
            "runs": self.runs,
            "why_not": self.why_not or None,
            "by_hand": self.by_hand or None,
            "setting": self.setting or None,
            "source": self.schedule.source,
        }


def rank(row: Row) -> tuple[bool, bool, int, bool, int]:
    """Key to sort rows by: what fits, what runs, the fastest, nothing by hand, the plainest."""
    names = (*PLAINEST_FIRST, "", OURS, OFFLOAD)
    plain = names.index(row.name if row.name in names else "")
    return not row.fits, not row.runs, row.makespan, row.by_hand != "", plain


def best_of(rows: Iterable[Row], name: str = "", *, shipped: bool = False) -> Row | None:
    """Return the fastest row that runs: of all, or of a schedule; or as frameworks ship it."""
    some = (row for row in rows if row.runs and name in ("", row.name))
    return min((row for row in some if row.shipped or not shipped), key=rank, default=None)


def advised_of(rows: Iterable[Row]) -> Row | None:
    """Return the row to take: of those that take as long as the fastest, the plainest.

    Of these the one with least memory, then with fewest stages.
    """
    rows = [*rows]
    best = best_of(rows)
    if best is None:
        return None
    near = (row for row in rows if row.runs and row.makespan == best.makespan)
    return min(near, key=lambda row: (*rank(row)[3:], max(row.peaks), row.shape.stages, rank(row)))


def leaner_of(rows: Iterable[Row], row: Row) -> Row | None:
    """Return the row of least memory that an estimate cannot tell from this one by its time."""
    most = row.makespan * (1 + (TIE if row.problem.estimate else 0))
    near = (one for one in rows if one.runs and one.makespan <= most)
    return min(
        (one for one in near if max(one.peaks) < max(row.peaks)),
        key=lambda one: max(one.peaks),
        default=None,
    )


def plain_of(rows: Iterable[Row]) -> Row | None:
    """Return the row to take of those that run as they are exported."""
    return advised_of(row for row in rows if not row.by_hand)


def row_of(
    question: Question,
    name: str,
    split: str,
    candidate: Candidate,
    schedule: Schedule | None = None,
    group: int | None = None,
) -> Row:
    """Return the row of a schedule, or of the hand-written one of that name, as its runtime has it.

    Raises
    ------
    NotApplicable
        If the hand-written schedule does not exist on these stages.
    Contradiction
        If the schedule is not valid with any amount of memory.
    """
    problem = candidate.problem
    made = baseline(name, problem, group=group) if schedule is None else schedule
    fits = not check(problem, made)
    if not fits and (violations := check(problem.with_memory(None), made)):
        raise Contradiction(f"{made.source} is no schedule of its problem: {violations[0]}")
    return marked(question, Row(name, split, candidate, made, fits, group=group))


def marked(question: Question, row: Row) -> Row:
    """Return a row with why its runtime cannot run it, and what is to be done by hand."""
    if not row.fits:
        return replace(row, why_not="needs more memory than there is")
    if row.candidate.offload:
        return replace(row, why_not=_NO_COPIES)
    row = replace(row, shipped=ships(question, row.shape, row.split, row.group))
    if not question.any_order:
        return replace(row, why_not=_why_not_its_own(question, row))
    try:
        why_not = question.record.why_not(row.problem, options_of(question, row))
        if why_not is None and question.record.in_python:
            ran = as_run(row.problem, row.schedule, question.record).schedule
            row = replace(row, schedule=ran)
    except NotApplicable as error:
        why_not = str(error)
    if why_not is not None:
        return replace(row, why_not=why_not)
    setting, by_hand = to_do(question, row)
    return replace(row, setting=setting, by_hand=by_hand, shipped=row.shipped and not by_hand)


def ships(question: Question, shape: Pipeline, split: str, group: int | None) -> bool:
    """Whether nothing but the number of stages is chosen: else Megatron-LM wants a layout."""
    blocks = sum(layer.role == "block" for layer in question.layers.layers)
    even = question.any_order or blocks % shape.stages == 0
    return even and (split, group) == ("even", None)


def options_of(question: Question, row: Row) -> Options:
    """Return what the exporter is told besides problem and schedule.

    A framework's one switch is off where stages have to be checkpointed in the user's own code.

    Raises
    ------
    NotApplicable
        If a framework is told how many layers a stage has, and one has no name there.
    """
    version = question.release if "version" in question.record.takes else None
    if not question.record.takes_layers:
        return Options(version=version)
    layout = layout_of_partition(question.layers, row.partition)
    require_applicable(
        all("m" not in stage for stage in layout.stages),
        f"{question.record.title}'s file has no names for MTP layers",
    )
    switch: Checkpointing = "full" if row.setting else "none"
    return Options(
        layers=layout.counts,
        checkpointing=switch,
        version=version,
        batch=question.layers.batch,
        tensor_parallel=question.layers.tensor_parallel,
    )


def _why_not_its_own(question: Question, row: Row) -> str:
    """Say why a runtime that runs orders of its own, Megatron-LM, does not run a row."""
    own = row.shape == question.shape(row.shape.placement, row.shape.chunks)
    if row.name not in question.record.built_in or not own or row.shape.placement == "vee":
        return "Megatron-LM runs orders of its own: 1F1B, interleaved and combined 1F1B"
    if row.again and not _all_again(question, row):
        return "Megatron-LM recomputes on all stages alike"
    if row.pairs and (row.again or row.candidate.first is not None):
        return f"{OVERLAP[0]} refuses --recompute-granularity full"
    try:
        layout_option(question.layers, row.partition, question.devices)
    except NotApplicable as error:
        return str(error)
    p, m = question.devices, question.microbatches
    return refusal(p, row.shape.stages // p, m, row.group) or ""


def _all_again(question: Question, row: Row) -> bool:
    """Whether every stage that can recompute does."""
    able = [s for s, part in enumerate(row.partition) if question.layers.may_recompute(part)]
    return bool(able) and [*row.again] == able


def to_do(question: Question, row: Row) -> tuple[str, str]:
    """What has to be set, and what to be written by hand, for stages that recompute and pairs."""
    if not row.again:
        return "", question.record.in_turn if row.pairs else ""
    splits = any(isinstance(i, Op) and i.kind == "B" for line in row.schedule.order for i in line)
    if question.record.one_switch and _all_again(question, row) and not splits:
        return _FULL, ""
    return "", f"checkpoint {stages_text(row.again)} in your own code"


def stages_text(stages: tuple[int, ...]) -> str:
    """Name stages: ``stage 3``, ``stages 0-3``, ``stages 0-2, 5``."""
    word = "stage" if len(stages) == 1 else "stages"
    return f"{word} {ranges(stages)}".replace("\N{EN DASH}", "-")
