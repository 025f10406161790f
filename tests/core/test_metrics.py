"""Metrics against figures derived by hand, and the parts of a device's time."""

from __future__ import annotations

from pipesat.heuristics import BASELINES
from pipesat.problem.ops import parse_item
from pipesat.schedule.metrics import DeviceTime, measure, memory_profiles, peak_memory
from pipesat.schedule.timing import time_order
from tests.support.orders import order_of
from tests.support.problems import chain


def test_bubbles_of_1f1b_on_a_uniform_chain() -> None:
    # makespan and span (m + p - 1)(F + BW) = 11 * 3, load m (F + BW) = 8 * 3 on every device:
    # both bubbles are (p - 1) / (m + p - 1) = 3 / 11
    metrics = measure(chain(4, 8), BASELINES["1f1b"](chain(4, 8)))
    assert metrics.makespan == metrics.span == 33
    assert metrics.bubble_of_makespan is not None
    assert metrics.bubble_of_span is not None
    assert abs(metrics.bubble_of_makespan - 3 / 11) < 1e-12
    assert abs(metrics.bubble_of_span - 3 / 11) < 1e-12


def test_a_problem_without_time_has_no_bubble() -> None:
    problem = chain(1, 1, F=0, B=0, W=0)
    metrics = measure(problem, time_order(problem, order_of("0F0 0B0 0W0")))
    assert metrics.makespan == 0
    assert metrics.bubble_of_makespan is None
    assert metrics.bubble_of_span is None


def test_idle_time_by_cause() -> None:
    # F B W 1 long, delay 2, one activation fits on device 0. Device 0: 0F0 0-1; 1F0 3-4, 1B0 4-5,
    # 0B0 7-8, 0W0 8-9, 0F1 9-10: idle 1-7 although 0F1 is ready from 0 on: memory. Then 1F1 at 12,
    # 1B1 13-14, 0B1 16-17: idle 10-16 with no forward left: input. 0W1 17-18.
    # Device 1: warm-up 0-3; 1W0 5-6; idle 6-12 for its input; 1W1 14-15; cool-down 15-18.
    problem = chain(2, 2, comm=2, cap=1)
    order = order_of("0F0 0B0 0W0 0F1 0B1 0W1", "1F0 1B0 1W0 1F1 1B1 1W1")
    first, second = measure(problem, time_order(problem, order)).devices
    assert first == DeviceTime(busy=6, warm_up=0, input=6, memory=6, unforced=0, cool_down=0)
    assert second == DeviceTime(busy=6, warm_up=3, input=6, memory=0, unforced=0, cool_down=3)


def test_idle_time_that_nothing_forces() -> None:
    # timed for the span nothing starts later than it must; shift the last op by hand instead
    from pipesat.schedule.schedule import Schedule, Timed

    problem = chain(1, 1)
    rows = tuple(Timed(parse_item(t), a, a + 1) for t, a in (("0F0", 0), ("0B0", 1), ("0W0", 5)))
    (device,) = measure(problem, Schedule((rows,))).devices
    assert device == DeviceTime(busy=3, warm_up=0, input=0, memory=0, unforced=3, cool_down=0)


def test_memory_over_time() -> None:
    # held_after_F 5, held_after_B 8: 5 from F's start, 8 from B's start, until W's end
    problem = chain(1, 2, held=(5, 8))
    schedule = time_order(problem, order_of("0F0 0F1 0B0 0W0 0B1 0W1"))
    (profile,) = memory_profiles(problem, schedule)
    # 0F0 0-1: 5; 0F1 1-2: 10; 0B0 2-3 and 0W0 3-4: 13; 0B1 4-5, 0W1 5-6: 8; then 0
    assert list(zip(profile.times.tolist(), profile.held.tolist(), strict=True)) == [
        (0, 5),
        (1, 10),
        (2, 13),
        (3, 13),
        (4, 8),
        (5, 8),
        (6, 0),
    ]
    assert peak_memory(problem, schedule) == [13]
