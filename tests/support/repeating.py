"""Runs of greedy simulations that leave out what repeats, against runs that simulate everything."""

from __future__ import annotations

import random
from collections import Counter

from pipesat.bounds.feasibility import capacities_by_order, lacking
from pipesat.files.problem_file import parse_problem
from pipesat.heuristics.greedy_pairs import PairingSimulation, pairing_policies
from pipesat.heuristics.list_scheduling import Simulation, policies
from pipesat.heuristics.registry import never
from tests.support.pair_problems import drawn
from tests.support.problems import document

_MOST = 150  # microbatches of a route
_POLICIES = 3


def left_out(seed: int) -> Counter[str]:
    """Count the runs of some policies on a problem, and what they left out. All must be the same.

    Of any placement, with one or two routes, limited memory and times of zero; alone and in pairs.
    """
    rng, found = random.Random(seed), Counter[str]()
    routes = document(short := drawn(rng))["routes"]
    count = rng.randint(1, _MOST)
    for route in routes:
        route["microbatches"] = rng.choice([count, count, rng.randint(1, _MOST)])
    problem = parse_problem(document(short, routes=routes))
    if lacking(problem, capacities_by_order(problem)):
        return found
    found["problems"] += 1
    alone = list(policies(problem))
    paired = rng.sample(list(pairing_policies(problem)), _POLICIES)
    for policy in rng.sample(alone, min(_POLICIES, len(alone))):
        compare(found, "alone", *(Simulation(problem, policy) for _ in range(2)))
    for policy, wait in paired:
        compare(found, "in pairs", *(PairingSimulation(problem, policy, wait) for _ in range(2)))
    return found


def compare(found: Counter[str], what: str, run: Simulation, plain: Simulation) -> None:
    """Refuse a run that differs from one that simulates everything; count it."""
    plain._look_back = lambda *_: None  # type: ignore[method-assign]
    assert run.order(never) == plain.order(never), (run.problem.document, run.policy)
    assert run.busy_until == plain.busy_until, (run.problem.document, run.policy)
    found[f"{what}: runs"] += 1
    if run.left_out is not None and run.left_out.turns:
        found[f"{what}: runs that leave out"] += 1
        found[f"{what}: microbatches of these"] += max(run.problem.microbatches)
        found[f"{what}: left out"] += run.left_out.microbatches
