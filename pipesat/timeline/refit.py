"""New costs from a measured timeline, so that a second solve uses what was seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from pipesat.core.arguments import public
from pipesat.core.errors import BadInput, NotApplicable
from pipesat.core.least import require_no_modes
from pipesat.core.ops import KINDS, Kind, Op, parse_kind
from pipesat.core.problem import Problem, Stage
from pipesat.core.rules import duration, one_of_each
from pipesat.files.problem_file import parse_problem
from pipesat.files.values import MOST
from pipesat.timeline.replay import CostKey, cost_key, measured_delays
from pipesat.timeline.timeline import TOY_SOURCE, Timeline


def costs_of(
    name: str, stage: Stage, seen: Mapping[Kind, float], notes: list[str]
) -> dict[str, int]:
    """Return F, B, W and BW of a stage, in whole units; ``seen`` are those that ran.

    Of a backward that did not run in both forms, the other form changes in proportion.
    """
    new: dict[Kind, float] = {"F": stage.F, "B": stage.B, "W": stage.W, "BW": stage.BW, **seen}
    if "BW" not in seen and stage.B + stage.W:
        new["BW"] = stage.BW * (new["B"] + new["W"]) / (stage.B + stage.W)
    if "B" not in seen:
        ratio = new["BW"] / stage.BW if stage.BW else 1.0
        new["B"], new["W"] = stage.B * ratio, stage.W * ratio
        if stage.may_split:
            notes.append(f"{name} ran no B and W apart: scaled like its BW")
    elif "BW" not in seen and stage.may_fuse:
        notes.append(f"{name} ran no BW: scaled like its B + W")
    return {kind: units(value, f"{name}: {kind}") for kind, value in new.items()}


def edges_of(
    problem: Problem, delays: Mapping[tuple[int, int], float], notes: list[str]
) -> dict[str, Any]:
    """Return ``comm`` with new delays, by sending and receiving stage; others stay."""
    edges, unseen = [], []
    for (a, b), link in problem.links.items():
        edge: dict[str, int] = {"src": a, "dst": b, "F": link.F, "B": link.B}
        for name, hop in (("F", (a, b)), ("B", (b, a))):
            if hop in delays:
                edge[name] = units(delays[hop], f"comm {hop[0]} -> {hop[1]}")
            else:
                unseen.append(f"{hop[0]} -> {hop[1]}")
        edges.append(edge)
    if unseen:
        notes.append(f"no op waited for {', '.join(unseen)}: delays as they were")
    default = dict(problem.document.get("comm", {})).get("default", 0)
    return {"default": default, "edges": edges}


def units(value: float, where: str) -> int:
    """Round a time to whole units.

    Raises
    ------
    BadInput
        If it does not fit into a problem file.
    """
    if value > MOST:
        raise BadInput("more than 10^12 time units", where=where, value=value)
    return round(value)


class _Busy(NamedTuple):
    """Median time that an op keeps its device busy, and the part of it after the op, in us."""

    whole: float
    after: float


def document_of_lists(problem: Problem, timeline: Timeline, notes: list[str]) -> dict[str, Any]:
    """Return the problem's document with the costs of every class stated outright, per stage."""
    busy = _busy(problem, timeline)
    document = deepcopy(dict(problem.document))
    holders = document.get("routes", [document])
    for route, holder in zip(problem.routes, holders, strict=True):
        if route.classes is None:
            continue
        first = {entry["name"]: entry for entry in reversed(holder["microbatches"])}
        for kind, definition in enumerate(route.definitions):
            entry = first[definition.name]
            entry.pop("time", None)  # stated outright on every stage
            outright = entry.setdefault("stages", {})
            for stage in route.stages:
                seen = {
                    name: ran.whole / timeline.us_per_unit
                    for (of, name, own), ran in busy.items()
                    if (of, own) == (stage, kind)
                }
                told = f"stage {stage}, class {definition.name!r}"
                times = costs_of(told, problem.resulting(stage, 0, kind), seen, notes)
                outright[str(stage)] = outright.get(str(stage), {}) | times
    document["comm"] = _comm_of_lists(problem, timeline, busy, notes)
    if problem.overlap is not None:
        notes.append("pairs keep their factors: beside a list they have no times of their own")
    return document


def _key(problem: Problem, op: Op) -> tuple[int, Kind, int]:
    return op.stage, op.kind, problem.class_of(op.stage, op.microbatch)


def _busy(problem: Problem, timeline: Timeline) -> dict[tuple[int, Kind, int], _Busy]:
    """By stage, kind and class; of ops that ran alone."""
    whole, after = defaultdict(list), defaultdict(list)
    for step in timeline.steps:
        for row in step.devices:
            following = [ran.turned_to for ran in row.ops[1:]]
            for ran, then in zip(row.ops, [*following, None], strict=True):
                if isinstance(ran.item, Op):
                    gap = 0.0 if then is None else max(0.0, then - ran.end)
                    key = _key(problem, ran.item)
                    whole[key].append(ran.end - ran.start + gap)
                    if then is not None:
                        after[key].append(gap)
    return {
        key: _Busy(median(values), median(after.get(key, [0.0]))) for key, values in whole.items()
    }


def _comm_of_lists(
    problem: Problem, timeline: Timeline, busy: dict[tuple[int, Kind, int], _Busy], notes: list[str]
) -> dict[str, Any]:
    """Links as classes without a factor have them."""

    def alike(op: Op, sender: int, delay: float) -> float:
        kind = problem.class_of(op.stage, op.microbatch)
        kinds: tuple[Kind, ...] = ("F",) if op.kind == "F" else ("B", "BW")
        spent = [busy[key].after for name in kinds if (key := (sender, name, kind)) in busy]
        definitions = problem.routes[problem.route_of[op.stage]].definitions
        num, den = definitions[kind].comm if definitions else (1, 1)
        return max(0.0, delay - max(spent, default=0.0)) * den / num

    seen = {
        link: median(values) / timeline.us_per_unit
        for link, values in measured_delays(problem, timeline, alike).items()
    }
    return edges_of(problem, seen, notes)


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
