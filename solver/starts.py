"""The schedules that a search starts from: hand-written ones and list scheduling's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, product, tee, zip_longest

from pipesat.core.errors import NotApplicable
from pipesat.heuristics import BASELINES, LIST_SCHEDULING, USUAL
from pipesat.heuristics.greedy_pairs import NAME as GREEDY_PAIRS
from pipesat.heuristics.greedy_pairs import greedy_schedules
from pipesat.heuristics.list_scheduling import Policy, affordable, list_schedules, policies
from pipesat.heuristics.lockstep import NAME as LOCKSTEP
from pipesat.heuristics.lockstep import lockstep_schedules
from pipesat.heuristics.microbatch_orders import GIVEN, entered_by, permutations
from pipesat.heuristics.registry import GiveUp, Published, never
from pipesat.problem.problem import Problem
from pipesat.schedule.microbatch_order import Permutation, permuted, relabelled
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.solving import Starts
from pipesat.schedule.timing import time_order

_LARGE = 5_000  # ops: making and checking all quick schedules takes a second or more


@dataclass
class StartingSchedules:
    """The schedules to start from, made one by one: quick ones, slow ones, and the portfolio's.

    Of kind ``greedy`` there are those alone that cost little and fit any capacities; of ``none``
    none. ``give_up`` is asked all along; ``found`` says whether one of them was valid. If none of
    the quick ones is, the first policy's schedule, which is, comes before the slow ones, even if
    told to give up. On a large problem of limited memory it comes first of all. Of the slow ones,
    those with pairs come first, those of lockstep and of greedy pairs one by one. Where they may
    enter in several orders, the portfolio's come before the slow ones, most of which are made for
    equal ones. ``all_made`` says afterwards whether all of them were taken, and none was given
    up.
    """

    problem: Problem
    kind: Starts
    give_up: Callable[[], bool]
    found: Callable[[], bool] = lambda: True
    all_made: bool = False

    def __post_init__(self) -> None:
        self.all_made = self.kind != "all"

    def __iter__(self) -> Iterator[Schedule]:
        if not self.problem.chains_only and self.kind != "none":
            yield from self._on_graphs()
        elif self.kind != "none":
            yield from self._hand_written() if self.kind == "all" else self._greedy()

    def _on_graphs(self) -> Iterator[Schedule]:
        named = (entry for entry in BASELINES.values() if entry.name != LIST_SCHEDULING)
        if self.kind == "all":
            yield from self._made(named, {GIVEN: ()})
        yield from list_schedules(self.problem, self.give_up)
        self.all_made = not self.give_up()

    def of(self, other: Problem) -> StartingSchedules:
        """Return those of another problem that the search comes to, of which some are valid.

        It is one in which every stage has its memory mode, or that is narrower otherwise.
        """
        kind: Starts = "all" if self.kind == "all" else "none"
        return StartingSchedules(other, kind, self.give_up)

    def _greedy(self) -> Iterator[Schedule]:
        with contextlib.suppress(NotApplicable):
            yield BASELINES["zb-auto"](self.problem)
        if self.problem.overlap is not None and self.problem.plain:
            yield from islice(lockstep_schedules(self.problem, self.give_up), 2)
        yield from list_schedules(self.problem, self.give_up)

    def _hand_written(self) -> Iterator[Schedule]:
        problem = self.problem
        orders = permutations(problem)
        named = [entry for entry in BASELINES.values() if entry.name != LIST_SCHEDULING]
        if not any(stage.may_split for stage in problem.stages):
            named.sort(key=lambda entry: entry.name not in USUAL)  # zero bubble is 1F1B then
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
            guides = [_beyond_memory] if problem.has_modes else []
            for schedules in (lockstep_schedules, *guides, greedy_schedules):
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
        return self._entering(order, partial(list_schedules, give_up=give_up, chosen=chosen))

    def _made(
        self, entries: Iterable[Published], orders: Mapping[str, Permutation]
    ) -> Iterator[Schedule]:
        """Yield the schedules that apply, in each order of microbatches, until told to give up."""
        for entry, order in product(entries, orders.items()):
            if self.give_up():
                return
            with contextlib.suppress(NotApplicable):
                yield entered_by(entry, self.problem, *order, self.give_up)

    def _entering(
        self, order: tuple[str, Permutation], make: Callable[[Problem], Iterator[Schedule]]
    ) -> Iterator[Schedule]:
        """Yield the schedules that are made where microbatches enter in one order."""
        rule, permutation = order
        if rule == GIVEN:
            yield from make(self.problem)
            return
        for made in make(permuted(self.problem, permutation)):
            own = relabelled(self.problem, made.order, permutation)
            yield time_order(self.problem, own, source=f"{made.source}, {rule}")


def _beyond_memory(problem: Problem, give_up: GiveUp, among: int) -> Iterator[Schedule]:
    """Yield lockstep's schedules as if memory were no matter: guides for memory modes."""
    return lockstep_schedules(problem.with_memory(None), give_up, among)


def _best_first(orders: Mapping[str, Permutation]) -> list[tuple[str, Permutation]]:
    """Rules with their orders, the usually best one first."""
    return [*orders.items()][::-1]


def _in_turns(streams: Iterable[Iterator[Schedule]]) -> Iterator[Schedule]:
    """Yield one schedule of each stream after the other, as long as there are any."""
    for made in chain.from_iterable(zip_longest(*streams)):
        if made is not None:
            yield made
