"""Bounds of problems that are more than chains: longest paths, loads, and the chains within.

A longest path through the ops of one sequence; the load of a device between the shortest
paths to its ops and from them. A problem without some of its rules has all of its schedules:
without slices its microbatches are independent, and of a graph the stages of one path are a chain.
So all that is proven of chains holds of what is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, TypeVar

from pipesat.bounds.devices import groups_on
from pipesat.bounds.graphs import Passing, sequences
from pipesat.bounds.paired import least_times_of_each_class
from pipesat.core.claims import Bound
from pipesat.problem.ops import Event, Op, OpKind
from pipesat.problem.problem import MicrobatchClass, Overlap, Problem, Route
from pipesat.problem.rules import inputs_of
from pipesat.schedule.schedule import Objective

T = TypeVar("T")
_MOST: Final = 100_000  # ops of all sequences whose paths are followed


def graph_bounds(problem: Problem, objective: Objective) -> Iterator[Bound]:
    """Yield bounds of a problem that is more than chains, in time units."""
    paths = [_Paths(problem, passing) for passing in sequences(problem)]
    if sum(len(one.head) for one in paths) <= _MOST:
        if objective == "makespan":
            longest = max((one.longest for one in paths), default=0)
            yield Bound(longest, "closed form: longest path of one sequence")
        yield from _loads(problem, objective, paths)


def _loads(problem: Problem, objective: Objective, paths: Sequence[_Paths]) -> Iterator[Bound]:
    alone = least_times_of_each_class(problem)
    for device, stages in problem.busy.items():
        load = 0
        for stage, of_class, number in groups_on(problem, device):
            data = alone[of_class].stages[stage]
            load += number * (data.F + data.least_backward_work)
        name, text = problem.device_name(device), "load"
        if problem.overlap is not None:  # two ops of a pair count half each
            load, text = -(-load // 2), "half of the load"
        if objective == "makespan":
            load += min(one.head[e] for one in paths for e in one.firsts(stages))
            load += min(one.tail_of_last(e) for one in paths for e in one.lasts(stages))
        yield Bound(load, f"closed form: {text} of {name}")


class _Paths:
    """Longest paths through one sequence: by event, to its start and from its end."""

    def __init__(self, problem: Problem, passing: Passing) -> None:
        self.problem = problem
        alone = least_times_of_each_class(problem)
        route = problem.routes[passing.route]
        self.stages, self.head, self.length = route.stages, dict[Event, int](), dict[Event, int]()
        inputs: dict[Event, list[tuple[Event, int]]] = {}
        slices = range(passing.first, passing.first + route.slices)
        ops = [Op(s, "F", m) for m in slices for s in route.stages]
        ops += [
            Op(s, "B", m)
            for m in reversed(slices)
            for s in reversed(route.stages)
            if problem.stages[s].has_backward
        ]
        self.work: dict[Event, int] = {}
        for op in ops:
            data = alone[passing.classes[op.microbatch - passing.first]].stages[op.stage]
            own = inputs[op.event] = [(need.event, need.delay) for need in inputs_of(problem, op)]
            arrivals = (self.head[e] + self.length[e] + delay for e, delay in own)
            self.head[op.event] = max(arrivals, default=0)
            forward = op.kind == "F"
            self.length[op.event] = data.F if forward else data.shortest_backward
            self.work[op.event] = data.F if forward else data.least_backward_work
        self.tail = dict.fromkeys(self.head, 0)
        for event in reversed(self.head):
            for source, delay in inputs[event]:
                way = delay + self.length[event] + self.tail[event]
                self.tail[source] = max(self.tail[source], way)
        self.first = passing.first

    @property
    def longest(self) -> int:
        """Length of the longest path, with the weight gradients at its end."""
        return max(
            self.head[e] + max(self.work[e], self.length[e] + self.tail[e]) for e in self.head
        )

    def firsts(self, stages: Sequence[int]) -> Iterator[Event]:
        """Yield the forwards that a device may start with."""
        return ((s, "F", self.first) for s in stages if (s, "F", self.first) in self.head)

    def lasts(self, stages: Sequence[int]) -> Iterator[Event]:
        """Yield the forwards or backwards with which, or with whose W, a device may end."""
        for event in self.head:
            backward = self.problem.stages[event[0]].has_backward
            if event[0] in stages and (event[1] == "B") == backward:
                yield event

    def tail_of_last(self, event: Event) -> int:
        """Longest path behind what a device ends with: behind a W is none."""
        stage, phase, _ = event
        return 0 if phase == "B" and self.problem.stages[stage].may_ever_split else self.tail[event]


def chain_of(problem: Problem) -> tuple[Problem, tuple[int, ...]] | None:
    """Return a problem of chains that has less to do and to obey, and which stages it keeps.

    ``None`` if nothing with a backward is left; or if a pair with an op that is not kept could be
    shorter than its other member alone.
    """
    routes, kept = [], list[int]()
    for route in problem.routes:
        path = _longest_path(problem, route)
        if not path:
            return None
        routes.append((route, range(len(kept), len(kept) + len(path))))
        kept += path
    number = {stage: at for at, stage in enumerate(kept)}
    if problem.overlap is not None and problem.overlap.listed and len(kept) < len(problem.stages):
        return None

    def of_class(one: MicrobatchClass) -> MicrobatchClass:
        outright = ((number[s], keys) for s, keys in one.outright if s in number)
        return replace(one, outright=tuple(sorted(outright)), idle=())

    overlap = problem.overlap
    if overlap is not None:
        overlap = Overlap(
            overlap.factor, _moved(overlap.times, number), _moved(overlap.factors, number)
        )
    hops = [hop for _, places in routes for hop in pairwise(places)]
    links = {(a, b): problem.links.get((kept[a], kept[b])) for a, b in hops}
    chain = replace(
        problem,
        stages=tuple(problem.stages[stage] for stage in kept),
        routes=tuple(
            replace(
                route,
                stages=tuple(places),
                definitions=tuple(map(of_class, route.definitions)),
                graph=None,
                slices=1,
            )
            for route, places in routes
        ),
        links={hop: link for hop, link in links.items() if link is not None},
        overlap=overlap,
        order="free",
        read_as=None,
    )
    return chain, tuple(kept)


def _moved(table: Mapping[tuple[OpKind, OpKind], T], number: Mapping[int, int]) -> dict[Any, T]:
    """What is said of pairs of kept stages, by their new numbers."""
    return {
        tuple((number[stage], kind) for stage, kind in two): said
        for two, said in table.items()
        if all(stage in number for stage, _ in two)
    }


def _longest_path(problem: Problem, route: Route) -> list[int]:
    """Stages with backwards along edges of a route, of as much work as possible."""
    best: dict[int, tuple[int, list[int]]] = {}
    for stage in route.stages:
        data = problem.stages[stage]
        if data.has_backward:
            before = [best[s] for s in problem.before[stage] if s in best]
            work, path = max(before, default=(0, []))
            best[stage] = work + data.F + data.least_backward_work, [*path, stage]
    return max(best.values(), default=(0, []))[1]
