"""New costs from a measured timeline, so that a second solve uses what was seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from pipesat.core.arguments import public
from pipesat.core.errors import require, require_applicable, said_of
from pipesat.core.grouping import grouped
from pipesat.core.strict_json import MOST
from pipesat.measure.timeline.observed import CostKey, LinkKey, cost_key, delays_seen, gaps_of
from pipesat.problem.ops import KINDS, Kind, Op, OpKind
from pipesat.problem.plain_problems import with_idle_keys
from pipesat.problem.problem import Link, MicrobatchClass, Overlap, Problem, Route, Stage
from pipesat.problem.problem_checks import changed
from pipesat.problem.rules import duration, one_of_each
from pipesat.problem.stage import ONE
from pipesat.runtimes.timeline import TOY_SOURCE, Timeline

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
    that did not changes in proportion to its two ops, and keeps its factor if it has one. Where
    microbatches are a list, the costs of every class are stated outright, per stage.

    Raises
    ------
    BadInput
        If a time does not fit into a problem file.
    NotApplicable
        If there are memory modes, or the timeline is of the toy model.
    """
    require_applicable(not problem.has_modes, "refit cannot take memory modes into account yet")
    require_applicable(
        timeline.source != TOY_SOURCE,
        "the timeline is of a toy model, whose times are not those of the model that is to "
        "be trained: run it with --model",
    )
    notes: list[str] = []
    busy, after = _busy(problem, timeline)
    whole = with_idle_keys(problem)

    def measured(name: str, key: tuple[int, int, int], amounts: Stage) -> dict[str, Any]:
        seen: dict[Kind, float] = {
            kind: spent / timeline.us_per_unit
            for kind in KINDS
            if (spent := busy.get(((key[0], kind, *key[1:]),))) is not None
        }
        return costs_of(name, amounts, seen, notes)

    def of_class(group: int, definition: MicrobatchClass, route: Route) -> MicrobatchClass:
        stated = dict(definition.outright)
        for number in route.stages:
            name = f"stage {number}, class {definition.name!r}"
            costs = measured(name, (number, group, 0), problem.resulting(number, 0, group))
            stated[number] = tuple((dict(stated.get(number, ())) | costs).items())
        return replace(definition, time=ONE, outright=tuple(sorted(stated.items())))

    stages, routes = [*whole.stages], list[Route]()
    for route in whole.routes:
        if route.classes is None:
            for number in route.stages:
                costs = measured(f"stage {number}", (number, 0, 0), problem.stages[number])
                stages[number] = replace(stages[number], sums=False, **costs)
        classes = (of_class(group, one, route) for group, one in enumerate(route.definitions))
        routes.append(replace(route, definitions=tuple(classes)))
    new = replace(whole, stages=tuple(stages), routes=tuple(routes))
    if problem.has_lists and problem.overlap is not None:
        notes.append("pairs keep their factors: beside a list they have no times of their own")
    elif problem.overlap is not None:
        took = {
            tuple(part[:2] for part in key): spent / timeline.us_per_unit
            for key, spent in busy.items()
            if len(key) > 1
        }
        new = replace(new, overlap=_overlap(problem, problem.overlap, new, took, notes))
    name = f"{(problem.name or 'problem').removesuffix(', refit')}, refit"
    with said_of("refit problem"):
        new = changed(new, links=_links(problem, timeline, after, notes), name=name)
    found = (new.amounts(op.stage, op.microbatch) for op in one_of_each(new))
    smallest = min(
        (value for stage in found for value in (stage.F, stage.B) if value), default=_COARSE
    )
    if smallest < _COARSE:
        unit = problem.time_unit or "units"
        notes.append(f"costs of a few {unit} are rounded to whole {unit}: choose a finer time unit")
    notes.append("costs are fitted to this run: only another one can judge their error")
    return Refit(new, tuple(notes))


def _busy(
    problem: Problem, timeline: Timeline
) -> tuple[dict[CostKey, float], dict[CostKey, float]]:
    """Median time that items keep their device busy, and the part of it after the item, in us."""
    spent = [
        (cost_key(problem, ran.item), ran.end - ran.start, gap)
        for step in timeline.steps
        for row in step.devices
        for ran, gap in zip(row.ops, [*gaps_of(row)[1:], None], strict=True)
    ]
    whole = grouped((key, took + sum(gap or ())) for key, took, gap in spent)
    # nothing comes after the last
    after = grouped((key, sum(gap)) for key, _, gap in spent if gap is not None)
    return (
        {key: median(all_) for key, all_ in whole.items()},
        {key: median(all_) for key, all_ in after.items()},
    )


def _overlap(
    problem: Problem,
    overlap: Overlap,
    new: Problem,
    took: Mapping[tuple[OpKind, ...], float],
    notes: list[str],
) -> Overlap:
    """Return ``overlap`` with what pairs took; ``new`` has the new costs of single ops."""
    listed = {tuple(sorted(two)): two for two in overlap.listed}
    times, factors = dict[tuple[OpKind, OpKind], int](), dict(overlap.factors)
    for key in {**listed, **dict.fromkeys(took)}:
        a, b = listed.get(key) or sorted(key, key=lambda op: KINDS.index(op[1]))
        if key in took:
            time = took[key]
            factors.pop((a, b), None)
        elif (a, b) in factors:
            continue
        else:
            before = sum(duration(problem, Op(*kind, 0)) for kind in key)
            after = sum(getattr(new.stages[stage], kind) for stage, kind in key)
            time = overlap.times[a, b] * (after / before if before else 1)
        where = f"overlap.pairs of {a[0]}{a[1]} and {b[0]}{b[1]}"
        times[a, b] = max(1, units(time, where))
    if unseen := sum(key not in took for key in listed):
        notes.append(f"listed pairs that did not run: {unseen}, scaled like their two ops")
    return Overlap(overlap.factor, times, factors)


def _links(
    problem: Problem, timeline: Timeline, after: Mapping[CostKey, float], notes: list[str]
) -> dict[tuple[int, int], Link]:
    """Return new delays; links that no op waited for keep theirs."""
    seen: dict[LinkKey, list[float]] = defaultdict(list)
    for op, sender, delay in delays_seen(problem, timeline):
        group = problem.class_of(op.stage, op.microbatch)
        kinds: tuple[Kind, ...] = ("F",) if op.kind == "F" else ("B", "BW")
        keys = (((sender, kind, group, 0),) for kind in kinds)
        spent = max(after.get(key, 0.0) for key in keys)
        definitions = problem.routes[problem.route_of[op.stage]].definitions
        num, den = definitions[group].comm if definitions else (1, 1)
        # less what the sender did after its op, as classes without a factor have it
        seen[sender, op.stage].append((delay - spent) * den / num)
    delays = {link: max(0.0, median(all_)) / timeline.us_per_unit for link, all_ in seen.items()}
    links, unseen = {}, []
    for (a, b), link in problem.links.items():
        new = {"F": link.F, "B": link.B}
        for name, hop in (("F", (a, b)), ("B", (b, a))):
            if hop in delays:
                new[name] = units(delays[hop], f"comm {hop[0]} -> {hop[1]}")
            else:
                unseen.append(f"{hop[0]} -> {hop[1]}")
        links[a, b] = Link(**new)
    if unseen:
        notes.append(f"no op waited for {', '.join(unseen)}: delays as they were")
    return links


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


def units(value: float, where: str) -> int:
    """Round a time to whole units."""
    require(value <= MOST, "more than 10^12 time units", where=where, value=value)
    return round(value)
