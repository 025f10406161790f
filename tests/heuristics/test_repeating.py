"""What repeats is left out of greedy runs, and they come out the same."""

from __future__ import annotations

from collections import Counter

import pytest

from pipesat.files.problem_file import FORMAT, parse_problem
from pipesat.heuristics.greedy_pairs import PairingSimulation
from pipesat.heuristics.list_scheduling import Policy, Simulation
from pipesat.heuristics.registry import never
from tests.support.problems import chain, document
from tests.support.repeating import compare, left_out


@pytest.mark.slow
def test_runs_with_parts_left_out_are_the_same() -> None:
    found = sum(map(left_out, range(24)), Counter[str]())
    assert found["alone: runs that leave out"] > 8
    assert found["in pairs: runs that leave out"] > 8


def test_a_long_run_is_hardly_simulated() -> None:
    run = Simulation(chain(3, 9000, F=4, B=5, W=3, cap=5, comm=1), Policy())
    assert run.order(never) is not None
    assert sum(map(len, run.rows)) < 100 * 9
    assert run.left_out is not None
    assert run.left_out.microbatches > 8900


def test_a_route_that_outruns_a_shorter_one() -> None:
    """Late forwards have numbers above those of two early backwards, which pairs are chosen by."""
    times = {"0F 2F": 29, "1F 3F": 28, "1BW 3BW": 27, "0BW 2BW": 26}
    times |= {"0F 1F": 38, "1F 1BW": 37, "0F 1BW": 39, "0BW 0BW": 39}
    pairs = [{"ops": ops.split(), "time": time} for ops, time in times.items()]
    stage = {"device": 0, "F": 20, "B": 10, "W": 10, "backward": "fused"}
    problem = parse_problem(
        {
            "format": FORMAT,
            "devices": [{}],
            "stages": [stage] * 4,
            "routes": [
                {"stages": [0, 1], "microbatches": 100},
                {"stages": [2, 3], "microbatches": 60},
            ],
            "overlap": {"pairs": pairs},
        }
    )
    run, plain = (PairingSimulation(problem, Policy(patience=0.0), 1.0) for _ in range(2))
    compare(Counter(), "", run, plain)


def test_times_beyond_those_that_floats_tell_apart() -> None:
    long = chain(2, 4000, F=10**12 - 1, B=10**12 - 1, W=10**12 - 1, cap=3, comm=10**12 - 1)
    compare(Counter(), "", Simulation(long, Policy()), Simulation(long, Policy()))


def test_a_device_without_stages_hides_no_repetition() -> None:
    short = chain(2, 400, F=4, B=5, W=3, cap=3, comm=1)
    problem = parse_problem(document(short, devices=[*document(short)["devices"], {}]))
    run = Simulation(problem, Policy())
    compare(Counter(), "", run, Simulation(problem, Policy()))
    assert run.left_out is not None
    assert run.left_out.microbatches > 300
