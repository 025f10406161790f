"""Greedy pairing: valid whatever may pair, and as good as the formula where pairs are plain."""

from __future__ import annotations

import random

import pytest

from pipesat.bounds.feasibility import preflight
from pipesat.check.checker import check
from pipesat.core.errors import Infeasible, NotApplicable
from pipesat.heuristics import BASELINES
from pipesat.heuristics.greedy_pairs import GreedySetting, climbed, pairing_policies
from pipesat.heuristics.list_scheduling import ListScheduler, Policy
from pipesat.heuristics.registry import never
from pipesat.problem.problem_file import parse_problem
from pipesat.schedule.metrics import pair_counts
from tests.support.greedy import by_each_setting
from tests.support.problems import chain, document, of, vee


def test_every_schedule_keeps_every_rule() -> None:
    rng, kinds = random.Random(7), set[str]()
    for seed in range(60):
        problem = of("pairs", seed, pairs=("time",), zeros=(0.0, 0.3), ops=40, microbatches=(1, 5))
        try:
            preflight(problem)
        except Infeasible:
            continue
        chosen = rng.sample(list(pairing_policies(problem)), 3)
        for schedule in by_each_setting(problem, chosen):
            kinds |= pair_counts(schedule).keys()
            assert check(problem, schedule) == [], problem.document
    assert {"F+F", "F+B", "F+W", "F+BW", "B+W", "W+BW", "W+W", "B+B"} <= kinds


@pytest.mark.parametrize("seed", range(12))
def test_microbatches_that_differ_are_placed_by_their_own_amounts(seed: int) -> None:
    problem = of("lists", seed, pairs=("FB",), ops=18)
    try:
        preflight(problem)
    except Infeasible:
        return
    chosen = random.Random(seed).sample(list(pairing_policies(problem)), 6)
    for schedule in by_each_setting(problem, chosen):
        assert check(problem, schedule) == [], problem.document


def test_uniform_chain_reaches_the_formula() -> None:
    # p (F + BW) + (m - 1) P = 3 * 12 + 7 * 11, with memory for all
    problem = chain(3, 8, F=4, B=4, W=4, backward="fused")
    problem = parse_problem(
        document(
            problem,
            overlap={"pairs": [{"ops": [f"{d}F", f"{d}BW"], "time": 11} for d in range(3)]},
        )
    )
    assert BASELINES["greedy-pairs"](problem).makespan == 3 * 12 + 7 * 11


def test_climbing_keeps_every_rule_and_gets_shorter() -> None:
    problem = vee(2, 26, cap=4, F=3, B=3, W=2)  # 4 stages x 26 x 3 ops
    pairs = [{"ops": [f"{a}F", f"{b}BW"], "time": 5} for a, b in ((0, 3), (1, 2), (2, 1), (3, 0))]
    problem = parse_problem(document(problem, overlap={"pairs": pairs}))
    scheduler, start = ListScheduler(problem), GreedySetting(Policy(), 0.0)
    runs = [scheduler.run(*start), *climbed(scheduler, start)]
    schedules = [*scheduler.shorter(runs, never, "")]
    assert len(schedules) > 1
    values = [(schedule.makespan, schedule.span) for schedule in schedules]
    assert values == sorted(set(values), reverse=True)
    assert all(check(problem, schedule) == [] for schedule in schedules)


def test_without_pairs_it_does_not_apply() -> None:
    with pytest.raises(NotApplicable, match="allows no pairs"):
        BASELINES["greedy-pairs"](chain(2, 2))
