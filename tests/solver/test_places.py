"""Which class stands at which place: never above an oracle's optimum, exact on fused chains."""

from __future__ import annotations

import pytest
from ortools.sat.python import cp_model

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.bounds.feasibility import sure_order
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.schedule.timing import time_order
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import FOUND, Runner, new_solver
from pipesat.solver.model import places
from pipesat.solver.proof.places import PlacesProofs
from tests.oracle.exact import optimum
from tests.oracle.generator import of_family

SEEDS = (3, 5, 6, 7, 8, 9, 10, 11, 12, 18, 23, 28)  # to which the models apply


def answer(problem: Problem, kept: tuple[int, ...], upper: int) -> cp_model.CpSolverStatus:
    return new_solver(0).solve(places.places_model(problem, kept, upper).cp)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_schedule_of_the_optimum_is_never_ruled_out(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = of_family("tight lists", seed, lists=("same",), microbatches=(3, 6))
    problem, best = parse_problem(document), optimum(document, "makespan")
    assert best is not None
    assert places.places_apply(problem)
    every = tuple(range(len(problem.stages)))
    for kept in ((0,), every):
        assert answer(problem, kept, best) in FOUND
    if all(stage["backward"] == "fused" for stage in document["stages"]):
        assert answer(problem, every, best - 1) == cp_model.INFEASIBLE
    monkeypatch.setattr(places, "_STEPS", 7)  # times are rounded
    model = places.places_model(problem, every, best)
    assert new_solver(0).solve(model.cp) in FOUND
    assert model.beyond > best


def test_an_order_that_is_not_to_be_chosen_once_for_all_stages_has_no_places() -> None:
    document = of_family("tight lists", 3)
    assert places.places_apply(parse_problem(document | {"order": "same"}))
    assert not places.places_apply(parse_problem(document | {"order": "free"}))
    assert not places.places_apply(parse_problem(document | {"order": "given"}))


def test_steps_raise_the_bound() -> None:
    """On a chain whose optimum the closed forms do not reach."""
    document = of_family("tight lists", 3, lists=("same",))
    problem, best = parse_problem(document), optimum(document, "makespan")
    assert best is not None
    clock = Clock(60.0, deterministic=True)
    incumbent = Incumbent(problem, "makespan", clock)
    closed = closed_form_bound(problem, "makespan")
    incumbent.raise_bound(closed)
    incumbent.offer(time_order(problem, sure_order(problem)).order, "sure")
    proofs, runner = PlacesProofs(problem, incumbent, seed=0), Runner(clock)
    for _ in range(40):
        if not proofs.finished:
            proofs.step(runner)
    assert closed.value < incumbent.bound.value <= best
    assert not incumbent.faults
