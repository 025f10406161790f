"""Every hand-written schedule on every problem of the benchmark, and on random ones."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings

from pipesat.check.checker import check
from pipesat.core.errors import NotApplicable
from pipesat.heuristics import BASELINES, LIST_SCHEDULING
from pipesat.heuristics.greedy_pairs import NAME as GREEDY_PAIRS
from pipesat.heuristics.lockstep import NAME as LOCKSTEP
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import read_problem
from tests.support.paths import ROOT
from tests.support.problems import problems

PROBLEMS = ROOT / "bench" / "plain" / "problems"
FILES = sorted(path.stem for path in PROBLEMS.glob("*.json"))
SOME = [  # golden has all, the large ones, of half a minute, too
    file
    for n, file in enumerate(FILES)
    if not file.startswith("large") and (n % 9 == 0 or "-p4-" in file)
]
# each of these has a test of its own with many schedules on random problems
SEARCHED = {LIST_SCHEDULING, GREEDY_PAIRS, LOCKSTEP}
HAND_WRITTEN = [name for name in BASELINES if name not in SEARCHED]
KEEP_CAPACITIES = {"zb-auto", "zb-auto-span", "v-auto", "1f1b-v-auto"}
TRIED_UP_TO = 2_500  # ops, for these: they try many orders
REASON = re.compile(r"[a-z][^.\n]{5,90}")  # one phrase, to stand in a table's cell


def rules_broken(name: str, problem: Problem) -> set[str]:
    """Rules that a baseline's schedule breaks; none where it does not apply and says why."""
    try:
        schedule = BASELINES[name](problem)
    except NotApplicable as error:
        return set() if REASON.fullmatch(str(error)) else {f"no short reason: {error}"}
    assert schedule.source == name  # what answers call it can be typed
    assert len(schedule.devices) == len(problem.devices)
    return {violation.rule for violation in check(problem, schedule)}


def allowed(name: str) -> set[str]:
    return set() if name in KEEP_CAPACITIES else {"memory"}


def test_the_benchmark_was_found() -> None:
    assert len(FILES) == 81


@pytest.mark.parametrize(
    "file",
    [pytest.param(file, marks=() if "-p4-" in file else pytest.mark.slow) for file in SOME],
)
def test_on_the_benchmark(file: str) -> None:
    problem = read_problem(PROBLEMS / f"{file}.json")
    names = [n for n in HAND_WRITTEN if n not in KEEP_CAPACITIES or problem.op_count < TRIED_UP_TO]
    broken = {name: rules_broken(name, problem) - allowed(name) for name in names}
    assert broken == {name: set() for name in names}


PLACED = problems(
    12,
    24,
    27,
    least_time=0,
    shapes=("chain", "loop", "V", "bidirectional"),
    uniform=0.0,
    memory=("none", "any", "enough", "tight"),
    pairs=("", "FB"),
)
"""Up to 12 devices, in every placement that a schedule is made for, no two stages alike."""


@pytest.mark.slow
@settings(max_examples=30)
@given(PLACED)
def test_on_random_problems(problem: Problem) -> None:
    broken = {name: rules_broken(name, problem) - allowed(name) for name in HAND_WRITTEN}
    assert broken == {name: set() for name in HAND_WRITTEN}
