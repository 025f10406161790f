"""The automatic schedule of the Zero Bubble paper, for any capacity (Qi et al., ICLR 2024)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import nsmallest
from typing import Final, NamedTuple

from pipesat.heuristics.registry import GiveUp, never, published, unless_given_up
from pipesat.heuristics.shared.gap_filling import Fuse, Switches, fill_gaps
from pipesat.kernels.filling import Filled
from pipesat.problem.geometry import Ranks, ranks_of
from pipesat.problem.problem import Problem
from pipesat.schedule.arrays_of import arrays_of, too_large
from pipesat.schedule.schedule import Objective, Schedule
from pipesat.schedule.timing import time_codes

_SOURCE = "Qi et al., ICLR 2024, section 3.1"
_CLIMBS: Final = 3  # settings in which other ranks are fused; 8 found more on 1 of 18 problems

# On each of the benchmark's 52 chains of up to 16 ranks, one of these is the best of all 1,200
# combinations, for either objective; on 70 random ones their best is 0.02 % behind that of 450.
# Ahead stand those that come close together, for those who try only a few.
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
    """Yield the combinations of switches to try, the usually best ones first."""
    fuses: list[tuple[Fuse, frozenset[int]]] = [("split", frozenset())]
    if _may_fuse(problem):
        p = len(problem.stages)
        leading = dict.fromkeys(frozenset(range(count)) for count in (0, 1, p // 2, p))
        fuses += [("short", ranks) for ranks in leading]
    for base in _SETTINGS_FOR_SPAN + _SETTINGS if objective == "span" else _SETTINGS:
        yield from (replace(base, fuse=fuse, fused_ranks=ranks) for fuse, ranks in fuses)


def _may_fuse(problem: Problem) -> bool:
    return any(stage.backward == "either" and stage.fusing_may_pay for stage in problem.stages)


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
        Unless every device holds exactly one stage of one route, and has memory for a microbatch;
        or if told to give up.
    """
    best = min(
        filled_orders(problem, give_up=give_up), key=lambda filled: (filled.makespan, filled.span)
    )
    return time_codes(problem, best.order, source="zb-auto")


@published("zb-auto-span", placement="chain", source=_SOURCE, splits=True, slow=True, equal=True)
def zb_auto_span(problem: Problem, give_up: GiveUp) -> Schedule:
    """As zb-auto, but the order of least span (the paper's own objective), timed earliest.

    Some of its orders warm up by just as many forwards as leave the least idling before the first
    B over all ranks together, which the paper has not. Among equals, least makespan.

    Raises
    ------
    NotApplicable
        As zb-auto.
    """
    from pipesat.kernels.arrays import UNLIMITED  # importing pipesat stays fast
    from pipesat.kernels.spans import least_span_starts
    from pipesat.kernels.timing import sequenced

    best, value = None, (UNLIMITED, UNLIMITED)
    for filled in filled_orders(problem, "span", give_up):
        sequence = sequenced(arrays_of(problem), filled.order)
        span, _ = least_span_starts(sequence, len(problem.devices), value[0])
        if span >= 0 and (span, filled.makespan) < value:
            best, value = filled, (span, filled.makespan)
    if best is None:
        raise too_large()
    return time_codes(problem, best.order, source="zb-auto-span")


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
        tried.append(_Tried(_value(filled, objective), switches))
        yield filled
        unless_given_up(give_up)
    if _may_fuse(problem):
        best = nsmallest(_CLIMBS, tried, key=lambda one: one.value)
        for filled in _with_other_ranks_fused(problem, ranks, objective, best):
            yield filled
            unless_given_up(give_up)


def _value(filled: Filled, objective: Objective) -> int:
    return filled.makespan if objective == "makespan" else filled.span


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
                if (value := _value(filled, objective)) < best.value:
                    best = _Tried(value, switches)
