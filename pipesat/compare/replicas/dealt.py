"""``balance`` over replicas: the best deal found, what it is held against, what none beats."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np

from pipesat.compare.order_rows import in_order
from pipesat.compare.replicas.assignment import Assignment, lengths_read
from pipesat.compare.replicas.deal import Deal, Load
from pipesat.compare.replicas.dealer import (
    best_of_rules,
    best_shares,
    checked_load,
    replay_of,
    searched,
)
from pipesat.compare.replicas.judge import replica_violations
from pipesat.compare.replicas.least_times import bound_of_any, bound_of_schedule
from pipesat.compare.replicas.replay import costs_of_lengths, costs_of_list
from pipesat.core.arrays import Ints
from pipesat.core.errors import BadInput, Contradiction, Infeasible, require
from pipesat.core.progress import doing
from pipesat.problem.lengths import microbatches_from_lengths
from pipesat.problem.microbatch_list import MOST_CLASSES
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import problem_text
from pipesat.solver.lanes.clock import Clock

_CHECKED: Final = 5_000  # ops: the slowest replicas pass the checker, as many as have so many
_RULES: Final = 0.3  # of the time, until the last rule of many sequences begins
_SEARCH: Final = 0.9  # of the time; the rest is for checks
_FEW: Final = 2000  # sequences that every rule deals in time
_PLACES: Final = 256  # of a replica, where each sequence that holds most is tried at each
_ROUNDS: Final = 100  # of a deterministic search, for each second of its limit


def dealt(
    problem: Problem,
    lengths: Sequence[int] | None,
    reference: int | None,
    quadratic: Fraction | float,
    *,
    replicas: int,
    tokens: int | None,
    schedule: str,
    clock: Clock,
    seed: int,
) -> Assignment:
    """Return the best assignment found of sequences, or of the problem's own list, to replicas."""
    require(len(problem.routes) == 1, "expected a problem with one route", where="routes")
    costs, places = _costs(problem, lengths, reference, quadratic, replicas)
    replay = replay_of(problem, schedule, places)
    given = [1] * len(costs) if lengths is None else lengths
    load = checked_load(replay, costs, given, tokens, replicas)
    _require_fit(load, schedule)
    typical = load.costs[:, :-1].mean(axis=0) * (len(costs) / replicas)
    few = len(costs) <= _FEW
    late = lambda: clock.stop() or (not few and clock.elapsed > _RULES * clock.limit)  # noqa: E731
    with doing("dealing by rule"):
        best, tried = best_of_rules(load, best_shares(replay, typical, load.largest_share), late)
    with doing(f"what no assignment beats under {schedule}"):
        bound = bound_of_schedule(load, schedule)
    any_bound = bound_of_any(problem, costs, replicas)
    bound = max(bound, any_bound or bound, key=lambda bound: bound.value)
    part = clock.part(_SEARCH * clock.limit - clock.elapsed)

    def over() -> bool:
        part.count(1 / _ROUNDS)
        return part.over

    with doing("exchanging sequences between replicas"):
        best = searched(best, np.random.default_rng(seed), over, bound.value)
    about = lengths_read(lengths, reference, quadratic, tokens)
    fits = best.fits
    if fits:
        with doing("checking the slowest replicas"):
            dealt_to, most = best.replicas, max(1, _CHECKED // len(replay.ops))
            for number in (-best.values).argsort(kind="stable")[:most].tolist():
                value = int(best.values[number])
                for one in replica_violations(problem, schedule, costs, dealt_to[number], value):
                    raise Contradiction(f"replica {number}: {one.message}")
    return Assignment(
        problem_sha256=problem.sha256,
        schedule=schedule,
        lengths=about,
        replicas=best.replicas if fits else [],
        makespans=best.values.tolist() if fits else [],
        lower_bound=bound.value,
        lower_bound_source=bound.source,
        seed=seed,
        time_unit=problem.time_unit,
        any_bound=any_bound,
        rules=tuple(tried),
        asked=problem,
        tokens=tuple(given) if lengths is not None else (),
        quadratic=quadratic,
        ordered=_ordered(problem, lengths, about, best, quadratic) if fits and load.whole else "",
    )


def _ordered(
    problem: Problem,
    lengths: Sequence[int] | None,
    about: dict[str, Any] | None,
    deal: Deal,
    quadratic: Fraction | float,
) -> str:
    """The problem of one replica of whole microbatches, in their order; else nothing."""
    if deal.load.replicas > 1:
        return ""
    if lengths is not None and about is not None:
        if len({*lengths}) > MOST_CLASSES:
            return ""
        listed = microbatches_from_lengths(lengths, about["reference"], quadratic)
        problem = problem.with_microbatches(listed)
    order = [part[0] for part in deal.replicas[0]]
    return problem_text(in_order(problem, [order]).document)


def _costs(
    problem: Problem,
    lengths: Sequence[int] | None,
    reference: int | None,
    quadratic: Fraction | float,
    replicas: int,
) -> tuple[Ints, int]:
    """What each sequence takes, and how many microbatches a replica has."""
    (route,) = problem.routes
    if lengths is None or reference is None:
        if route.classes is None:
            raise BadInput(
                "expected a list of all replicas' microbatches, or lengths beside the number",
                where="microbatches",
                value=route.microbatches,
            )
        require(
            route.microbatches % replicas == 0,
            f"{route.microbatches} microbatches, expected a multiple of {replicas} replicas",
            where="microbatches",
        )
        return costs_of_list(problem), route.microbatches // replicas
    require(
        not problem.has_lists,
        "expected how many a replica has, as with_microbatches(10) says, with lengths beside",
        where="microbatches",
        value="a list",
    )
    return costs_of_lengths(problem, lengths, reference, quadratic), route.microbatches


def _require_fit(load: Load, schedule: str) -> None:
    """Raise :class:`Infeasible` where it is proven that no assignment fits."""
    total, m = int(load.tokens.sum()), load.replay.places
    if load.cap is not None:
        if total > load.cap * load.count:
            raise Infeasible(
                f"{total} tokens do not fit into {load.count} microbatches of {load.cap}"
            )
        large = int((2 * load.tokens > load.cap).sum())
        if large > load.count:
            raise Infeasible(
                f"{large} sequences have more than half of the {load.cap} tokens that a "
                f"microbatch may have, and there are {load.count} of these"
            )
    if not load.costs[:, load.replay.timed].min() or not load.replay.slacks or m > _PLACES:
        return  # an op of no length may hold nothing
    for slack, row in load.replay.slacks:
        places = {*load.replay.arrays.held[row].tolist()}
        total, instants = int(load.costs[:, [*places]].sum()), load.replay.instants(row)
        if total > slack * load.replicas * instants:
            raise Infeasible(
                f"stage {load.replay.ops[row[0]].stage} holds {total} for all sequences, so under "
                f"{schedule} a replica at least {-(-total // (load.replicas * instants))} at once, "
                f"of {slack}"
            )
    least = np.repeat(load.costs.min(axis=0)[:, None], m, axis=1)[:, :, None]
    cases = np.repeat(least, m, axis=2)
    for sequence in np.unique(load.costs.argmax(axis=0)).tolist():
        here = cases.copy()
        here[:, range(m), range(m)] = load.costs[sequence][:, None]
        if load.replay.excess(here).min() > 0:
            raise Infeasible(
                f"sequence {sequence} does not fit into memory at any place of a replica under "
                f"{schedule}, with the shortest around it"
            )
