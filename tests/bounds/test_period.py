"""The period: its bounds against exact least periods, periodic orders, what a solve says of it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

import pipesat
from pipesat.bounds.paired import with_least_times
from pipesat.bounds.period import has_period, steady_bounds
from pipesat.check.checker import check
from pipesat.core.claims import Period
from pipesat.core.errors import Contradiction
from pipesat.heuristics import BASELINES
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.schedule.timing import time_order
from pipesat.solver.growth import periodic
from pipesat.solver.growth.periodic import (
    SOURCE,
    periodic_applies,
    periodic_orders,
    steady_rate,
)
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.options import SolveOptions
from pipesat.solver.search import OneSolve
from tests.oracle.exact import Undecided, optimum
from tests.oracle.generator import PAIRS, drawn
from tests.oracle.period import TooLarge, least_period
from tests.oracle.period_claims import KINDS, held_against
from tests.support.problems import chain, two_routes, vee


def best(problem: Problem) -> Fraction:
    return max(steady.rate for steady in steady_bounds(problem, "makespan"))


@pytest.mark.parametrize("kind", KINDS)
def test_no_bound_is_above_the_least_period(kind: str) -> None:
    found = [both for seed in range(36) if (both := held_against(kind, seed, 400)) is not None]
    assert len(found) >= 6
    assert any(bound == least for bound, least in found)


def test_the_least_period_by_hand() -> None:
    """One microbatch of two stages at a time: F F B B, and W frees the rest of it: 5 units."""
    document = {
        "devices": [{"memory": 2}] * 2,
        "stages": [
            {"device": d, "F": 1, "B": 1, "W": 1, "held_after_F": 2, "held_after_B": 1}
            for d in range(2)
        ],
    }
    assert least_period(document) == 5
    assert least_period(document | {"devices": [{"memory": 4}] * 2}) == 3


@pytest.mark.parametrize("seed", range(24))
def test_what_follows_for_a_run_is_no_more_than_its_optimum(seed: int) -> None:
    document = drawn(
        f"run {seed}",
        shapes=("one device", "chain", "loop", "V"),
        microbatches=(2, 3),
        ops=12,
        memory=("tight", "enough", "any"),
        pairs=("", *PAIRS) if seed % 2 else ("",),
        modes=("recompute", "offload") if seed % 3 == 0 else ("",),
    )
    problem = parse_problem(document)
    for objective in ("makespan", "span"):
        try:
            least = optimum(document, objective, effort=0.2)
        except Undecided:
            continue
        if least is not None:
            for steady in steady_bounds(problem, objective):
                assert steady.of_run(problem.microbatches[0]).value <= least, steady


def test_load_area_and_whole_microbatches() -> None:
    """F = B = W = 1 on 4 stages; a microbatch is away from device 0 for 2 x 4 units."""
    assert best(chain(4, 16)) == 3
    assert best(chain(4, 16, cap=4, held=(1, 0))) == 3
    assert best(chain(4, 16, cap=2, held=(1, 0))) == 4  # two at once
    assert best(chain(4, 16, cap=5, held=(2, 0))) == 4  # room for two and a half
    assert best(chain(4, 16, cap=2, held=(1, 1))) == Fraction(9, 2)  # and W
    assert best(chain(4, 16, cap=4, held=(2, 1))) == Fraction(9, 2)  # beside two no W may pend
    assert best(vee(4, 16, cap=2, held=(1, 0))) == 9  # both chunks' stays, 18, over room for two


def test_a_backward_that_is_shorter_in_a_pair() -> None:
    """Two BW of 4 take 1 in a pair, two F of 1 as well: a microbatch takes 1, the mean of both."""
    stage = {"device": 0, "F": 1, "B": 2, "W": 2, "backward": "fused"}
    stage |= {"held_after_F": 3, "held_after_B": 4}
    pairs = [{"ops": ["0F", "0F"], "time": 1}, {"ops": ["0BW", "0BW"], "time": 1}]
    document = {"devices": [{"memory": 9}], "stages": [stage], "overlap": {"pairs": pairs}}
    problem = parse_problem({"format": "pipesat.problem/1", "microbatches": 4} | document)
    assert best(problem) == 1
    assert with_least_times(problem).resulting(0).BW == 1


def test_what_pairs_hold_for_longer() -> None:
    """F = BW = 2 in pairs of 3 on two devices, the first with memory for three microbatches.

    If a share x of all ops pairs, a device takes 4 - x and three stay for 8 + 4 x: 4 - x = 24 / 7.
    """
    stages = [
        {"device": d, "F": 2, "B": 1, "W": 1, "backward": "fused", "held_after_F": 1}
        for d in range(2)
    ]
    pairs = [{"ops": [f"{s}F", f"{s}BW"], "time": 3} for s in range(2)]
    document = {"devices": [{"memory": 3}] * 2, "stages": stages, "overlap": {"pairs": pairs}}
    assert (least := least_period(document)) is not None
    problem = parse_problem({"format": "pipesat.problem/1", "microbatches": 8} | document)
    assert best(problem) == Fraction(24, 7) <= least


def test_who_has_a_period() -> None:
    assert has_period(chain(4, 16))
    assert not has_period(chain(4, 15))
    assert not has_period(two_routes(4, (16, 16)))
    (route,) = chain(4, 16).routes
    assert not has_period(replace(chain(4, 16), routes=(replace(route, slices=2),)))
    listed = chain(2, 8).with_microbatches([{"name": "a", "count": 8}])
    assert not has_period(listed)


def test_three_microbatches_every_ten_units() -> None:
    """With 3/4 of 1F1B's memory 4 stages need 10/3 a microbatch, and one alone would take 4."""
    problem = chain(4, 24, cap=6, held=(2, 1))
    assert periodic_applies(problem)
    first, *_, last = rates_of(problem)
    assert (first, last) == (4, Fraction(10, 3))
    assert rates_of(chain(8, 48, cap=3, held=(1, 0)))[-1] == Fraction(16, 3)  # 2 x 8 for three


def rates_of(problem: Problem, seconds: float = 1.0) -> list[Fraction]:
    """The rates of what is found, one after the other."""
    rates = []
    for _, order_of in periodic_orders(problem, Clock(seconds, deterministic=True), 0):
        timed = time_order(problem, order_of(problem))
        assert not check(problem, timed)
        rates.append(steady_rate(problem, timed))
    return rates


def test_periodic_orders_reach_the_least_period_of_small_pipelines() -> None:
    """But where backwards that run as one take less: orders split all that may be."""
    tried = 0
    for seed in range(30):
        document = drawn(
            f"periodic {seed}",
            shapes=("one device", "chain", "loop", "V"),
            devices=(1, 2),
            stages=3,
            longest=3,
            microbatches=(24, 24),
            memory=("tight", "enough"),
            delays=(0, 0, 1),
        )
        problem = parse_problem(document)
        if not periodic_applies(problem):
            continue
        try:
            least = least_period(document, 400)
        except TooLarge:
            continue
        found = rates_of(problem, 0.1)
        assert found == sorted(found, reverse=True)
        one = any(s.backward == "either" and s.BW < s.B + s.W for s in problem.stages)
        assert found[-1] > least if one and found[-1] != least else found[-1] == least
        tried += 1
    assert tried >= 6


def test_the_rate_of_a_schedule() -> None:
    problem = chain(4, 16, cap=4)
    assert steady_rate(problem, BASELINES["zb-h1"](problem)) == 3
    without = chain(4, 16)
    gpipe = BASELINES["gpipe"](without)  # no part of it can be repeated alone
    assert steady_rate(without, gpipe) == Fraction(gpipe.makespan, 16)


def test_a_period_below_the_work_of_a_device_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forwards of one unit each, backwards of thousands: so many would be repeated at once."""
    problem = pipesat.Problem.chain(devices=2, microbatches=16, F=1, B=1000, W=1000)
    tried = [16]
    real = periodic.with_microbatches
    monkeypatch.setattr(periodic, "with_microbatches", lambda p, m: tried.extend(m) or real(p, m))
    gpipe = BASELINES["gpipe"](problem)
    assert steady_rate(problem, gpipe) == Fraction(gpipe.makespan, 16)
    assert max(tried) <= 3 * 16


def test_a_solve_says_both() -> None:
    problem = chain(4, 16, cap=4).with_name("x")
    result = pipesat.solve(problem, time_limit=2, workers=1)
    assert result.period == Period(Fraction(3), Fraction(3))
    assert result.document()["period"] == {"value": 3, "lower_bound": 3}
    assert "a long run takes 3 a microbatch, proven least" in str(result)
    few = pipesat.solve(chain(4, 15, cap=4), time_limit=2, workers=1)
    assert few.period is None
    assert few.document()["period"] is None


def test_the_period_of_a_run_too_short_to_settle() -> None:
    """8 stages, three microbatches at once: 2 x 8 units for three."""
    problem = chain(8, 32, cap=3, held=(1, 0))
    search = OneSolve(problem, SolveOptions(deterministic=True, time_limit=8))
    search._look_for_a_period()
    assert search.incumbent.steady == Fraction(16, 3)
    start = search.level.starts[-1]
    assert (start.source.startswith(SOURCE), check(problem, start)) == (True, [])


def test_a_period_below_its_bound_is_refused() -> None:
    with pytest.raises(Contradiction, match="period"):
        Period(Fraction(3), Fraction(10, 3))
