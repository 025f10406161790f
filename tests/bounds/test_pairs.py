"""Bounds where ops may run in pairs: by hand, and never above the optimum by an oracle."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipesat.bounds.closed_form import closed_form_bound, closed_form_bounds
from pipesat.bounds.counting import Programme, least_of
from pipesat.problem.ops import Kind
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem, read_problem
from pipesat.schedule.schedule import Objective
from tests.oracle.claims import least
from tests.oracle.exact import optimum
from tests.support.paths import ROOT
from tests.support.problems import chain, document

OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")


def bench(name: str) -> Problem:
    return read_problem(ROOT / "bench" / "beyond" / "problems" / f"{name}.json")


def paired(problem: Problem, *pairs: tuple[str, str, int]) -> Problem:
    listed = [{"ops": [one, other], "time": time} for one, other, time in pairs]
    return parse_problem(document(problem, overlap={"pairs": listed}))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_chain_with_fused_backwards(objective: Objective) -> None:
    # p (F + BW) + (m - 1) P: the last device's load after the way there and before the way back
    problem = bench("pair-unit-chain-fused-p4-m12")
    assert closed_form_bound(problem, objective).value == 4 * (4 + 8) + 11 * 11


def test_a_v_s_turn_fills_its_warm_up_with_forwards_that_miss_their_partners() -> None:
    # it starts at 12; 5 F and 3 B later its first backward can start, 8 F fill that time, and the
    # other 24 of 32 save 1 each: 12 + 32 x 12 - 24
    bound = closed_form_bound(bench("pair-unit-vee-p4-m16"), "makespan")
    assert (bound.value, bound.source) == (372, "closed form: load with pairs of device 3")


def test_a_pair_shorter_than_its_backward_makes_idling_pay() -> None:
    """DeepSeek's costs on a V of 4: 8 F run alone in the warm-up, which they do not fill.

    Of the 20 BW 8 then run alone: their B's after the last F, at least as long as the way to the
    last B, and their W's, which the last gradient's way outlasts.
    """
    F, B, W, pair, delay = 97391, 111611, 35067, 129012, 500
    start = 3 * (F + delay)
    until_backward = 5 * F + 3 * B + 6 * delay
    after_forward = 8 * B
    assert after_forward > 3 * F + 5 * B + 6 * delay
    after_backward = 3 * (B + delay) + W
    expected = start + until_backward + 12 * pair + after_forward + after_backward
    assert closed_form_bound(bench("pair-dsv3-vee-p4-m10"), "makespan").value == expected


@pytest.mark.parametrize(("p", "c", "m"), [(4, 2, 8), (4, 3, 9), (3, 2, 6)])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_pairs_do_not_shorten_the_stay_in_memory(
    p: int, c: int, m: int, objective: Objective
) -> None:
    # every item takes 3: c microbatches enter one after the other and are back after 2p of them,
    # the first c fill and the last c empty device 0, its least memory x time unused c (c - 1)
    problem = chain(p, m, F=3, B=2, W=1, cap=c, backward="fused")
    problem = paired(problem, *((f"{d}F", f"{d}BW", 3) for d in range(p)))
    bound = closed_form_bound(problem, objective)
    assert bound.value == 3 * (2 * p * m + c * (c - 1)) / c
    assert bound.source.endswith("load and memory with pairs of all devices")


def test_pairs_of_forwards_may_fill_the_warm_up() -> None:
    # one device, no memory limit: 4 F in two pairs of 3, 4 B in two of 5, 4 W in two of 1
    problem = chain(1, 4, F=2, B=4, W=3, backward="split")
    problem = paired(problem, ("0F", "0F", 3), ("0B", "0B", 5), ("0W", "0W", 1))
    for objective in OBJECTIVES:
        assert closed_form_bound(problem, objective).value == 2 * (3 + 5 + 1)


def test_pairs_of_two_stages_may_run_in_the_last_phase() -> None:
    # 0F0 1F0 1B0 (1W0+0BW0), the same once more: 1W may run beside 0BW of its own microbatch
    stages = [
        {"device": 0, "F": 1, "B": 2, "W": 2, "backward": "fused"},
        {"device": 0, "F": 1, "B": 1, "W": 3, "backward": "split"},
    ]
    problem = paired(parse_problem({**chain(1, 2).document, "stages": stages}), ("1W", "0BW", 4))
    for objective in OBJECTIVES:
        assert closed_form_bound(problem, objective).value == 2 * (1 + 1 + 1 + 4)


@pytest.mark.parametrize("kind", ["F", "B", "BW"])
def test_a_stage_s_first_f_and_last_backward_pair_with_none_of_a_later_stage(kind: Kind) -> None:
    # two stages of 4 a microbatch for each kind: of three possible pairs, two can run, as
    # 0F0 (1F0+0F1) (1F1+0F2) 1F2 do; W takes no time, so that splitting is no way out
    stage = {"device": 0, "F": 4, "B": 4, "W": 0}
    problem = parse_problem({**chain(1, 3).document, "stages": [stage, stage]})
    problem = paired(problem, (f"0{kind}", f"1{kind}", 4))
    for objective in OBJECTIVES:
        bound = closed_form_bound(problem, objective)
        assert bound.value == 2 * 3 * (4 + 4) - 2 * 4
        assert least(document(problem), objective, bound.value)[0] == bound.value


def test_pairs_that_do_not_fit_into_memory_do_not_count() -> None:
    # room for one microbatch: F, BW four times over, though two F's together would take 1
    problem = chain(1, 4, F=2, B=4, W=3, cap=1, backward="fused")
    problem = paired(problem, ("0F", "0F", 1), ("0BW", "0BW", 1))
    assert closed_form_bound(problem, "makespan").value == 4 * (2 + 7)


def test_a_listed_pair_that_no_stage_runs_is_no_help() -> None:
    problem = chain(1, 3, F=2, B=4, W=3, backward="split")
    assert closed_form_bound(paired(problem, ("0F", "0BW", 1)), "makespan").value == 27


def test_the_span_of_another_device_begins_with_its_own_first_op() -> None:
    # device 0: F, 1 + 1 away, B: 4. Device 1 from its F on: 1 + 1 + 5, or BW 6
    stages = [{"device": d, "F": 1, "B": 1, "W": w} for d, w in enumerate((0, 5))]
    problem = paired(parse_problem({**chain(2, 1).document, "stages": stages}), ("0F", "0F", 1))
    assert closed_form_bound(problem, "span").value == 7
    assert closed_form_bound(problem, "makespan").value == 8
    assert optimum(problem.document, "span") == 7


def test_delays_count_while_microbatches_are_held() -> None:
    # one at a time fits on device 0: F 2 there and 2 here, BW 4 here and 4 there, 7 each way
    problem = chain(
        2, 4, F=2, B=2, W=2, backward="fused", held=(1, 0), cap=1, comm=7, overlap=(3, 4)
    )
    of = {bound.source: bound.value for bound in closed_form_bounds(problem, "makespan")}
    assert of["closed form: load and memory with pairs of all devices"] == 4 * (2 * 6 + 2 * 7)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_capacity_bounds_nothing_where_nothing_is_held(objective: Objective) -> None:
    costs = {"F": 2, "B": 2, "W": 2, "held": (0, 0), "overlap": (3, 4)}
    (without, within) = (
        {bound.source: bound.value for bound in closed_form_bounds(problem, objective)}
        for problem in (chain(3, 4, **costs), chain(3, 4, **costs, cap=1))
    )
    assert within == without


def test_branching_goes_on_where_a_bound_is_no_larger_than_what_is_known() -> None:
    # t >= 1 - 2 x and t >= 2 x - 1: 0 at one half, 1 at both whole numbers
    programme = Programme()
    t, x = programme.variable(1, 5), programme.variable(0, 1)
    programme.at_least({t: 1, x: 2}, 1)
    programme.at_least({t: 1, x: -2}, -1)
    assert programme.relaxed_cost() == 0
    assert least_of([programme], beyond=0) == 1


@st.composite
def programmes(draw: st.DrawFn) -> Programme:
    programme = Programme()
    numbers = range(draw(st.integers(1, 4)))
    for number in numbers:
        programme.variable(draw(st.integers(0, 9)), most := draw(st.integers(0, 4)))
        programme.at_most({number: 1}, most)
    for _ in range(draw(st.integers(0, 4))):
        row = {number: draw(st.integers(-5, 5)) for number in numbers}
        add = draw(st.sampled_from([programme.at_least, programme.at_most, programme.equals]))
        add(row, draw(st.integers(-8, 8)))
    return programme


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(programmes())
def test_a_programme_s_bound_is_never_above_its_least_cost(programme: Programme) -> None:
    costs = [
        sum(cost * x for cost, x in zip(programme.costs, values, strict=True))
        for values in product(*(range(most + 1) for most in programme.most))
        if all(
            sum(value * values[j] for j, value in row.coefficients.items()) >= row.least
            for row in programme.rows
        )
    ]
    if costs:
        assert programme.relaxed_cost() <= min(costs)
        assert programme.least_cost() <= min(costs)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.lists(programmes(), min_size=1, max_size=4))
def test_the_least_of_several_programmes_is_that_of_each_on_its_own(
    several: list[Programme],
) -> None:
    assert least_of(several) == min(programme.least_cost() for programme in several)
