"""Bounds of long runs from short ones: by hand, by brute force, and by an independent model."""

from __future__ import annotations

from itertools import islice, pairwise

import pytest
from hypothesis import assume, given, settings
from ortools.sat.python import cp_model

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.check.checker import check
from pipesat.core.claims import Bound
from pipesat.heuristics.list_scheduling import list_scheduling
from pipesat.problem.ops import Op
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Objective, Schedule
from pipesat.schedule.timing import time_order
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import PROOFS, Runner
from pipesat.solver.model.left_out import first_microbatches, with_microbatches
from pipesat.solver.proof.short_runs import SOURCE, RunBounds, ShortRuns, is_long, step_model
from tests.oracle.trying import Trying
from tests.support.optimum import decided
from tests.support.problems import chain, document, problems, vee


def search_of(problem: Problem, objective: Objective = "makespan") -> ShortRuns:
    incumbent = Incumbent(problem, objective, Clock(600))
    incumbent.raise_bound(Bound(0, "nothing"))
    incumbent.offer_earliest(list_scheduling(problem))
    return ShortRuns(problem, incumbent, seed=0)


def first_starts(problem: Problem, schedule: Schedule) -> list[int]:
    """When the microbatches of the first route start, sorted."""
    first = problem.routes[0].stages[0]
    items = [(t.start, t.item) for _, t in schedule]
    ops = [(start, op) for start, op in items if isinstance(op, Op)]
    return sorted(start for start, op in ops if op.stage == first and op.kind == "F")


def test_one_at_a_time_by_hand() -> None:
    # one microbatch fits: F 2, way 1 + 2 + 3 + 1, B 3, W 5 before the next one starts
    problem = chain(2, 3, F=2, B=3, W=5, comm=1, cap=1, backward="split")
    search, one = search_of(problem), 2 + 7 + 3 + 5
    runner = Runner(search.incumbent.clock)
    while not search.finished:
        search.step(runner)
    assert [search.known.steps.of(n) for n in range(1, 3)] == [one, 2 * one]
    assert [search.known.makespan(n) for n in range(1, 4)] == [one, 2 * one, 3 * one]
    assert search.incumbent.proven


def test_two_slots_by_hand() -> None:
    # two microbatches fit on every device, which holds one until its W ends, and all times are 1:
    # microbatch k + 2 starts after microbatch k's W on device 0: F, way there and back 4, B, W
    problem = chain(3, 9, F=1, B=1, W=1, cap=2, backward="split")
    search = search_of(problem)
    runner = Runner(search.incumbent.clock)
    for _ in range(4):
        search.step(runner)
    assert search.known.steps.of(1) == 1
    assert search.known.steps.of(2) == 1 + 4 + 1 + 1


def test_what_follows_from_what_is_known() -> None:
    known = RunBounds(chain(1, 4, F=1, B=1, W=1))
    known.steps.learn(1, 3)
    known.steps.learn(3, 11)
    known.steps.learn(4, 14)
    assert [known.steps.of(n) for n in range(8)] == [0, 3, 6, 11, 14, 17, 22, 25]
    assert [known.steps.of(n) for n in (3000, 3001, 3002)] == [11_000, 11_003, 11_006]
    assert known.sharp_steps(9) == [(1, 3), (3, 11)]  # 4 is 3 + 1
    assert known.sharp_steps(2) == [(1, 3)]
    assert known.makespan(1) == 3  # F, B and W, by the closed form
    assert known.makespan(4) == 11 + 3
    known.learn_makespan(2, 10)
    assert known.makespan(5) == 11 + 10
    known.learn_makespan(2, 7)  # worse: nothing is unlearnt
    assert known.makespan(5) == 11 + 10


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(problems(max_stages=3, max_microbatches=3))
def test_no_step_is_above_the_least_one(problem: Problem) -> None:
    assume(len(problem.routes) == 1 and problem.routes[0].microbatches > 1)
    orders = [*islice(Trying(document(problem)).orders(), 2001)]
    assume(len(orders) <= 2000)
    n = problem.routes[0].microbatches - 1
    timed = (
        time_order(problem, tuple(tuple(Op(*op) for op in row) for row in rows)) for rows in orders
    )
    steps = [row[n] - row[0] for row in (first_starts(problem, one) for one in timed)]
    least = min(steps)
    v = step_model(problem, RunBounds(problem), max(steps))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(v.cp) == cp_model.OPTIMAL
    assert v.times.unit * round(solver.objective_value) == least


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(problems())
def test_the_end_is_the_optimum(problem: Problem) -> None:
    assume(len(problem.routes) == 1 and not problem.has_modes)
    search = search_of(problem)
    runner = Runner(search.incumbent.clock)
    best = decided(problem)
    while not search.finished:
        search.step(runner)
        assert search.incumbent.bound is not None
        assert best is not None
        assert search.incumbent.bound.value <= best
    assert search.incumbent.value == search.incumbent.bound.value == best


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(problems(max_stages=2, max_microbatches=3))
def test_no_window_of_the_first_device_is_above_the_least_span(problem: Problem) -> None:
    assume(len(problem.routes) == 1 and not problem.has_modes)
    search = search_of(problem, "span")
    runner = Runner(search.incumbent.clock)
    best = decided(problem, "span")
    while not search.finished:
        search.step(runner)
        assert search.incumbent.bound.value <= best
    if len(problem.devices) == 1:  # then that window is the span
        assert search.incumbent.bound.value == best


@pytest.mark.parametrize("problem", [chain(3, 7, F=2, B=3, W=2, cap=2), vee(2, 4, cap=3)])
def test_what_is_proven_of_few_holds_for_every_schedule(problem: Problem) -> None:
    search = search_of(problem)
    runner = Runner(search.incumbent.clock)
    for _ in range(10):
        search.step(runner)
    for schedule in (list_scheduling(problem), search.incumbent.schedule):
        assert schedule is not None
        starts = first_starts(problem, schedule)
        for n in range(1, len(starts)):
            steps = [later - earlier for earlier, later in zip(starts, starts[n:], strict=False)]
            assert search.known.steps.of(n) <= min(steps)
            assert search.known.makespan(n) <= schedule.makespan - starts[-n]


def test_first_microbatches_are_a_valid_schedule() -> None:
    problem = chain(3, 7, F=2, B=3, W=2, cap=2)
    schedule = list_scheduling(problem)
    values = []
    for n in range(1, 8):
        few = with_microbatches(problem, [n])
        order = first_microbatches(schedule, few)
        timed = time_order(few, order)
        assert not check(few, timed)
        values.append(timed.makespan)
        assert timed.makespan >= closed_form_bound(few, "makespan").value
    assert all(a < b for a, b in pairwise(values))
    assert values[-1] == schedule.makespan


def test_a_wrong_bound_is_dropped_and_ends_the_search() -> None:
    problem = chain(2, 3, F=2, B=3, W=5, comm=1, cap=1, backward="split")
    for wrong, text in ((18, f"at least {2 * 18 + 17}, but a checked"), (16, "")):
        search = search_of(problem)
        search.known.steps.learn(1, wrong)  # it is 17: see above
        search.step(Runner(search.incumbent.clock))  # the makespan of one microbatch is 17
        assert search.finished == bool(text)
        assert search.incumbent.trusts(PROOFS) != bool(text)
        assert all(text in fault for fault in search.incumbent.faults)
    assert search.incumbent.bound == Bound(3 * 17, SOURCE)  # closed forms of few know it, too
    assert not search._meets(18, 17, "the step of 1 microbatches")
    (fault,) = search.incumbent.faults
    assert "at least 18 for the step of 1 microbatches, but a checked schedule" in fault
    assert fault.endswith("has 17")
    assert search.finished
    assert search.incumbent.bound == Bound(0, "nothing")  # all that CP-SAT has proven is dropped


def test_which_runs_are_long() -> None:
    assert is_long(chain(2, 5, cap=1))
    assert not is_long(chain(2, 4, cap=1))
    assert not is_long(chain(2, 5))  # no memory limit
