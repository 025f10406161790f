"""The work on an answer: rows, then searches, each within its share of the time.

All of it is in wall-clock time: what is not done by then is named in the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from pipesat.choose.ask_plan import plan
from pipesat.choose.candidates import Flags, has_variant
from pipesat.choose.families import (
    best_hand_written,
    better_on_table,
    in_order,
    named_rows,
    on_same_stages,
    shown_rows,
    unsettled,
    written_on,
)
from pipesat.choose.knobs import Build, Family, families, families_text, moved_rows
from pipesat.choose.pairs import OFFLOAD
from pipesat.choose.question import Question
from pipesat.choose.rows import Row, credited, fits, rank
from pipesat.choose.runtimes import marked
from pipesat.choose.written import cut
from pipesat.core.errors import BadInput, Infeasible, NotApplicable
from pipesat.core.progress import doing
from pipesat.core.result import Improvement
from pipesat.core.schedule import Schedule
from pipesat.core.settings import RecomputeChoice
from pipesat.core.solving import LEAST_SECONDS, Deadline, Listener
from pipesat.layers.layer import Layer, Layers
from pipesat.layers.pipeline import Pipeline
from pipesat.workflows.solve import solve

if TYPE_CHECKING:
    from pipesat.choose.candidates import Candidate
    from pipesat.choose.plan import Plan
    from pipesat.heuristics.registry import GiveUp

# Shares of the time limit by which each is over
_FAMILIES: Final = 0.5  # one build of every family; most take a fraction of it
_WRITTEN: Final = 0.25  # their other builds
_MOVED: Final = 0.3  # moving their layouts
_MEGATRON: Final = 0.4  # Megatron-LM's knobs
_MEGATRON_MOVED: Final = 0.5
_ORDERS: Final = 0.4  # other orders for every row
# Shares that are kept for what comes later
_OFFLOADING: Final = 0.2  # what offloading would bring
_ALIKE: Final = 0.15  # a plan in which all stages recompute or none
_SETTLING: Final = 0.3  # the order of what is advised, and other orders of what is named
_COMPLETING: Final = 0.1  # of that, the latter
_ALL_ORDERS: Final = 2  # the effort of a candidate of which every order was made
_FIRST: Final = 0.6  # of the rest, the former before what runs with nothing by hand


@dataclass
class Work:
    """Rows so far, and the time there is.

    ``untried`` are families that no row was built of, ``unbuilt`` other builds, in the time.
    """

    question: Question
    deadline: Deadline
    workers: int | None
    seed: int
    listener: Listener | None
    rows: list[Row] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    untried: tuple[Family, ...] = ()
    unbuilt: tuple[Build, ...] = ()
    told: int | None = None  # the best bound of the whole question so far
    _there: set[tuple[object, ...]] = field(default_factory=set)

    @doing("building schedules that users know")
    def write(self) -> None:
        """Build what users know: one of every family first, then the others and the knobs.

        The first one recomputes nowhere or everywhere; what lies between comes after all of these.
        """
        question, megatron = self.question, not self.question.any_order
        known = families(question, self.left_out.__setitem__)
        builds = [family.builds() for family in known]
        firsts = [first for first, *_ in builds]
        left = self._build(firsts, _FAMILIES, lambda: True, at_least=1)
        self.untried = tuple(build.family for build in left)
        for name in families_text(self.untried):
            self.left_out[name] = "not built in time"
        others = [build for row in zip_longest(*(rest for _, *rest in builds)) for build in row]
        others = (firsts if question.may_recompute else []) + [build for build in others if build]
        share = _MEGATRON if megatron else _WRITTEN
        self.unbuilt = tuple(self._build(others, share, self._past(share)))
        for build in self.unbuilt:
            if build.family not in self.untried:
                self.left_out[f"more settings of {build.family.name}"] = "not built in time"
        until = self._until(_MEGATRON_MOVED if megatron else _MOVED)
        for row in moved_rows(question, [*self.rows], until):
            self._add(row)
        for row in shown_rows(self.rows):
            self._try_orders(row, _ORDERS)

    def _build(
        self, builds: Sequence[Build], share: float, over: GiveUp, at_least: int = 0
    ) -> list[Build]:
        """Add the rows of builds until a share of the time is over; return those that are left."""
        for number, build in enumerate(builds):
            if number >= at_least and self.deadline.past(share):
                return [*builds[number:]]
            for row in build.rows(self.question, self.left_out.__setitem__, over):
                self._add(row)
        return []

    def _until(self, share: float) -> Deadline:
        """The deadline of a share of the time."""
        return Deadline(share * self.deadline.limit, self.deadline.stop, self.deadline.began)

    def _past(self, share: float) -> GiveUp:
        return lambda: self.deadline.past(share)

    def _try_orders(self, row: Row, share: float) -> None:
        """Add the shortest hand-written order of a row's stages, if it is shorter than all known.

        What there is time for: no more once a share of the limit is over.
        """
        candidate = self.question.in_any_order(row.candidate)
        if candidate.offload or candidate.effort >= _ALL_ORDERS:
            return
        best, all_made = best_hand_written(candidate.problem, self._past(share))
        if all_made:
            candidate.effort = _ALL_ORDERS
        if best is not None and self._is_shorter(best, candidate):
            self._add(in_order(self.question, row, best))

    def _is_shorter(self, schedule: Schedule, candidate: Candidate) -> bool:
        """Whether a schedule is shorter than all that are known on the same stages."""
        same = on_same_stages(self.rows, candidate)
        return all(schedule.makespan < row.makespan for row in same if row.fits)

    @property
    def not_all_orders(self) -> bool:
        """Whether some hand-written schedule was not tried on a row that the answer names."""
        named = (row.candidate for row in named_rows(self.question, self.rows))
        orders = (self.question.in_any_order(one) for one in named if not one.offload)
        return any(one.effort < _ALL_ORDERS for one in orders)

    @property
    def best(self) -> int | None:
        """The least makespan of what runs, so far."""
        return min((row.makespan for row in self.rows if row.runs), default=None)

    def _add(self, row: Row) -> None:
        """Add a row, unless it is there under its name: zb-h1 may be 1F1B, which comes first."""
        key = (row.name, row.split, row.group, row.candidate, row.makespan)
        if key in self._there:
            return
        self._there.add(key)
        self.rows.append(row)
        best = self.best
        if row.fits and self.listener is not None:
            source = f"{row.placement}, {row.split} split: {row.schedule.source}"
            unit = self.question.layers.time_unit
            self.listener(Improvement(self.deadline.seconds, best, self.told, source, unit))

    def _add_ours(self, row: Row) -> None:
        """Add what we found, and what users know on the same split."""
        self._add(row)
        there = {(known.name, known.candidate) for known in self.rows}
        for written in written_on(self.question, row, self._past(1 - _SETTLING)):
            if (written.name, written.candidate) not in there:
                self._add(written)

    @doing("trying hand-written schedules on every problem of the table")
    def complete(self, share: float = 1 - _SETTLING + _COMPLETING) -> None:
        """Try what users know on every problem of the table, and all orders on what is named."""
        known = -1
        while known != len(self.rows) and not self.deadline.past(share):
            known = len(self.rows)
            for row in better_on_table(self.question, self.rows, self._past(share)):
                self._add(row)
            for named in named_rows(self.question, self.rows):
                self._try_orders(named, share)

    @doing("searching the order of what is advised")
    def settle(self) -> None:
        """Search for the order of what is advised, and as time allows, of what else is shown."""
        searched: list[Candidate] = []
        while not self.deadline.over and (left := unsettled(self.question, self.rows, searched)):
            share = _FIRST if not searched and len(left) > 1 else 1.0
            searched.append(self.question.in_any_order(left[0].candidate))
            self._search_order(left[0], self.deadline.left * share)
            self.complete(1.0)
        if self.not_all_orders:
            self.left_out["other hand-written schedules"] = "not all tried in time on all rows"

    def search(self) -> Plan | None:
        """Search over splits, placements, recomputation and orders; add what was found as rows."""
        question = self.question
        if question.parts is not None:
            self._search_pairs()
            return None
        again = question.may_recompute
        alike = again and question.record.one_switch
        kept = _SETTLING + _ALIKE * alike + _OFFLOADING * question.may_offload
        kept *= self.deadline.limit
        found = self._plan(
            question.layers, "choose" if again else "never", self.deadline.left - kept
        )
        if found.chosen is not None:
            row = self._ours(found.chosen, found.chosen.recompute)
            self._add_ours(row)
            if alike and row.by_hand:
                self._search_alike()
        return found

    def _search_pairs(self) -> None:
        """Search orders with pairs: on the best split of a chain, of a V and of a loop."""
        if self.question.memory is not None:
            self.left_out["recomputation"] = "not searched together with pairs"
        unlike: dict[str, Row] = {}
        for row in sorted(self.rows, key=rank):
            unlike.setdefault(row.shape.placement, row)
        kept = (_SETTLING + _OFFLOADING * self.question.may_offload) * self.deadline.limit
        for number, row in enumerate(unlike.values()):
            left = max(0.0, self.deadline.left - kept)
            if number and left < LEAST_SECONDS:
                where = row.shape.placement
                self.left_out[f"our search in a {where}"] = "not begun in time"
                continue
            self._search_order(row, left / (len(unlike) - number))

    def _search_order(self, row: Row, seconds: float) -> None:
        """Search for an order on a row's stages; add it if it is shorter, and its bound to all."""
        candidate = self.question.in_any_order(row.candidate)
        same = [other.schedule for other in on_same_stages(self.rows, candidate)]
        name = f"our search ({row.split} split, {row.placement})"
        schedule = self._solved(candidate, seconds, name, same)
        if schedule is None:
            return
        new = all(other.candidate is not candidate for other in self.rows)
        if new or self._is_shorter(schedule, candidate):
            self._add(in_order(self.question, row, schedule))

    def _solved(
        self, candidate: Candidate, seconds: float, name: str, known: Sequence[Schedule] = ()
    ) -> Schedule | None:
        """Search for an order of a candidate, keep its bound; name it if none is found."""
        found = solve(
            candidate.problem,
            time_limit=max(LEAST_SECONDS, seconds),
            workers=self.workers,
            seed=self.seed,
            schedules=known,
            listener=self._listening() if known else None,
            stop=self.deadline.stop,
        )
        if found.schedule is None:
            self.left_out[name] = found.explanation or "no schedule was found in time"
        elif found.bound is not None:
            candidate.prove(found.bound)
        return found.schedule

    @doing("searching schedules that offload")
    def offload(self) -> None:
        """What offloading would bring, on the best split and on the balanced one in a chain."""
        question = self.question
        if not question.may_offload:
            return
        best = min((row for row in self.rows if row.fits), key=lambda r: r.makespan, default=None)
        asked = [] if best is None else [(best.split, best.shape, best.partition)]
        chain = question.shape("chain")
        roomy = replace(chain, memory=None)
        try:
            asked.append(("balanced", chain, cut("balanced", question.layers, roomy)))
        except (BadInput, Infeasible, NotApplicable) as error:
            self.left_out["offload (balanced split)"] = str(error)
        unlike = {(shape, part): (split, shape, part) for split, shape, part in reversed(asked)}
        for number, (split, shape, partition) in enumerate(unlike.values()):
            left = self.deadline.left - _SETTLING * self.deadline.limit
            left = max(left, 0.05 * self.deadline.limit)  # one schedule is made
            self._offload_on(split, shape, partition, left / (len(unlike) - number))

    def _offload_on(
        self, split: str, shape: Pipeline, partition: tuple[range, ...], seconds: float
    ) -> None:
        question = self.question
        candidate = question.candidate(partition, shape, (), question.free, offload=True)
        schedule = self._solved(candidate, seconds, f"offload ({split} split)")
        if schedule is not None:
            self._add(marked(question, Row(OFFLOAD, split, candidate, schedule, fits=True)))

    def _search_alike(self) -> None:
        """What a configuration can say: no stage recomputes, or if that does not fit, all do."""
        layers, kept = self.question.layers, _SETTLING + _OFFLOADING * self.question.may_offload
        seconds = self.deadline.left - kept * self.deadline.limit
        try:
            chosen = self._plan(layers, "never", seconds, of_all=False).chosen
            if chosen is not None:
                self._add_ours(self._ours(chosen, ()))
        except Infeasible:
            all_again = replace(layers, layers=tuple(map(_again, layers.layers)))
            chosen = self._plan(all_again, "never", seconds, of_all=False).chosen
            if chosen is not None:
                flags = tuple(has_variant(layers, part) for part in chosen.partition)
                self._add_ours(self._ours(chosen, flags))

    def _plan(
        self, layers: Layers, recompute: RecomputeChoice, seconds: float, *, of_all: bool = True
    ) -> Plan:
        question = self.question
        return plan(
            layers,
            question.devices,
            question.microbatches,
            memory=question.memory,
            placement="any",
            chunks=self._chunks(),
            latency=question.latency,
            bandwidth=question.bandwidth,
            recompute=recompute,
            target=question.free,
            compare=True,  # the even and the balanced split are solved too, memory short or not
            time_limit=max(LEAST_SECONDS, seconds),
            workers=self.workers,
            seed=self.seed,
            listener=self._listening(of_all=of_all),
            stop=self.deadline.stop,
        )

    def _listening(self, *, of_all: bool = False) -> Listener:
        """Hear a search as a part of this one: time goes on, and the best is that of all.

        A bound is passed on only where it is one of the whole question: not that of one split, or
        of recomputing nowhere or everywhere, alone, nor that of whole stages where layers of a
        stage may recompute. From then on it is told with all that follows.
        """
        best, began = self.best, self.deadline.seconds
        of_all = of_all and all(row.candidate.first is None for row in self.rows)

        def listen(improvement: Improvement) -> None:
            if of_all and improvement.bound is not None:
                self.told = max(improvement.bound, self.told or 0)
            if self.listener is not None:
                values = [v for v in (best, improvement.value) if v is not None]
                self.listener(
                    improvement._replace(
                        seconds=began + improvement.seconds,
                        value=min(values, default=None),
                        bound=self.told,
                    )
                )

        return listen

    def _chunks(self) -> tuple[int, ...]:
        """Stages per device of the loops to search: 2, and that of the best so far."""
        best = min((r for r in self.rows if r.runs), key=lambda r: r.makespan, default=None)
        loops = {2}
        if best is not None:
            loops.add(max(2, best.shape.stages // self.question.devices))
        return tuple(sorted(loops))

    def _ours(self, chosen: Candidate, flags: Flags) -> Row:
        question, schedule = self.question, chosen.schedules[0]
        shape = question.shape(chosen.shape.placement, chosen.shape.chunks)
        own = question.candidate(chosen.partition, shape, flags, question.free)
        fitting = fits(own.problem, schedule)
        return marked(question, Row(credited(schedule.source), "ours", own, schedule, fitting))


def _again(layer: Layer) -> Layer:
    if layer.recomputed is None:
        return layer
    return replace(layer, costs=layer.recomputed, recomputed=None, fused=True)
