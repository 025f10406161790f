"""Problems with memory modes: starts, windows and the whole solve."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import pytest

import pipesat
from pipesat.check.checker import check
from pipesat.compare.schedules import schedule_of
from pipesat.core.errors import Deadlock
from pipesat.problem.ops import Kind, Op
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import FORMAT, parse_problem, read_problem
from pipesat.schedule.schedule import Objective
from pipesat.schedule.timing import time_order
from pipesat.solver.growth.along import ModesAlong
from pipesat.solver.growth.assign import fewest, in_modes
from pipesat.solver.growth.mode_starts import orders_from, packer
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.proof.choices import Choices
from pipesat.solver.proof.whole import WHOLE
from pipesat.solver.starts import StartingSchedules
from tests.oracle.exact import optimum
from tests.oracle.generator import of_family
from tests.support.paths import ROOT

RECOMPUTE = {"name": "recompute", "backward": "fused", "BW": 3, "held_after_F": 0}
OFFLOAD = {"name": "offload", "offload": {"out": 1, "in": 1, "held": 0}}


def chain(modes: list[dict[str, Any]], memory: int | None, **more: Any) -> Problem:
    stage = {"F": 1, "B": 1, "W": 1, "held_after_F": 1, "modes": modes}
    return parse_problem(
        {
            "format": FORMAT,
            "microbatches": 6,
            "devices": [{"memory": memory} for _ in range(3)],
            "stages": [{"device": device} | stage for device in range(3)],
        }
        | more
    )


def test_those_give_way_whose_backward_comes_last() -> None:
    """1F1B holds 3, 2 and 1 on three devices: with room for 2, the first lets one go of three."""
    problem = chain([RECOMPUTE], 2)
    guide = schedule_of(problem, "1f1b").order
    order = fewest(problem, guide, [1] * len(problem.stages))
    assert order is not None
    modes = time_order(problem, order).modes
    # in flight are 0 1 2, then 1 2 3, ...: the last F each time, until its place is free for two
    assert {stage for stage, _ in modes} == {0}
    assert modes[0, 2] == 1
    assert len(modes) == 2
    assert check(problem, time_order(problem, order)) == []


@pytest.mark.parametrize(
    ("weights_first", "expected"), [(True, "F0 B0 W0 F1 B1 W1"), (False, "F0 B0 F1 BW1 W0")]
)
def test_weight_gradients_run_first_or_a_microbatch_gives_way(
    weights_first: bool, expected: str
) -> None:
    """The memory of 1 that F1 needs is held for W0, and F1 itself needs none if recomputed."""
    stage = {"device": 0, "F": 1, "B": 1, "W": 1, "held_after_F": 1, "held_after_B": 1}
    document = {"format": FORMAT, "microbatches": 2, "devices": [{"memory": 1}]}
    problem = parse_problem(document | {"stages": [stage | {"modes": [RECOMPUTE]}]})
    kinds: list[tuple[Kind, int]] = [("F", 0), ("B", 0), ("F", 1), ("B", 1), ("W", 0), ("W", 1)]
    guide = (tuple(Op(0, *kind) for kind in kinds),)
    order = fewest(problem, guide, [1] * len(problem.stages), weights_first=weights_first)
    assert order is not None
    assert " ".join(str(op)[1:] for op in order[0]) == expected


def test_lockstep_guides_modes_as_if_memory_were_no_matter() -> None:
    """DualPipeV holds 9 activations a device, and takes 4,199,556; there is room for 5.4."""
    file = ROOT / "bench" / "mixed" / "problems" / "mix-pairs-recompute-vee-p4-m10-cap0.6.json"
    problem = read_problem(file)
    made = StartingSchedules(problem, "all", lambda: False)
    guides = [schedule for schedule in made if schedule.source == "lockstep"]
    assert min(guide.makespan for guide in guides) < 4_199_556


def test_a_mode_that_fuses_drops_w_and_one_that_splits_adds_it() -> None:
    problem = chain([RECOMPUTE | {"name": "a"}, {"name": "b", "backward": "split"}], None)
    guide = schedule_of(problem, "zb-h1").order
    fused = in_modes(problem, guide, {(1, 0): 1})
    assert "1W0" not in map(str, fused[1])
    assert "1BW0" in map(str, fused[1])
    again = in_modes(problem, fused, {(1, 0): 2})
    assert [str(item) for item in again[1] if item in again[1]].count("1W0") == 1
    assert check(problem, time_order(problem, again)) == []


@pytest.mark.parametrize("modes", [[RECOMPUTE], [OFFLOAD], [RECOMPUTE, OFFLOAD]])
def test_packing_keeps_to_memory(modes: list[dict[str, Any]]) -> None:
    problem = chain(modes, 2)
    guides = [schedule_of(problem, name) for name in ("1f1b", "zb-h1")]
    starts = [start.order for start in orders_from(problem, guides)]
    valid = [order for order in starts if not check(problem, time_order(problem, order))]
    assert valid
    walk = packer(problem, valid[0], [1, 1, 1], Random(0))
    for _ in range(6):
        assert walk.step() is not None
        assert check(problem, time_order(problem, walk.order)) == []


@pytest.mark.parametrize("seed", range(8))
def test_modes_along_an_order_are_the_best_of_all(seed: int) -> None:
    problem = parse_problem(of_family("mixtures", seed, modes=("recompute",), zeros=(0.0,)))
    free = replace(problem, devices=tuple(replace(d, memory=None) for d in problem.devices))
    guide = schedule_of(free, "list-scheduling").order
    cells = [(s, m) for s, count in enumerate(problem.microbatches) for m in range(count)]
    values = []
    for numbers in product(*(problem.modes_of(stage) for stage, _ in cells)):
        modes = dict(zip(cells, numbers, strict=True))
        if problem.mode_choice == "stage" and len({(c[0], modes[c]) for c in cells}) > len(
            problem.stages
        ):
            continue
        with suppress(Deadlock):
            timed = time_order(problem, in_modes(problem, guide, modes))
            values += [] if check(problem, timed) else [timed.makespan]
    found, clock = ModesAlong(problem, guide), Clock(0.5, deterministic=True)
    if not found.fitted(clock):
        assert not values
    else:
        timed = time_order(problem, found.annealed(clock, 0))
        assert not check(problem, timed)
        assert timed.makespan == min(values)


@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize("choice", ["microbatch", "stage"])
def test_never_worse_than_each_single_mode(objective: Objective, choice: str) -> None:
    problem = chain([RECOMPUTE, OFFLOAD], 2, mode_choice=choice)
    result = pipesat.solve(problem, objective=objective, deterministic=True, time_limit=0.3)
    assert result.value is not None
    assert result.warnings == ()
    assert result.schedule is not None
    assert check(problem, result.schedule) == []
    if choice == "stage":
        modes = result.schedule.modes
        assert all(sum(s == stage for s, _ in modes) in (0, 6) for stage in range(3))
    for name in ("1f1b", "zb-h1", "eager-1f1b"):
        guide = schedule_of(problem, name).order
        for mode in (0, 1, 2):
            every = {(s, m): mode for s in range(3) for m in range(6)}
            timed = time_order(problem, in_modes(problem, guide, every), objective)
            if not check(problem, timed):
                assert result.value <= timed.value(objective)


@pytest.mark.parametrize("seed", [1, 2, 4, 8])
def test_choices_of_a_mode_per_stage_are_proven(seed: int) -> None:
    """Recomputing alone: a choice is a plain problem, and the best choice is as good as proven."""
    document = of_family("modes", seed, choices=("stage",), held=0.0, stages=4)
    for stage in document["stages"]:
        stage["modes"] = [RECOMPUTE | {"held_in_backward": 0}]
    objective: Objective = "span" if seed % 2 else "makespan"
    best = optimum(document, objective)
    problem = parse_problem(document)
    result = pipesat.solve(problem, objective=objective, deterministic=True, time_limit=3)
    assert result.warnings == ()
    assert result.value == best
    assert best is None or result.status == "optimal"


def test_a_choice_may_be_visited_any_number_of_times() -> None:
    """Where no proof is tried, as of large times, a visit takes no time."""
    problem = chain([RECOMPUTE], 2, mode_choice="stage")
    incumbent = Incumbent(problem, "makespan", Clock(60))
    search = Choices(problem, incumbent, lambda _: (), lambda *_: [], seed=0)
    while not search.visited:
        search.step()
    for choice in search.open:
        choice.visits = 5000
    visited = search.visited
    while search.visited == visited:
        assert search.step()


def test_a_schedule_is_found_where_only_ops_of_one_instant_fit() -> None:
    """No microbatch fits alone in the modes of least need: F, B and W of no length share memory."""
    host = {"name": "host", "offload": {"out": 1, "in": 0, "held": 4}}
    again = {"name": "again", "BW": 2, "backward": "fused", "held_after_F": 1}
    instant = {"device": 0, "F": 0, "B": 0, "W": 0, "held_after_F": 4, "held_after_B": 7}
    document = {
        "format": FORMAT,
        "devices": [{"static": 3, "memory": 6, "copy_channels": 1}, {"memory": 10}],
        "stages": [
            {"device": 0, "F": 0, "B": 2, "W": 0, "held_after_F": 4, "held_after_B": 1}
            | {"modes": [host, again | {"held_in_backward": 3}]},
            {"device": 1, "F": 3, "B": 1, "W": 6, "held_after_F": 2, "held_after_B": 3},
            instant
            | {
                "held_in_backward": 3,
                "modes": [host | {"offload": {"out": 0, "in": 2, "held": 3}}],
            },
            {"device": 1, "F": 0, "B": 0, "W": 0, "held_after_F": 1, "held_in_backward": 5},
        ],
        "routes": [{"stages": [0, 1], "microbatches": 2}, {"stages": [2, 3], "microbatches": 1}],
    }
    result = pipesat.solve(parse_problem(document), time_limit=120)  # it is proven before
    assert any(step.source == WHOLE for step in result.history)
    assert result.value == optimum(document)


@pytest.mark.parametrize("choice", ["microbatch", "stage"])
def test_a_microbatch_that_passes_in_no_mode_proves_that_nothing_does(choice: str) -> None:
    # keep holds 3 from F on, of length 0, while BW runs 1; recompute holds 3 while BW runs. The
    # least of either mode, 0 from F on and 0 on top, would fit
    again = {"name": "recompute", "BW": 1, "held_after_F": 0, "held_in_backward": 3}
    stage = {"device": 0, "F": 0, "B": 1, "W": 0, "backward": "fused", "held_after_F": 3}
    document = {
        "format": FORMAT,
        "devices": [{"memory": 2}],
        "stages": [stage | {"modes": [again]}],
        "microbatches": 70,  # more than a model of all may have
        "mode_choice": choice,
    }
    result = pipesat.solve(parse_problem(document), time_limit=5, deterministic=True)
    assert (result.status, result.value, result.bound) == ("infeasible", None, None)
    assert "in whichever modes" in result.explanation
    enough = parse_problem(document | {"devices": [{"memory": 3}]})
    assert pipesat.solve(enough, time_limit=0.1, deterministic=True).status != "infeasible"


@pytest.mark.parametrize("choice", ["microbatch", "stage"])
def test_one_after_the_other_where_copies_share_an_instant(choice: str) -> None:
    # 0F is copied out in the instant in which it runs, and loaded in that of 0B: device 0, without
    # memory, holds nothing while 1F runs, which takes 1, and 2 of the long one
    host = {"name": "host", "offload": {"out": 0, "in": 0, "held": 0}}
    none = {"F": 0, "B": 0, "W": 0, "backward": "split"}
    long = {"name": "long", "count": 1, "time": [2, 1], "held": [2, 1]}
    document = {
        "format": FORMAT,
        "devices": [{"memory": 0}, {"memory": 0}],
        "stages": [
            none | {"device": 0, "held_after_F": 2, "modes": [host]},
            none | {"device": 1, "F": 1},
        ],
        "microbatches": [{"name": "short", "count": 1}, long, {"name": "short", "count": 9}],
        "order": "given",
        "mode_choice": choice,
    }
    result = pipesat.solve(parse_problem(document), time_limit=5, deterministic=True)
    assert (result.status, result.value) == ("optimal", 10 + 2)
