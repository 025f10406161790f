"""The plan: the best partition with its schedule, and what is proven about both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipesat.advise.candidates import Candidate
from pipesat.advise.comparison import SplitRow, gains
from pipesat.advise.plan_search import Search
from pipesat.advise.plan_tables import (
    better_outside,
    devices_of,
    layout_text,
    module_names,
    split_table,
    stage_table,
    stages_of,
)
from pipesat.advise.question import Question
from pipesat.bounds.closed_form import closed_form_bound
from pipesat.check.checker import check
from pipesat.compare.result import Result
from pipesat.compare.result_folder import result_files
from pipesat.core.amounts import memory_text, rounded_down, time_text
from pipesat.core.claims import (
    Bound,
    Standing,
    Status,
    percent,
    plural,
    ratio,
    require_best,
    tenable,
)
from pipesat.core.errors import Fault
from pipesat.core.folder import json_file, write_folder
from pipesat.core.progress import doing
from pipesat.core.showing import Displayed, Facts, Table, sentences
from pipesat.layers.stages import problem_with_recompute, untold
from pipesat.problem.remarks import Remark, documents_of, text_of
from pipesat.schedule.metrics import peak_memory
from pipesat.schedule.result import Solution
from pipesat.schedule.schedule import with_each_op
from pipesat.schedule.summary import peak_text, units_of
from pipesat.solver.search import versions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT: Final = "pipesat.plan/1"
_SLACK: Final = 0.03  # of a device's memory, less than this free is told
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

    known: Search
    result: Result | None
    bound: Bound | None
    rows: tuple[SplitRow, ...]
    left_out: tuple[tuple[str, str], ...]
    seconds: float
    contradictions: tuple[str, ...] = ()

    @property
    def question(self) -> Question:
        """What was searched."""
        return self.known.question

    @property
    def chosen(self) -> Candidate | None:
        """The best partition."""
        return self.known.best

    @property
    def value(self) -> int | None:
        """Value of the best schedule."""
        return self.known.value

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
    def complete(self) -> bool:
        """Whether every partition of every shape is accounted for."""
        return self.known.complete

    def facts(self) -> Facts:
        """Return what was found, what is proven over all partitions, and what it gains."""
        if self.chosen is None or self.result is None or self.value is None:
            return [("Take", "nothing: no plan was found in time, none is proven impossible")]
        problem, schedule, own = self.result.problem, self.result.schedule, self.chosen
        time, order = time_text(self.value, problem.time_unit), own.schedules[0].source
        count = len(self.known.candidates)
        doubts = [
            *self.doubts,
            *([] if self.complete or self.status == "optimal" else [_NOT_COMPLETE]),
        ]
        loads, limit = [device["load"] for device in devices_of(own)], ""
        if own.shape.overlap is None:  # else ops run together, and loads are more than their time
            busy = percent(ratio(max(loads), self.value), 1)
            limit = f"the bottleneck is device {loads.index(max(loads))}, busy {busy} of the time"
        sizes = ", ".join(str(len(part)) for part in own.partition)
        layout, no_layout = layout_text(own, self.question.layers)
        return [
            (
                "Take",
                f"{own.shape.geometry.label} on {own.shape.devices} devices, order of {order}: "
                f"{time} a step ({self.question.objective})",
            ),
            ("Layers", layout or f"{sizes} per stage"),
            ("No layout", no_layout),
            ("For", self.question.release or ""),
            ("Proof", self._proof()),
            ("This split", "" if self.status == "optimal" else self.result.proof()),
            ("Gain", sentences(self.gains)),
            ("Limit", limit),
            (
                "Memory",
                "" if schedule is None else peak_text(problem, peak_memory(problem, schedule)),
            ),
            ("Doubt", sentences(doubts)),
            ("Remark", text_of(self.remarks)),
            ("Searched", f"{count} {plural(count, 'partition')}, {self.seconds:.1f} s"),
        ]

    def _proof(self) -> str:
        """Say what is proven over all partitions of the placements that were searched."""
        least = ""
        if self.bound is not None:
            least = time_text(self.bound.value, self.question.layers.time_unit, rounded_down)
        over = ", ".join(dict.fromkeys(shape.geometry.label for shape in self.known.shapes))
        over = f"over all partitions of {over}"
        return self.standing.proof(least, of=over) + (f", {over}" if self.standing.proven else "")

    def details(self) -> Facts:
        """Return what proves it, how it was found, and what was left out."""
        own, chosen = None if self.result is None else self.result.bound, self.chosen
        left = [(shape.geometry.label, why) for shape, why in self.known.why_not.items()]
        return [
            ("proven by", "" if self.bound is None else self.bound.source),
            ("of this split", "" if own is None else own.source),
            ("partition", "" if chosen is None else chosen.proposed_by),
            ("solves", str(self.known.solves)),
            *(("left out", f"{name}: {why}") for name, why in (*left, *self.left_out)),
        ]

    def tables(self) -> Iterator[Table]:
        """Yield the stages, then the splits of frameworks beside the plan's."""
        units = ""
        if self.chosen is not None:
            units = "; ".join(units_of(self.chosen.problem))
            yield stage_table(self.chosen, self.question.layers, units)
        if self.rows:
            yield split_table(self.rows, self.question.free, units)

    def records(self) -> list[dict[str, Any]]:
        """Return a row per stage: device, layers, costs."""
        return stages_of(self.chosen, self.question.layers)

    def plot(self) -> Figure | None:
        """Draw time and memory of every stage; return a matplotlib figure."""
        from pipesat.advise.picture import plan_figure  # matplotlib is slow to import

        if self.chosen is None:
            return None
        return plan_figure(self.question.layers, self.chosen, self.standing)

    def save(self, folder: str | Path, log: Sequence[str] = ()) -> str | None:
        """Write what ``pipesat plan -o`` writes; return the path of its schedule, if there is one.

        ``log`` are lines of ``solver.log``.

        Raises
        ------
        BadInput
            If the folder cannot be written.
        Contradiction
            If the plan contradicts itself; then its schedule is written all the same.
        """
        folder, result, chosen, layers = (
            Path(folder),
            self.result,
            self.chosen,
            self.question.layers,
        )
        made = None if result is None else result_files(folder, result, log)
        files = {} if made is None else made.files
        path = None if made is None else made.schedule
        if (text := layout_text(chosen, layers)[0]) is not None:
            files["layout.txt"] = f"{text}\n".encode()
        if (names := module_names(chosen, layers)) is not None:
            files["module_fqns.json"] = json_file(names)

        def pictures() -> dict[str, bytes]:
            from pipesat.advise.picture import plan_pictures  # matplotlib is slow to import

            if made is None or chosen is None:
                return {}
            return plan_pictures(layers, chosen, self.standing) | made.pictures()

        write_folder(
            folder,
            files,
            claims=lambda: {"plan.json": json_file(self.document(path))},
            pictures=pictures,
        )
        return path

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """What layers and memory state and perhaps do not mean."""
        shape = self.question.shapes[0]
        return self.question.layers.remarks(next(filter(None, shape.capacities), None))

    @property
    def doubts(self) -> tuple[str, ...]:
        """What the numbers do not say."""
        layers, own = self.question.layers, self.chosen
        if own is None:
            return ()
        said = (f"all times and memory are an estimate: {layers.estimate}",)
        dropped = (f"no bound is claimed: {text}" for text in self.contradictions)
        return (
            *(said if layers.estimate else ()),
            *untold(layers, own.partition, own.shape),
            *self._too_full(),
            *dropped,
            *self._better_elsewhere(),
        )

    def _too_full(self) -> Iterator[str]:
        """A device that a real run may not fit on: little is free for what no layer says."""
        layers = self.question.layers
        for number, device in enumerate(devices_of(self.chosen)):
            memory, peak = device["memory"], device["peak"]
            if memory and memory - peak + layers.reserve < _SLACK * memory:
                left = memory_text(memory - peak, layers.memory_unit, rounded_down)
                yield (
                    f"device {number} fills {percent(peak / memory, 1)} of its memory, "
                    f"{left} are left. Fragments and communication buffers have no "
                    "space. A reserve keeps some free"
                )
                return

    def _better_elsewhere(self) -> Iterator[str]:
        """Splits that were no part of the search, and are better than its best."""
        for row in better_outside(self.rows):
            yield (
                f"{row.name} ({row.placement}), with {row.best}, is better than the plan, and is "
                f"not taken: {row.outside}"
            )

    @property
    def gains(self) -> tuple[str, ...]:
        """Which part of the gain comes from placement, from cut and from order."""
        return tuple(gains(self.rows)) if len(self.rows) > 1 else ()

    def document(self, schedule_path: str | None = None) -> dict[str, Any]:
        """Return ``pipesat.plan/1``, ready for JSON."""
        chosen, layers = self.chosen, self.question.layers
        keys = ("placement", "stages", "devices", "microbatches")
        return {
            "format": FORMAT,
            "name": layers.name,
            "status": self.status,
            "objective": self.question.objective,
            "release": self.question.release,
            "value": self.value,
            "lower_bound": None if self.bound is None else self.bound.value,
            "lower_bound_source": None if self.bound is None else self.bound.source,
            "every_partition_accounted_for": self.complete,
            "gap": self.standing.gap,
            "shape": None if chosen is None else {key: getattr(chosen.shape, key) for key in keys},
            "proposed_by": None if chosen is None else chosen.proposed_by,
            "recompute": self.question.choice,
            "stages": stages_of(chosen, layers),
            "devices": devices_of(chosen),
            "layout": layout_text(chosen, layers)[0],
            "no_layout": layout_text(chosen, layers)[1] or None,
            "module_fqns_per_model_part": module_names(chosen, layers),
            "considered": [*self._considered()],
            "comparison": [row.document(self.rows) for row in self.rows],
            "gains": [*self.gains],
            "doubts": [*self.doubts],
            "remarks": documents_of(self.remarks),
            "result": None if self.result is None else self.result.document(schedule_path),
            "wall_s": round(self.seconds, 3),
        }

    def _considered(self) -> Iterator[dict[str, Any]]:
        """Yield shapes that were searched, each with its bound, and those that were left out."""
        known = self.known
        for shape in self.question.shapes:
            bound = None if self.contradictions else known.bound_of(shape)
            yield {
                "shape": shape.geometry.label,
                "backward": shape.backward,
                "lower_bound": None if bound is None else bound.value,
                "lower_bound_source": None if bound is None else bound.source,
                "partitions": len(known.candidates_of(shape)),
                "every_partition_accounted_for": known.accounted_for(shape),
                "why_not": known.why_not.get(shape),
            }
        for name, why in self.left_out:
            yield {
                "shape": name,
                "backward": None,
                "lower_bound": None,
                "lower_bound_source": None,
                "partitions": 0,
                "every_partition_accounted_for": True,
                "why_not": why,
            }


@doing("checking the answer")
def concluded(
    known: Search,
    rows: Sequence[SplitRow] = (),
    left_out: Iterable[tuple[str, str]] = (),
) -> Plan:
    """Put together what a search has found.

    A proof that a checked schedule refutes is dropped, and all others with it; the schedules stay.

    Raises
    ------
    Contradiction
        If a split of the table that was searched is better than the plan.
    """
    others = ((row.name, row.best) for row in rows if not row.outside)
    require_best("the plan", known.value, others)
    question, chosen, bound = known.question, known.best, known.bound
    refuted = [*known.contradictions]
    for one in (*known.candidates, *(row.candidate for row in rows)):
        refuted += [] if one is None else tenable(one.value, one.bound)[1]
    refuted += tenable(known.value, bound)[1]
    if refuted:
        bound = None
    result, seconds = None, known.deadline.seconds
    if chosen is not None:
        problem, schedule = chosen.problem, chosen.schedules[0]
        own: Bound | None = chosen.bound
        of_all = known.bound
        if question.free:
            # with recomputing as a mode: what is proven of these stages says nothing of others
            problem = problem_with_recompute(question.own, chosen.partition, chosen.shape)
            flags = chosen.flags
            schedule = with_each_op(schedule, lambda op: op._replace(mode=int(flags[op.stage])))
            if violations := check(problem, schedule):
                raise Fault(f"with recomputing as a mode, a plan is not valid: {violations[0]}")
            # what many modes take is counted for seconds: without time, all splits' is enough
            own = None if known.deadline.over else closed_form_bound(problem, question.objective)
            of_all = known.bound_of(chosen.shape)
        proofs = [one for one in (own, of_all) if one is not None]
        best = max(proofs, key=lambda proof: proof.value, default=None)
        proof = None if refuted else best
        found = Solution(
            problem=problem,
            status=Standing(chosen.value, None if proof is None else proof.value).status,
            objective=question.objective,
            schedule=schedule,
            bound=proof,
            baseline=chosen.baseline,
            wall_s=seconds,
            seed=known.options.seed,
            workers=known.options.lanes,
            versions=versions(),
            history=chosen.history,
        )
        result = Result.of(found)
    told = tuple(dict.fromkeys(refuted))
    return Plan(known, result, bound, tuple(rows), tuple(left_out), seconds, told)
