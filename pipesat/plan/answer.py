"""The plan: the best partition with its schedule, and what is proven about both."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from pipesat.core.attached import attached
from pipesat.core.claims import Bound, Standing, Status, percent
from pipesat.core.memory import peak_memory
from pipesat.core.problem import Problem
from pipesat.core.result import Result
from pipesat.core.showing import Displayed, Facts
from pipesat.core.stage import COSTS
from pipesat.layers.layout import layout_of_partition
from pipesat.layers.stages import remarks
from pipesat.plan.candidate import Candidate
from pipesat.plan.comparison import SplitRow, gains
from pipesat.plan.findings import Findings
from pipesat.plan.question import Question
from pipesat.plan.shapes import shape_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROOM: Final = 0.03  # of a device's memory, less than this free is told
_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(\.\w+)*")


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
        """Return what was found, and what is proven of it over all partitions."""
        if self.chosen is None:
            return [("plan", "none was found in time; none is proven impossible")]
        shape, objective = self.chosen.shape, self.question.objective
        facts = [
            (objective, f"{self.value}, {self.standing.verdict}"),
            ("placement", f"{shape_name(shape)} on {shape.devices} devices"),
            ("order", self.chosen.schedules[0].source),
            ("layout", layout_text(self) or ""),
        ]
        if self.bound is not None:
            facts.insert(1, ("lower bound", f"{self.bound.value} ({self.bound.source})"))
        return [*facts, ("time", f"{self.seconds:.1f} s")]

    def records(self) -> list[dict[str, Any]]:
        """Return a row per stage: device, layers, costs."""
        return stages_of(self)

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


def _too_full(plan: Plan) -> Iterator[str]:
    """A device that a real run may not fit on: hardly anything is free for what no layer says."""
    reserve = plan.question.layers.reserve
    for number, device in enumerate(devices_of(plan)):
        memory, peak = device["memory"], device["peak"]
        if memory and memory - peak + reserve < _ROOM * memory:
            unit = f" {plan.question.layers.memory_unit}".rstrip()
            yield (
                f"device {number} fills {percent(peak / memory, 1)} of its memory, {memory - peak}"
                f"{unit} are left: fragments and communication buffers have no room; a reserve "
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


def stages_of(plan: Plan) -> list[dict[str, Any]]:
    """Every stage: device, layers, costs."""
    chosen, layers = plan.chosen, plan.question.layers
    if chosen is None:
        return []
    return [
        {
            "stage": number,
            "device": stage.device,
            "layers": [layers.layers[k].name for k in part],
            "first_layer": part.start,
            "recompute": flag,
        }
        | {kind: getattr(stage, kind) for kind in COSTS}
        for number, (part, stage, flag) in enumerate(
            zip(chosen.partition, chosen.problem.stages, chosen.flags, strict=True)
        )
    ]


def devices_of(plan: Plan) -> list[dict[str, Any]]:
    """Every device: load, memory by kind, capacity."""
    if plan.chosen is None:
        return []
    problem = plan.chosen.problem
    peaks = peak_memory(problem, plan.chosen.schedules[0])
    return [
        {
            "device": number,
            "load": load_of(problem, number),
            "static": device.static,
            "activations": peaks[number] - device.static,
            "peak": peaks[number],
            "memory": device.memory,
        }
        for number, device in enumerate(problem.devices)
    ]


def load_of(problem: Problem, device: int) -> int:
    """Least compute time of a device."""
    return sum(
        (problem.stages[s].F + problem.stages[s].least_backward_work) * problem.microbatches[s]
        for s in problem.stages_on[device]
    )


def layout_text(plan: Plan) -> str | None:
    """Megatron-LM's layout string; ``None`` in a V, which Megatron-LM does not have."""
    if plan.chosen is None or plan.chosen.shape.placement == "vee":
        return None
    return layout_of_partition(plan.question.layers, plan.chosen.partition).text


def module_names(plan: Plan) -> list[list[str]] | None:
    """Module names per stage, if the layers are named as modules are: at least one with a dot."""
    if plan.chosen is None:
        return None
    names = [[plan.question.layers.layers[k].name for k in part] for part in plan.chosen.partition]
    flat = [name for stage in names for name in stage]
    if all(map(_DOTTED.fullmatch, flat)) and any("." in name for name in flat):
        return names
    return None
