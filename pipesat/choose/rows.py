"""The rows of an answer: each one a schedule that the checker has seen, of the question's layers.

:func:`require_same_question` holds all of them to that, in one place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from pipesat.choose.ask_plan import SOME_SETTINGS
from pipesat.choose.candidates import Candidate, has_variant
from pipesat.choose.pairs import OFFLOAD
from pipesat.choose.question import Question
from pipesat.core.amounts import SECONDS
from pipesat.core.checker import check
from pipesat.core.claims import Bound, ratio, require_best
from pipesat.core.errors import Contradiction
from pipesat.core.metrics import mode_counts, pair_counts, peak_memory
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.layers.layout import MegatronLayout, layout_of_partition
from pipesat.layers.megatron import first_recomputed
from pipesat.layers.pipeline import Pipeline, shape_name
from pipesat.workflows.hand_written import baselines

OURS: Final = "ours"
_OWN: Final = "pipesat"  # the source of hand-written schedules that nobody else has published


def credited(source: str) -> str:
    """Return the name of the published schedule that a schedule's source names, else ``ours``.

    What a search has changed names another source: ``v-auto, justified`` is nobody's but ours.
    """
    name = source.removesuffix(SOME_SETTINGS)
    return name if published_in(name) else OURS


def published_in(name: str) -> str:
    """Return the paper or program that a schedule was published in; empty for ours."""
    entry = baselines().get(name)
    return "" if entry is None or entry.source == _OWN else entry.source


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


@dataclass(frozen=True)
class Row:
    """One schedule on one split.

    Attributes
    ----------
    name
        Of the published schedule that its order is, or :data:`~pipesat.choose.rows.OURS`.
    split
        ``even``, ``balanced`` or ``ours``.
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
    def bound(self) -> Bound | None:
        """What no schedule of its problem is below, where its order was searched by itself."""
        return self.candidate.bound if self.candidate.bound.value else None

    @property
    def published(self) -> str:
        """The paper or program that its order was published in; empty if only our search has it."""
        return published_in(self.name)

    @property
    def makespan(self) -> int:
        """Of the schedule, in the layers' time unit."""
        return self.schedule.makespan

    @property
    def runs(self) -> bool:
        """Whether it fits and the runtime can run it."""
        return self.fits and not self.why_not

    @property
    def peaks(self) -> list[int]:
        """Peak memory of every device, the reserve included."""
        return peak_memory(self.problem, self.schedule)

    @property
    def placement(self) -> str:
        """``chain``, ``vee`` or ``loop of 3``."""
        return shape_name(self.shape)

    def layout(self, question: Question) -> MegatronLayout:
        """Which layers every stage has."""
        return layout_of_partition(question.layers, self.partition)

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

    def recomputes(self, question: Question) -> frozenset[int]:
        """Return the layers that recompute."""
        stages = {k for stage in self.again for k in self.partition[stage]}
        if self.candidate.first is not None:
            layers = question.layers
            changed = first_recomputed(layers, self.partition, self.candidate.first).layers
            stages |= {k for k, one in enumerate(changed) if one is not layers.layers[k]}
        return frozenset(k for k in stages if question.layers.layers[k].recomputed is not None)

    def all_again(self, question: Question) -> bool:
        """Whether every stage that can recompute does."""
        layers = question.layers
        able = [stage for stage, part in enumerate(self.partition) if has_variant(layers, part)]
        return bool(able) and [*self.again] == able

    def share_of_ideal(self, question: Question) -> float | None:
        """Time of the layers' own work, shared by all devices evenly, over the makespan.

        ``None`` where ops may run together: then the work is not a sum.
        """
        if question.parts is not None:
            return None
        work = question.microbatches * question.work
        return ratio(work, question.devices * self.makespan)

    def tokens_per_second(self, question: Question) -> float | None:
        """``None`` where the tokens or the unit of time are unknown."""
        second = SECONDS.get(question.layers.time_unit)
        if question.tokens is None or second is None or not self.makespan:
            return None
        return question.microbatches * question.tokens / float(self.makespan * second)

    def document(self, question: Question) -> dict[str, Any]:
        """Return the row ready for JSON; what is unknown is ``None``."""
        return {
            "schedule": self.name,
            "published": self.published or None,
            "split": self.split,
            "placement": self.placement,
            "layout": self.layout(question).text,
            "layers_per_stage": [len(part) for part in self.partition],
            "group": self.group,
            "recompute": [*self.again],
            "recompute_first": self.candidate.first,
            "offloaded": self.offloaded,
            "pairs": self.pairs,
            "makespan": self.makespan,
            "tokens_per_second": self.tokens_per_second(question),
            "share_of_ideal": self.share_of_ideal(question),
            "peak_memory": max(self.peaks) - question.reserve,
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


def fits(problem: Problem, schedule: Schedule) -> bool:
    """Whether a schedule keeps to the memory; what breaks any other rule is refused.

    Raises
    ------
    Contradiction
        If it is not valid with any amount of memory.
    """
    if not check(problem, schedule):
        return True
    roomy = problem.with_memory(None)
    if violations := check(roomy, schedule):
        raise Contradiction(f"{schedule.source} is no schedule of its problem: {violations[0]}")
    return False


def require_same_question(
    question: Question, rows: Iterable[Row], named: Iterable[Row], best: Row | None
) -> None:
    """Raise ``Contradiction`` unless what the answer names are checked schedules of one question.

    Every row ``named`` is of the question's own stages, its schedule goes through the checker, and
    no row that runs is better than the best. All rows were checked when they were made.
    """
    for row in named:
        if row.candidate not in question.candidates.values():
            raise Contradiction(f"{row.name} ({row.split} split) answers another question")
        if fits(row.problem, row.schedule) != row.fits:
            raise Contradiction(f"{row.name} ({row.split} split) is wrong about its memory")
    found = [(f"{row.name} ({row.split} split)", row.makespan) for row in rows if row.runs]
    require_best("the advice", None if best is None else best.makespan, found)
