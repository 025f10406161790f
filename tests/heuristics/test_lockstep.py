"""The grid of slots: valid on any problem, DualPipeV's rate, and denser than that at no cap."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from random import Random

import numpy as np
import pytest

from pipesat.bounds.feasibility import preflight
from pipesat.check.checker import check
from pipesat.core.errors import Infeasible, NotApplicable
from pipesat.heuristics import BASELINES
from pipesat.heuristics.lockstep import _Descent, _Walk, lockstep_schedules
from pipesat.heuristics.registry import never
from pipesat.heuristics.shared.slot_grid import SlotGrid
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.schedule.metrics import pair_counts
from pipesat.schedule.timing import time_order
from tests.support.problems import chain, document, of, vee

_ALL = 5  # every so many draws, all schedules: those with opened pairs come last


def paired(problem: Problem, time: int) -> Problem:
    """The problem with pairs of every F and BW of one device."""
    pairs = [
        {"ops": [f"{a}F", f"{b}BW"], "time": time}
        for stages in problem.stages_on
        for a in stages
        for b in stages
    ]
    return parse_problem(document(problem, overlap={"pairs": pairs}))


def test_the_same_microbatches_run_alone_on_all_stages_of_a_part_of_the_way() -> None:
    walk, chance = _Walk(paired(vee(2, 4), 3), never, 0), Random(0)
    untouched, cells = np.full_like(walk.grid.all_together, 9), walk.grid.first_cell
    for _ in range(50):
        changed = (walk._opened(untouched, chance) != 9).any(axis=1)
        of_stages = {tuple(changed[cell : cell + 4].tolist()) for cell in cells[:4]}
        assert len(of_stages - {(False,) * 4}) <= 1


def entries(problem: Problem) -> list[int]:
    """Slots in which microbatches enter as soon as they may."""
    grid = SlotGrid(problem)
    found: list[int] = grid.placed(grid.shapes(), [1] * len(grid.entering))[1].tolist()
    return found


def row(problem: Problem, wait: float, opened: Mapping[tuple[int, bool], int]) -> tuple[int, str]:
    """Makespan and order of two microbatches, one device, one stage, which enter in turn."""
    grid = SlotGrid(problem)
    alone = grid.all_together.copy()
    for (microbatch, backward), turn in opened.items():
        alone[microbatch, int(backward)] = turn
    run = grid.run(grid.placed(grid.shapes(), [1, 1])[0], wait, alone)
    return run.value, " ".join(map(str, grid.order_of(run)[0]))


def test_every_schedule_keeps_every_rule() -> None:
    kinds, made = set[str](), 0
    for number in range(20):
        problem = of("pairs", number, pairs=("time",))
        try:
            preflight(problem)
        except Infeasible:
            continue
        found = lockstep_schedules(problem)
        for schedule in found if number % _ALL == 0 else islice(found, 2):
            made += 1
            kinds |= pair_counts(schedule).keys()
            assert check(problem, schedule) == [], problem.document
    assert made > 8
    assert {"F+B", "F+BW"} <= kinds


def test_in_a_v_microbatches_enter_every_other_slot() -> None:
    # a forward and a backward per slot and device, as in DualPipeV: its 2p + 1 chunks are enough
    assert entries(paired(vee(3, 9, cap=7), 5)) == [2 * number for number in range(9)]


def test_in_a_loop_groups_of_p_enter_as_in_interleaved_1f1b() -> None:
    assert entries(paired(Problem.loop(2, 8, F=4, B=4, W=4), 5)) == [0, 1, 4, 5, 8, 9, 12, 13]


def test_at_a_cap_microbatches_wait_for_room() -> None:
    # on device 1 of 2, a microbatch holds a chunk in slots 1 to 6, another one in slots 2 to 5; a
    # second one, entering at 2, would hold two in slots 4 to 7: four in slot 4. Entering at 1 or 3,
    # it would want device 1 or 0 when the first one does. From 4 on, it holds the first of its
    # chunks in slot 5, two only from slot 6 on; and so on
    assert entries(paired(vee(2, 4, cap=3), 5)) == [0, 4, 8, 12]


def test_each_microbatch_counts_what_it_holds_itself() -> None:
    # stage 0 holds a microbatch in slots 0 to 3 of its way: two of one unit fit, that of two alone
    overlap = {"pairs": [{"ops": ["0F", "0BW"], "factor": [2, 3]}]}
    ones = [{"name": "one", "count": 2}, {"name": "two", "count": 1, "held": [2, 1]}]
    problem = parse_problem(document(chain(2, 3, cap=2), overlap=overlap, microbatches=ones))
    assert entries(problem) == [0, 1, 5]


def test_microbatches_that_differ_change_places_where_their_order_is_free() -> None:
    made = 0
    for seed in range(12):
        problem = of("mixtures", seed, pairs=("factor",), lists=("free",))
        with suppress(NotApplicable):
            made += 1
            assert check(problem, BASELINES["lockstep"](problem)) == [], problem.document
    assert made > 4


def test_a_stop_moves_all_that_comes_after_it() -> None:
    # 2 stages, a stop of one slot before the second forward, of two before the last backward
    # cells: the first forward in slot 0, the second on device 1 in slot 2, backwards in 3 and 6
    grid = SlotGrid(paired(chain(2, 1), 5))
    cells = grid.placed(grid.shapes(np.array([[0, 1, 0, 2]])), [1])[0].reshape(-1, 2, 2)
    assert np.argwhere(cells >= 0).tolist() == [[0, 0, 0], [2, 1, 0], [3, 1, 1], [6, 0, 1]]
    assert cells[cells >= 0].tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("cap", [2, 3, 4, 5, 6])
def test_stops_only_shorten(cap: int) -> None:
    problem = paired(vee(3, 8, cap=cap, F=4, B=5, W=2), 8)
    grid = SlotGrid(problem)
    dense = grid.run(grid.placed(grid.shapes(), [1] * 8)[0], 1.0).value
    orders = map(grid.order_of, _Descent(grid, never).run())
    made = [time_order(problem, order) for order in orders]
    values = [schedule.makespan for schedule in made]
    assert [check(problem, schedule) for schedule in made] == [[] for _ in made]
    assert values == sorted(set(values), reverse=True)
    assert values[-1] <= dense


@pytest.mark.parametrize(
    ("opened", "value", "order"),
    [
        ({}, 23, "0F0 (0F1+0BW0) 0B1 0W1"),  # 4 + 11 + 8
        ({(0, True): 1}, 24, "0F0 0B0 0F1 0B1 0W0 0W1"),
        ({(0, True): -1}, 24, "0F0 0F1 0B0 0B1 0W0 0W1"),
        ({(1, False): 1}, 24, "0F0 0F1 0B0 0B1 0W0 0W1"),
        ({(1, False): -1}, 24, "0F0 0B0 0F1 0B1 0W0 0W1"),
        ({(0, True): 1, (1, False): 1}, 24, "0F0 0B0 0F1 0B1 0W0 0W1"),  # the backward's counts
    ],
)
def test_an_op_alone_runs_before_or_after_what_it_meets(
    opened: Mapping[tuple[int, bool], int], value: int, order: str
) -> None:
    problem = paired(chain(1, 2, F=4, B=4, W=4), 11)
    assert row(problem, 1.0, opened) == (value, order)


@pytest.mark.parametrize(
    ("wait", "order"),
    [(1.0, "0F0 0B0 0F1 0B1 0W0 0W1"), (0.0, "0F0 0B0 0W0 0F1 0B1 0W1")],
)
def test_a_weight_gradient_runs_at_once_or_waits(wait: float, order: str) -> None:
    problem = paired(chain(1, 2, F=4, B=4, W=4), 11)
    assert row(problem, wait, {(0, True): 1}) == (24, order)


@pytest.mark.parametrize(
    ("wait", "value", "order"),
    [(1.0, 38, "1F0 1B0 1F1 1B1 1W0 1W1"), (0.7, 39, "1F0 1B0 1W0 1F1 1B1 1W1")],
)
def test_a_weight_gradient_runs_in_a_gap_of_enough_of_its_time(
    wait: float, value: int, order: str
) -> None:
    # device 1 runs F0 and B0 from 11 to 19, F1 arrives at 22: 3 units for W0, which takes 4.
    # With it in between, B1 ends at 31, then come B1 and W1 of stage 0: 31 + 8; without, 30 + 8
    stages = chain(2, 2, F=4, B=4, W=4).document["stages"]
    problem = parse_problem(document(chain(2, 2), stages=[stages[0] | {"F": 11}, stages[1]]))
    grid = SlotGrid(problem)
    run = grid.run(grid.placed(grid.shapes(), [1, 2])[0], wait)
    assert (run.value, " ".join(map(str, grid.order_of(run)[1]))) == (value, order)


def test_opening_pairs_beats_dualpipev() -> None:
    # where a pair saves little, the first and last microbatches should not wait for partners
    problem = paired(vee(2, 6, cap=5, F=4, B=4, W=4), 11)
    schedule = BASELINES["lockstep"](problem)
    assert check(problem, schedule) == []
    assert schedule.makespan < BASELINES["dualpipev"](problem).makespan


@pytest.mark.parametrize(
    ("problem", "why"),
    [(chain(2, 2), "allows no pairs"), (paired(vee(2, 3, cap=1), 5), "no microbatch fits")],
)
def test_it_says_why_it_does_not_apply(problem: Problem, why: str) -> None:
    with pytest.raises(NotApplicable, match=why):
        BASELINES["lockstep"](problem)
