"""Greedy pairing: valid whatever may pair, and as good as the formula where pairs are plain."""

from __future__ import annotations

import random

import pytest

from pipesat.bounds.feasibility import preflight
from pipesat.core.checker import check
from pipesat.core.errors import Infeasible, NotApplicable
from pipesat.core.metrics import pair_counts
from pipesat.core.ops import KINDS
from pipesat.core.problem import Problem
from pipesat.core.timing import time_order
from pipesat.files.problem_file import FORMAT, parse_problem
from pipesat.heuristics import BASELINES
from pipesat.heuristics.greedy_pairs import paired_schedules, pairing_policies
from pipesat.heuristics.list_scheduling import Policy
from pipesat.heuristics.shared import climbing_pairs
from pipesat.heuristics.shared.climbing_pairs import climbed
from pipesat.heuristics.shared.pairing_simulation import PairingSimulation
from tests.support.problems import chain, document, vee


def drawn(rng: random.Random) -> Problem:
    """Up to 3 devices of up to 3 stages, one or two routes, memory down to the least, any pairs."""
    devices = rng.randint(1, 3)
    homes = [rng.randrange(devices) for _ in range(rng.randint(1, 6))]
    stages = [
        {key: rng.randint(0, 6) for key in ("F", "B", "W", "BW")}
        | {key: rng.randint(0, 3) for key in ("held_after_F", "held_after_B")}
        | {"device": home, "backward": rng.choice(["either", "either", "split", "fused"])}
        for home in homes
    ]
    kinds = [
        (f"{a}{x}", f"{b}{y}")
        for a in range(len(homes))
        for b in range(a, len(homes))
        for x in KINDS
        for y in KINDS
        if homes[a] == homes[b] and (a < b or KINDS.index(x) <= KINDS.index(y))
    ]
    pairs = rng.sample(kinds, min(len(kinds), rng.randint(1, 12)))
    cut = rng.randint(1, len(homes))
    routes = [range(cut), range(cut, len(homes))]
    return parse_problem(
        {
            "format": FORMAT,
            "devices": [{"memory": rng.choice([None, 6, 9, 14])} for _ in range(devices)],
            "stages": stages,
            "routes": [
                {"stages": list(route), "microbatches": rng.randint(1, 5)}
                for route in routes
                if len(route)
            ],
            "comm": {"default": rng.choice([0, 2])},
            "overlap": {"pairs": [{"ops": [*ops], "time": rng.randint(1, 9)} for ops in pairs]},
        }
    )


def test_every_schedule_keeps_every_rule() -> None:
    rng, kinds = random.Random(7), set[str]()
    for _ in range(250):
        problem = drawn(rng)
        try:
            preflight(problem)
        except Infeasible:
            continue
        chosen = rng.sample(list(pairing_policies(problem)), 3)
        for schedule in paired_schedules(problem, chosen=chosen):
            kinds |= pair_counts(schedule).keys()
            assert check(problem, schedule) == [], problem.document
    assert {"F+F", "F+B", "F+W", "F+BW", "B+W", "W+BW", "W+W", "B+B"} <= kinds


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


def test_climbing_keeps_every_rule_and_gets_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(climbing_pairs, "_MOST_TRIES", 40)
    problem = vee(2, 26, cap=4, F=3, B=3, W=2)  # 4 stages x 26 x 3 ops
    pairs = [{"ops": [f"{a}F", f"{b}BW"], "time": 5} for a, b in ((0, 3), (1, 2), (2, 1), (3, 0))]
    problem = parse_problem(document(problem, overlap={"pairs": pairs}))
    before = PairingSimulation(problem, Policy(), 0.0)
    assert before.run(lambda: False) is not None
    ends = [max(before.busy_until)]
    for order in climbed(problem, Policy(), 0.0, lambda: False):
        schedule = time_order(problem, order)
        assert check(problem, schedule) == []
        assert schedule.makespan <= ends[-1]
        ends.append(schedule.makespan)
    assert len(ends) > 1
    assert list(climbed(chain(2, 2), Policy(), 0.0, lambda: False)) == []  # searched as a whole


def test_without_pairs_it_does_not_apply() -> None:
    with pytest.raises(NotApplicable, match="allows no pairs"):
        BASELINES["greedy-pairs"](chain(2, 2))
