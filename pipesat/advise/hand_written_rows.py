"""The schedules that users know, at their best: every setting tried, by count and not by clock.

A setting is a schedule in a shape, on the even or the balanced split, in groups of microbatches of
a size; what recomputes is chosen for each. The best setting of :data:`KNOWN`, what a gain is stated
over, also has its split moved while that makes it shorter: a layer from stage to stage, in a chain
to any, or to a split that is balanced within memory. How many settings there are and which are
tried depends on the question and the time limit: work is counted in ops that are timed. On a
machine so busy that the time limit would pass, what is neither shipped nor 1F1B on the balanced
split is left out.

Interleaved 1F1B runs in groups whose size Megatron-LM lets its user choose within guards
(:mod:`pipesat.layers.megatron`), which recomputes all layers, or as many first ones on every stage.
For torch the same is searched, and any stages may recompute.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from typing import Final, Literal, NamedTuple

import numpy as np

from pipesat.advise.candidates import Flags, usual_in_flight
from pipesat.advise.orders import KNOWN, SCHEDULES
from pipesat.advise.plan_tables import works_of
from pipesat.advise.question import Question
from pipesat.advise.splits import balanced_partition, even_partition
from pipesat.advise.table_rows import SEARCHED, Row, best_of, rank, row_of, ships
from pipesat.compare.hand_written import baseline
from pipesat.core.claims import Tried
from pipesat.core.errors import BadInput, Infeasible, NotApplicable
from pipesat.core.grouping import grouped
from pipesat.core.progress import doing
from pipesat.core.settings import OneRoutePlacement
from pipesat.heuristics.interleaved import IN_GROUPS
from pipesat.kernels.arrays import Coded, ProblemArrays
from pipesat.kernels.timing import makespan_of
from pipesat.layers.devices import smallest_largest
from pipesat.layers.layer import Layers
from pipesat.layers.megatron import OVERLAP, group_sizes, most_blocks, refusal
from pipesat.layers.pipeline import Pipeline
from pipesat.layers.rules import neighbours
from pipesat.problem.geometry import CHUNKS
from pipesat.problem.problem import Problem
from pipesat.schedule.arrays_of import arrays_of, coded
from pipesat.schedule.metrics import peak_memory
from pipesat.schedule.result import Improvement
from pipesat.schedule.solving import Deadline, Listener

NOT_TRIED: Final = "not tried: more than the time limit allows for"
_MOST_OF_OTHERS: Final = {True: 4, False: 8}  # stages per rank, where any order runs or not
_OPS_PER_SECOND: Final = {True: 30_000, False: 70_000}
"""Ops of hand-written schedules that are timed, per second of the time limit, for :data:`KNOWN`;
and as many for all others: about a third of the time of one core. More if no other order runs."""
_BY_CLOCK: Final = {True: 0.6, False: 0.8}
"""Shares of the time limit after which no more are timed: a busy machine times fewer."""
_MOVING: Final = 0.15
_OF_TIMING: Final = 1 / 32  # what timing a known order counts, of writing and timing one


class Setting(NamedTuple):
    """What a user of a schedule can choose, and what is counted as tried."""

    name: str
    shape: Pipeline
    split: str
    group: int | None = None
    shipped: bool = False

    @property
    def family(self) -> str:
        """Schedule and shape."""
        if self.split == SEARCHED:
            return f"{self.name} on moved splits"
        return f"{self.name} in a {self.shape.geometry.label}"


def counted(settings: Mapping[Setting, bool], by: Literal["name", "family"]) -> dict[str, Tried]:
    """Return how many settings of each schedule, or family, were tried."""
    found = grouped((getattr(setting, by), tried) for setting, tried in settings.items())
    return {name: Tried(name, sum(one), len(one)) for name, one in found.items()}


def hand_written_of(question: Question, placement: OneRoutePlacement) -> tuple[str, ...]:
    """Return the names that the table has of a placement, for the runtime."""
    names, pairs = SCHEDULES[placement], question.overlap is not None
    if pairs and placement == "loop":
        names += ("interleaved-overlapped",)
    if question.any_order:
        return names
    own = (*question.record.built_in, *(["dualpipev"] if pairs else []))  # to compare with pairs
    return tuple(name for name in names if name in own)


def settings_of(question: Question, left_out: dict[str, str]) -> list[Setting]:
    """Return every setting: the first one of each family, the second ones, and on.

    In every round the chain comes first, then the V and loops, those of fewer stages first.
    """
    p, m, any_order = question.devices, question.microbatches, question.any_order
    sizes = group_sizes(p, m) if p > 1 else []
    if not any_order and question.overlap is None:
        left_out[OVERLAP[0]] = "tried if --overlap says what a pair of F and BW takes"
    if not any_order and not sizes:
        left_out[" and ".join(hand_written_of(question, "loop"))] = refusal(p, 2, m) or ""
    others = sorted((size for size in sizes if size != p), key=lambda s: (m % s != 0, s))
    usual = [None] if any_order or p in sizes else []  # one microbatch per device
    most = len(question.layers) // p if p > 1 else CHUNKS
    shapes = [question.shape("chain"), question.shape("vee")]
    shapes += [question.shape("loop", chunks) for chunks in range(CHUNKS, max(CHUNKS, most) + 1)]
    families = []
    for shape in shapes:
        for name in hand_written_of(question, shape.placement):
            if name not in KNOWN and shape.chunks > _MOST_OF_OTHERS[any_order]:
                continue
            grouped = name in IN_GROUPS
            groups = [*usual, *others] if grouped else [None] if shape.chunks == CHUNKS else []
            families.append(
                [
                    Setting(name, shape, split, group, ships(question, shape, split, group))
                    for group in groups
                    for split in ("even", "balanced")
                ]
            )
    return [*filter(None, chain.from_iterable(zip_longest(*families)))]


def split_of(name: str, layers: Layers, shape: Pipeline) -> tuple[range, ...] | None:
    """Return the even or the balanced split; ``None`` if the balanced one is the even one.

    Raises
    ------
    BadInput, Infeasible, NotApplicable
        If there is none.
    """
    if name == "even":
        return even_partition(layers, shape)
    balanced = balanced_partition(layers, shape)
    with contextlib.suppress(BadInput, Infeasible, NotApplicable):
        return None if balanced == even_partition(layers, shape) else balanced
    return balanced


class Way(NamedTuple):
    """What recomputes, and what a schedule then takes: memory's excess, makespan, peaks."""

    flags: Flags
    first: int | None
    excess: int
    makespan: int
    peaks: list[int]

    @property
    def worth(self) -> tuple[int, int, int]:
        """Key to sort by: what lacks least memory, the fastest, what recomputes least."""
        return self.excess, self.makespan, sum(self.flags)


@dataclass
class Trials:
    """The rows of a question's answer so far, and how many ops may still be timed.

    Attributes
    ----------
    settings
        Every setting of a hand-written schedule, and whether it was tried.
    left_out
        What has no row, and why.
    told
        The best bound of the whole question so far.
    kept
        Share of ops and time for moving the split of the best setting.
    """

    question: Question
    deadline: Deadline
    listener: Listener | None = None
    left: float = 0.0
    rows: list[Row] = field(default_factory=list)
    settings: dict[Setting, bool] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    told: int | None = None
    kept: float = _MOVING
    _codes: dict[object, Coded] = field(default_factory=dict)
    _moved_from: dict[str, Row] = field(default_factory=dict)

    @doing("building schedules that users know")
    def run(self) -> None:
        """Try every setting, of what a gain is stated over first, as far as the count allows."""
        every = settings_of(self.question, self.left_out)
        known = list[Setting]()
        for name in KNOWN:
            own = [setting for setting in every if setting.name == name]
            usual = [setting for setting in own if setting.group == own[0].group]
            known += usual + [Setting(name, one.shape, SEARCHED) for one in own[:1]]
            known += [setting for setting in own if setting not in usual]
        others = [setting for setting in every if setting.name not in KNOWN]
        self.settings = dict.fromkeys(known + others, False)
        for group in (known, others):
            self.left = self.deadline.limit * _OPS_PER_SECOND[self.question.any_order]
            kept, self.left = _MOVING * self.left, (1 - _MOVING) * self.left
            for setting in group:
                timed = setting.shipped or setting.name == "1f1b"  # whatever the clock says
                if self.left > 0 and (timed or not self.over):
                    self._try(setting)
            self.left, self.kept = self.left + kept, 0.0
            for setting in (one for one in group if one.split == SEARCHED):
                self._try(setting)  # again: another size of groups may have become the best
            self.kept = _MOVING
        for name, tried in counted(self.settings, "family").items():
            if tried.tried < tried.total:
                self.left_out[name] = tried.text if tried.tried else NOT_TRIED

    @property
    def over(self) -> bool:
        """Whether as much was timed as may be, or the caller wants no more."""
        share = (1 - self.kept) * _BY_CLOCK[self.question.any_order]
        return self.left <= 0 or self.deadline.past(share)

    def _try(self, setting: Setting) -> None:
        if setting.split == SEARCHED:
            self.settings[setting] = self._moved(setting.name, setting.shape)
            return
        own, (name, shape, split, group, _) = self.question, setting
        try:
            cut = split_of(split, own.layers, shape)
            if cut is None:
                del self.settings[setting]
                return
            self.add(name, split, shape, cut, group)
            self.settings[setting] = True
        except (BadInput, Infeasible, NotApplicable) as error:
            groups = "" if group is None else f", groups of {group}"
            self.left_out[f"{setting.family}{groups} ({split} split)"] = str(error)
            del self.settings[setting]

    def add(
        self,
        name: str,
        split: str,
        shape: Pipeline,
        partition: tuple[range, ...],
        group: int | None = None,
        wanted: Flags = (),
    ) -> None:
        """Add the row of the recomputation with which a schedule runs fastest.

        If that needs work by hand, the fastest that needs none follows. If nothing fits, it is what
        needs least memory. ``wanted`` is one that is tried besides.

        Raises
        ------
        NotApplicable
            If the schedule does not exist on this shape.
        """

        def row(way: Way) -> Row:
            own = self.question.candidate(shape, partition, way.flags, first=way.first)
            made = row_of(self.question, name, split, own, group=group)
            return plainly_named(self.question, made)

        none, *others = self._ways(name, group, shape, partition)
        if any(wanted):
            others.append(self.measured(name, group, shape, partition, wanted))
        best = row(min([none, *others], key=lambda way: way.worth))
        self.keep(best)
        if best.by_hand:
            alike = [way for way in (none, *others[:1]) if not way.excess]
            easy = [made for made in map(row, alike) if made.runs and not made.by_hand]
            if easy:
                self.keep(min(easy, key=rank))

    def keep(self, row: Row) -> None:
        """Add a row, unless it is there under its name: zb-h1 may be 1F1B, which comes first."""
        key = operator.attrgetter("name", "split", "group", "candidate", "makespan")
        if any(key(other) == key(row) for other in self.rows):
            return
        self.rows.append(row)
        if row.fits:
            source = f"{row.placement}, {row.split} split: {row.schedule.source}"
            unit = self.question.layers.time_unit
            self.hear(Improvement(self.deadline.seconds, None, None, source, unit), of_all=False)

    def hear(self, improvement: Improvement, *, of_all: bool = True) -> None:
        """Pass on what a search says as a part of this one: the best is that of all rows that run.

        For a runtime that runs its own orders, a value of the search is none.

        A bound is passed on only where it is one ``of_all`` the question: not that of one split,
        nor that of whole stages where layers of a stage may recompute. From then on it is told with
        all that follows.
        """
        of_all = of_all and all(row.candidate.first is None for row in self.rows)
        if of_all and improvement.bound is not None:
            self.told = max(improvement.bound, self.told or 0)
        if self.listener is not None:
            best = best_of(self.rows)
            values = [improvement.value if self.question.any_order else None]
            values += [None if best is None else best.makespan]
            least = min((value for value in values if value is not None), default=None)
            own = improvement._replace(value=least, bound=self.told, seconds=self.deadline.seconds)
            self.listener(own._replace(source=self.question.words(own.source)))

    def _ways(
        self, name: str, group: int | None, shape: Pipeline, partition: tuple[range, ...]
    ) -> Iterator[Way]:
        """Nothing recomputes, then all stages; then what lies between.

        For a runtime that runs its own orders, as few first layers of every stage as fit. Else ever
        more stages. First it is always the first one left, as early stages hold their activations
        longest. Then, from none again, always one of the device that needs most memory of those
        that have one left, and there the stage that saves most. Which stages these are does not
        depend on how much memory there is, so whatever fits into some memory is also tried with
        more: more never makes the best of them worse. The end is left out where recomputing makes
        the devices' work alone longer than the best so far takes.
        """
        question, own = self.question, (name, group, shape, partition)
        yield (none := self.measured(*own))
        able = tuple(question.layers.may_recompute(part) for part in partition)
        if not question.may_recompute or not any(able):
            return
        yield (every := self.measured(*own, able))
        if not question.any_order and shape.placement != "vee":
            for first in range(1, most_blocks(question.layers, partition)):
                if not none.excess:
                    return  # more would only take longer
                yield (none := self.measured(*own, first=first))
            return
        plain, again = (question.candidate(shape, partition, f).problem for f in ((), able))
        pairs = zip(plain.stages, again.stages, strict=True)
        saved = [one.held_after_F - other.held_after_F for one, other in pairs]
        work = [works_of(problem) for problem in (plain, again)]
        best = min((way.makespan for way in (none, every) if not way.excess), default=None)
        for fullest in (False, True):
            flags, way = [False] * len(able), none
            while sum(able) - sum(flags) > 1:
                left = [s for s, can in enumerate(able) if can and not flags[s]]
                now = [work[flag][s] for s, flag in enumerate(flags)]
                load = max(sum(now[s] for s in stages) for stages in shape.stages_on)
                if best is not None and question.overlap is None and load >= best:
                    break
                peaks = way.peaks
                stage = left[0]
                if fullest:
                    stage = max(left, key=lambda s: (peaks[shape.homes[s]], saved[s], -s))
                flags[stage] = True
                yield (way := self.measured(*own, tuple(flags)))
                if not way.excess:
                    best = way.makespan if best is None else min(best, way.makespan)

    def measured(
        self,
        name: str,
        group: int | None,
        shape: Pipeline,
        partition: tuple[range, ...],
        flags: Flags = (),
        first: int | None = None,
    ) -> Way:
        """Time a schedule of a candidate.

        The orders of :data:`KNOWN` depend on no amounts: in a shape, they are written once.

        Raises
        ------
        NotApplicable
            If it does not exist there.
        """
        every = tuple(self.question.layers.may_recompute(part) for part in partition)
        ends = [
            self.question.candidate(shape, partition, f, first=first).problem
            for f in ((), *([every] if any(flags) else []))
        ]
        self.left -= ends[0].op_count * _OF_TIMING
        peaks = None
        if name in KNOWN:
            codes = self._coded(name, group, shape, ends[0])
            arrays = mixed([*map(arrays_of, ends)], flags)
            makespan, peaks = makespan_of(arrays, codes), most_held(arrays, codes, ends[0])
        if peaks is None:
            problem = self.question.candidate(shape, partition, flags, first=first).problem
            self.left -= problem.op_count
            schedule = baseline(name, problem, group=group)
            makespan, peaks = schedule.makespan, peak_memory(problem, schedule)
        slacks = shape.capacities
        over = [
            peak - slack for peak, slack in zip(peaks, slacks, strict=True) if slack is not None
        ]
        return Way(flags, first, max(0, 0, *over), makespan, peaks)

    def _coded(self, name: str, group: int | None, shape: Pipeline, problem: Problem) -> Coded:
        key = name, group, shape, tuple(stage.may_fuse for stage in problem.stages)
        if key not in self._codes:
            self.left -= problem.op_count
            self._codes[key] = coded(problem, baseline(name, problem, group=group).order)[1]
        return self._codes[key]

    def _moved(self, name: str, shape: Pipeline) -> bool:
        """Move the split of a schedule's best row a layer at a time until no move helps.

        Or until no more may be timed: then ``False``. If no row fits, it begins in that shape.
        """
        for partition, wanted in () if best_of(self.rows, name) else self._within(shape):
            with contextlib.suppress(BadInput, NotApplicable):
                if not self.measured(name, None, shape, partition, wanted).excess:
                    self.add(name, SEARCHED, shape, partition, wanted=wanted)
        best = best_of(self.rows, name)
        while best is not None and best is not self._moved_from.get(name):
            if self.over:
                return False
            last = best
            while (better := self._better(last)) is not None:
                last = better
            if self.over:
                return False
            self._moved_from[name] = best
            if last is not best:
                self.keep(last)
                self.add(name, SEARCHED, last.shape, last.partition, last.group)
            best = best_of(self.rows, name)
        return best is not None or not self.over

    def _within(self, shape: Pipeline) -> Iterator[tuple[tuple[range, ...], Flags]]:
        """Splits of a shape that are balanced within memory, to move on from."""
        own = self.question.own
        for recompute in self.question.of_splits:
            with contextlib.suppress(BadInput, Infeasible, NotApplicable):
                flying = usual_in_flight(shape)
                split = smallest_largest(own, shape, in_flight=flying, recompute=recompute)
                yield split.partition, split.recompute if self.question.any_order else ()

    def _better(self, row: Row) -> Row | None:
        """The best neighbour of a row that runs and is shorter, in the same shape and groups."""
        question, found = self.question, list[tuple[Way, tuple[range, ...]]]()
        moves: list[Iterable[tuple[tuple[range, ...], Flags]]] = [question.around(row.candidate)]
        if row.shape.stages == row.shape.devices:
            far = neighbours(question.layers, row.candidate.partition, row.shape, far=True)
            also = ((partition, row.candidate.recompute) for partition in far)
            moves = [dict.fromkeys(chain(*moves, also))]  # each once: far ones have the near ones
        if row.split != SEARCHED:
            moves.append(self._within(row.shape))
        for partition, wanted in chain(*moves):
            if self.over:
                return None
            choices = {question.settled(row.shape, partition, wanted): None}
            if question.any_order:
                choices |= dict.fromkeys(question.first(row.shape, partition))
            for flags in choices:
                with contextlib.suppress(BadInput, NotApplicable):
                    own = row.name, row.group, row.shape, partition, flags
                    way = self.measured(*own, row.candidate.first)
                    if not way.excess and way.makespan < row.makespan:
                        found.append((way, partition))
        for way, partition in sorted(found, key=lambda one: one[0].worth):
            near = question.candidate(row.shape, partition, way.flags, first=way.first)
            made = row_of(question, row.name, SEARCHED, near, group=row.group)
            if made.runs:
                return made
        return None


def mixed(ends: Sequence[ProblemArrays], flags: Flags) -> ProblemArrays:
    """Return the arrays of a problem whose flagged stages are the last one's, all else the first's.

    Both have one row for each stage: their microbatches are alike, and run in one mode.
    """
    first, last = ends[0], ends[-1]
    chosen = np.array(flags or False).reshape(-1, 1)
    tables = {
        name: np.where(chosen, getattr(last, name), getattr(first, name))
        for name in ("time", "taken", "net")
    }
    return first._replace(**tables)


def most_held(arrays: ProblemArrays, order: Coded, problem: Problem) -> list[int] | None:
    """Peak memory of every device under an order of single ops.

    ``None`` if an op of no time takes or frees memory: then it depends on which ops end together.
    """
    at = arrays.variant_of[order.first >> arrays.shift], order.first & 3
    net, taken = arrays.net[at], arrays.taken[at]
    if ((arrays.time[at] == 0) & ((net != 0) | (taken != 0))).any():
        return None
    ends = np.cumsum(net)
    begin = order.begin[:-1]
    most = np.maximum.reduceat(ends - net + taken, begin) - np.concatenate([[0], ends])[begin]
    return [a + one.static for a, one in zip(map(int, most), problem.devices, strict=True)]


def plainly_named(question: Question, row: Row) -> Row:
    """Call a row by the plainest name that has its order: of some problems, zb-h1 is 1F1B."""
    names = hand_written_of(question, row.shape.placement)
    for name in names[: names.index(row.name)] if row.name in names else ():
        with contextlib.suppress(NotApplicable):
            if baseline(name, row.problem).order == row.schedule.order:
                return replace(row, name=name, group=None)
    return row
