"""New costs from a measured timeline, so that a second solve uses what was seen."""

from __future__ import annotations

from collections import defaultdict
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from pipesat.core.arguments import public
from pipesat.core.errors import NotApplicable
from pipesat.core.least import require_no_modes
from pipesat.core.ops import KINDS, Kind, Op, parse_kind
from pipesat.core.problem import Problem
from pipesat.core.rules import duration, one_of_each
from pipesat.files.problem_file import parse_problem
from pipesat.timeline.refit_costs import costs_of, edges_of, units
from pipesat.timeline.refit_lists import document_of_lists
from pipesat.timeline.replay import CostKey, cost_key, measured_delays
from pipesat.timeline.timeline import TOY_SOURCE, Timeline

_COARSE = 50  # units: below, rounding to whole ones changes a cost by more than 1 %


@dataclass(frozen=True)
class Refit:
    """A problem with measured costs, and what the reader should know of it."""

    problem: Problem
    notes: tuple[str, ...]


@public
def refit(problem: Problem, timeline: Timeline) -> Refit:
    """Return the problem with its times replaced by those of a timeline.

    A cost becomes the median, over all steps, of the time from the start of such an op until its
    device turned to the next: what the runtime needs after it (starting sends, say) blocks the
    device as well. A delay becomes the median of those that an op waited for, less that part; a
    link that no op waited for keeps its delay. Of a backward that did not run in both forms, the
    other form changes in proportion. A pair that ran gets its own time in ``overlap.pairs``; one
    that did not changes in proportion to its two ops, and keeps its factor if it has one.

    Raises
    ------
    BadInput
        If a time does not fit into a problem file.
    NotApplicable
        If there are memory modes, or the timeline is of the toy model.
    """
    require_no_modes(problem, "refit")
    if timeline.source == TOY_SOURCE:
        raise NotApplicable(
            "the timeline is of a toy model, whose times are not those of the model that is to "
            "be trained: run it with --model"
        )
    notes: list[str] = []
    if problem.has_lists:
        return _refit(problem, document_of_lists(problem, timeline, notes), notes)
    costs, after = _occupied(timeline)
    document = deepcopy(dict(problem.document))
    for number, stage in enumerate(problem.stages):
        seen = {
            kind: cost / timeline.us_per_unit
            for ((of, kind), *other), cost in costs.items()
            if of == number and not other
        }
        document["stages"][number] |= costs_of(f"stage {number}", stage, seen, notes)
    if problem.overlap is not None:
        document["overlap"] = _overlap(problem, document, costs, timeline.us_per_unit, notes)
    document["comm"] = _comm(problem, timeline, after, notes)
    return _refit(problem, document, notes)


def _refit(problem: Problem, document: dict[str, Any], notes: list[str]) -> Refit:
    """Put a problem with new costs together."""
    document["name"] = f"{(problem.name or 'problem').removesuffix(', refit')}, refit"
    new = parse_problem(document, "refit problem")
    found = (new.amounts(op.stage, op.microbatch) for op in one_of_each(new))
    smallest = min(
        (value for stage in found for value in (stage.F, stage.B) if value), default=_COARSE
    )
    if smallest < _COARSE:
        unit = problem.time_unit or "units"
        notes.append(f"costs of a few {unit} are rounded to whole {unit}: choose a finer time unit")
    return Refit(new, tuple(notes))


def _occupied(timeline: Timeline) -> tuple[dict[CostKey, float], dict[CostKey, float]]:
    """Median time that an op keeps its device busy, and the part of it after the op, in us."""
    whole: dict[CostKey, list[float]] = defaultdict(list)
    after: dict[CostKey, list[float]] = defaultdict(list)
    for step in timeline.steps:
        for row in step.devices:
            for ran, following in pairwise(row.ops):
                key = cost_key(ran.item)
                gap = max(0.0, following.turned_to - ran.end)
                whole[key].append(ran.end - ran.start + gap)
                after[key].append(gap)
            for ran in row.ops[-1:]:  # nothing after it; without it, one op alone had no cost
                whole[cost_key(ran.item)].append(ran.end - ran.start)
    return (
        {key: median(values) for key, values in whole.items()},
        {key: median(values) for key, values in after.items()},
    )


def _overlap(
    problem: Problem,
    document: dict[str, Any],
    costs: dict[CostKey, float],
    scale: float,
    notes: list[str],
) -> dict[str, Any]:
    """Return ``overlap`` with what pairs took; ``document`` has the new costs of single ops."""
    overlap = dict(document["overlap"])
    listed = {
        tuple(sorted(map(parse_kind, entry["ops"]))): entry for entry in overlap.get("pairs", ())
    }
    entries = []
    for key in {**listed, **{key: None for key in costs if len(key) > 1}}:
        forward_first = sorted(key, key=lambda op: KINDS.index(op[1]))
        ops = [f"{stage}{kind}" for stage, kind in forward_first]
        ops = listed[key]["ops"] if key in listed else ops
        where = f"overlap.pairs of {' and '.join(ops)}"
        if key in costs:
            time = costs[key] / scale
        elif "factor" in listed[key]:
            entries.append(listed[key])
            continue
        else:
            before = sum(duration(problem, Op(*kind, 0)) for kind in key)
            after = sum(document["stages"][stage][kind] for stage, kind in key)
            time = listed[key]["time"] * (after / before if before else 1)
        entries.append({"ops": ops, "time": max(1, units(time, where))})
    if unseen := sum(key not in costs for key in listed):
        notes.append(f"listed pairs that did not run: {unseen}, scaled like their two ops")
    return overlap | ({"pairs": entries} if entries else {})


def _comm(
    problem: Problem, timeline: Timeline, after: dict[CostKey, float], notes: list[str]
) -> dict[str, Any]:
    def busy(source: int, target: int) -> float:
        """Time that a device spends after an op that sends."""
        kinds: tuple[Kind, ...] = ("F",) if (source, target) in problem.links else ("B", "BW")
        return max(after.get(((source, kind),), 0.0) for kind in kinds)

    delays = {
        link: max(0.0, median(values) - busy(*link)) / timeline.us_per_unit
        for link, values in measured_delays(problem, timeline).items()
    }
    return edges_of(problem, delays, notes)
