"""Every hand-written schedule on every problem of the benchmark, and on random ones."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipesat.bounds.feasibility import smallest_capacities
from pipesat.core.checker import check
from pipesat.core.errors import NotApplicable
from pipesat.core.problem import Problem
from pipesat.core.problem_file import FORMAT, parse_problem, read_problem
from pipesat.heuristics import BASELINES, LIST_SCHEDULING
from pipesat.heuristics.greedy_pairs import NAME as GREEDY_PAIRS
from pipesat.heuristics.lockstep import NAME as LOCKSTEP
from tests.support.paths import ROOT

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


@st.composite
def placed(draw: st.DrawFn) -> Problem:
    """Up to 12 devices in any order, in every placement that a schedule is made for.

    No two stages are alike, ops may take no time, capacities may be too small for one microbatch.
    """
    p = draw(st.integers(1, 12))
    home = draw(st.permutations(range(p)))
    placement = draw(st.sampled_from(["chain", "loop", "vee", "two routes"]))
    v = {"chain": 1, "loop": draw(st.integers(2, 3))}.get(placement, 2)
    turns = placement in ("vee", "two routes")
    ranks = [d if lap % 2 == 0 or not turns else p - 1 - d for lap in range(v) for d in range(p)]
    doc: dict[str, Any] = {
        "format": FORMAT,
        "stages": [draw(stage(home[rank])) for rank in ranks],
        "comm": {"default": draw(st.integers(0, 3))},
    }
    most = max(1, min(2 * p + 3, 240 // len(ranks)))
    if placement == "two routes":
        doc["routes"] = [
            {"stages": list(range(p)), "microbatches": draw(st.integers(1, most))},
            {"stages": list(range(p, 2 * p)), "microbatches": draw(st.integers(1, most))},
        ]
        if draw(st.booleans()):
            doc["routes"][1]["microbatches"] = doc["routes"][0]["microbatches"]
    else:
        doc["microbatches"] = draw(st.integers(1, most))
    if draw(st.booleans()):
        doc["overlap"] = {"FB": [draw(st.integers(5, 12)), 10]}
    return with_capacities(draw, doc, p)


def stage(device: int) -> st.SearchStrategy[dict[str, Any]]:
    time = st.integers(0, 6)
    return st.fixed_dictionaries(
        {
            "device": st.just(device),
            "F": time,
            "B": time,
            "W": time,
            "BW": st.integers(0, 12),
            "held_after_F": st.integers(0, 4),
            "held_after_B": st.integers(0, 6),
            "backward": st.sampled_from(["split", "fused", "either"]),
        }
    )


def with_capacities(draw: st.DrawFn, doc: dict[str, Any], p: int) -> Problem:
    free = parse_problem(doc | {"devices": [{} for _ in range(p)]})
    devices: list[dict[str, Any]] = []
    for need in smallest_capacities(free):
        static = draw(st.integers(0, 3))
        memory = max(0, need.capacity + static + draw(st.integers(-1, 16)))
        devices.append({"static": static, "memory": draw(st.sampled_from([memory, memory, None]))})
    return parse_problem(doc | {"devices": devices})


@pytest.mark.slow
@settings(max_examples=30)
@given(placed())
def test_on_random_problems(problem: Problem) -> None:
    broken = {name: rules_broken(name, problem) - allowed(name) for name in HAND_WRITTEN}
    assert broken == {name: set() for name in HAND_WRITTEN}
