"""New costs of microbatches that are a list: each class states what its own ones took."""

from __future__ import annotations

from collections import defaultdict
from copy import deepcopy
from statistics import median
from typing import Any, NamedTuple

from pipesat.core.ops import Kind, Op
from pipesat.core.problem import Problem
from pipesat.timeline.refit_costs import costs_of, edges_of
from pipesat.timeline.replay import measured_delays
from pipesat.timeline.timeline import Timeline


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
    document["comm"] = _comm(problem, timeline, busy, notes)
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


def _comm(
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
