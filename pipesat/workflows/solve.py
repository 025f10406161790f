"""Solve a problem, from every hand-written schedule that can be made in time."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, product, tee, zip_longest
from typing import TYPE_CHECKING, Any, Final

from pipesat.core.arguments import public
from pipesat.core.claims import Standing
from pipesat.core.errors import BadInput, Fault, NotApplicable
from pipesat.core.microbatch_order import permuted, relabelled
from pipesat.core.names import named
from pipesat.core.plain_problems import least_problem, same_but_for_the_order
from pipesat.core.progress import doing
from pipesat.core.schedule import Objective
from pipesat.core.settings import Seconds, Seed, Target, Workers
from pipesat.core.solving import study
from pipesat.core.timing import time_order

if TYPE_CHECKING:
    from pipesat.core.claims import Bound
    from pipesat.core.microbatch_order import Permutation
    from pipesat.core.problem import Problem
    from pipesat.core.result import Improvement, Solution
    from pipesat.core.schedule import Schedule
    from pipesat.heuristics.list_scheduling import Policy
    from pipesat.heuristics.registry import Published
    from pipesat.workflows.result import Result

_LARGE = 5_000  # ops: making and checking all quick schedules takes a second or more
_LEAST_SECONDS: Final = 0.001


@public
def solve(
    problem: Problem,
    *,
    objective: Objective = "makespan",
    time_limit: Seconds = 60.0,
    workers: Workers | None = None,
    seed: Seed = 0,
    deterministic: bool = False,
    target: Target | None = None,
    schedules: Iterable[Schedule] = (),
    known_bound: Bound | None = None,
    listener: Callable[[Improvement], None] | None = None,
    stop: threading.Event | None = None,
) -> Result:
    """Return the best verified schedule within ``time_limit`` seconds, with its lower bound.

    Starts from every hand-written schedule and every list-scheduling policy that can be made in
    time, so the answer is never worse than the best of those that fit. On problems of more than
    100,000 ops or so, one schedule alone takes seconds. See :func:`pipesat.solver.solve`.

    Parameters
    ----------
    problem
        The problem (a JSON file). :class:`pipesat.Problem` builds one.
    target
        Find only what this runtime can run; ``None``: any. What it cannot do becomes part of the
        problem (in torch the first stage's backward is whole), so that value and bound are those of
        orders that run there.
    schedules
        Schedules to start from besides the hand-written ones, for example those of the same
        problem with less memory. What breaks a rule of this problem is passed over.
    known_bound
        A bound of the objective that is proven already, for example that of the same problem with
        more memory.

    Raises
    ------
    NotApplicable
        If the target cannot run such a pipeline.
    BadInput
        If there is no such target.
    """
    if deterministic and workers not in (None, 1):
        raise BadInput("`deterministic` runs one lane", where="workers", value=workers)
    import pipesat.heuristics
    import pipesat.solver  # noqa: F401  slow to import, both: before the clock starts
    from pipesat.workflows.result import Result

    expires = time.monotonic() + time_limit
    asked = {
        "objective": objective,
        "workers": workers,
        "seed": seed,
        "deterministic": deterministic,
        "schedules": tuple(schedules),
        "known_bound": known_bound,
        "stop": stop or threading.Event(),
    }
    found: list[Solution] = []

    def heard(improvement: Improvement) -> None:
        if listener is not None:
            listener(_of_all(ways, found, improvement))

    ways = problems_for(problem, target)
    several = len(ways) > 1
    with study() if several else contextlib.nullcontext():
        for number, way in enumerate(ways):
            left = time_limit if deterministic else max(expires - time.monotonic(), _LEAST_SECONDS)
            share = left / (len(ways) if deterministic else len(ways) - number)
            with doing(_way(way)) if several else contextlib.nullcontext():
                found.append(_solved(way, share, asked, heard))
    return Result.of(_best_of(ways, found), problem=problem, target=target)


def _solved(
    restricted: Problem,
    time_limit: float,
    asked: Mapping[str, Any],
    listener: Callable[[Improvement], None],
) -> Solution:
    """Solve one problem, from every hand-written schedule."""
    from pipesat.heuristics import BASELINES  # slow to import, both
    from pipesat.solver import solve as search

    expires = time.monotonic() + time_limit
    found = threading.Event()

    def give_up() -> bool:
        over = not asked["deterministic"] and time.monotonic() > expires
        return over or asked["stop"].is_set()

    def heard(improvement: Improvement) -> None:
        if improvement.value is not None:
            found.set()
        listener(improvement)

    searched = restricted
    if same_but_for_the_order(restricted):
        searched = least_problem(restricted)
    starts = _Starts(searched, BASELINES.values(), give_up, found.is_set)
    result = search(
        searched,
        time_limit=time_limit,
        warm_starts=starts,
        written_for=lambda other: _Starts(other, BASELINES.values(), give_up, lambda: True),
        listener=heard,
        **asked,
    )
    cut = not (starts.all_made or result.standing.proven or result.status == "infeasible")
    note = "the search ended before all hand-written schedules were made" if cut else ""
    explanation = "; ".join(filter(None, (result.explanation, note)))
    if searched is not restricted and restricted.order != "free" and result.schedule is not None:
        result = replace(result, schedule=_in_number_order(restricted, result.schedule))
    return replace(result, problem=restricted, baselines_left_out=cut, explanation=explanation)


def _of_all(
    ways: Sequence[Problem], before: Sequence[Solution], improvement: Improvement
) -> Improvement:
    """Return what an improvement in one way says of all: the best value, the least bound.

    There is no bound of all before the last way has one.
    """
    if len(ways) == 1:
        return improvement
    values = [result.value for result in before] + [improvement.value]
    bounds = [r.lower_bound for r in before if r.status != "infeasible"] + [improvement.bound]
    told = [bound for bound in bounds if bound is not None]
    known = len(before) + 1 == len(ways) and len(told) == len(bounds)
    return improvement._replace(
        seconds=improvement.seconds + sum(result.wall_s for result in before),
        value=min((value for value in values if value is not None), default=None),
        bound=min(told) if known else None,
    )


def _best_of(ways: Sequence[Problem], found: Sequence[Solution]) -> Solution:
    """Return the result of a choice between problems: the best value, and the least bound.

    A schedule of the choice is one of some way, and that way's bound holds for it. So the least of
    the bounds holds for all, and the answer is proven only if no way's bound is below it.
    """
    if len(found) == 1:
        return found[0]
    possible = [r for r in found if r.status != "infeasible"]
    best = min(possible or found, key=lambda r: (r.value is None, r.value))
    bounds = [r.bound for r in possible]
    bound = None if None in bounds else min(filter(None, bounds), default=None)
    least = None if bound is None else bound.value
    baselines = [r.baseline for r in found if r.baseline is not None]
    history = [_of_all(ways, found[:n], step) for n, r in enumerate(found) for step in r.history]
    said = [
        f"{_way(way)}: {r.standing.verdict if r.value is None else r.value}"
        f"{'' if r.lower_bound is None else f', at least {r.lower_bound}'}"
        for way, r in zip(ways, found, strict=True)
    ]
    return replace(
        best,
        status=Standing(best.value, least, infeasible=not possible).status,
        bound=bound,
        baseline=min(baselines, key=lambda one: one.value, default=None),
        wall_s=sum(r.wall_s for r in found),
        lanes=max(r.lanes for r in found),
        cpu_s=sum(r.cpu_s for r in found),
        history=tuple(history),
        explanation="; ".join(
            [*said, *dict.fromkeys(r.explanation for r in found if r.explanation)]
        ),
        baselines_left_out=any(r.baselines_left_out for r in found),
        contradictions=tuple(chain.from_iterable(r.contradictions for r in found)),
        warnings=tuple(chain.from_iterable(r.warnings for r in found)),
    )


def _way(way: Problem) -> str:
    """Say which of its two ways a runtime that splits all backwards or none runs."""
    split = any(not stage.may_fuse for stage in way.stages)
    return f"all backwards {'split' if split else 'whole'}"


def _in_number_order(problem: Problem, schedule: Schedule) -> Schedule:
    """Keep the rule about the order, which costs nothing where microbatches are alike."""
    from pipesat.core.checker import check
    from pipesat.core.microbatch_order import in_number_order

    ordered = in_number_order(schedule)
    if violations := check(problem, ordered):
        raise Fault(f"in the order of the numbers, a schedule is not valid: {violations[0]}")
    return ordered


def problem_for(problem: Problem, target: str | None) -> Problem:
    """Return the problem that is to be solved for a runtime: every schedule of it runs there."""
    one, *others = problems_for(problem, target)
    if others:
        raise NotApplicable(
            f"{target} splits all backwards but the first stage's or none, and neither is always "
            'better: say "backward": "split" or "fused" in every stage but the first'
        )
    return one


def problems_for(problem: Problem, target: str | None) -> tuple[Problem, ...]:
    """Return the problems of which one is to be chosen and solved for a runtime.

    Every schedule of each runs there, and every order that runs there is one of some of them.
    """
    from pipesat.export import RUNTIMES
    from pipesat.export.runtime import restricted

    if target is None:
        return (problem,)
    known = [name for name, runtime in RUNTIMES.items() if runtime.any_order]
    return restricted(problem, RUNTIMES[named("target", target, known, ", or None")])


@dataclass
class _Starts:
    """The schedules to start from, made one by one: quick ones, slow ones, and the portfolio's.

    ``give_up`` is asked all along; ``found`` says whether one of them was valid. If none of the
    quick ones is, the first policy's schedule, which is, comes before the slow ones, even if told
    to give up. On a large problem of limited memory it comes first of all. Of the slow ones, those
    with pairs come first, those of lockstep and of greedy pairs one by one. Where they may enter in
    several orders, the portfolio's come before the slow ones, most of which are made for equal
    ones. ``all_made`` says afterwards whether whoever took them took all, and none was given up.
    """

    problem: Problem
    entries: Iterable[Published]
    give_up: Callable[[], bool]
    found: Callable[[], bool]
    all_made: bool = False

    def __iter__(self) -> Iterator[Schedule]:
        from pipesat.heuristics.greedy_pairs import NAME as GREEDY_PAIRS
        from pipesat.heuristics.greedy_pairs import greedy_schedules
        from pipesat.heuristics.list_scheduling import NAME as LIST_SCHEDULING
        from pipesat.heuristics.list_scheduling import affordable, policies
        from pipesat.heuristics.lockstep import NAME as LOCKSTEP
        from pipesat.heuristics.lockstep import lockstep_schedules
        from pipesat.heuristics.microbatch_orders import permutations
        from pipesat.heuristics.registry import never

        problem = self.problem
        orders = permutations(problem)
        named = [entry for entry in self.entries if entry.name != LIST_SCHEDULING]
        large = problem.op_count > _LARGE
        usually_best, *_ = _best_first(orders)
        chosen = affordable(problem, policies(problem))
        first = self._listed(usually_best, islice(chosen, 1), never)
        if large and any(device.memory is not None for device in problem.devices):
            yield from first  # the others may not fit, and each takes its time
        yield from self._made((entry for entry in named if not entry.slow), orders)
        if not self.found():
            yield from first
        several = len(orders) > 1
        if several:
            yield from self._listed_in_each(orders, chosen)
        slow = [entry for entry in named if entry.slow]
        if problem.overlap is not None:
            slow = [entry for entry in slow if entry.name not in {GREEDY_PAIRS, LOCKSTEP}]
            for schedules in (lockstep_schedules, greedy_schedules):
                make = partial(schedules, give_up=self.give_up, among=len(orders))
                yield from _in_turns(self._entering(order, make) for order in _best_first(orders))
        yield from self._made(sorted(slow, key=lambda entry: not entry.pairs), orders)
        if not several:
            yield from self._listed_in_each(orders, chosen)
        self.all_made = not self.give_up()

    def _listed_in_each(
        self, orders: Mapping[str, Permutation], chosen: Iterable[Policy]
    ) -> Iterator[Schedule]:
        """Yield list scheduling's schedules by each policy in every order, then by the next one.

        The last rule, the usually best, comes first.
        """
        own = zip(_best_first(orders), tee(chosen, len(orders)), strict=True)
        yield from _in_turns(self._listed(order, policies, self.give_up) for order, policies in own)

    def _listed(
        self,
        order: tuple[str, Permutation],
        chosen: Iterable[Policy],
        give_up: Callable[[], bool],
    ) -> Iterator[Schedule]:
        """Yield list scheduling's schedules in one order of microbatches."""
        from pipesat.heuristics.list_scheduling import list_schedules

        return self._entering(order, partial(list_schedules, give_up=give_up, chosen=chosen))

    def _made(
        self, entries: Iterable[Published], orders: Mapping[str, Permutation]
    ) -> Iterator[Schedule]:
        """Yield the schedules that apply, in each order of microbatches, until told to give up."""
        from pipesat.heuristics.microbatch_orders import entered_by

        for entry, order in product(entries, orders.items()):
            if self.give_up():
                return
            with contextlib.suppress(NotApplicable):
                yield entered_by(entry, self.problem, *order, self.give_up)

    def _entering(
        self, order: tuple[str, Permutation], make: Callable[[Problem], Iterator[Schedule]]
    ) -> Iterator[Schedule]:
        """Yield the schedules that are made where microbatches enter in one order."""
        from pipesat.heuristics.microbatch_orders import GIVEN

        rule, permutation = order
        if rule == GIVEN:
            yield from make(self.problem)
            return
        for made in make(permuted(self.problem, permutation)):
            own = relabelled(self.problem, made.order, permutation)
            yield time_order(self.problem, own, source=f"{made.source}, {rule}")


def _best_first(orders: Mapping[str, Permutation]) -> list[tuple[str, Permutation]]:
    """Rules with their orders, the usually best one first."""
    return [*orders.items()][::-1]


def _in_turns(streams: Iterable[Iterator[Schedule]]) -> Iterator[Schedule]:
    """Yield one schedule of each stream after the other, as long as there are any."""
    for made in chain.from_iterable(zip_longest(*streams)):
        if made is not None:
            yield made
