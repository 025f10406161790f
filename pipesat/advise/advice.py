"""The answer as users get it: checked schedules, the best that the runtime can run, what is proven.

A table, labelled lines, files and a picture. Every line is a fact that can be looked up in the
table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pipesat.advise.advice_table import megatron_flags, needed_without, shown_rows, table_of_rows
from pipesat.advise.bounds import bound_of_any_layers
from pipesat.advise.estimate_ends import End
from pipesat.advise.hand_written_rows import Setting, counted
from pipesat.advise.orders import KNOWN
from pipesat.advise.plan import Plan
from pipesat.advise.plan_tables import loads_of
from pipesat.advise.question import Question
from pipesat.advise.table_rows import (
    Row,
    advised_of,
    best_of,
    leaner_of,
    plain_of,
    published_in,
    rank,
    stages_text,
)
from pipesat.core.amounts import rounded, rounded_down
from pipesat.core.claims import Bound, Standing, Tried, against, change, percent, ratio
from pipesat.core.showing import Column, Displayed, Facts, Table, sentences, table_document
from pipesat.layers.stages import RECOMPUTE
from pipesat.problem.remarks import Remark, documents_of, text_of
from pipesat.runtimes.knobs import Knob, knobs_table

FORMAT: Final = "pipesat.advice/1"


@dataclass(frozen=True, repr=False, slots=True)
class Advised(Displayed):
    """An answer: ``print`` it, ``save(folder)`` it, ``to_frame()`` has its table.

    ``facts()`` are the advice, ``chosen`` is its row, ``standing`` what is proven of it.

    Attributes
    ----------
    plan
        Our search over partition, placement, recomputation and order.
    left_out
        What has no row, and why.
    ends
        Rows timed again at the ends of an estimate's ranges.
    knobs
        Numbers that the runtime asks for beside the chosen order.
    settings
        Of hand-written schedules, and whether each was tried: it, or a proof that it is no better.
    """

    question: Question
    rows: tuple[Row, ...]
    plan: Plan
    left_out: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0
    settings: Mapping[Setting, bool] = field(default_factory=dict)
    ends: tuple[End, ...] = ()
    knobs: tuple[Knob, ...] = ()

    @property
    def chosen(self) -> Row | None:
        """The row to take of those that the runtime can run; ``None`` if there is none."""
        return advised_of(self.rows)

    @property
    def plain(self) -> Row | None:
        """The best row that runs as it is exported, if the chosen one needs work by hand."""
        return plain_of(self.rows) if self.chosen is not None and self.chosen.by_hand else None

    @property
    def bound(self) -> Bound | None:
        """What no schedule of any partition is below, in the shapes that were searched.

        ``None`` if the chosen row lies outside of these.
        """
        row = self.chosen
        if row is None:
            return None
        homes = {shape.homes for shape in self.plan.question.shapes}
        if row.shape.homes not in homes or not all(row.partition):
            return None
        if row.candidate.first is None:
            return self.plan.bound
        return bound_of_any_layers(self.question.layers, tuple(self.plan.known.shapes))

    @property
    def standing(self) -> Standing:
        """What is proven of the chosen row."""
        value = None if self.chosen is None else self.chosen.makespan
        bound = self.bound
        return Standing(value, None if bound is None else bound.value, of="the advice")

    @property
    def shapes(self) -> str:
        """Shapes that were searched, as a list in words."""
        return ", ".join(shape.geometry.label for shape in self.plan.known.shapes)

    @property
    def not_searched(self) -> list[str]:
        """Placements that rows have and our search did not look at."""
        searched = {shape.homes for shape in self.plan.question.shapes}
        others = {r.placement for r in self.rows if r.shape.homes not in searched}
        return sorted(others, key=lambda name: (len(name), name))  # a loop of 10 is after one of 9

    @property
    def untried(self) -> list[str]:
        """How many settings of hand-written schedules, by placement, time ended before."""
        return _left(counted(self.settings, "family"))

    @property
    def contradictions(self) -> tuple[str, ...]:
        """Proofs that a checked schedule refutes: faults of pipesat."""
        return self.plan.contradictions

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """What layers and memory state and perhaps do not mean."""
        return self.question.layers.remarks(self.question.memory)

    @property
    def shown(self) -> list[Row]:
        """The table: 1F1B and ours on every split, of all other schedules the best one."""
        return shown_rows(self.rows)

    def facts(self) -> Facts:
        """Return the advice: what to take, what that needs and gains, what is proven."""
        question, row, easy = self.question, self.chosen, self.plain
        doubt = ("Doubt", sentences(_doubts(self)))
        if row is None:
            found = sorted(self.rows, key=lambda row: row.makespan)
            why = found[0].why_not if found else "none was built in time"
            return [
                ("Take", f"nothing: {question.record.title} can run none of these: {why}"),
                doubt,
            ]
        must = row.by_hand or "nothing by hand"
        if easy is not None:
            must += f": it is {against(row.makespan, easy.makespan, 'without', 1)}"
        elif row.setting:
            must += f" ({row.setting})"
        lines = [
            ("Take", sentences(_taken(self, row))),
            ("You must", must),
            ("Without", "" if easy is None else f"{name_of(easy)}: {question.time(easy.makespan)}"),
            ("Gain", sentences(_gains(self, row))),
            ("Limit", sentences([*_bottleneck(self, row), *_memory(self, row)])),
            ("Proof", sentences(_proof(self, row))),
            ("Offload", sentences(_offload(self, row))),
            ("For", question.release or ""),
            doubt,
            ("Remark", text_of(self.remarks)),
            ("Next", _next(self)),
        ]
        return [(label, question.words(text)) for label, text in lines]

    def details(self) -> Facts:
        """Return what else is known."""
        question, row, beyond = self.question, self.chosen, ""
        left = [("as shipped", text) for text in self._shipped()]
        left += [("left out", f"{name}: {why}") for name, why in self.left_out]
        for end in self.ends:
            text = f"{end.words}: not tried, time ended before"
            if end.rows:
                best, least = end.least
                text = f"{end.words}, {name_of(best)} is the shortest, {question.time(least)}"
            left.append(("range", text))
        if row is None:
            return left
        others = (x for x in self.rows if x.fits and not x.runs and not x.candidate.offload)
        other = min(others, key=rank, default=row)
        if other.makespan < row.makespan:
            gain = change(other.makespan, row.makespan, 1)
            text = f"{name_of(other)} would take {question.time(other.makespan)}, {gain}"
            beyond = sentences([text, other.why_not, of_order(other, "that order")])
        layout, estimate = row.layout(question) or "", question.layers.estimate
        lines = [("layout", layout), ("does not run", beyond), ("estimate", estimate), *left]
        return [(label, question.words(text)) for label, text in lines]

    def _shipped(self) -> Iterator[str]:
        """Yield what each setting takes that needs nothing but its number of stages."""
        for row in (row for row in self.rows if row.shipped and row.runs):
            most, taken = self.question.amount(max(row.peaks)), self.chosen or row
            yield (
                f"{row.name}, {row.placement}: {self.question.time(row.makespan)}, {most}. The "
                f"advice is {against(taken.makespan, row.makespan, 'it', 1)}"
            )

    def tables(self) -> Iterator[Table]:
        """Yield the table of schedules, what Megatron-LM is started with, and the knobs."""
        yield table_of_rows(self.question, self.shown)
        if not self.question.any_order and self.chosen is not None:
            flags = megatron_flags(self.question, self.chosen).rstrip().split("\n")
            yield Table([Column("flags for Megatron-LM", number=False)], flags)
        if self.knobs:
            layers = self.question.layers
            rows = [knob.record for knob in self.knobs]
            yield knobs_table(rows, layers.time_unit, layers.memory_unit)

    def records(self) -> list[dict[str, Any]]:
        """Return the table's rows."""
        return [row.document(self.question) for row in self.shown]

    @property
    def files(self) -> dict[str, Row]:
        """What the files of the table's rows are called, without their endings."""
        return {f"rows/{n}-{x.name}-{x.split}": x for n, x in enumerate(self.shown, start=1)}

    def document(self) -> dict[str, Any]:
        """Return ``pipesat.advice/1``, ready for JSON."""
        question, standing, layers = self.question, self.standing, self.question.layers
        files = {id(row): name for name, row in self.files.items()}
        return {
            "format": FORMAT,
            "name": layers.name,
            "for": question.runtime,
            "release": question.release,
            "devices": question.devices,
            "microbatches": question.microbatches,
            "memory": question.of_device,
            "reserve": question.reserve,
            "time_unit": layers.time_unit,
            "memory_unit": layers.memory_unit,
            "estimate": layers.estimate or None,
            "estimate_range": layers.estimate_range,
            "at_the_ends": [end.document() for end in self.ends],
            "overlap": None if question.overlap is None else [*question.overlap],
            "advice": {label: text for label, text in self.facts() if text},
            "details": [line for line in self.details() if line[1]],
            "table": table_document(table_of_rows(question, self.shown)),
            "status": standing.status,
            "lower_bound": standing.bound,
            "gap": standing.gap,
            "searched": self.shapes,
            "chosen": None if self.chosen is None else self.chosen.document(question),
            "rows": [
                row.document(question) | {"files": files.get(id(row))}
                for row in sorted(self.rows, key=rank)
            ],
            "knobs": [knob.record for knob in self.knobs],
            "not_tried": self.untried,
            "settings": [
                {"schedule": one.name, "tried": one.tried, "total": one.total}
                for one in counted(self.settings, "name").values()
            ],
            "left_out": [{"name": name, "why_not": why} for name, why in self.left_out],
            "remarks": documents_of(self.remarks),
            "wall_s": round(self.seconds, 3),
        }


def name_of(row: Row) -> str:
    """Name a row: schedule and where it was published, placement, split."""
    order, published = row.name, published_in(row.name)
    if row.group is not None:
        order += f" in groups of {row.group}"
    if published:
        order += f" ({published})"
    return re.sub(
        r"^ours\b",
        "pipesat's order",
        f"{order}, {row.placement.replace('vee', 'V')}, {row.split} split",
    )


def _taken(advice: Advised, row: Row) -> Iterator[str]:
    """What to take, and what is as fast for all that an estimate can say."""
    question, leaner = advice.question, leaner_of(advice.rows, row)
    estimate = " (estimate)" if question.layers.estimate else ""
    yield f"{name_of(row)}: {question.time(row.makespan)} a step{estimate}"
    if leaner is not None:
        yield (
            f"{name_of(leaner)} is {change(leaner.makespan, row.makespan)} and takes "
            f"{question.amount(max(leaner.peaks))}, not {question.amount(max(row.peaks))}"
        )


def _gains(advice: Advised, row: Row) -> Iterator[str]:
    """What is gained over schedules as frameworks ship them, and over the best of their name."""
    found: dict[int, tuple[Tried, Row]] = {}
    for name, shown in KNOWN.items():
        settings = {one: done for one, done in advice.settings.items() if one.name == name}
        shipped = {one: done for one, done in settings.items() if one.shipped}
        asked = (
            (best_of(advice.rows, name, shipped=True), f"{shown} as shipped", shipped),
            (best_of(advice.rows, name), shown, settings),
        )
        for best, label, some in asked:
            if best is not None:
                found[id(best)] = Tried(label, sum(some.values()), len(some)), best
    for tried, other in found.values():
        time = advice.question.time(other.makespan)
        loop = other.shipped and other.shape.placement == "loop"
        gain = tried.gain(row.makespan, other.makespan) + f", a {other.placement}" * loop
        gain += f" ({time})"
        alike = (other.name, other.makespan) == (row.name, row.makespan)
        own = alike and row.shipped >= other.shipped
        yield f"this is {tried.best}" if own else gain


def _left(counts: Mapping[str, Tried]) -> list[str]:
    return [one.left for one in counts.values() if one.tried < one.total]


def _bottleneck(advice: Advised, row: Row) -> Iterator[str]:
    question = advice.question
    if question.overlap is not None:
        every = question.microbatches * len(row.problem.stages)
        yield f"{row.pairs} of its {every} forwards run together with a backward"
        return
    loads = loads_of(row.problem)
    device = max(range(question.devices), key=loads.__getitem__)
    busy = percent(ratio(loads[device], row.makespan), 0)
    own = question.works_on(device, row.candidate)
    heaviest, work = max(own, key=lambda one: one[1], default=(0, 0))
    share = percent(ratio(question.microbatches * work, loads[device]), 0)
    label = question.layers.label(heaviest)
    yield f"the bottleneck is rank {device}, busy {busy} of the time, {label} is {share} of that"
    if question.work_of(heaviest) * row.shape.together > question.work * row.shape.fastest:
        yield "that layer alone is more than an equal share of all work: no split evens it out"


def _memory(advice: Advised, row: Row) -> Iterator[str]:
    question, first = advice.question, row.candidate.first
    if question.memory is None:
        return
    if not row.again and first is None:
        most = question.amount(max(row.peaks), within=question.memory)
        there = question.amount(question.memory, rounded_down)
        yield f"nothing has to recompute: {most} of {there} are used at most"
        return
    who = f"the first {first} of each stage's layers" if first else stages_text(row.again)
    need = needed_without(question, row)
    yield f"recomputed to fit into memory: {who}" + (f": {need}" if need else "")


def _offload(advice: Advised, row: Row) -> Iterator[str]:
    """What offloading would bring, by a checked schedule; "cannot" only if that is proven."""
    rows = (x for x in advice.rows if x.candidate.offload)
    found = min(rows, key=lambda x: x.makespan, default=None)
    if found is None:
        return
    takes, least = advice.question.time(found.makespan), found.candidate.bound.value
    gain = against(found.makespan, row.makespan, "the advice", 1)
    some = f"{found.offloaded} (stage, microbatch) instead take {takes} ({name_of(found)}), {gain}"
    yield some if found.offloaded else "no shorter schedule was found that offloads"
    if found.makespan < row.makespan:
        yield found.why_not
    elif least >= row.makespan:
        yield "it cannot help at your bandwidth"
    else:
        yield f"{advice.question.time(least, rounded_down)} are not ruled out"


def of_order(row: Row, what: str) -> str:
    """Say what is proven of an order on its split, with what recomputes there."""
    again = " and these stages recomputing" if row.again or row.candidate.first is not None else ""
    standing = Standing(row.makespan, row.candidate.bound.value, of="the order")
    if standing.proven:
        return f"{what} is proven optimal for this split{again}"
    return f"for this split{again}, {what} can still gain {standing.gap_text()} at most"


def _searched(advice: Advised, row: Row) -> str:
    """Name what a bound is proven for: schedules that torch runs, or any."""
    question, shapes = advice.question, advice.shapes.replace("vee", "V")
    runs = f" that {question.record.title} runs" if question.any_order else " in any order"
    keeps = " without offloading" if question.may_offload else ""
    what = "layers" if row.candidate.first is not None else "stages"
    again = " without recomputation" if question.layers.recomputable else ""
    if question.may_recompute:  # a runtime that recomputes itself may split backwards all the same
        whole = " with whole backwards" if RECOMPUTE in (question.record.modes or ()) else ""
        again = f", whichever {what} recompute{whole},"
    return f"schedule{runs}{keeps} on any split of {shapes}{again}"


_COARSE: Final = 0.08  # gap of a bound over all splits: beyond, the line says what it leaves out


def _proof(advice: Advised, row: Row) -> Iterator[str]:
    standing, others = advice.standing, advice.not_searched
    if standing.bound is None:
        yield "no bound is known for it"
    elif standing.proven:
        yield f"proven optimal of all: no {_searched(advice, row)} is shorter"
    else:
        least = advice.question.time(standing.bound, rounded_down)
        yield (
            f"at most {standing.gap_text()} less is possible: no {_searched(advice, row)} takes "
            f"less than {least}"
        )
        if standing.gap is not None and standing.gap > _COARSE:
            yield "this bound does not count how devices wait for each other"
            if advice.question.may_recompute:
                yield "it lets every layer have its least time and its least memory at once"
    if not standing.proven and advice.question.any_order:
        yield of_order(row, "this order")
    if others:
        yield f"in a {' or '.join(others)} only known schedules were tried, and nothing is proven"


def _doubts(advice: Advised) -> Iterator[str]:
    """What is assumed, estimated or not tried."""
    question, about = advice.question, advice.question.layers.estimate_range
    if question.layers.estimate:
        times = f" (x {about[0] / 1000:.2f} to {about[1] / 1000:.2f})" if about else ""
        yield f"all costs are an estimate{times}"
        yield from filter(None, question.layers.estimate.partition(". ")[2:])  # what it assumes
    else:
        yield "costs are taken as exact"
    if advice.chosen is not None:
        yield from _at_the_ends(advice.ends, advice.chosen)
    yield question.links
    if question.of_device is not None and question.reserve:
        sizes = question.reserve, question.of_device
        free, all_of_it = (question.amount(x, rounded) for x in sizes)
        yield f"{free} of {all_of_it} per rank are kept free"
    if question.overlap is not None:
        num, den = question.overlap
        yield f"every pair of F and BW is taken to last {num}/{den} of both"
    if untried := _left(counted(advice.settings, "name")):
        yield f"not tried, too many for the time limit: {', '.join(untried)}"
    yield from (f"no bound is claimed: {text}" for text in advice.contradictions)


def _at_the_ends(ends: Sequence[End], chosen: Row) -> Iterator[str]:
    """Whether the advice stays the shortest at the ends of ranges that were tried."""
    tried, left = ([end for end in ends if bool(end.rows) is timed] for timed in (True, False))
    if tried:
        worst = min(tried, key=lambda end: end.least[1] / max(1, end.of(chosen)))
        row, least = worst.least
        if least < worst.of(chosen):
            shorter = change(least, worst.of(chosen), 1)
            yield f"the advice depends on it: {worst.words}, {name_of(row)} is {shorter}"
        else:
            yield f"with {_cases(tried)} the advice stays the shortest"
    if left:
        yield f"not tried, as time ended: {_cases(left)}"


def _cases(ends: Sequence[End]) -> str:
    return ", ".join(end.case for end in ends)


def _next(advice: Advised) -> str:
    """The next thing to do."""
    if advice.question.layers.estimate:
        return "measure your layers with pipesat profile, then pipesat advise with its file"
    if not advice.question.any_order:
        return "run one step with these flags, and compare its time with this one"
    return "run the order, then pipesat timeline compare says where measured times differ"
