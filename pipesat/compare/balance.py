"""In which order microbatches should enter a schedule that otherwise stays as it is."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pipesat.check.checker import check
from pipesat.compare.order_rows import BEST, MicrobatchOrders, OrderRow
from pipesat.compare.replicas.assignment import Assignment, lengths_read
from pipesat.core.amounts import share
from pipesat.core.arguments import public
from pipesat.core.errors import BadInput, NotApplicable, require, require_applicable
from pipesat.core.names import named
from pipesat.core.progress import doing
from pipesat.core.settings import Count, Reference, Seconds, Seed, Tokens
from pipesat.problem.lengths import microbatches_from_lengths, read_lengths
from pipesat.problem.plain_problems import require_chains
from pipesat.schedule.microbatch_order import microbatch_order
from pipesat.schedule.schedule import Objective, pairs_in
from pipesat.schedule.solving import EitherStop
from pipesat.schedule.timing import retime

if TYPE_CHECKING:
    from pipesat.problem.problem import Problem
    from pipesat.schedule.schedule import Schedule
    from pipesat.solver.lanes.clock import Clock


@public
def balance(
    problem: Problem,
    *,
    lengths: Sequence[int] | Path | None = None,
    reference: Reference | None = None,
    quadratic: Fraction | float | str = 0,
    tokens: Tokens | None = None,
    replicas: Count | None = None,
    schedules: Sequence[str] | None = None,
    objective: Objective = "makespan",
    time_limit: Seconds = 10.0,
    seed: Seed = 0,
    deterministic: bool = False,
    stop: threading.Event | None = None,
) -> MicrobatchOrders | Assignment:
    """Find the order in which microbatches that differ should enter each hand-written schedule.

    The schedule stays: its ops keep their places, only which microbatch is at which changes. The
    problem's own ``order`` is ignored. With ``replicas``, find which sequence goes to which replica
    and microbatch, too, so that the slowest replica is fastest under one schedule.

    Parameters
    ----------
    problem
        The problem (a JSON file), with microbatches that differ.
    lengths
        A length per microbatch, none of which waits for another, in place of the problem's: a file
        has a JSON list or one per line.
        With ``replicas``, of each sequence: the problem says how many microbatches a replica has.
    reference
        The length whose times and memory the stages have. A mean is rounded to a whole token.
    quadratic
        Share of the reference's time that grows with the square of the length, as 20%.
    tokens
        The most tokens in a microbatch of several sequences.
    replicas
        Data-parallel replicas that all sequences are dealt to. Without lengths, the problem's list
        has the microbatches of all.
    schedules
        Name of your own schedule, repeatable, as compare has them; ``None``: all that apply. With
        ``replicas`` one, ``1f1b`` unless named.
    time_limit
        Seconds for the search, shared by the schedules.

    Raises
    ------
    BadInput
        If the microbatches are a plain number, or lengths are wrong.
    NotApplicable
        If none of the hand-written schedules applies.
    Infeasible
        If nothing fits into memory.
    """
    from pipesat.solver.lanes.clock import Clock

    source = "lengths"
    if isinstance(lengths, Path):
        source, lengths = str(lengths), read_lengths(lengths)
    quadratic = share("quadratic", quadratic)
    reference = None if reference is None else round(reference)
    if lengths is None:
        alone = reference is None and not quadratic and tokens is None
        require(alone, "reference, quadratic and tokens go with them", where="lengths")
    elif reference is None:
        raise BadInput("expected the length that the stages' costs are of", where="reference")
    clock = Clock(time_limit, deterministic, EitherStop(stop).is_set)
    if replicas is not None or tokens is not None:
        from pipesat.compare.replicas.dealt import dealt

        names = schedules or ["1f1b"]
        require(len(names) <= 1, "expected one, with replicas", where="schedules", value=names)
        require(
            objective == "makespan",
            "expected makespan with replicas: they end together",
            where="objective",
            value=objective,
        )
        require_chains(problem, "balance")
        return dealt(
            problem,
            lengths,
            reference,
            quadratic,
            replicas=replicas or 1,
            tokens=tokens,
            schedule=names[0],
            clock=clock,
            seed=seed,
        )
    from pipesat.bounds.closed_form import closed_form_bound
    from pipesat.bounds.feasibility import preflight

    require_chains(problem, "balance")
    free = replace(_with_lengths(problem, lengths, reference, quadratic, source), order="free")
    require(
        free.has_lists,
        "all are alike, so their order changes nothing: give their `lengths`, with `reference`",
        where="microbatches",
    )
    preflight(free)
    give_up = lambda: not deterministic and clock.over  # noqa: E731
    made = list(_under_rules(free, _named(schedules), objective, give_up))
    require_applicable(
        any(under.made for under in made),
        "; ".join(f"{under.name}: {under.why_not}" for under in made),
    )
    made.sort(key=lambda under: under.least(objective))
    bound, rows = closed_form_bound(free, objective), []
    for number, under in enumerate(made):
        part = clock.part(clock.left / (len(made) - number))
        with doing(f"the order under {under.name}, {number + 1} of {len(made)}"):
            rows.append(_searched(free, under, objective, part, seed, bound.value))
    about = {"problem_sha256": problem.sha256, "seed": seed}
    read = lengths_read(lengths, reference, quadratic, None)
    return MicrobatchOrders(free, objective, bound, tuple(rows), about | {"lengths": read})


class _Under(NamedTuple):
    """A hand-written schedule under each rule; ``wrong`` says why some are no answer."""

    name: str
    made: dict[str, Schedule]
    wrong: dict[str, str]

    @property
    def fitting(self) -> dict[str, Schedule]:
        """Those that keep every rule of the problem."""
        return {rule: made for rule, made in self.made.items() if rule not in self.wrong}

    @property
    def why_not(self) -> str | None:
        """Why there is none that fits."""
        return None if self.fitting else next(iter(self.wrong.values()))

    def least(self, objective: Objective) -> float:
        made = self.fitting.values()
        return min((schedule.value(objective) for schedule in made), default=math.inf)


def _with_lengths(
    problem: Problem,
    lengths: Sequence[int] | None,
    reference: int | None,
    quadratic: Fraction | float,
    source: str,
) -> Problem:
    if lengths is None or reference is None:
        return problem
    require(len(problem.routes) == 1, "expected a problem with one route", where="lengths")
    listed = microbatches_from_lengths(lengths, reference, quadratic, source=source)
    try:
        return problem.with_microbatches(listed)
    except BadInput as error:  # what is wrong was made of the lengths, by no method of the user's
        raise BadInput(error.expected, where="lengths", value=error.value) from None


def _named(names: Sequence[str] | None) -> list[str]:
    from pipesat.heuristics import BASELINES

    wanted = (named("schedules", name, BASELINES) for name in names or ())
    return list(dict.fromkeys(BASELINES if names is None else wanted))


def _under_rules(
    problem: Problem, names: Sequence[str], objective: Objective, give_up: Callable[[], bool]
) -> Iterator[_Under]:
    """Build each schedule under each rule. All rules are tried, also where two give one order."""
    from pipesat.heuristics import BASELINES
    from pipesat.heuristics.microbatch_orders import RULES, entered_by, permutation_by

    for name in names:
        under = _Under(name, {}, {})
        try:
            for rule in RULES:
                permutation = permutation_by(problem, rule)
                with doing(f"building {name}, microbatches {rule}"):
                    schedule = entered_by(BASELINES[name], problem, rule, permutation, give_up)
                under.made[rule] = retime(problem, schedule, objective, schedule.source)
                if violations := check(problem, schedule):
                    under.wrong[rule] = violations[0].message
        except NotApplicable as error:
            under = _Under(name, {}, {"any": str(error)})
        yield under


def _searched(
    problem: Problem, under: _Under, objective: Objective, clock: Clock, seed: int, enough: int
) -> OrderRow:
    """Let microbatches change places, from the best rule on: by makespan, whatever is asked for."""
    from pipesat.heuristics import BASELINES
    from pipesat.heuristics.microbatch_orders import entered_by, permutation_by
    from pipesat.solver.growth.exchanges import best_places

    if not under.made:
        return OrderRow(under.name, why_not=under.why_not)
    fitting, entry = under.fitting, BASELINES[under.name]
    orders = {rule: permutation_by(problem, rule) for rule in fitting}
    takes = {rule: schedule.value(objective) for rule, schedule in fitting.items()}
    start = min((fitting or under.made).values(), key=lambda made: made.value(objective))
    if not pairs_in(start.order):
        found = best_places(problem, start.order, clock=clock, seed=seed, enough=enough)
        if found is not None:
            orders[BEST] = microbatch_order(problem, found)
            if not entry.equal:  # the schedule of that order may have other places
                found = entered_by(entry, problem, BEST, orders[BEST])
            found = retime(problem, found, objective, start.source)
            if not check(problem, found):
                takes[BEST] = found.value(objective)
    best = min(takes, key=takes.__getitem__, default=None)
    values = {rule: takes.get(rule) for rule in under.made}
    if best is None:
        return OrderRow(under.name, {**values, BEST: None}, why_not=under.why_not)
    order = [[*own] for own in orders[best]]
    return OrderRow(under.name, {**values, BEST: takes[best]}, order)
