"""List scheduling: a portfolio of greedy, event-driven policies for any placement and any cap.

A device that falls idle takes the first of: a backward whose input is there, a forward that fits
into memory, a weight gradient. Policies differ in how long a device waits for a backward that is
about to arrive, in how many microbatches may be in flight, in which chunk goes first, and in
where the backward is fused.

Memory safety. Microbatches are launched one after the other; let them be completed in that order.
A forward may start on a device only if afterwards every launched microbatch, in launch order, can
still obtain what it needs there: with ``extra(i)`` the most that microbatch i will yet take beyond
what it holds, ``extra(i) <= slack - held by all + held by those before i``. Memory of started
backwards and of pending weight gradients counts as free, since these need nothing to finish. Such
a state always lets the oldest microbatch advance, so the scheduler cannot deadlock on any problem
in which one microbatch alone fits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

from pipesat.bounds.feasibility import capacities_by_order, lacking, preflight, sure_order
from pipesat.bounds.graphs import one_at_a_time
from pipesat.core.arrays import ints
from pipesat.core.errors import Fault, Infeasible, NotApplicable, require_applicable
from pipesat.heuristics.graphs import graph_orders
from pipesat.heuristics.registry import GiveUp, never, published, unless_given_up
from pipesat.kernels.arrays import Coded
from pipesat.problem.plain_problems import without_modes
from pipesat.problem.problem import Problem
from pipesat.problem.rules import round_trip
from pipesat.schedule.arrays_of import arrays_of, order_of
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.timing import time_order

NAME = "list-scheduling"

Fuse: TypeAlias = Literal["split", "first", "fused"]


@dataclass(frozen=True)
class Policy:
    """What distinguishes one greedy scheduler from another.

    Parameters
    ----------
    patience
        How long a device idles for a backward that is known to arrive, in parts of the W that it
        could run instead.
    in_flight
        Limit ``(factor, offset)`` on microbatches between F and backward of a stage with r stages
        after it: ``factor * r + offset``; (1, 1) is 1F1B's, (2, 1) eager 1F1B's.
    pace
        Limit them to ``pace * l / T`` instead, where l is the least time from a stage's F to the
        end of its backward and T the least period that device loads and memory allow: what a
        steady stream of microbatches would hold.
    deep_first
        Among forwards, whether the later chunk of a device goes first.
    fuse
        ``either`` stages: always split, fuse on the first stage of a route (nothing waits for its
        input gradient), or always fuse.
    """

    patience: float = 1.0
    in_flight: tuple[float, int] | None = None
    pace: float | None = None
    deep_first: bool = True
    fuse: Fuse = "split"


_LIMITS: tuple[tuple[float, int] | None, ...] = (None, (1, 1), (2, 1), (0.67, 1), (1.5, 1), (1, 2))
_PACES = (1.0, 1.25, 1.5, 0.8, 2.0)


_MOST_OPS: Final = 6_000_000  # simulated for one portfolio: a few seconds at most

Setting = TypeVar("Setting")


def affordable(problem: Problem, settings: Iterable[Setting], among: int = 1) -> Iterator[Setting]:
    """Yield as many settings, one of them at least, as take a few seconds together.

    All of them on most problems. ``among`` so many streams the time is divided.
    """
    yield from islice(settings, max(1, _MOST_OPS // among // max(1, problem.op_count)))


def policies(problem: Problem) -> Iterator[Policy]:
    """Yield the policies that differ on this problem, the usually best ones first."""
    fuses: tuple[Fuse, ...] = ("split",)
    if any(stage.backward == "either" and stage.fusing_may_pay for stage in problem.stages):
        fuses = ("split", "first", "fused")
    chunked = any(len(stages) > 1 for stages in problem.stages_on)
    for patience in (1.0, 0.0, 0.5, 0.25, 0.75):
        bases = [Policy(patience, pace=pace) for pace in _PACES if chunked]
        bases += [Policy(patience, limit) for limit in _LIMITS]
        for base in bases:
            for fuse in fuses:
                yield replace(base, fuse=fuse)
                if chunked:
                    yield replace(base, fuse=fuse, deep_first=False)


def list_schedules(
    problem: Problem,
    give_up: GiveUp = never,
    chosen: Iterable[Policy] | None = None,
) -> Iterator[Schedule]:
    """Yield schedules of policies, each shorter than those before; each fits into memory.

    Of two of equal makespan the one of less span is the shorter one. ``give_up`` is asked before
    every policy; once it says yes, nothing more is yielded. ``chosen`` are the policies, all that
    differ unless given.

    Policies count memory op by op. Where one microbatch alone exceeds a capacity that way, it may
    still pass if ops of length zero share instants; the one schedule is then that of one microbatch
    after the other, or none if the problem is infeasible.
    """
    if not problem.chains_only:
        yield from _on_graphs(problem, give_up)
        return
    scheduler = ListScheduler(problem)
    if scheduler.applies:
        if chosen is None:
            chosen = affordable(problem, policies(scheduler.problem))
        yield from scheduler.shorter(map(scheduler.run, chosen), give_up, NAME)
        return
    with contextlib.suppress(Infeasible):
        yield time_order(problem, sure_order(scheduler.problem), source=NAME)


def _on_graphs(problem: Problem, give_up: GiveUp) -> Iterator[Schedule]:
    """As :func:`list_schedules`, where routes are more than chains."""
    best: tuple[int, int] | None = None
    for order in takewhile(lambda _: not give_up(), graph_orders(without_modes(problem))):
        timed = time_order(problem, order, source=NAME)
        if best is None or (timed.makespan, timed.span) < best:
            best = timed.makespan, timed.span
            yield timed
    if best is None and (sure := one_at_a_time(problem)) is not None:
        yield time_order(problem, sure, source=NAME)


@published(NAME, placement="any", splits=True, source="pipesat", slow=True, graphs=True)
def list_scheduling(problem: Problem, give_up: GiveUp = never) -> Schedule:
    """Return the portfolio's schedule of least makespan; among equals that of least span."""
    try:
        preflight(without_modes(problem))
    except Infeasible as error:
        raise NotApplicable(f"no schedule fits into memory: {error}") from error
    made = list(list_schedules(problem, give_up))
    unless_given_up(give_up)
    require_applicable(made, "no order was found that fits into memory")
    return made[-1]


class ListedRun(NamedTuple):
    """An order, when it ended as it was made, and makespan and span if timed as early as can be."""

    order: Coded
    end: int
    value: tuple[int, int]


class ListScheduler:
    """Runs policies on a problem, in the mode keep.

    It ``applies`` where one microbatch alone fits if memory is counted op by op.
    """

    def __init__(self, own: Problem) -> None:
        self.own, self.problem = own, without_modes(own)
        stages, needs = self.problem.stages, capacities_by_order(self.problem)
        self.applies = not lacking(self.problem, needs)
        self.arrays = arrays_of(self.problem)
        self.may_split = ints(stage.may_split for stage in stages)
        self.may_fuse = ints(stage.may_fuse for stage in stages)
        self.need = ints(need.capacity - self.problem.devices[need.device].static for need in needs)

    def run(self, policy: Policy, wait: float = -1.0, limits: Sequence[int] = ()) -> ListedRun:
        """Run a policy, or it with other ``limits`` per stage.

        ``wait``: for a partner, in parts of what the pair would save; -1: no pairs.
        """
        from pipesat.kernels.greedy import scheduled  # importing pipesat stays fast
        from pipesat.kernels.timing import value_of

        fuses = (_fuses(self.problem, policy.fuse, s) for s in range(len(self.problem.stages)))
        order, end = scheduled(
            self.arrays,
            self.may_split,
            self.may_fuse,
            self.need,
            ints(fuses),
            ints(limits or self.limits(policy)),
            float(policy.patience),
            policy.deep_first,
            float(wait),
        )
        if end < 0:
            raise Fault(f"list scheduling ({policy}) stopped before the end")
        return ListedRun(order, end, value_of(self.arrays, order))

    def limits(self, policy: Policy) -> tuple[int, ...]:
        """Return how many microbatches may be between F and backward of each stage."""
        most = list(self.problem.microbatches)
        if policy.pace is not None:
            return tuple(map(min, most, _paced_limits(self.problem, policy.pace)))
        if policy.in_flight is not None:
            factor, offset = policy.in_flight
            for route in self.problem.routes:
                for after, stage in enumerate(reversed(route.stages)):
                    most[stage] = min(most[stage], max(1, int(factor * after) + offset))
        return tuple(most)

    def shorter(
        self, runs: Iterable[ListedRun], give_up: GiveUp, source: str
    ) -> Iterator[Schedule]:
        """Yield the schedules of those runs that are shorter than all before.

        ``give_up`` is asked with every run.
        """
        best = None
        for run in takewhile(lambda _: not give_up(), runs):
            if best is None or run.value < best:
                best = run.value
                order = order_of(self.problem, self.arrays, run.order)
                yield time_order(self.own, order, source=source)


def _fuses(problem: Problem, fuse: Fuse, stage: int) -> bool:
    """Whether a policy runs a stage's backward as one, if memory admits either."""
    data = problem.stages[stage]
    if not (data.may_split and data.may_fuse):
        return data.may_fuse
    return fuse == "fused" or (fuse == "first" and problem.previous[stage] is None)


def _paced_limits(problem: Problem, pace: float) -> list[int]:
    stages = range(len(problem.stages))
    lifetimes = [
        problem.stages[s].F + round_trip(problem, s) + problem.stages[s].shortest_backward
        for s in stages
    ]
    period = 1.0
    for device, chunks in zip(problem.devices, problem.stages_on, strict=True):
        load = sum(problem.stages[s].F + problem.stages[s].least_backward_work for s in chunks)
        area = sum(lifetimes[s] * problem.stages[s].held_after_F for s in chunks)
        period = max(period, load, area / device.slack if device.slack else 0)
    return [max(1, round(pace * lifetime / period + 0.3)) for lifetime in lifetimes]
