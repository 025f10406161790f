"""The grid of slots: valid on any problem, DualPipeV's rate, and denser than that at no cap."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import islice

import pytest

from pipesat.bounds.feasibility import preflight
from pipesat.core.checker import check
from pipesat.core.errors import Infeasible, NotApplicable
from pipesat.core.metrics import pair_counts
from pipesat.core.problem import Problem
from pipesat.core.timing import time_order
from pipesat.files.problem_file import parse_problem
from pipesat.heuristics import BASELINES
from pipesat.heuristics.lockstep import lockstep_schedules, stopping_orders
from pipesat.heuristics.registry import never
from pipesat.heuristics.shared.slot_grid import Facts, SlotGrid
from pipesat.heuristics.shared.slot_replay import SlotReplay
from tests.support.mixtures import mixture
from tests.support.pair_problems import drawn
from tests.support.problems import chain, document, vee

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


def test_every_schedule_keeps_every_rule() -> None:
    rng, kinds, made = random.Random(3), set[str](), 0
    for number in range(20):
        problem = drawn(rng)
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
    grid = SlotGrid(paired(vee(3, 9, cap=7), 5))
    assert grid.entries([1] * 9) == [2 * number for number in range(9)]


def test_in_a_loop_groups_of_p_enter_as_in_interleaved_1f1b() -> None:
    grid = SlotGrid(paired(Problem.loop(2, 8, F=4, B=4, W=4), 5))
    assert grid.entries([1] * 8) == [0, 1, 4, 5, 8, 9, 12, 13]


def test_at_a_cap_microbatches_wait_for_room() -> None:
    # on device 1 of 2, a microbatch holds a chunk in slots 1 to 6, another one in slots 2 to 5; a
    # second one, entering at 2, would hold two in slots 4 to 7: four in slot 4. Entering at 1 or 3,
    # it would want device 1 or 0 when the first one does. From 4 on, it holds the first of its
    # chunks in slot 5, two only from slot 6 on; and so on
    grid = SlotGrid(paired(vee(2, 4, cap=3), 5))
    assert grid.entries([1] * 4) == [0, 4, 8, 12]


def test_each_microbatch_counts_what_it_holds_itself() -> None:
    # stage 0 holds a microbatch in slots 0 to 3 of its way: two of one unit fit, that of two alone
    overlap = {"pairs": [{"ops": ["0F", "0BW"], "factor": [2, 3]}]}
    ones = [{"name": "one", "count": 2}, {"name": "two", "count": 1, "held": [2, 1]}]
    problem = parse_problem(document(chain(2, 3, cap=2), overlap=overlap, microbatches=ones))
    assert SlotGrid(problem).entries([1, 1, 1]) == [0, 1, 5]


def test_microbatches_that_differ_change_places_where_their_order_is_free() -> None:
    rng, made = random.Random(4), 0
    for _ in range(20):
        drawn_one = mixture(rng)
        problem = parse_problem(drawn_one.document)
        if problem.overlap is None or not problem.has_lists:
            continue
        with suppress(NotApplicable):
            made += 1
            assert check(problem, BASELINES["lockstep"](problem)) == [], problem.document
    assert made > 4


def test_a_stop_moves_all_that_comes_after_it() -> None:
    # 2 stages, a stop of one slot before the second forward, of two before the last backward
    grid = SlotGrid(paired(chain(2, 1), 5), [[0, 1, 0, 2]])
    assert grid.cells([0]) == [
        (0, 0, False, 0, 0),
        (2, 1, False, 1, 0),
        (3, 1, True, 1, 0),
        (6, 0, True, 0, 0),
    ]


@pytest.mark.parametrize("cap", [2, 3, 4, 5, 6])
def test_stops_only_shorten(cap: int) -> None:
    problem = paired(vee(3, 8, cap=cap, F=4, B=5, W=2), 8)
    grid = SlotGrid(problem)
    entries = grid.entries([1 for _ in range(8)])
    assert entries is not None
    dense = SlotReplay(grid, Facts(problem), wait=1.0).run(entries)
    made = [time_order(problem, order) for order in stopping_orders(problem, never)]
    values = [schedule.makespan for schedule in made]
    assert [check(problem, schedule) for schedule in made] == [[] for _ in made]
    assert values == sorted(set(values), reverse=True)
    assert values[-1] <= dense


@pytest.mark.parametrize(
    ("sooner", "row"),
    [
        (None, "0F0 (0F1+0BW0) 0B1 0W1"),  # 4 + 11 + 8
        (True, "0F0 0B0 0F1 0B1 0W0 0W1"),
        (False, "0F0 0F1 0B0 0B1 0W0 0W1"),
    ],
)
def test_a_backward_alone_runs_before_or_after_what_it_meets(sooner: bool | None, row: str) -> None:
    problem = paired(chain(1, 2, F=4, B=4, W=4), 11)
    alone = {} if sooner is None else {(0, 0, True): sooner}
    replay = SlotReplay(SlotGrid(problem), Facts(problem), wait=True, alone=alone, note=True)
    assert replay.run([0, 1]) == (23 if sooner is None else 24)
    assert " ".join(map(str, replay.order[0])) == row


def test_a_forward_alone_runs_on_the_other_side_of_what_it_meets() -> None:
    problem = paired(chain(1, 2, F=4, B=4, W=4), 11)
    alone = {(0, 1, False): True}
    replay = SlotReplay(SlotGrid(problem), Facts(problem), wait=True, alone=alone, note=True)
    assert replay.run([0, 1]) == 24
    assert " ".join(map(str, replay.order[0])) == "0F0 0F1 0B0 0B1 0W0 0W1"


def test_a_weight_gradient_runs_in_a_gap_of_enough_of_its_time() -> None:
    # after F0 and B0, F1 comes after a gap of 3 for W0, which takes 4
    problem = paired(chain(1, 2, F=4, B=4, W=4), 11)
    rows = []
    for wait in (1.0, 0.7, 0.0):
        replay = SlotReplay(SlotGrid(problem), Facts(problem), wait=wait, note=True)
        replay._one(0, 0, 0, "B")
        replay._start(0, replay.busy_until[0] + 3, 0, 0, 4)
        rows.append(" ".join(map(str, replay.rows[0])))
    assert rows == ["0B0", "0B0 0W0", "0B0 0W0"]


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
