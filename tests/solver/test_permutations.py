"""Exchanging microbatches of an order: its arrays against timing and checker, and what it finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipesat.check.checker import check
from pipesat.heuristics import BASELINES
from pipesat.kernels import compiled
from pipesat.kernels.arrays import UNLIMITED
from pipesat.kernels.permutations import exchange, improve, value_of
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.schedule.timing import time_order
from pipesat.solver.growth.anneal import Annealing
from pipesat.solver.growth.exchange_times import PermutedOrder
from pipesat.solver.growth.exchanges import best_places, permutations_apply, permuted_schedules
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.model.pairing import gains
from tests.oracle.generator import RULES
from tests.support.greedy import by_each_setting
from tests.support.problems import chain, of


def tail(memory: int | None, order: str = "same") -> Problem:
    """A chain of three devices; seven microbatches, two of them long."""
    device = {} if memory is None else {"memory": memory}
    return parse_problem(
        {
            "format": "pipesat.problem/1",
            "devices": [device] * 3,
            "stages": [
                {"device": d, "F": 4, "B": 5, "W": 3, "held_after_F": 6, "held_after_B": 2}
                for d in range(3)
            ],
            "microbatches": [
                {"name": "long", "count": 2, "time": [3, 1], "held": [3, 1], "comm": [2, 1]},
                {"name": "short", "count": 5},
            ],
            "comm": {"default": 1},
            "order": order,
        }
    )


@pytest.mark.parametrize("memory", [None, 40, 24])
@pytest.mark.parametrize("name", ["zb-h1", "1f1b", "gpipe"])
def test_arrays_agree_with_timing_and_checker(memory: int | None, name: str) -> None:
    problem = tail(memory)
    schedule = BASELINES[name](problem)
    order = PermutedOrder(problem, schedule.order)
    chance = np.random.default_rng(0)
    for permutation in (chance.permutation(order.identity) for _ in range(20)):
        timed = time_order(problem, order.permuted(permutation))
        expected = UNLIMITED if check(problem, timed) else timed.makespan
        assert value_of(order.places, permutation) == expected


def test_an_exchange_is_a_swap_or_a_shift_of_two_that_differ() -> None:
    places = PermutedOrder(tail(None), BASELINES["zb-h1"](tail(None)).order).places
    state, seen = np.array([1]), set()
    for _ in range(300):
        found = np.arange(7)
        exchange(places, found, state)
        moved = [*(found != np.arange(7)).nonzero()[0].tolist()]
        a, b = moved[0], moved[-1]
        between = [*range(a + 1, b)]
        ways = {"swap": [b, *between, a], "up": [*between, b, a], "down": [b, a, *between]}
        names = {name for name, way in ways.items() if found[a : b + 1].tolist() == way}
        assert names
        assert a < 2 <= b  # the first two microbatches are the long ones
        seen |= names
    assert seen == {"swap", "up", "down"}


def test_a_walk_is_the_same_compiled_and_as_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it draws may not depend on a compiler: a first solve and a second one would differ."""
    problem = tail(None)
    order = PermutedOrder(problem, BASELINES["1f1b"](problem).order)
    walks = []
    for interprets in (False, True):
        monkeypatch.setattr(compiled._here, "interprets", interprets)
        here, best, state = order.identity, order.identity, np.array([5])
        known = np.array([value_of(order.places, here)] * 2 + [0])
        improve(order.places, here, best, known, state, 2, 1 << 60, 0)
        walks.append((here.tolist(), best.tolist(), known.tolist(), state.tolist()))
    assert walks[0] == walks[1]


@pytest.mark.parametrize("order", ["same", "free", "given"])
def test_only_what_may_change_places_does(order: str) -> None:
    problem = tail(None, order)
    assert permutations_apply(problem)
    places = PermutedOrder(problem, BASELINES["zb-h1"](problem).order)
    assert places.may_change == (order != "given")
    run = Annealing(problem, BASELINES["zb-h1"](problem).order, seed=0)
    *_, last = run.improved(Clock(0.05, deterministic=True))
    assert check(problem, time_order(problem, last)) == []


@pytest.mark.parametrize("memory", [None, 60, 36])
def test_annealed_orders_keep_every_rule_and_get_no_longer(memory: int | None) -> None:
    problem = tail(memory)
    start = BASELINES["list-scheduling"](problem)  # it fits
    run = Annealing(problem, start.order, seed=0)
    found = [*run.improved(Clock(0.3, deterministic=True))]
    makespans = [time_order(problem, order).makespan for order in found]
    assert makespans == sorted(makespans, reverse=True)
    assert makespans[-1] == run.best.makespan
    assert makespans[-1] <= start.makespan
    for order in found:
        assert check(problem, time_order(problem, order)) == []


def test_a_longer_order_may_be_taken_while_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = tail(None)
    run = Annealing(problem, BASELINES["1f1b"](problem).order, seed=0)
    longer = replace(run.here, makespan=run.here.makespan + 1)
    monkeypatch.setattr(run.chance, "random", lambda: 0.0)
    assert [run._taken(longer, share) for share in (1.0, 0.01, 0.0)] == [True, True, False]
    monkeypatch.setattr(run.chance, "random", lambda: 0.999)
    assert [run._taken(state, 1.0) for state in (run.here, longer)] == [True, False]


def test_annealing_is_no_worse_than_exchanges_alone() -> None:
    # 2 long and 5 short: work of (3 * 2 + 5) * 12 = 132 on every device, and the last one cannot
    # begin before a short F has come down two devices: 2 * (4 + 1)
    problem = tail(None)
    start = BASELINES["zb-h1"](problem)
    clock = Clock(1.0, deterministic=True)
    exchanged = best_places(problem, start.order, clock=clock, seed=0)
    run = Annealing(problem, start.order, seed=0)
    *_, last = run.improved(Clock(0.6, deterministic=True))
    assert exchanged is not None
    assert 142 <= time_order(problem, last).makespan <= exchanged.makespan


def test_annealing_chooses_pairs_with_the_order() -> None:
    # One device, F 2 and 6, BW 4 and 12. Only the second F and the first BW can be a pair, at half
    # of their sum: the long one first takes 6 + (2 + 12) / 2 + 4 = 17, the short one 2 + 5 + 12.
    problem = parse_problem(
        {
            "format": "pipesat.problem/1",
            "devices": [{}],
            "stages": [{"device": 0, "F": 2, "B": 3, "W": 1, "held_after_F": 1}],
            "microbatches": [
                {"name": "short", "count": 1},
                {"name": "long", "count": 1, "time": [3, 1]},
            ],
            "overlap": {"pairs": [{"ops": ["0F", "0BW"], "factor": [1, 2]}]},
            "order": "same",
        }
    )
    start = BASELINES["1f1b"](problem)
    assert start.makespan == 24
    run = Annealing(problem, start.order, seed=0)
    *_, last = run.improved(Clock(0.1, deterministic=True))
    best = time_order(problem, last)
    assert check(problem, best) == []
    assert best.makespan == run.best.makespan == 17


def test_microbatches_that_are_alike_are_annealed_for_their_pairs() -> None:
    # One device, F 4 and BW 4, both together 5. The first item is an F, the last one a backward, so
    # of 4 microbatches 3 can pair: 4 * 8 - 3 * (8 - 5) = 23.
    problem = chain(1, 4, F=4, B=3, W=1, overlap=(5, 8))
    start = BASELINES["1f1b"](problem)
    assert start.makespan == 32
    assert permutations_apply(problem)
    assert not permutations_apply(chain(1, 4))
    clock = Clock(0.5, deterministic=True)
    found = [*permuted_schedules(problem, [start], clock=clock, seed=0)]
    assert not any(check(problem, schedule) for schedule in found)
    assert min(schedule.makespan for schedule in found) == 23


@pytest.mark.parametrize("rule", ["", *RULES])
@pytest.mark.parametrize("seed", range(4))
def test_annealed_orders_with_pairs_keep_every_rule(seed: int, rule: str) -> None:
    problem = of("tight mixtures", seed, modes=("",), lists=(rule,), pairs=("factor", "FB"))
    start = next(by_each_setting(problem))
    run = Annealing(problem, start.order, seed)
    assert check(problem, start) == []
    assert run.order.loose == bool(gains(problem))
    assert run.best.makespan <= start.makespan  # nothing is lost where all pairs stay
    for order in run.improved(Clock(0.05, deterministic=True)):
        assert check(problem, time_order(problem, order)) == []
