"""All devices of a route at once: bounds by an oracle, ways that attain them, what comes again."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pipesat.bounds.feasibility import preflight, sure_order
from pipesat.check.checker import check
from pipesat.core.errors import Infeasible
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.schedule.schedule import Objective
from pipesat.solver.growth.route_ways import RouteWays, devices_of
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import Runner
from pipesat.solver.model.pairing import gains, useful_variants
from pipesat.solver.proof.whole_route import WholeRoute, whole_route_applies
from tests.oracle.claims import least
from tests.oracle.generator import drawn

CLOCK = Clock(math.inf, deterministic=True)
ONE_ROUTE: dict[str, Any] = {
    "shapes": ("chain", "loop", "V", "anywhere"), "microbatches": (2, 6), "devices": (2, 3),
    "ops": 26, "longest": 5, "memory": ("enough", "tight", "ample", "none"), "held": 0.3,
}  # fmt: skip
AGAIN: dict[str, Any] = {
    "shapes": ("chain", "V"), "microbatches": (6, 7), "devices": (2, 2), "ops": 42, "longest": 3,
    "memory": ("enough", "tight"), "uniform": 0.5,
}  # fmt: skip


def incumbent_of(problem: Problem, objective: Objective = "makespan") -> Incumbent | None:
    """One microbatch after the other, if that fits."""
    try:
        preflight(problem)
    except Infeasible:
        return None
    found = Incumbent(problem, objective, CLOCK)
    found.offer(sure_order(problem), "one by one")
    return found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize("flags", [ONE_ROUTE, AGAIN])
def test_no_schedule_is_shorter_and_all_devices_with_all_w_say_how_long_it_takes(
    seed: int, flags: dict[str, Any], objective: Objective
) -> None:
    document = drawn(f"route {seed}", **flags)
    problem = parse_problem(document)
    incumbent = incumbent_of(problem, objective) if whole_route_applies(problem) else None
    if incumbent is None:
        return
    (value, ended), proofs = least(document, objective, None), WholeRoute(problem, incumbent)
    assert value is not None
    for _ in range(10_000):
        if not proofs.finished:
            proofs.step(Runner(CLOCK))
    assert proofs.finished
    assert incumbent.bound.value <= value
    stages = range(len(problem.stages))
    if objective == "makespan" and all(
        len(useful_variants(problem, stage, 0, gains(problem))) == 1 for stage in stages
    ):
        assert incumbent.bound.value == value == incumbent.value or not ended


def chain(microbatches: int, memory: int = 3) -> Problem:
    """Three unlike devices, W's that hold memory."""
    stages = [
        {"device": d, "F": f, "B": b, "W": w, "held_after_F": 2, "held_after_B": 1}
        for d, (f, b, w) in enumerate([(7, 9, 4), (8, 7, 5), (6, 11, 3)])
    ]
    return parse_problem({
        "format": "pipesat.problem/1", "devices": [{"memory": 2 * memory}] * 3,
        "stages": stages, "comm": {"default": 2}, "microbatches": microbatches,
    })  # fmt: skip


@pytest.mark.parametrize("microbatches", [23, 40])
def test_what_comes_again_is_as_long_as_all_of_it(
    microbatches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Followed to the end, and with what comes again left out."""
    problem = chain(microbatches)
    short = RouteWays(problem, devices_of(problem), [0])
    while not short.done:
        assert short.advance(CLOCK, CLOCK, 1000, beam=False)
        if short.even and (again := short.again()) is not None:
            short.repeat(*again)
    way, order = short.best_way("makespan"), short.order("makespan")
    monkeypatch.setattr(RouteWays, "even", False)
    whole = RouteWays(problem, devices_of(problem), [0])
    while not whole.done:
        assert whole.advance(CLOCK, CLOCK, 1000, beam=False)
    assert short.ends("makespan").min() == whole.ends("makespan").min()
    assert len(way) == len(whole.best_way("makespan")) == microbatches * short.each
    schedule = Incumbent(problem, "makespan", CLOCK)
    assert (schedule.offer(order, "way") or 0) >= whole.ends("makespan").min()


def test_a_time_at_which_states_are_no_better_bounds_the_rest() -> None:
    """Never more than what all of them have, wherever it begins."""
    problem = chain(40)
    whole = WholeRoute(problem, incumbent := Incumbent(problem, "makespan", CLOCK))
    whole.runner = Runner(CLOCK)
    assert list(whole._settle(whole.whole))
    exact = incumbent.bound.value
    for n in range(8, 24):
        ways = RouteWays(problem, devices_of(problem), [0])
        while not ways.done:
            assert ways.advance(CLOCK, CLOCK, 1000, beam=False)
            if ways.n == n and (before := ways.no_better()) is not None:
                ways.repeat(*before)
        assert ways.ends("makespan").min() <= exact


@pytest.mark.parametrize("seed", range(6))
def test_the_best_few_ways_are_schedules(seed: int) -> None:
    document = drawn(f"few {seed}", **AGAIN)
    problem = parse_problem(document)
    incumbent = incumbent_of(problem) if whole_route_applies(problem) else None
    if incumbent is None:
        return
    proofs = WholeRoute(problem, incumbent)
    proofs.runner, proofs.beam = Runner(CLOCK), 2
    assert all(more is False for more in proofs._look())
    assert incumbent.schedule is not None
    assert not check(problem, incumbent.schedule)


@pytest.mark.parametrize(
    "changed",
    [
        {"overlap": {"FB": [3, 4]}},
        {"microbatches": [{"name": "a", "count": 4}], "order": "free"},
        {"comm": {"default": 10**12}, "microbatches": 10**5},
    ],
)
def test_what_it_does_not_know_it_refuses(changed: dict[str, Any]) -> None:
    assert whole_route_applies(chain(4))
    assert not whole_route_applies(parse_problem(chain(4).document | changed))


def test_what_a_lane_does_not_come_to_in_one_job_goes_on_in_the_next() -> None:
    """All that has been followed when a job ends is kept, and nothing counts as too much."""
    problem = chain(40)
    bounds = set[int]()
    for looks in (1, 50, 300, 1 << 60):
        whole = WholeRoute(problem, incumbent := Incumbent(problem, "makespan", CLOCK))
        left = [looks]

        def over(left: list[int] = left) -> bool:
            left[0] -= 1
            return left[0] < 0

        incumbent.clock = Clock(1e9, stop=over)
        for _ in range(4):
            whole.step(Runner(incumbent.clock))
        incumbent.clock = CLOCK
        while not whole.finished and whole.done < whole.whole:
            whole.step(Runner(CLOCK))
        assert whole.done >= whole.whole
        bounds.add(incumbent.bound.value)
    assert len(bounds) == 1
