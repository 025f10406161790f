"""Bounds of chains whose devices know their neighbours' ranks: by an oracle, and one alone."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pipesat.bounds.feasibility import preflight, sure_order
from pipesat.bounds.paired import least_times_of_each_class
from pipesat.core.errors import Infeasible
from pipesat.kernels.device_states import NEVER
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import Runner
from pipesat.solver.proof import ranks
from pipesat.solver.proof.device_ranks import DeviceStates, ranks_apply
from pipesat.solver.proof.ranks import KnownRanks, _is_long
from tests.oracle.claims import least
from tests.oracle.generator import MODES, drawn
from tests.oracle.reading import Document
from tests.support.optimum import least_end

CLOCK = Clock(math.inf, deterministic=True)


def problem_of(seed: object, **flags: Any) -> Document:
    usual: dict[str, Any] = {
        "shapes": ("chain",), "modes": MODES, "microbatches": (2, 5), "devices": (2, 3),
        "ops": 20, "longest": 5, "memory": ("enough", "tight"), "held": 0.3,
    }  # fmt: skip
    return drawn(f"ranks {seed}", **usual | flags)


def incumbent_of(problem: Problem) -> Incumbent | None:
    """One microbatch after the other, if that fits."""
    try:
        preflight(problem)
    except Infeasible:
        return None
    found = Incumbent(problem, "makespan", CLOCK)
    found.offer(sure_order(problem), "one by one")
    return found


def proven(problem: Problem) -> int | None:
    """What is proven when all questions have been asked."""
    incumbent = incumbent_of(problem)
    if incumbent is None or incumbent.schedule is None:
        return None
    proofs = KnownRanks(problem, incumbent)
    while not proofs.finished:
        proofs.step(Runner(CLOCK))
    return incumbent.bound.value


def test_a_question_that_the_end_of_a_job_cuts_off_says_nothing() -> None:
    """A lane's next job goes on with the same proofs, and asks again."""
    problem = Problem.chain(
        devices=3, microbatches=5, F=3, B=4, W=2, held_after_F=2, memory=4, comm=1
    )
    incumbent = incumbent_of(problem)
    assert incumbent is not None
    proofs, ended = KnownRanks(problem, incumbent), Runner(Clock(0.0, deterministic=True))
    while proofs.tried < 6:
        proofs.step(ended)
    assert (incumbent.bound.value, proofs.finished, proofs.possible) == (0, False, NEVER)
    while not proofs.finished:
        proofs.step(Runner(CLOCK))
    assert incumbent.bound.value == proven(problem) > 0


SEVERAL: dict[str, Any] = {"shapes": ("loop", "V", "bidirectional"), "modes": ("", *MODES)}
PAIRED: dict[str, Any] = {
    "shapes": ("chain", "V", "loop", "bidirectional"), "modes": ("", "", *MODES),
    "pairs": ("time", "factor", "FB", "time and FB"), "microbatches": (2, 4), "ops": 18,
    "kinds": (("F", "B"), ("F", "W"), ("F", "BW"), ("B", "W")),
    "memory": ("enough", "tight", "ample"),
}  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("widths", [ranks.WIDTHS, (1,)])
@pytest.mark.parametrize("flags", [{}, SEVERAL, PAIRED])
def test_no_schedule_is_shorter(
    seed: int, widths: tuple[int, ...], flags: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "WIDTHS", widths)
    document = problem_of(seed, **flags)
    problem = parse_problem(document)
    if ranks_apply(problem) and (bound := proven(problem)) is not None:
        value, _ = least(document, "makespan", None)
        assert value is not None
        assert bound <= value


@pytest.mark.parametrize("seed", [1000, 1006, 1008])  # windows 1 too narrow cut off 1008's best
def test_models_in_the_windows_that_are_left_find_a_best_schedule(seed: int) -> None:
    """From one microbatch after the other on, questions go down to the oracle's optimum."""
    shapes = "chain", "loop", "V", "bidirectional"
    document = problem_of(f"w{seed}", shapes=shapes, modes=("",), ops=22)
    problem = parse_problem(document)
    if ranks_apply(problem) and not _is_long(problem) and (bound := proven(problem)) is not None:
        value, ended = least(document, "makespan", None)
        assert bound == value or not ended


def least_alone(problem: Problem, device: int, most: int) -> int | None:
    """The least length in which a device has a schedule, ``most`` at most."""
    (short,) = least_times_of_each_class(problem)
    low, high = 0, most + 1
    while low < high:
        length = (low + high) // 2
        states = DeviceStates(problem, short, device).within(length)
        for end in (0, 1) if states.modes else ():
            states.follow(end, 1 << 30, CLOCK, Runner(CLOCK))
        low, high = (low, length) if states.modes else (length + 1, high)
    return low if low <= most else None


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("flags", [{}, SEVERAL])
def test_a_device_alone_is_followed_through_all_its_ways(seed: int, flags: dict[str, Any]) -> None:
    """As long as a model of it says, which has the same head, ways out and back, and tail."""
    problem = parse_problem(problem_of(seed, **flags))
    incumbent = incumbent_of(problem) if ranks_apply(problem) else None
    if incumbent is None or incumbent.value is None:
        return
    for device in problem.busy:
        expected = least_end(problem, device, incumbent.value, absolute=True)
        assert least_alone(problem, device, incumbent.value) == expected
