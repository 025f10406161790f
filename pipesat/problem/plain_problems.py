"""A plain problem that is no harder than one whose microbatches or modes differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, Final

from pipesat.core.errors import NotApplicable
from pipesat.problem.building import StageBackward
from pipesat.problem.problem import Link, MicrobatchClass, Problem, Stage
from pipesat.problem.stage import AMOUNTS, MORE, Keys
from pipesat.problem.variants import variants

_NO_MORE: Final[dict[str, Any]] = dict.fromkeys(MORE, 0)


def least_problem(problem: Problem) -> Problem:
    """Return the problem in which each microbatch has the least of every amount of its stage.

    The least over classes and modes, of each amount on its own, and no rule about the order. A
    schedule of ``problem`` stays valid there if every op keeps its start and ends no later
    (docs/proofs/bounds.md), so a bound of the answer, and a proof that it is infeasible, hold of
    ``problem``. It is ``problem`` itself where that is plain; where it is alike and no backward
    holds more than usual, they have the same schedules but for the rule about the order.
    """
    if problem.plain and not memory_varies(problem):
        return problem
    return with_choices(problem, ())


def with_choices(problem: Problem, modes: Sequence[int]) -> Problem:
    """Return a plain problem that is no harder than one whose first stages run in these modes.

    As :func:`least_problem`, but with the least over the classes in that mode alone where a stage
    has one in ``modes``. An offloaded microbatch counts with what stays on the device.
    """
    numbers = range(len(problem.stages))
    choices = [modes[n : n + 1] or problem.modes_of(n) for n in numbers]
    found = [
        _resulting(problem, n, modes_of_n) for n, modes_of_n in zip(numbers, choices, strict=True)
    ]
    stages = [replace(_least_of(each), **_NO_MORE) for each in found]
    return _plain(problem, stages, {hop: _least_link(problem, *hop) for hop in problem.links})


def _resulting(problem: Problem, stage: int, modes: Iterable[int]) -> list[Stage]:
    """Amounts of a stage in some modes and all classes."""
    both = product(modes, problem.route(stage).class_numbers)
    return [problem.resulting(stage, mode, of_class) for mode, of_class in both]


def same_but_for_the_order(problem: Problem) -> bool:
    """Whether :func:`least_problem` has the same schedules, but for the rule about the order."""
    sliced = any(route.slices > 1 for route in problem.routes) and problem.order != "free"
    return problem.alike and not (sliced or memory_varies(problem))


def memory_varies(problem: Problem) -> bool:
    """Whether held_after_F and held_after_B do not say all: memory modes, or held_in_backward."""
    own = any(stage.more for stage in problem.stages)
    return (
        own
        or problem.has_modes
        or any(
            key in MORE and amount
            for route in problem.routes
            for of_class in route.definitions
            for _, stated in of_class.outright
            for key, amount in stated
        )
    )


def without_idle_keys(problem: Problem) -> Problem:
    """Return the problem in which every held_in_backward that says nothing is ``idle``.

    That is of a stage whose backwards, in all classes and modes, hold as much without it, or take
    no time.
    """
    if not memory_varies(problem):
        return problem
    silent = {s for s in range(len(problem.stages)) if not backward_excess(problem, s)}

    def parted(keys: Keys, stage: int) -> tuple[Keys, Keys]:
        idle = tuple(one for one in keys if stage in silent and one[0] in MORE)
        return tuple(one for one in keys if one not in idle), idle

    def of_class(one: MicrobatchClass) -> MicrobatchClass:
        both = [(stage, parted(keys, stage)) for stage, keys in one.outright]
        outright = tuple((stage, keys) for stage, (keys, _) in both)
        return replace(one, outright=outright, idle=tuple((s, own) for s, (_, own) in both if own))

    stages = (
        replace(stage, **_NO_MORE, idle=tuple((key, getattr(stage, key)) for key in stage.more))
        if number in silent
        else stage
        for number, stage in enumerate(problem.stages)
    )
    return _with_keys(problem, stages, of_class)


def with_idle_keys(problem: Problem) -> Problem:
    """Return the problem as it is stated: what is ``idle`` in its place again."""
    classes = (one for route in problem.routes for one in route.definitions)
    if not any(one.idle for one in problem.stages) and not any(one.idle for one in classes):
        return problem

    def of_class(one: MicrobatchClass) -> MicrobatchClass:
        idle = dict(one.idle)
        outright = tuple((stage, keys + idle.get(stage, ())) for stage, keys in one.outright)
        return replace(one, outright=outright, idle=())

    def of_stage(stage: Stage) -> Stage:
        keys: dict[str, Any] = dict(stage.idle)
        return replace(stage, **keys, idle=())

    return _with_keys(problem, map(of_stage, problem.stages), of_class)


def _with_keys(
    problem: Problem,
    stages: Iterable[Stage],
    of_class: Callable[[MicrobatchClass], MicrobatchClass],
) -> Problem:
    routes = (replace(r, definitions=tuple(map(of_class, r.definitions))) for r in problem.routes)
    return replace(problem, stages=tuple(stages), routes=tuple(routes))


def backward_excess(problem: Problem, stage: int) -> int:
    """Most that held_in_backward adds to what a backward of a stage holds, in any class and mode.

    A backward that takes no time holds nothing; with another op it may take some.
    """
    together = problem.overlap is not None
    classes = problem.route(stage).class_numbers
    found = (v for of_class in classes for v in variants(problem, stage, of_class))
    held = (v.most - max(v.held, v.after) for v in found if v.backward or together)
    return max(held, default=0)


def what_differs(problem: Problem) -> str:
    """Say what a problem has that a plain one has not; ``""`` if nothing."""
    found = []
    if problem.has_lists:
        found.append("microbatches that are a list")
    if problem.has_modes:
        found.append("memory modes")
    found += dict.fromkeys(key for stage in problem.stages for key in stage.more)
    found += [text] if (text := more_than_chains(problem)) else []
    return " and ".join(found)


def more_than_chains(problem: Problem) -> str:
    """Say what keeps a problem from being one of chains alone; ``""`` if nothing does."""
    found = []
    if any(route.graph is not None for route in problem.routes):
        found.append("routes are graphs")
    if any(route.slices > 1 for route in problem.routes):
        found.append("sequences have slices")
    if not all(stage.has_backward for stage in problem.stages):
        found.append("stages have no backward")
    return " and ".join(found)


def require_chains(problem: Problem, what: str) -> None:
    """Pass if a problem is one of chains alone; ``what`` knows no others.

    Raises
    ------
    NotApplicable
        With what keeps it from being one.
    """
    if more := more_than_chains(problem):
        raise NotApplicable(
            f"{what} takes chains of whole microbatches with backwards, here {more}"
        )


def without_modes(problem: Problem) -> Problem:
    """Return the problem in which every microbatch keeps what its stage's own amounts say."""
    if not problem.has_modes:
        return problem
    return replace(problem, stages=tuple(replace(stage, modes=()) for stage in problem.stages))


def typical_problem(problem: Problem) -> Problem:
    """Return a plain problem for schedules that are made for equal microbatches.

    Times and delays are the mean over a route's microbatches, rounded up; what is held is the most
    of any, so that an order that keeps to memory there keeps to it in ``problem``. Modes are left
    out.
    """
    if problem.plain and not memory_varies(problem):
        return problem
    return _plain(
        problem,
        [_typical_stage(problem, stage) for stage in range(len(problem.stages))],
        {hop: _typical_link(problem, *hop) or link for hop, link in problem.links.items()},
    )


def _mean(values: Iterable[tuple[int, int]]) -> int:
    """Mean of (value, count), rounded up."""
    pairs = list(values)
    return -(-sum(value * n for value, n in pairs) // sum(n for _, n in pairs))


def _typical_stage(problem: Problem, number: int) -> Stage:
    counts = problem.route(number).counts.items()
    found = [(problem.resulting(number, 0, c), n) for c, n in counts]
    typical: dict[str, Any] = {
        key: _mean((getattr(s, key), n) for s, n in found)
        if factor == "time"
        else max(getattr(s, key) for s, _ in found)
        for key, factor in AMOUNTS.items()
    }
    typical["held_after_F"] = max(max(s.held_after_F, s.held_in_backward) for s, _ in found)
    own = problem.stages[number]
    return Stage(device=own.device, backward=own.backward, **typical | _NO_MORE)


def _typical_link(problem: Problem, stage: int, after: int) -> Link | None:
    counts = problem.route(stage).counts.items()
    links = [(link, n) for c, n in counts if (link := problem.link_of_class(stage, c, after))]
    if not links:
        return None
    return Link(_mean((link.F, n) for link, n in links), _mean((link.B, n) for link, n in links))


def of_each_class(problem: Problem) -> list[Problem]:
    """Return problems without lists: every class of each route is that of a route in one of them.

    Their stages have the least amounts over their modes, so they have none, and held_in_backward.
    """
    most = max(len(route.definitions) for route in problem.routes)
    if not most and not problem.has_modes:
        return [problem]
    return [_of_class(problem, of_class) for of_class in range(max(1, most))]


def _of_class(problem: Problem, of_class: int) -> Problem:
    """Where a route has no such class, its last."""
    classes = [max(0, min(of_class, len(route.definitions) - 1)) for route in problem.routes]
    stages = []
    for number, modes in enumerate(map(problem.modes_of, range(len(problem.stages)))):
        mine = classes[problem.route_of[number]]
        stages.append(_least_of([problem.resulting(number, mode, mine) for mode in modes]))
    links = {
        hop: problem.link_of_class(hop[0], classes[problem.route_of[hop[0]]], hop[1]) or link
        for hop, link in problem.links.items()
    }
    return _plain(problem, stages, links)


def _plain(
    problem: Problem, stages: Sequence[Stage], links: Mapping[tuple[int, int], Link]
) -> Problem:
    """The problem with other amounts, the same for every microbatch, and no rule or choice."""
    return replace(
        problem,
        stages=tuple(stages),
        routes=tuple(replace(route, classes=None, definitions=()) for route in problem.routes),
        links=links,
        order="free",
        mode_choice="microbatch",
    )


def _least_of(found: Sequence[Stage]) -> Stage:
    """Return the least of each amount; either kind of backward if that of some is allowed."""
    split, fused = any(s.may_split for s in found), any(s.may_fuse for s in found)
    backward: StageBackward = "either" if split and fused else "split" if split else "fused"
    if not found[0].has_backward:
        backward = "none"
    least: dict[str, Any] = {key: min(getattr(s, key) for s in found) for key in AMOUNTS}
    least["held_after_F"] = min(s.offload.held if s.offload else s.held_after_F for s in found)
    return Stage(device=found[0].device, backward=backward, **least)


def _least_link(problem: Problem, stage: int, after: int) -> Link:
    classes = problem.route(stage).class_numbers
    links = [problem.link_of_class(stage, c, after) for c in classes]
    there = [link for link in links if link is not None]
    return Link(min(link.F for link in there), min(link.B for link in there))
