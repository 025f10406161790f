"""Annealing of orders in modes: never worse than the best modes of an order, and always valid."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from pipesat.bounds.feasibility import sure_order
from pipesat.core.arrays_of import arrays_of, coded, order_of
from pipesat.core.checker import check
from pipesat.core.problem import Problem
from pipesat.core.schedule import Order
from pipesat.core.timing import time_order
from pipesat.files.problem_file import FORMAT, parse_problem
from pipesat.kernels.annealing import annealed
from pipesat.solver.modes.annealing import ANNEALED, Annealer, annealing_applies
from pipesat.solver.modes.assign import in_modes
from pipesat.solver.modes.starts import orders_from
from pipesat.solver.run.clock import Clock
from pipesat.solver.run.incumbent import Incumbent

RECOMPUTE = {"name": "recompute", "backward": "fused", "BW": 7, "held_after_F": 1}
HALF = {"name": "half", "backward": "split", "B": 3, "held_after_F": 2, "held_after_B": 1}
PAIRS = {"pairs": [{"ops": ["0F", "0BW"], "factor": [4, 5]}]}
LIST = [{"name": "a", "count": 2, "time": [2, 1]}, {"name": "b", "count": 1, "held": [1, 2]}]


def problem_of(modes: list[dict[str, Any]], **more: Any) -> Problem:
    """Two devices, three microbatches; all of 1F1B's do not fit on the first."""
    stage = {"F": 2, "B": 2, "W": 2, "BW": 4, "held_after_F": 4, "modes": modes}
    return parse_problem(
        {
            "format": FORMAT,
            "microbatches": 3,
            "devices": [{"memory": 8}, {"memory": 8}],
            "stages": [{"device": device} | stage for device in range(2)],
        }
        | more
    )


def least_by_modes(problem: Problem, order: Order) -> int:
    """Makespan of an order in the best of all modes of its (stage, microbatch)s."""
    cells = [(s, m) for s in range(2) for m in range(3)]
    choices = product(*(problem.modes_of(s) for s, _ in cells))
    found = [
        time_order(problem, in_modes(problem, order, dict(zip(cells, modes, strict=True))))
        for modes in choices
    ]
    return min(one.makespan for one in found if not check(problem, one))


@pytest.mark.parametrize("modes", [[RECOMPUTE], [RECOMPUTE, HALF]])
@pytest.mark.parametrize("more", [{}, {"microbatches": LIST, "order": "same"}])
def test_a_walk_ends_no_longer_than_an_order_in_its_best_modes(
    modes: list[dict[str, Any]], more: dict[str, Any]
) -> None:
    problem = problem_of(modes, **more)
    guide = problem.schedule("zb-h1")
    start = next(start.order for start in orders_from(problem, [guide]))
    assert check(problem, time_order(problem, start)) == []
    annealer = Annealer(problem, Incumbent(problem, "makespan", Clock(60)), seed=0)
    arrays = arrays_of(problem)
    codes = coded(problem, start)[1]
    found = order_of(problem, arrays, annealed(arrays, annealer.levers, codes, 4000, 1.0, 1))
    timed = time_order(problem, found)
    assert check(problem, timed) == []
    assert timed.makespan <= least_by_modes(problem, guide.order)
    again = order_of(problem, arrays, annealed(arrays, annealer.levers, codes, 4000, 1.0, 1))
    assert again == found


def test_no_moves_leave_an_order_as_it_is() -> None:
    problem = problem_of([RECOMPUTE, HALF])
    order = in_modes(problem, sure_order(problem), {(0, 1): 1, (1, 0): 2, (1, 1): 1})
    annealer = Annealer(problem, Incumbent(problem, "makespan", Clock(60)), seed=0)
    arrays, codes = coded(problem, order)
    assert order_of(problem, arrays, annealed(arrays, annealer.levers, codes, 0, 1.0, 1)) == order


def test_what_is_found_is_offered() -> None:
    problem = problem_of([RECOMPUTE])
    mine = Incumbent(problem, "makespan", Clock(60, deterministic=True))
    mine.offer(sure_order(problem), "")
    annealer = Annealer(problem, mine, seed=0)
    before = mine.value
    assert before is not None
    assert annealer.step()
    assert mine.schedule is not None
    assert mine.schedule.source == ANNEALED
    assert mine.value is not None
    assert mine.value < before
    assert mine.clock.elapsed > 0


@pytest.mark.parametrize(
    ("more", "applies"),
    [({}, True), ({"mode_choice": "stage"}, False), ({"overlap": PAIRS}, False)],
)
def test_where_it_applies(more: dict[str, Any], applies: bool) -> None:
    assert annealing_applies(problem_of([RECOMPUTE], **more), "makespan") == applies
    assert not annealing_applies(problem_of([RECOMPUTE], **more), "span")
    away = {"name": "away", "offload": {"out": 1, "in": 1, "held": 0}}
    assert not annealing_applies(problem_of([away], **more), "makespan")
