"""Timing of orders: earliest for the makespan, minimum for the span, deadlocks by name."""

from __future__ import annotations

import pytest

from pipesat.core.errors import Deadlock
from pipesat.heuristics import BASELINES
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import FORMAT, parse_problem
from pipesat.schedule.schedule import Objective, Order
from pipesat.schedule.timing import time_order
from tests.support.orders import order_of
from tests.support.problems import chain


def starts(problem: Problem, order: Order, objective: Objective = "makespan") -> list[list[int]]:
    return [[t.start for t in row] for row in time_order(problem, order, objective).devices]


def test_earliest_times_of_a_hand_timed_order() -> None:
    # F 2, B 3, W 1, delay 10. Device 0: F at 0, its output arrives at 2 + 10. Device 1: F 12-14,
    # B 14-17, W 17-18; the gradient is back at 17 + 10: device 0 runs B 27-30, W 30-31.
    problem = chain(2, 1, F=2, B=3, W=1, comm=10)
    order = order_of("0F0 0B0 0W0", "1F0 1B0 1W0")
    assert starts(problem, order) == [[0, 27, 30], [12, 14, 17]]


def test_ops_on_one_device_hand_over_without_delay() -> None:
    problem = chain(2, 1, comm=10, device=0)  # the second device stays empty
    order = order_of("0F0 1F0 1B0 0B0 0W0 1W0", "")
    assert starts(problem, order) == [[0, 1, 2, 3, 4, 5], []]


def test_minimum_span_delays_a_device_that_would_start_too_early() -> None:
    # Stage 2 is a route of its own on device 1. At the earliest, device 1 runs it at 0-3, waits for
    # 0F0 until 1 + 10, and ends with 1W0 at 11 + 1 + 1 + 5 = 18: a window of 18. Started at 8, it
    # has no gap: a window of 10. Device 0 runs F 0-1, B when 1B0 ends at 13, W until 15: window 15.
    one = {"F": 1, "B": 1, "W": 1}
    problem = parse_problem(
        {
            "format": FORMAT,
            "devices": [{}, {}],
            "stages": [{"device": 0} | one, {"device": 1} | one | {"W": 5}, {"device": 1} | one],
            "routes": [{"stages": [0, 1], "microbatches": 1}, {"stages": [2], "microbatches": 1}],
            "comm": {"edges": [{"src": 0, "dst": 1, "F": 10, "B": 0}]},
        }
    )
    order = order_of("0F0 0B0 0W0", "2F0 2B0 2W0 1F0 1B0 1W0")
    assert time_order(problem, order).span == 18
    late = time_order(problem, order, "span")
    assert late.span == 15
    assert late.makespan == 18


def test_deadlock_names_the_circle() -> None:
    # device 0 wants the gradient before it sends the activation that the gradient needs
    problem = chain(2, 2)
    order = order_of("0F0 0B1 0W1 0F1 0B0 0W0", "1F0 1F1 1B0 1W0 1B1 1W1")
    with pytest.raises(Deadlock) as caught:
        time_order(problem, order)
    assert set(caught.value.cycle) == {"0B1", "1F1"}
    assert "0B1 on device 0 waits for 1B1, which stands behind 1F1 on device 1" in str(caught.value)
    assert "1F1 on device 1 waits for 0F1, which stands behind 0B1 on device 0" in str(caught.value)


def test_an_op_before_its_own_input_on_the_same_device_is_a_deadlock() -> None:
    with pytest.raises(Deadlock) as caught:
        time_order(chain(1, 1), order_of("0B0 0F0 0W0"))
    assert caught.value.cycle == ("0B0",)


def test_a_missing_op_is_named() -> None:
    with pytest.raises(Deadlock, match=r"1F0 on device 1 waits for 0F0, which the order does not"):
        time_order(chain(2, 1), order_of("", "1F0 1B0 1W0"))


def test_unknown_stages_and_wrong_device_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="there is no stage 7"):
        time_order(chain(1, 1), order_of("7F0"))
    with pytest.raises(ValueError, match="2 device lists, the problem 1"):
        time_order(chain(1, 1), order_of("0F0", ""))


def test_times_of_ten_to_the_twelve_stay_exact() -> None:
    huge = 10**12
    problem = chain(3, 50, F=huge, B=huge, W=huge)
    order = BASELINES["1f1b"](problem).order
    # 1F1B on a uniform chain: m (F + BW) + (p - 1)(F + BW), here 52 * 3 * 10^12
    assert time_order(problem, order).makespan == 52 * 3 * huge
    assert time_order(problem, order, "span").span == 52 * 3 * huge
