"""The work on an answer: rows, then searches, each within its share of the time.

All of it is in wall-clock time: what is not done by then is named in the answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Final

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.choose.advice import NOT_BUILT
from pipesat.choose.advice_table import shown_rows
from pipesat.choose.bounds import shape_bound
from pipesat.choose.candidates import Candidate, has_variant
from pipesat.choose.cut_terms import cheapest
from pipesat.choose.hand_written_rows import (
    Build,
    Setting,
    builds,
    counted,
    hand_written_of,
    moved_rows,
    moved_setting,
    plainly_named,
    rows_on,
)
from pipesat.choose.offload import OFFLOAD
from pipesat.choose.orders import KNOWN
from pipesat.choose.phases import plan_of
from pipesat.choose.plan import Plan
from pipesat.choose.question import Question
from pipesat.choose.rows import Row, best_of, credited, fits, marked, plain_of, rank, row_of
from pipesat.choose.splits import balanced_partition
from pipesat.core.claims import Bound
from pipesat.core.errors import BadInput, Infeasible, NotApplicable
from pipesat.core.progress import doing
from pipesat.core.result import Improvement
from pipesat.core.schedule import Schedule
from pipesat.core.solving import LEAST_SECONDS, Deadline, Listener
from pipesat.heuristics.registry import GiveUp, never
from pipesat.layers.pipeline import shape_name
from pipesat.workflows.hand_written import baseline
from pipesat.workflows.solve import solve

# Shares of the time limit by which each is over
_FIRST: Final = 0.5  # one build of every family; most take a fraction of it
_KNOWN: Final = 0.3  # every setting of what a gain is stated over
_OTHERS: Final = 0.45  # other builds
_MOVED_BY: Final = 0.5  # moving the best splits
# Shares that are kept for what comes later
_OFFLOADING: Final = 0.2
_ALIKE: Final = 0.15  # a plan in which all stages recompute or none
_SETTLING: Final = 0.3  # searching the orders of what is advised and shown
_MOVED: Final = 4  # rows whose splits are moved
_ADVISED: Final = 0.6  # of that, for the first of several
_SEARCHED: Final = 3  # the effort of a candidate whose order was searched


@dataclass
class Work:
    """Rows so far, and the time there is."""

    question: Question
    deadline: Deadline
    workers: int | None
    seed: int
    listener: Listener | None
    rows: list[Row] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    settings: dict[Setting, bool] = field(default_factory=dict)  # whether each was tried
    told: int | None = None  # the best bound of the whole question so far
    _ended: set[object] = field(default_factory=set)
    _there: set[tuple[object, ...]] = field(default_factory=set)
    _tried: set[tuple[str, Candidate]] = field(default_factory=set)

    def done(self) -> Plan:
        """Do all of it; return our search's plan."""
        self.write()
        self.complete(_MOVED_BY)
        found = self.search()
        self.offload()
        self.complete()
        self.settle()
        return found

    @doing("building schedules that users know")
    def write(self) -> None:
        """Build what users know: one of every family first, then every setting of :data:`KNOWN`.

        The gain is stated over those, so they come before all that is ours, the usual groups first.
        Then other families' other builds, and moved splits. The first builds recompute nowhere or
        everywhere; what lies between comes after all of these.
        """
        firsts, *others = builds(self.question, self.left_out.__setitem__)
        every = [*firsts, *chain(*others)]
        known = [build for build in every if build.name in KNOWN]
        settings = [*(build.setting for build in every), *(moved_setting(b.name) for b in known)]
        self.settings = dict.fromkeys(settings, False)
        for number, build in enumerate(firsts):
            if not (number and self.deadline.past(_FIRST)):
                self._build(build, (lambda: True) if self.question.may_recompute else never)
        over = self._past(_KNOWN)
        for grouped in (False, True):
            for build in known:
                if (build.group is not None) == grouped and not over():
                    best = best_of(self.rows, build.name) if grouped else None
                    self._build(build, over, None if best is None else best.makespan)
            for name in dict.fromkeys(build.name for build in known):
                self.settings[moved_setting(name)] = self._tuned(name, over)
        over = self._past(_OTHERS)
        for build in every:
            if not over():
                self._build(build, over)
        for row in [*self._best_rows()][:_MOVED]:
            self._moved(row, self._past(_MOVED_BY))
        for name, tried in counted(self.settings, "family").items():
            if tried.tried < tried.total:
                self.left_out[name] = tried.text if tried.tried else NOT_BUILT

    def _build(self, build: Build, over: GiveUp, beat: int | None = None) -> None:
        """Try a setting, unless it was: not the whole of it if time is ``over`` at its end."""
        if self.settings.get(build.setting) is not False:
            return
        rows = build.rows(self.question, self.left_out.__setitem__, over, beat)
        if rows is None:
            del self.settings[build.setting]
            return
        for row in rows:
            self._add(row)
        self.settings[build.setting] = not over()

    def _best_rows(self) -> Iterator[Row]:
        """Yield the best rows of every schedule, shape and group, the best first."""
        seen: set[tuple[object, ...]] = set()
        for row in sorted(self.rows, key=rank):
            key = row.name, row.shape, row.group
            if (row.runs or (row.fits and self.question.any_order)) and key not in seen:
                seen.add(key)
                yield row

    def _tuned(self, name: str, over: GiveUp) -> bool:
        """Move the split of a schedule's best row until it stays the best; whether it does."""
        while True:
            best = best_of(self.rows, name)
            ended = self._moved(best, over)
            if best is best_of(self.rows, name):
                return ended

    def _moved(self, row: Row | None, over: GiveUp) -> bool:
        """Move a row's split layer by layer; whether that came to its end, or did before."""
        if row is None:
            return not over()
        start = row.name, row.group, row.candidate
        if start not in self._ended and not over():
            for better in moved_rows(self.question, row, over):
                self._add(better)
            if not over():
                self._ended.add(start)
        return start in self._ended

    def _past(self, share: float) -> GiveUp:
        return partial(self.deadline.past, share)

    def _kept(self, share: float) -> float:
        """Seconds that are left but for a share of the limit."""
        return self.deadline.left - share * self.deadline.limit

    def _add(self, row: Row) -> None:
        """Add a row, unless it is there under its name: zb-h1 may be 1F1B, which comes first."""
        key = (row.name, row.split, row.group, row.candidate, row.makespan)
        if key in self._there:
            return
        self._there.add(key)
        self.rows.append(row)
        if row.fits and self.listener is not None:
            source = f"{row.placement}, {row.split} split: {row.schedule.source}"
            unit = self.question.layers.time_unit
            seconds = self.deadline.seconds
            self.listener(Improvement(seconds, self._best, self.told, source, unit))

    @property
    def _best(self) -> int | None:
        """The least makespan of what runs, so far."""
        return min((row.makespan for row in self.rows if row.runs), default=None)

    def search(self) -> Plan:
        """Search over splits, placements, recomputation and orders; add what was found as rows."""
        question = self.question
        alike = question.may_recompute and question.record.one_switch
        kept = _SETTLING + _OFFLOADING * question.may_offload
        found, row = self._plan(self._kept(kept + _ALIKE * alike))
        if alike and row is not None and row.by_hand:
            self._search_alike(self._kept(kept))
        return found

    def _plan(self, seconds: float, *, all_again: bool | None = None) -> tuple[Plan, Row | None]:
        """Search splits; add the best, and what users know on its split."""
        question = self.question
        best = min((row for row in self.rows if row.runs), key=rank, default=None)
        chunks = 2 if best is None else max(2, best.shape.stages // question.devices)
        space, left_out = question.searched(sorted({2, chunks}), all_again=all_again)
        found = plan_of(
            space,
            Deadline(max(LEAST_SECONDS, seconds), self.deadline.stop),
            self._listening(of_all=all_again is None),
            workers=self.workers,
            seed=self.seed,
            left_out=left_out,
        )
        if found.chosen is None:
            return found, None
        chosen, schedule = found.chosen, found.chosen.schedules[0]
        shape = question.shape(chosen.shape.placement, chosen.shape.chunks)
        flags = chosen.recompute
        if all_again:
            flags = tuple(has_variant(question.layers, part) for part in chosen.partition)
        own = question.candidate(chosen.partition, shape, flags, question.free)
        row = self._add_found("ours", own, schedule)
        for name in hand_written_of(question, shape.placement):
            with contextlib.suppress(NotApplicable):  # a stage too few, or many, for it
                over = self._past(1 - _SETTLING)
                for known in rows_on(question, name, "ours", shape, own.partition, over=over):
                    self._add(known)
        return found, row

    def _search_alike(self, seconds: float) -> None:
        """What a configuration can say: no stage recomputes, or if that does not fit, all do."""
        try:
            self._plan(seconds, all_again=False)
        except Infeasible:
            self._plan(seconds, all_again=True)

    def _add_found(self, split: str, candidate: Candidate, schedule: Schedule) -> Row:
        """Add a schedule that a search has found, by the name of who published it."""
        name = OFFLOAD if candidate.offload else credited(schedule.source)
        row = Row(name, split, candidate, schedule, fits(candidate.problem, schedule))
        row = marked(self.question, row)
        self._add(row)
        return row

    def _search_order(self, own: Candidate, split: str, seconds: float) -> None:
        """Search for an order of a candidate; add it if it is shorter, and its bound to all."""
        same = [x for x in self.rows if x.candidate.stages == own.stages]
        found = solve(
            own.problem,
            time_limit=max(LEAST_SECONDS, seconds),
            workers=self.workers,
            seed=self.seed,
            schedules=[x.schedule for x in same],
            listener=self._listening() if same else None,
            stop=self.deadline.stop,
        )
        own.effort = _SEARCHED
        if found.bound is not None:
            own.prove(found.bound)
        if found.schedule is None:
            name = f"our search ({split} split, {shape_name(own.shape)})"
            self.left_out[name] = found.explanation or "no schedule was found in time"
            return
        new = all(x.candidate is not own for x in same)
        if new or all(found.schedule.makespan < x.makespan for x in same if x.fits):
            self._add_found(split, own, found.schedule)

    @doing("searching schedules that offload")
    def offload(self) -> None:
        """What offloading would bring, on the best split and on the balanced one in a chain."""
        question = self.question
        if not question.may_offload:
            return
        line = question.shape("chain")
        best = min((row for row in self.rows if row.fits), key=lambda r: r.makespan, default=None)
        asked = {} if best is None else {(best.partition, best.shape): best.split}
        with contextlib.suppress(BadInput, Infeasible, NotApplicable):
            roomy = replace(line, memory=None)
            asked.setdefault((balanced_partition(question.layers, roomy), line), "balanced")
        for number, ((partition, shape), split) in enumerate(asked.items()):
            own = question.candidate(partition, shape, (), question.free, offload=True)
            seconds = max(self._kept(_SETTLING), 0.05 * self.deadline.limit)
            self._search_order(own, split, seconds / (len(asked) - number))

    @doing("trying hand-written schedules on every problem of the table")
    def complete(self, share: float = 1.0) -> None:
        """Try what users know on the problem of every row of the table, until nothing is better.

        The advice says how much shorter it is than the best 1F1B. That is true only if 1F1B was
        tried wherever it could run, also on what our search found, with its recomputation.
        """
        known = -1
        while known != len(self.rows) and not self.deadline.past(share):
            known = len(self.rows)
            for row in shown_rows(self.rows):
                self._try_known(row, self._past(share))

    def _try_known(self, row: Row, over: GiveUp) -> None:
        question, asked, shape = self.question, row.candidate, row.shape
        runtime = question.runtime_in(shape.placement)
        own = question.candidate(
            asked.partition, shape, asked.recompute, runtime, first=asked.first
        )
        for name in hand_written_of(question, shape.placement):
            if over() or (name, own) in self._tried:
                continue
            self._tried.add((name, own))
            with contextlib.suppress(NotApplicable):
                made = row_of(partial(baseline, name), name, row.split, own)
                made = plainly_named(question, made)
                best = best_of(self.rows, made.name)
                if made.fits and (best is None or made.makespan < best.makespan):
                    self._add(marked(question, made))

    @doing("searching the order of what is advised")
    def settle(self) -> None:
        """Search for the order of what is advised, and as time allows, of what else is shown."""
        while not self.deadline.over and (left := self._unsettled()):
            (own, row), *others = left.items()
            share = _ADVISED if others else 1.0
            self._search_order(own, row.split, self.deadline.left * share)
            self.complete()

    def _unsettled(self) -> dict[Candidate, Row]:
        """Return the rows whose order is worth a search, the most important first.

        These are the advice and the best with nothing by hand; for a runtime with orders of its
        own, the best in any order; then other rows of the table that could become shorter than the
        best.
        """
        question = self.question
        rows = [row for row in self.rows if row.fits and not row.candidate.offload]
        able = [row for row in rows if row.runs or not question.any_order]
        best = min(able, key=lambda row: rank(row)[2:], default=None)
        if best is None:
            return {}
        plain = plain_of(rows) if question.any_order else None
        left: dict[Candidate, Row] = {}
        for row in [best, *([] if plain is None else [plain]), *shown_rows(rows)]:
            own = question.in_any_order(row.candidate)
            named = row is best or row is plain
            if named or closed_form_bound(own.problem, "makespan").value < best.makespan:
                left.setdefault(own, row)
        return {own: row for own, row in left.items() if own.effort < _SEARCHED}

    def _listening(self, *, of_all: bool = False) -> Listener:
        """Hear a search as a part of this one: time goes on, and the best is that of all.

        A bound is passed on only where it is one of the whole question: not that of one split, nor
        that of whole stages where layers of a stage may recompute. From then on it is told with all
        that follows.
        """
        best, began = self._best, self.deadline.seconds
        of_all = of_all and all(row.candidate.first is None for row in self.rows)

        def listen(improvement: Improvement) -> None:
            if of_all and improvement.bound is not None:
                self.told = max(improvement.bound, self.told or 0)
            if self.listener is not None:
                values = [v for v in (best, improvement.value) if v is not None]
                seconds, value = began + improvement.seconds, min(values, default=None)
                self.listener(improvement._replace(seconds=seconds, value=value, bound=self.told))

        return listen

    def any_layers(self, found: Plan) -> Bound | None:
        """Return what no schedule of the searched shapes is below, whichever layers recompute.

        ``None`` unless the advice recomputes some layers of a stage: then a plan's bound is enough.
        """
        best = min((row for row in self.rows if row.runs), key=rank, default=None)
        if best is None or best.candidate.first is None:
            return None
        least = cheapest(self.question.layers)
        shapes = [state.shape for state in found.known.states if not state.why_not]
        bounds = [shape_bound(least, shape, "makespan") for shape in shapes]
        return min(bounds, key=lambda bound: bound.value, default=None)
