"""The steady state: periods derived by hand, repetends unrolled, orders packed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.bounds.feasibility import smallest_capacities
from pipesat.core.checker import check
from pipesat.core.ops import Kind, Op
from pipesat.core.problem import Problem
from pipesat.core.rules import awaited, duration
from pipesat.core.schedule import Schedule, Timed
from pipesat.core.timing import time_order
from pipesat.files.problem_file import FORMAT, parse_problem
from pipesat.heuristics.list_scheduling import list_schedules
from pipesat.solver.packing import jobs_of, justified, pack
from pipesat.solver.run.clock import Clock
from pipesat.solver.run.runner import Runner
from pipesat.solver.steady.model import build_cyclic_model
from pipesat.solver.steady.period import microbatches_per_period, period_bound, why_not
from pipesat.solver.steady.repetend import Repetend, tightened, unroll
from pipesat.solver.steady.schedules import steady_schedules
from pipesat.solver.steady.search import shorter_and_shorter, solve
from tests.support.periodic import tessel, with_microbatches
from tests.support.problems import chain, document, problems, vee


def repetends(problem: Problem, least: int) -> Iterator[Repetend]:
    """Shorter and shorter ones, in deterministic time."""
    clock = Clock(3.0, deterministic=True)
    return shorter_and_shorter(problem, least, runner=Runner(clock), clock=clock)


def schedules(
    problem: Problem, clock: Clock, *, seed: int = 0, last_passes: int = 50
) -> list[Schedule]:
    return list(
        steady_schedules(
            problem, runner=Runner(clock), clock=clock, seed=seed, last_passes=last_passes
        )
    )


def shortest(problem: Problem, least: int = 1) -> Repetend:
    *_, last = repetends(problem, least)
    return last


def bound(problem: Problem, least: int = 1) -> int:
    return period_bound(problem, microbatches_per_period(problem, least))


# Bounds on the period


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (chain(2, 4), 3),  # F + B + W on either device
        (chain(2, 4, cap=2), 3),
        # device 0 holds a microbatch through 0F 1F 1B 0B 0W = 5, one at a time
        (chain(2, 4, cap=1), 5),
        # a = 2, w = 0: F, 1F, 1B, B = 4 time units x 2 <= 3 T, so T >= 3; one slot: T >= 4
        (chain(2, 4, cap=3, held=(2, 0)), 4),
        (vee(2, 4), 6),  # two chunks of load 3
        # BW = 1 is less work than B + W = 2
        (chain(1, 4, backward="either", BW=1), 2),
    ],
)
def test_period_bound(problem: Problem, expected: int) -> None:
    assert bound(problem) == expected
    assert bound(problem, 2) >= 2 * expected - 1  # rounded up once instead of twice


def test_a_period_serves_all_routes_evenly() -> None:
    problem = tessel("X", 2)
    routes = [
        dict(route) | {"microbatches": m}
        for route, m in zip(problem.document["routes"], (8, 12), strict=True)
    ]
    assert microbatches_per_period(problem, 2) == (2, 2)
    uneven = parse_problem(document(problem, routes=routes))
    assert microbatches_per_period(uneven, 1) == (2, 3)
    assert why_not(uneven, 1) is None
    assert "longer than the schedule" in (why_not(uneven, 5) or "")
    assert "ops" in (why_not(chain(300, 8), 2) or "")


# The cyclic model


@pytest.mark.parametrize(
    ("problem", "least", "expected"),
    [
        (chain(1, 4), 1, 3),
        (chain(2, 4, cap=1), 1, 5),
        # Device 0: F at 0, B not before 3, so at 4 (3 is F's place again), W at 5 to 6: it holds
        # a microbatch for 6 = 2 T, two at a time.
        (chain(2, 4, cap=2), 1, 3),
        # One microbatch at a time on a device that must hold w = 3 > a = 1 while B and W run:
        # F B W in a row, since a second F would need 4.
        (chain(1, 4, cap=3, held=(1, 3), backward="split"), 1, 3),
        # Splitting needs 3 of memory, fusing 1: BW it is, F + BW = 1 + 3
        (chain(1, 4, cap=1, held=(1, 3), B=2, W=2, BW=3, backward="either"), 1, 4),
        # With memory to spare, fusing is still less work than B + W
        (chain(1, 4, held=(1, 3), B=2, W=2, BW=3, backward="either"), 2, 8),
        (tessel("V", 4), 1, 4),  # F + BW
        (tessel("V", 8), 1, 4),
        (tessel("X", 4), 1, 8),  # both directions
        (tessel("X", 8), 1, 8),
        (vee(4, 8, cap=8), 1, 6),
    ],
)
def test_shortest_period(problem: Problem, least: int, expected: int) -> None:
    repetend = shortest(problem, least)
    assert repetend.period == expected
    schedule = time_order(problem, unroll(problem, repetend))
    assert check(problem, schedule) == []


def test_two_microbatches_per_period_can_be_faster() -> None:
    """p = 3, F = B = W = 1, cap 2, w = 1: device 0 holds a microbatch for at least 7.

    0F 1F 2F 2B 1B 0B 0W. Two at a time, one per period: 7 <= 2 T, so T >= 4. Two per period: period
    7 for two is 3.5 each.
    """
    problem = chain(3, 8, cap=2)
    assert shortest(problem).period >= 4
    assert bound(problem, 2) == 7
    two = shortest(problem, 2)
    assert two.period >= 7
    assert two.period / 2 <= shortest(problem).period


def feasible(problem: Problem, period: int, least: int = 1) -> bool:
    model = build_cyclic_model(problem, period, microbatches_per_period(problem, least))
    status, repetend = solve(model, Runner(Clock(600, deterministic=True)), 60.0, seed=0)
    assert status != cp_model.UNKNOWN
    if repetend is not None:
        assert check(problem, as_it_stands(problem, repetend)) == []
    return repetend is not None


@pytest.mark.parametrize(
    ("problem", "least", "expected"),
    [
        (chain(1, 4), 1, 3),
        (chain(2, 4, cap=1), 1, 5),
        (chain(2, 4, cap=2), 1, 3),
        # Room for one microbatch: F B W F B W, the second F after the first one's W
        (chain(1, 4, cap=1), 2, 6),
        (chain(1, 6, cap=1), 3, 9),
        (chain(1, 4, cap=1, BW=2, backward="fused"), 2, 6),  # F + BW = 3, twice
        (chain(1, 4, cap=3, held=(1, 3), backward="split"), 2, 6),
        # The same with half the memory after B; what F takes fits only when W has ended
        (chain(1, 4, cap=2, held=(2, 1)), 2, 6),
        (chain(1, 4, cap=1, held=(1, 3), B=2, W=2, BW=3, backward="either"), 2, 8),
        (tessel("V", 4), 1, 4),
        (tessel("X", 4), 1, 8),
        # Two chunks on one device, room for one microbatch: 0F 1F 1B 1W 0B 0W
        (vee(1, 4, cap=2), 1, 6),
        (vee(1, 4, cap=2), 2, 12),
    ],
)
def test_the_model_is_feasible_from_its_least_period_on(
    problem: Problem, least: int, expected: int
) -> None:
    assert feasible(problem, expected, least)
    assert feasible(problem, expected + 1, least)
    assert not feasible(problem, expected - 1, least)


def all_repetends(problem: Problem, period: int) -> Iterator[Repetend]:
    """Every choice of places in the period, one microbatch each, every op as early as possible."""
    ways = []
    for stage in problem.stages:
        options: list[tuple[Kind, ...]] = []
        if stage.may_split:
            options.append(("F", "B", "W"))
        if stage.may_fuse:
            options.append(("F", "BW"))
        ways.append(options)
    for kinds in itertools.product(*ways):
        keys = [(s, kind) for route in problem.routes for s in route.stages for kind in kinds[s]]
        for places in itertools.product(range(period), repeat=len(keys) - 1):
            place = dict(zip(keys, (0, *places), strict=True))
            yield Repetend(period, (1,), _as_early_as_possible(problem, place, period))


def _as_early_as_possible(
    problem: Problem, place: dict[tuple[int, str], int], period: int
) -> dict[Op, int]:
    times: dict[Op, int] = {}
    left = dict(place)
    while left:
        for (stage, kind), offset in list(left.items()):
            need = awaited(problem, Op(stage, kind, 0))  # type: ignore[arg-type]
            arrival = 0
            if need is not None:
                source = next(
                    (o for o in times if o.event == need.event),
                    None,
                )
                if source is None:
                    continue
                length = duration(problem, source)
                arrival = times[source] + length + need.delay
            wait = (offset - arrival) % period
            times[Op(stage, kind, 0)] = arrival + wait  # type: ignore[arg-type]
            del left[stage, kind]
    return times


def as_it_stands(problem: Problem, repetend: Repetend) -> Schedule:
    """The unrolled repetend at its own times, not timed again."""
    rows: list[list[Timed]] = [[] for _ in problem.devices]
    for op, time in repetend.times.items():
        length = duration(problem, op)
        k = repetend.microbatches[problem.route_of[op.stage]]
        for n, m in enumerate(range(op.microbatch, problem.microbatches[op.stage], k)):
            start = time + n * repetend.period
            item = Op(op.stage, op.kind, m)
            rows[problem.stages[op.stage].device].append(Timed(item, start, start + length))
    return Schedule(tuple(tuple(sorted(row, key=lambda t: t.start)) for row in rows))


@st.composite
def tiny_and_tight(draw: st.DrawFn) -> Problem:
    """One or two stages on as many devices or on one, short ops, capacities just above the need."""
    count = draw(st.integers(1, 2))
    apart = draw(st.booleans())
    stages: list[dict[str, Any]] = []
    for number in range(count):
        stage: dict[str, Any] = {"device": number if apart else 0, "F": 1}
        stage |= {kind: draw(st.integers(1, 2)) for kind in ("B", "W")}
        stage["backward"] = draw(st.sampled_from(["split", "split", "fused", "either"]))
        stage["held_after_F"] = draw(st.integers(1, 2))
        stage["held_after_B"] = draw(st.integers(0, 3))
        stages.append(stage)
    devices = count if apart else 1
    doc = {"format": FORMAT, "microbatches": 8, "stages": stages, "devices": [{}] * devices}
    needs = smallest_capacities(parse_problem(doc))
    doc["devices"] = [{"memory": need.capacity + draw(st.integers(0, 2))} for need in needs]
    return parse_problem(doc)


@pytest.mark.slow
@given(tiny_and_tight(), st.integers(0, 2))
@settings(max_examples=120)
def test_infeasible_periods_against_brute_force(problem: Problem, more: int) -> None:
    """K = 1: some choice of places passes the checker, if and only if the model is feasible.

    Every op as early as its place allows loses nothing: see ``_most_periods``.
    """
    period = bound(problem) + more
    ops = sum(3 if stage.may_split else 2 for stage in problem.stages)
    assume(period ** (ops - 1) <= 8_000)
    exists = any(
        not check(problem, as_it_stands(problem, repetend))
        for repetend in all_repetends(problem, period)
        if disjoint(problem, repetend)
    )
    assert feasible(problem, period) is exists


def disjoint(problem: Problem, repetend: Repetend) -> bool:
    """Whether no two ops of a device share a moment of the period: quicker than the checker."""
    moments = [
        (problem.stages[op.stage].device, moment % repetend.period)
        for op, time in repetend.times.items()
        for moment in range(time, time + duration(problem, op))
    ]
    return len(moments) == len(set(moments))


@pytest.mark.slow
@given(problems(), st.sampled_from([1, 2, 3]))
@settings(max_examples=40)
def test_every_unrolled_schedule_is_valid(problem: Problem, least: int) -> None:
    six = with_microbatches(problem, 6)
    for repetend in repetends(six, least):
        assert repetend.period >= bound(six, least)
        for m in (1, 2, 5, 6, 7):
            some = with_microbatches(six, m)
            assert check(some, as_it_stands(some, repetend)) == []
            schedule = time_order(some, unroll(some, repetend))
            assert check(some, schedule) == []
            periods = -(-m // least)
            assert schedule.makespan <= (periods - 1) * repetend.period + repetend.length(some)


@pytest.mark.slow
@given(problems(), st.sampled_from([1, 2]))
@settings(max_examples=25)
def test_the_period_is_the_replays_rate(problem: Problem, least: int) -> None:
    """From 100 to 200 periods the makespan grows by 100 T; T is rounded up from a cycle's mean."""
    some = with_microbatches(problem, 100 * least)
    more = with_microbatches(problem, 200 * least)
    repetend = next(repetends(some, least), None)
    assume(repetend is not None)
    assert repetend is not None
    period = repetend.period
    growth = (
        time_order(more, unroll(more, repetend)).makespan
        - time_order(some, unroll(some, repetend)).makespan
    )
    assert 100 * (period - 1) - 3 * period < growth <= 100 * period + 3 * period


def test_tightened_finds_the_least_period_of_an_order() -> None:
    """One device, F B W in a row: from any longer period down to 3."""
    problem = chain(1, 4)
    loose = Repetend(7, (1,), {Op(0, "F", 0): 0, Op(0, "B", 0): 2, Op(0, "W", 0): 5})
    tight = tightened(problem, loose)
    assert tight.period == 3
    assert list(tight.times.values()) == [0, 1, 2]


def test_tightened_keeps_how_many_are_in_flight() -> None:
    """F of the next microbatch runs between F and B: two in flight, at every period."""
    problem = chain(1, 4, cap=2)
    loose = Repetend(8, (1,), {Op(0, "F", 0): 0, Op(0, "B", 0): 9, Op(0, "W", 0): 11})
    tight = tightened(problem, loose)
    assert tight.period == 3
    assert list(unroll(problem, tight)[0][:3]) == [
        Op(0, "F", 0),
        Op(0, "F", 1),
        Op(0, "B", 0),
    ]


# Packing and justification


@given(problems(max_microbatches=4, least_time=0), st.integers(0, 1000))
@settings(max_examples=100)
def test_packing_keeps_orders_valid(problem: Problem, seed: int) -> None:
    chance = random.Random(seed)
    start = next(list_schedules(problem))
    assume(check(problem, start) == [])
    found = list(justified(problem, start.order, seed=seed, clock=Clock(600), passes=8))
    assert found[0].makespan == start.makespan
    for schedule in found:
        assert check(problem, schedule) == []
    values = [schedule.makespan for schedule in found]
    assert values == sorted(set(values), reverse=True)
    jobs, items = jobs_of(problem, start.order)
    packed = pack(jobs, chance.random(), [chance.random() for _ in items])
    assert packed is not None
    order = tuple(tuple(items[i] for i in row) for row in packed.rows)
    timed = time_order(problem, order)
    assert check(problem, timed) == []
    assert timed.makespan <= packed.makespan


def test_packing_fills_an_idle_warm_up() -> None:
    """p = 2, two microbatches, one after the other: 0F0 1F0 1B0 1W0 0B0 0W0, then the same again.

    That takes 10. Without caps device 1 starts at 1 and needs 2 x 3 for its own ops: at least 7,
    and 0F0 0F1 . 0B0 0W0 0B1 0W1 beside 1F0 1B0 1F1 1B1 1W0 1W1 has that.
    """
    problem = chain(2, 2)
    rows = (
        tuple(Op(0, k, m) for m in range(2) for k in ("F", "B", "W")),
        tuple(Op(1, k, m) for m in range(2) for k in ("F", "B", "W")),
    )
    assert time_order(problem, rows).makespan == 10
    *_, best = justified(problem, rows, seed=0, clock=Clock(600), passes=6)
    assert best.makespan == 7


def test_packing_gives_up_when_told() -> None:
    problem = chain(2, 1000)
    jobs, _ = jobs_of(problem, next(list_schedules(problem)).order)
    assert pack(jobs, 0.5, give_up=lambda: True) is None


# The door


@pytest.mark.slow
@given(problems(max_microbatches=4, least_time=0))
@settings(max_examples=30)
def test_steady_schedules_improve_and_are_valid(problem: Problem) -> None:
    found = schedules(problem, Clock(1, deterministic=True), last_passes=5)
    values = [schedule.makespan for schedule in found]
    assert values == sorted(set(values), reverse=True)
    exact = min(s.F + s.B + s.W + s.BW for s in problem.stages) > 0
    for schedule in found:
        if exact:  # ops of length zero may tie: the caller's check decides
            assert check(problem, schedule) == []
            assert schedule.makespan >= closed_form_bound(problem, "makespan").value


@pytest.mark.slow
def test_steady_schedules_are_repeated_exactly() -> None:
    problem = vee(2, 5, cap=4)
    runs = [schedules(problem, Clock(3, deterministic=True), seed=3) for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0]


def test_steady_schedules_stop() -> None:
    problem = vee(3, 7, cap=5)
    assert schedules(problem, Clock(600, stop=lambda: True)) == []
    assert schedules(problem, Clock(0)) == []
    asked = itertools.count()
    found = schedules(problem, Clock(600, stop=lambda: next(asked) > 20))
    assert len(found) < 20
