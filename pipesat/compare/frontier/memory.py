"""What memory buys, and how little of it is enough, from what a user says."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from pipesat.compare.hand_written import published
from pipesat.core.amounts import share
from pipesat.core.arguments import public, require_once
from pipesat.core.errors import require
from pipesat.core.settings import Count, Placement, Seconds, Seed, Target, Within, Workers
from pipesat.problem.other_placements import same_layers_elsewhere, stated_layers
from pipesat.problem.remarks import documents_of
from pipesat.runtimes import problem_for, released
from pipesat.schedule.schedule import Objective
from pipesat.schedule.solving import Deadline, EitherStop, named, study

if TYPE_CHECKING:
    from pipesat.compare.frontier.frontiers import Frontiers
    from pipesat.compare.frontier.least_memory import LeastMemory
    from pipesat.compare.frontier.points import Frontier
    from pipesat.problem.problem import Problem
    from pipesat.schedule.solving import Listener
    from pipesat.solver import SolveOptions

Points: TypeAlias = Annotated[int, Within(2, 200)]
_POINTS: Final = 12


@public
@study()
def frontier(
    problem: Problem,
    *,
    caps: Sequence[int | Fraction | str] | None = None,
    count: Points | None = None,
    placements: Sequence[Placement] | None = None,
    layers_per_stage: Count | Sequence[Count] | None = None,
    by_mode: bool = False,
    target: Target | None = None,
    version: str | None = None,
    objective: Objective = "makespan",
    time_limit: Seconds = 600.0,
    workers: Workers | None = None,
    seed: Seed = 0,
    listener: Listener | None = None,
    stop: threading.Event | None = None,
) -> Frontiers:
    """Show what memory buys: the best value, with its bound, at each capacity of the devices.

    Every device gets the same capacity, from the smallest with which a schedule exists to where
    more buys nothing. The problem's own is among them if all its devices have the same.

    Parameters
    ----------
    caps
        Capacities of every device, static memory included. ``1f1b*0.75`` is that share of 1F1B's
        activations; ``None``: where steps are likely.
    count
        How many capacities, if ``caps`` are not given; ``None``: 12.
    placements
        A curve each for the same layers as ``chain``, ``loop``, ``vee``, ``bidirectional``;
        ``None``: as the problem is.
    layers_per_stage
        With ``placements``: you state that every stage is so many equal layers, or one number per
        stage. A loop and a V cut between them; ``None``: unknown.
    by_mode
        A curve for each way to save memory: none, each memory mode of the problem alone, all of
        them.
    time_limit
        Seconds for all curves, shared by their capacities: each needs some 10 s for a good bound.

    Raises
    ------
    BadInput
        If a cap is below the smallest with which a schedule exists, or a placement is not possible.
    NotApplicable
        If other placements are asked for, and devices do not hold exactly one stage of one route.
    """
    from pipesat.compare.frontier.by_mode import caps_to_compare, own_cap, with_choices
    from pipesat.compare.frontier.capacities import least_feasible_cap, readable_caps
    from pipesat.compare.frontier.frontiers import Frontiers
    from pipesat.solver import SolveOptions  # slow to import
    from pipesat.solver.search import versions

    stated = stated_layers(layers_per_stage, placements, target)
    require(
        caps is None or count is None,
        "the caps are given: expected `caps` or `count`",
        where="count",
        value=count,
    )
    require(
        not by_mode or placements is None,
        "expected placements or by_mode, not both",
        where="by_mode",
    )
    remarks, release = documents_of(problem.remarks), released(target, version)
    problem = problem_for(problem, target)
    placed = with_choices(problem) if by_mode else _placed(problem, placements, stated)
    require_once("caps", caps or ())
    compared: list[int] = []
    chosen: dict[str | None, list[int]] = {}
    if caps is not None:
        given = [_cap(cap, problem.memory_unit) for cap in caps]
        if by_mode:  # of the given ones, those that a curve can meet
            compared = readable_caps(problem, given)
            for name, one in placed.items():
                least = least_feasible_cap(one)
                chosen[name] = [cap for cap in compared if cap >= least] or [least]
        else:
            chosen = {name: readable_caps(one, given) for name, one in placed.items()}
    elif by_mode:
        compared = caps_to_compare(problem)
    about: dict[str, Any] = {"seed": seed, "workers": workers, "versions": versions()}
    about["remarks"] = remarks
    about |= {} if target is None else {"target": target, "release": release}
    about |= {"layers": stated} if stated else {}
    options = SolveOptions(
        objective=objective,
        time_limit=time_limit,
        workers=workers,
        seed=seed,
        listener=listener,
        stop=EitherStop(stop),
    )
    also = compared or [cap for cap in [own_cap(problem)] if cap is not None]
    curves = _curves(
        placed, options, by_mode=by_mode, chosen=chosen, count=count or _POINTS, also=also
    )
    return Frontiers(curves, about, by_mode, compared)


def _curves(
    placed: Mapping[str | None, Problem],
    options: SolveOptions,
    *,
    by_mode: bool,
    chosen: Mapping[str | None, Sequence[int]],
    **asked: Any,
) -> dict[str | None, Frontier]:
    """Trace one problem after another; each gets its share of the time that is left.

    By mode, a curve begins with what those before it found, and hand-written schedules stand beside
    the first one alone.
    """
    from pipesat.compare.frontier.by_mode import taken_over
    from pipesat.compare.frontier.points import trace

    deadline = Deadline(options.time_limit, options.stop)
    baselines = published()
    curves: dict[str | None, Frontier] = {}
    for number, (name, problem) in enumerate(placed.items()):
        if curves and options.stop.is_set():
            break
        before = list(curves.values()) if by_mode else []
        own = replace(
            options,
            time_limit=(options.time_limit - deadline.seconds) / (len(placed) - number),
            listener=named(options.listener, name, deadline.seconds),
        )
        found = trace(
            problem,
            own,
            caps=chosen.get(name),
            baselines=baselines,
            known=[schedule for one in before for schedule in taken_over(one.curve, problem)],
            **asked,
        )
        curves[name] = replace(found, published={}) if before else found
    return curves


@public
@study()
def min_memory(
    problem: Problem,
    *,
    within: float | Fraction | str = Fraction(1, 20),
    capacity_of: Problem | None = None,
    target: Target | None = None,
    version: str | None = None,
    objective: Objective = "makespan",
    time_limit: Seconds = 120.0,
    workers: Workers | None = None,
    seed: Seed = 0,
    listener: Listener | None = None,
    stop: threading.Event | None = None,
) -> LeastMemory:
    """Find the smallest capacity of every device that keeps the objective near the best.

    It is the left end of the frontier, of values that are near enough, with what is proven.

    Parameters
    ----------
    within
        How much longer than the best is accepted, as 5%.
    capacity_of
        The best is with the capacities of this problem; ``None``: unlimited.
    time_limit
        Seconds for everything.

    Raises
    ------
    Infeasible
        If nothing fits into the capacities of ``capacity_of``.
    BadInput
        If it has another number of devices, or another memory unit.
    """
    from pipesat.compare.frontier.least_memory import least_memory
    from pipesat.solver import SolveOptions  # slow to import
    from pipesat.solver.search import versions

    accepted, remarks = share("within", within, 10_000), documents_of(problem.remarks)
    told = {} if target is None else {"for": target, "release": released(target, version)}
    caps = None if capacity_of is None else [device.memory for device in capacity_of.devices]
    if capacity_of is not None:
        require(
            len(capacity_of.devices) == len(problem.devices),
            f"expected a problem of {len(problem.devices)} devices",
            where="capacity_of",
            value=len(capacity_of.devices),
        )
        require(
            capacity_of.memory_unit == problem.memory_unit,
            f"expected the memory unit of the problem, {problem.memory_unit!r}",
            where="capacity_of",
            value=capacity_of.memory_unit,
        )
    if caps is not None and caps != [device.memory for device in problem.devices]:
        problem = problem.with_memory(caps)
    options = SolveOptions(
        objective=objective,
        time_limit=time_limit,
        workers=workers,
        seed=seed,
        listener=listener,
        stop=EitherStop(stop),
    )
    return least_memory(
        problem_for(problem, target),
        options,
        within=accepted,
        reference="unlimited" if caps is None else "file",
        baselines=published(),
        about={"seed": seed, "workers": workers, "versions": versions(), "remarks": remarks} | told,
    )


def _cap(given: int | Fraction | str, unit: str) -> int | Fraction:
    from pipesat.problem.making import amount_or_share

    return amount_or_share("caps", given, unit, limit=True) if isinstance(given, str) else given


def _placed(
    problem: Problem, names: Sequence[Placement] | None, layers: Sequence[int]
) -> dict[str | None, Problem]:
    """The problem, or its layers in the placements asked for."""
    from pipesat.problem.geometry import Geometry

    if names is None:
        return {None: problem}
    text = ",".join(names)
    require_once("placements", names)
    found = same_layers_elsewhere(problem, layers, names)
    placed: dict[str | None, Problem] = {}
    for name in names:
        label = Geometry(name, len(problem.devices)).label
        require(
            label in found,
            f"{name} is not possible with these devices and microbatches",
            where="placements",
            value=text,
        )
        placed[label] = found[label]
    return placed
