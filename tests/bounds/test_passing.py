"""Bounds that count who passes with whom, and in which modes: by hand, and by an oracle."""

from __future__ import annotations

from typing import Any

import pytest

from pipesat.bounds.closed_form import closed_form_bound, closed_forms
from pipesat.bounds.counting import Branching
from pipesat.bounds.feasibility import preflight
from pipesat.bounds.paired_passing import _PairedPassing
from pipesat.bounds.passing import passing_bounds, passing_programmes
from pipesat.core.errors import Infeasible
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import FORMAT, parse_problem
from pipesat.schedule.schedule import Objective
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import Runner
from pipesat.solver.proof.passing_modes import PassingModes
from tests.oracle.claims import OBJECTIVES, least
from tests.oracle.generator import MODES, drawn
from tests.oracle.reading import Document


def chain(devices: int, memory: int, counts: dict[int, int]) -> Document:
    """F = 1 and BW = 2 for length 1, which holds 2; or BW = 3, which holds 1."""
    stage = {"F": 1, "B": 1, "W": 1, "backward": "fused", "held_after_F": 2}
    again = {"name": "again", "BW": 3, "held_after_F": 1}
    return {
        "format": FORMAT,
        "devices": [{"memory": memory}] * devices,
        "stages": [stage | {"device": d, "modes": [again]} for d in range(devices)],
        "microbatches": [
            {"name": str(x), "count": count, "time": [x, 1], "held": [x, 1]}
            for x, count in counts.items()
        ],
        "order": "same",
    }


def test_two_long_ones_are_away_together_as_far_as_memory_admits() -> None:
    """Kept, one of length 3 fills a device: both at once recompute on the first, 3 times 1 each."""
    document = chain(2, 6, {3: 2, 1: 1})
    found = passing_bounds(parse_problem(document), "makespan")
    assert {bound.source[13:]: bound.value for bound in found} == {
        "counts around one of 3": 29,
        "counts around two of 3": 31,
    }
    assert least(document, "makespan", None) == (31, True)


def test_one_that_passes_runs_each_stage_in_one_mode() -> None:
    """A half of one kept and a half recomputed would fit: 40. No half of one does: the optimum."""
    document = chain(3, 8, {3: 2, 1: 1})
    problem = parse_problem(document)
    assert closed_form_bound(problem, "makespan").value == 40
    clock = Clock(9.0, deterministic=True)
    incumbent = Incumbent(problem, "makespan", clock)
    proofs = PassingModes(problem, incumbent)
    while not proofs.finished:
        proofs.step(Runner(clock))
    assert incumbent.bound.value == 43
    assert least(document, "makespan", None) == (43, True)


@pytest.mark.parametrize(
    ("counts", "at_once", "proven"), [({3: 2, 2: 1, 1: 1}, 40, 46), ({3: 2, 2: 2}, 43, 53)]
)
def test_those_of_the_next_length_are_before_between_or_after_two(
    counts: dict[int, int], at_once: int, proven: int
) -> None:
    """Wherever one or two of length 2 stand beside the two of length 3: the optimum."""
    document = chain(3, 12, counts)
    for stage in document["stages"]:
        del stage["modes"]
    problem = parse_problem(document)
    assert closed_form_bound(problem, "makespan").value == at_once
    assert highest(problem, "makespan", 150) == proven
    assert least(document, "makespan", None) == (proven, True)


def highest(problem: Problem, objective: Objective, splits: int) -> int:
    """Best bound after so many splits of each argument."""
    found = 0
    for _, several in passing_programmes(problem, objective):
        branching = Branching(several)
        for _ in range(splits):
            branching.split()
        found = max(found, branching.bound)
    return found


@pytest.mark.parametrize("seed", range(23))
def test_no_schedule_is_shorter_than_branching_says(seed: int) -> None:
    """The last seeds are of chains in one order without modes, where those beside two count."""
    family: dict[str, Any] = {
        "shapes": ("chain", "chain", "V", "anywhere"), "lists": ("same", "same", "free"),
        "modes": ("", *MODES), "zeros": (0.0, 0.0, 0.2),
    } if seed < 15 else {"shapes": ("chain",), "lists": ("same",)}  # fmt: skip
    document = drawn(
        f"passing {seed}", microbatches=(3, 5), ops=20, longest=4, large=True,
        memory=("tight", "enough"), held=0.2, **family,
    )  # fmt: skip
    problem, objective = parse_problem(document), OBJECTIVES[seed % 2]
    try:
        preflight(problem)
    except Infeasible:
        return
    bound = highest(problem, objective, 20 if seed < 15 else 60)
    assert least(document, objective, bound - 1)[0] is None


def with_pairs(seed: int) -> Document:
    """Lists, some with modes, whose F's may pair with backwards; some of what takes no time."""
    return drawn(
        f"pairs passing {seed}", shapes=("chain", "V", "loop", "V", "anywhere"), large=True,
        microbatches=(3, 4), ops=14, longest=4, held=0.2, memory=("tight", "enough", "none"),
        lists=("same", "same", "free", "given"), pairs=("factor", "FB", "factor and FB"),
        kinds=[("F", "B"), ("F", "BW"), ("F", "W")], modes=("", "", "", *MODES),
        zeros=(0.0, 0.0, 0.2),
    )  # fmt: skip


def around_one(document: Document, objective: Objective) -> tuple[int, int]:
    """The best bound by counts with pairs around one, and that of all other closed forms."""
    found = {True: 0, False: 0}
    for bound in closed_forms(parse_problem(document), objective):
        counted = "counts with pairs around" in bound.source
        found[counted] = max(found[counted], bound.value)
    return found[True], found[False]


@pytest.mark.parametrize("seed", [31, 46, 81, 88, 90, 151])
def test_what_runs_around_one_with_pairs_says_how_long_all_takes(seed: int) -> None:
    """Problems that no other closed form closes: the bound is the optimum."""
    document, objective = with_pairs(seed), OBJECTIVES[seed % 2]
    bound, others = around_one(document, objective)
    assert others < bound
    assert least(document, objective, None) == (bound, True)


@pytest.mark.parametrize("seed", range(40, 60))
def test_no_schedule_with_pairs_is_shorter_than_counts_around_one_say(seed: int) -> None:
    document, objective = with_pairs(seed), OBJECTIVES[seed % 2]
    try:
        preflight(parse_problem(document))
    except Infeasible:
        return
    assert least(document, objective, around_one(document, objective)[0] - 1)[0] is None


@pytest.mark.parametrize("seed", [5439, 5617, 5916, 7503])
def test_those_who_come_and_go_beside_one_hold_memory(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a free order, several may come and go while a long one is away: memory says how many."""
    document, objective = drawn(
        f"holding {seed}", shapes=("V", "loop", "V", "chain", "anywhere"), large=True,
        microbatches=(3, 5), ops=16, longest=4, held=0.1, memory=("tight", "enough"),
        lists=("free", "free", "free", "same", "given"), pairs=("factor", "FB", "factor and FB"),
        kinds=[("F", "B"), ("F", "BW"), ("F", "W")], modes=("", "", "", "", *MODES),
        zeros=(0.0, 0.0, 0.0, 0.3),
    ), OBJECTIVES[seed % 2]  # fmt: skip
    bound, _ = around_one(document, objective)
    monkeypatch.setattr(_PairedPassing, "_hold", lambda *_: None)
    assert around_one(document, objective)[0] < bound
    assert least(document, objective, bound - 1)[0] is None


@pytest.mark.parametrize("seed", [196, 232, 378])
def test_who_comes_before_or_after_one_has_a_way_of_its_own(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of a class have run an op beforehand or none has: each costs more than a share does."""
    document, objective = with_pairs(seed), OBJECTIVES[seed % 2]
    bound, _ = around_one(document, objective)
    monkeypatch.setattr(_PairedPassing, "_come_or_go", lambda *_: None)
    assert around_one(document, objective)[0] < bound
    assert least(document, objective, bound - 1)[0] is None


@pytest.mark.parametrize("before", [0, 3])
def test_an_order_that_is_given_says_who_is_before_one_with_pairs(before: int) -> None:
    """A long one as the first or the last of four: more than where it may be anywhere."""
    document = chain(2, 10, {3: 1, 1: 3}) | {"overlap": {"FB": [3, 4]}}
    for stage in document["stages"]:
        del stage["modes"]
    anywhere, _ = around_one(document, "makespan")
    if before:
        document["microbatches"].reverse()
    bound, _ = around_one(document | {"order": "given"}, "makespan")
    assert anywhere < bound
    assert least(document | {"order": "given"}, "makespan", bound - 1)[0] is None
