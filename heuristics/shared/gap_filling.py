"""Greedy schedules of a plain chain in which weight gradients fill gaps of known length.

Every F and B is placed in the order of its start over the whole pipeline, so the input of a rank's
next op is known when it is placed, and with it the exact gap before it. A W is decided on only
then: it goes into a gap that holds it, or where memory has to be freed, or where idling would hurt
more. (:mod:`pipesat.heuristics.list_scheduling` decides when a device falls idle, and so has to
guess.)

Memory safety. A rank holds at most ``limit`` microbatches between F and backward, so many that all
of them fit, with what the backward of one takes on top, once the due W have run; and W need nothing
to run. The oldest microbatch can therefore always advance: no order deadlocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from operator import add
from typing import Literal, TypeAlias

from pipesat.bounds.closed_form import least_warm_ups
from pipesat.bounds.feasibility import capacities_by_order, lacking
from pipesat.core.errors import Fault, require_applicable
from pipesat.kernels.filling import Chain, Filled
from pipesat.problem.geometry import Ranks
from pipesat.problem.problem import Problem, once
from pipesat.problem.rules import link_delay, round_trip
from pipesat.schedule.arrays_of import arrays_of

Depth: TypeAlias = Literal["memory", "1f1b", "eager", "slope", "slope+1", "least idle"]
Pattern: TypeAlias = Literal["free", "alternate", "skip"]
Critical: TypeAlias = Literal["never", "idle", "load", "end"]
Fuse: TypeAlias = Literal["split", "short"]


@dataclass(frozen=True)
class Switches:
    """What distinguishes one greedy schedule from another.

    Parameters
    ----------
    depth
        How many microbatches rank d holds at most: what memory admits (K), or no more than 1F1B's
        ``p - d``, eager 1F1B's ``2 (p - 1 - d) + 1``, a line from K down to 1, or one more. With
        ``least idle``, K, but the warm-up is just as many F as leave the least idling before the
        first B (:func:`pipesat.bounds.closed_form.least_warm_ups`).
    late_first
        Whether a warm-up F may run that delays the rank's first B.
    pattern
        After the warm-up: F and B as they come, strictly in turn, or in turn with one microbatch
        less in flight, and another F only where it comes before the next B.
    spare
        Whether an F that comes before a B must also end before that B could start.
    part
        Least part of W that a gap must have for a W to start there and delay what follows.
    critical
        When a W may start in a smaller gap: never, or when idling would make the rank the worst of
        all by its idle time so far, by load + idle time, or by head + load + idle time.
    fuse
        ``either`` stages: split and keep memory for what B takes on top of F, or split but fuse
        where memory is short.
    fused_ranks
        Ranks that always fuse.
    """

    depth: Depth = "memory"
    late_first: bool = False
    pattern: Pattern = "free"
    spare: bool = False
    part: float = 1.0
    critical: Critical = "never"
    fuse: Fuse = "split"
    fused_ranks: frozenset[int] = frozenset()


def fill_gaps(problem: Problem, ranks: Ranks, switches: Switches) -> Filled:
    """Build one order on a plain chain (``ranks_of``); it keeps every capacity.

    Raises
    ------
    NotApplicable
        If one microbatch alone does not fit into a device.
    """
    import numpy as np  # importing pipesat stays fast

    from pipesat.kernels.filling import CRITICAL, DEPTHS, PATTERNS, filled

    made = filled(
        _chain(problem, ranks),
        DEPTHS.index(switches.depth),
        PATTERNS.index(switches.pattern),
        CRITICAL.index(switches.critical),
        switches.late_first,
        switches.spare,
        switches.fuse == "short",
        switches.part,
        np.array([d in switches.fused_ranks for d in range(len(ranks))], np.int64),
    )
    if made.makespan < 0:
        raise Fault(f"gap filling ({switches}) stopped before the end")
    return made


@once
def _chain(problem: Problem, ranks: Ranks) -> Chain:
    """Return a chain for loops; it is made once."""
    import numpy as np

    from pipesat.kernels.filling import Chain

    require_applicable(
        not lacking(problem, capacities_by_order(problem)),
        "needs memory for one microbatch on every device",
    )
    arrays, (route,) = arrays_of(problem), problem.routes
    numbers = [stage for (stage,) in ranks.stages]
    stages = [problem.stages[number] for number in numbers]
    there = [link_delay(problem, number, "F") for number in numbers]
    hops = (stage.F + delay for stage, delay in zip(stages, there, strict=True))
    head = [*accumulate(hops, initial=0)][:-1]
    load = [route.microbatches * (stage.F + stage.least_backward_work) for stage in stages]
    back = [stage.F + round_trip(problem, n) for n, stage in zip(numbers, stages, strict=True)]
    return Chain(
        device=np.array(ranks.device),
        first=arrays.first_cell[numbers] << arrays.shift,
        time=np.array([[stage.F, stage.B, stage.W, stage.BW] for stage in stages]),
        held=np.array([stage.held_after_F for stage in stages]),
        kept=np.array([stage.held_after_B for stage in stages]),
        running=np.array([stage.held_in_backward for stage in stages]),
        slack=arrays.slack[[*ranks.device]],
        may_split=np.array([stage.may_split for stage in stages], np.int64),
        may_fuse=np.array([stage.may_fuse for stage in stages], np.int64),
        delay=np.array(there),
        delay_back=np.array([link_delay(problem, number, "B") for number in numbers]),
        head=np.array(head),
        load=np.array(load),
        first_backward=np.array([*map(add, head, back)]),
        least_idle=np.array(least_warm_ups(problem, load).forwards),
        microbatches=route.microbatches,
        shift=arrays.shift,
    )
