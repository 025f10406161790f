"""The automatic schedule of the Zero Bubble paper, for any capacity (Qi et al., ICLR 2024)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import nsmallest
from itertools import islice
from typing import Final, NamedTuple

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.core.problem import Problem
from pipesat.core.schedule import Objective, Order, Schedule
from pipesat.core.timing import time_order
from pipesat.heuristics.registry import GiveUp, never, published, unless_given_up
from pipesat.heuristics.shared.gap_filling import Filled, Fuse, Switches, fill_gaps
from pipesat.placement.geometry import Ranks, ranks_of

_SOURCE = "Qi et al., ICLR 2024, section 3.1"
# Placed by all settings together, a few seconds; finding an order's minimum span takes longer.
_MOST_OPS: Final[dict[Objective, int]] = {"makespan": 500_000, "span": 150_000}
_FEWEST: Final = 2
_CLIMBS: Final = 3  # settings in which other ranks are fused; 8 found more on 1 of 18 problems

# On each of the benchmark's 52 chains of up to 16 ranks, one of these is the best of all 1,200
# combinations, for either objective; on 70 random ones their best is 0.02 % behind that of 450.
# Ahead stand those that come close together, for problems so large that only a few are tried.
_SETTINGS: Final = (
    Switches("slope", critical="idle"),
    Switches("slope", late_first=True, pattern="alternate", part=0.5),
    Switches("slope", pattern="alternate", part=0.75, critical="end"),
    Switches("eager", part=0.75, critical="load"),
    Switches("1f1b", spare=True, part=0.75),
    Switches("slope+1", pattern="skip", part=0.25, critical="load"),
    Switches("slope+1", late_first=True, part=0.75, critical="idle"),
    Switches("slope+1", pattern="skip", part=0.25, critical="end"),
    Switches("slope", late_first=True, critical="load"),
    Switches("slope+1", pattern="skip", part=0.5, critical="load"),
    Switches("slope+1", late_first=True, pattern="skip", part=0.25, critical="idle"),
    Switches("slope", pattern="skip", part=0.5, critical="load"),
    Switches("slope+1", pattern="skip", critical="load"),
    Switches("slope+1", pattern="skip", part=0.75, critical="load"),
    Switches("slope+1", late_first=True, critical="end"),
    Switches("slope+1", pattern="skip", part=0.5, critical="idle"),
    Switches("1f1b", late_first=True, critical="load"),
    Switches("slope", part=0.75),
    Switches("eager", late_first=True, critical="load"),
    Switches("eager", pattern="alternate", part=0.25, critical="load"),
    Switches("eager", late_first=True, critical="end"),
    Switches("memory"),
)
# Before them for the span, in which idling before the first backward counts on every rank alike.
# On 11 of the benchmark's 12 uniform chains with 2p microbatches in flight, the first is optimal.
_SETTINGS_FOR_SPAN: Final = (
    Switches("least idle", critical="idle"),
    Switches("least idle", pattern="skip", part=0.5, critical="load"),
    Switches("least idle", part=0.5, critical="load"),
)


def settings(problem: Problem, objective: Objective = "makespan") -> Iterator[Switches]:
    """Yield the combinations of switches to try, the usually best ones first.

    On large problems only as many as can be placed and timed in a few seconds.
    """
    bases = _SETTINGS_FOR_SPAN + _SETTINGS if objective == "span" else _SETTINGS
    every: Iterator[Switches] = iter(bases)
    if _may_fuse(problem):
        p = len(problem.stages)
        leading = dict.fromkeys(frozenset(range(count)) for count in (0, 1, p // 2, p))
        fuses: list[tuple[Fuse, frozenset[int]]] = [("split", frozenset())]
        fuses += [("short", ranks) for ranks in leading]
        every = (
            replace(base, fuse=fuse, fused_ranks=ranks) for base in bases for fuse, ranks in fuses
        )
    yield from islice(every, _most_orders(problem, objective))


def _may_fuse(problem: Problem) -> bool:
    return any(stage.backward == "either" and stage.fusing_may_pay for stage in problem.stages)


def _most_orders(problem: Problem, objective: Objective) -> int:
    return max(_FEWEST, _MOST_OPS[objective] // problem.op_count)


@published("zb-auto", placement="chain", source=_SOURCE, splits=True, slow=True, equal=True)
def zb_auto(problem: Problem, give_up: GiveUp) -> Schedule:
    """Warm up as deep as memory allows, fill gaps with W, and take the best of some switches.

    The paper's greedy: as many forwards as memory admits before the first B (or one less, where
    the last would delay it); then F and B in turn; a W goes where the gap holds it, where memory
    has to be freed, or where idling would make a rank the worst of all. Other than in the paper, a
    rank's depth may be limited below its memory, F and B may come as they get ready, and unequal
    loads count as idle time does: this is what keeps it efficient below 1F1B's memory and on
    unequal stages; and where backwards may be fused, it seeks the ranks that always do. It keeps
    every capacity. Least makespan; among equals, least span of the earliest timing.

    Raises
    ------
    NotApplicable
        Unless every device holds exactly one stage of one route, and has room for a microbatch; or
        if told to give up.
    """
    best = min(
        filled_orders(problem, give_up=give_up), key=lambda filled: (filled.makespan, filled.span)
    )
    return time_order(problem, best.order, source="zb-auto")


@published("zb-auto-span", placement="chain", source=_SOURCE, splits=True, slow=True, equal=True)
def zb_auto_span(problem: Problem, give_up: GiveUp) -> Schedule:
    """As zb-auto, but the order of least span (the paper's own objective), timed earliest.

    Some of its orders warm up by just as many forwards as leave the least idling before the first
    B over all ranks together, which the paper has not. The first that meets the closed form ends
    the search.

    Raises
    ------
    NotApplicable
        As zb-auto.
    """
    ranks_of(problem, "chain")  # or else the bound is calculated for nothing
    least = closed_form_bound(problem, "span").value
    spans: dict[Order, tuple[int, int]] = {}
    for makespan, _, order in filled_orders(problem, "span", give_up):
        if order not in spans:
            spans[order] = (time_order(problem, order, "span").span, makespan)
            if spans[order][0] == least:
                break
    return time_order(problem, min(spans, key=lambda order: spans[order]), source="zb-auto-span")


def filled_orders(
    problem: Problem, objective: Objective = "makespan", give_up: GiveUp = never
) -> Iterator[Filled]:
    """Yield the order of every setting, with its makespan and span, as it is made.

    Where stages may fuse, other ranks than the settings' are fused in the best ones at the end.

    Raises
    ------
    NotApplicable
        As zb-auto.
    """
    ranks = ranks_of(problem, "chain")
    tried: list[_Tried] = []
    for switches in settings(problem, objective):
        filled = fill_gaps(problem, ranks, switches)
        tried.append(_Tried(filled.value(objective), switches))
        yield filled
        unless_given_up(give_up)
    if _may_fuse(problem):
        best = nsmallest(_CLIMBS, tried, key=lambda one: one.value)
        others = _with_other_ranks_fused(problem, ranks, objective, best)
        for filled in islice(others, _most_orders(problem, objective) - len(tried)):
            yield filled
            unless_given_up(give_up)


class _Tried(NamedTuple):
    """Makespan or span of the order that the switches make."""

    value: int
    switches: Switches


def _with_other_ranks_fused(
    problem: Problem, ranks: Ranks, objective: Objective, starts: Sequence[_Tried]
) -> Iterator[Filled]:
    """From each start, fuse or split the one rank that shortens the order most, until none does."""
    free = [d for d, (s,) in enumerate(ranks.stages) if problem.stages[s].backward == "either"]
    seen = {start.switches for start in starts}
    for start in starts:
        here: _Tried | None = None
        best = start
        while here is not best:
            here = best
            for d in free:
                switches = replace(here.switches, fused_ranks=here.switches.fused_ranks ^ {d})
                if switches in seen:
                    continue
                seen.add(switches)
                filled = fill_gaps(problem, ranks, switches)
                yield filled
                if (value := filled.value(objective)) < best.value:
                    best = _Tried(value, switches)
