"""Relaxations: some devices alone never say more than all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ortools.sat.python import cp_model

from pipesat.core.claims import Bound
from pipesat.heuristics.list_scheduling import list_scheduling
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Objective
from pipesat.schedule.timing import time_order
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import Runner
from pipesat.solver.model.left_out import Lag, lags_before, tail_after
from pipesat.solver.model.model import build_model
from pipesat.solver.proof.attempts import Attempt, Attempts
from pipesat.solver.proof.relaxations import first_of
from pipesat.solver.proof.search import ProofSearch
from tests.oracle.exact import optimum
from tests.support.optimum import least_end
from tests.support.problems import chain, document, vee


def relaxed(problem: Problem, objective: Objective, devices: set[int]) -> int:
    order = list_scheduling(problem).order
    value = time_order(problem, order, objective).value(objective)
    model = build_model(problem, objective, 0, value, devices)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model.cp) == cp_model.OPTIMAL
    return round(solver.objective_value) * model.unit


def test_lags_by_hand() -> None:
    # F = 2, B = 3, delays 1, stages 1 and 2 left out of 0-1-2-3
    problem = chain(4, 1, F=2, B=3, W=5, comm=1)
    kept = {0, 3}
    assert lags_before(problem, kept, 3, "F") == [Lag(0, "F", 1 + 2 + 1 + 2 + 1)]
    assert lags_before(problem, kept, 0, "B") == [Lag(3, "B", 1 + 3 + 1 + 3 + 1)]
    assert lags_before(problem, {1}, 1, "F") == [Lag(None, "F", 2 + 1)]
    # from 1F to 1B: out to stage 3 and back
    assert lags_before(problem, {1}, 1, "B") == [Lag(1, "F", 1 + 2 + 1 + 2 + 3 + 1 + 3 + 1)]
    assert lags_before(problem, kept, 3, "W") == [Lag(3, "B", 0)]
    # after 3B: travel, 2B, travel, 1B and 1W; nothing is left out after 0B
    assert tail_after(problem, kept, 3) == 1 + 3 + 1 + 3 + 5
    assert tail_after(problem, kept, 0) == 0
    # of device 0 alone: 2B and 1B on the way, 0B and 0W
    assert tail_after(problem, {3}, 3, only=0) == 3 * (1 + 3) + 5
    third = replace(problem.stages[2], W=50, BW=50)
    long = replace(problem, stages=(*problem.stages[:2], third, problem.stages[3]))
    assert tail_after(long, {3}, 3, only=0) == 3 * (1 + 3) + 5
    assert tail_after(long, {3}, 3) == 1 + 50


def test_one_device_of_a_chain_by_hand() -> None:
    # one microbatch at a time fits. Device 0: F 2, way 1+2+3+1 = 7, B 3, W 5, and again: 34
    problem = chain(2, 2, F=2, B=3, W=5, comm=1, cap=1, backward="split")
    assert relaxed(problem, "makespan", {0}) == 2 * (2 + 7 + 3 + 5)


@pytest.mark.parametrize("device", [0, 1])
def test_a_device_alone_counts_the_way_to_it_and_home(device: int) -> None:
    # the way of one microbatch: 0F, 1F, 1B, 0B and 0W with a delay out and one home
    problem = chain(2, 1, F=2, B=3, W=5, comm=1)
    assert least_end(problem, device, 99, absolute=True) == 2 + 1 + 2 + 3 + 1 + 3 + 5


def test_a_queue_of_which_nothing_can_help_comes_to_an_end() -> None:
    first = [frozenset({0})] * 200
    queue = Attempts(frozenset({0, 1}), first, 10, seed=0, fits=lambda _: False)
    assert {queue.take(0) for _ in first} == {None}
    assert queue.why_ended == "no relaxation left that could help"


def test_devices_that_lie_apart_are_among_the_first() -> None:
    problem = chain(6, 2, F=2, B=3, W=5, cap=1)
    devices = frozenset(range(6))
    alone = [sorted(each) for each in first_of(problem, devices, (0, 1))]
    assert alone == [[0], [0, 3], [5], [0, 2, 4], [1], [4], [2], [3]]
    both = [first_of(problem, devices, (number, 2)) for number in range(2)]
    assert sorted(map(sorted, [*both[0], *both[1]])) == sorted(alone)
    helping = [sorted(each) for each in first_of(problem, devices, (1, 1))]
    assert helping[:2] == [[5], [0, 2, 4]]
    assert sorted(helping) == sorted(alone)


@pytest.mark.parametrize(
    "problem",
    [
        chain(3, 4, F=2, B=3, W=2, cap=2),
        vee(2, 2, cap=3),
        chain(2, 3, F=2, B=3, W=2, cap=2, held=(0, 0)),  # a limit, and nothing is held
    ],
)
def test_the_proof_search_ends_with_a_proof(problem: Problem) -> None:
    incumbent = Incumbent(problem, "makespan", Clock(60))
    incumbent.offer_timed(list_scheduling(problem))
    proofs = ProofSearch(problem, incumbent, seed=0)
    runner = Runner(incumbent.clock)
    for _ in range(400):  # some follow one device only
        if not incumbent.proven:
            proofs.step(runner)
    assert incumbent.value == incumbent.bound.value == optimum(document(problem))


def test_a_share_of_the_gap_is_proven_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    half = Attempt(frozenset({0}), 0.5, 60.0)
    monkeypatch.setattr("pipesat.solver.proof.attempts._first", lambda _: half)
    problem = chain(2, 2, F=2, B=3, W=5, comm=1, cap=1, backward="split")  # optimum: see above
    incumbent = Incumbent(problem, "makespan", Clock(60))
    incumbent.offer_timed(list_scheduling(problem))
    proofs = ProofSearch(problem, incumbent, seed=0)
    proofs.others.clear()  # relaxations alone
    runner = Runner(incumbent.clock)
    proofs.step(runner)
    assert incumbent.value == 34
    assert incumbent.bound == Bound(18, "CP-SAT on device 0 alone")  # nothing within 17 = 34 / 2
    proofs.step(runner)
    assert incumbent.bound == Bound(27, "CP-SAT on device 0 alone")  # nothing within 18 + 16 / 2


def test_lanes_prove_by_different_parts() -> None:
    problem = chain(2, 12, F=2, B=3, W=2, cap=1, backward="split")
    incumbent = Incumbent(problem, "makespan", Clock(60))
    incumbent.offer_timed(list_scheduling(problem))
    both = [ProofSearch(problem, incumbent, seed=0, share=(number, 2)) for number in range(2)]
    route, ranks = "questions to a whole route", "questions to a chain of devices"
    assert [[*proofs.others] for proofs in both] == [[route], [ranks]]
    first = [proofs.relaxations.queue.take(0) for proofs in both]
    assert {one.devices for one in first if one} == {frozenset({0}), frozenset({1})}
    proving, helping = (ProofSearch(problem, incumbent, seed=0, share=(n, 1)) for n in range(2))
    asked = [proofs.relaxations.queue.take(0) for proofs in (proving, helping)]
    assert [one.devices for one in asked if one] == [{0}, {1}]
    assert proving.relaxations.seed != helping.relaxations.seed
    assert [*proving.others] == [*helping.others]
    runner = Runner(incumbent.clock)
    for part in helping.others.values():
        part.step = None  # type: ignore[assignment]  nobody calls it
    helping.step(runner, helping=True)
    assert helping.relaxations.queue.tried == 1
