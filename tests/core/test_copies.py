"""Placing the copies of an order, and timing a schedule again with those it has."""

from __future__ import annotations

from random import Random

import pytest

from pipesat.check.checker import check
from pipesat.problem.ops import Copy, Op
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import FORMAT, parse_problem
from pipesat.problem.rules import memory_in_order
from pipesat.schedule.schedule import Order, Schedule, Timed, TimedCopy
from pipesat.schedule.timing import retime, time_order
from tests.oracle.generator import ONE_ROUTE
from tests.support.orders import random_order
from tests.support.problems import of


def offloading(memory: int | None, channels: int = 2, microbatches: int = 2) -> Problem:
    """One stage: F 2, BW 3, holds 4; offloaded 2 out, 2 in, holds 1 in between."""
    offload = {"name": "offload", "offload": {"out": 2, "in": 2, "held": 1}}
    stage = {"F": 2, "B": 2, "W": 1, "held_after_F": 4, "backward": "fused", "modes": [offload]}
    return parse_problem(
        {
            "format": FORMAT,
            "microbatches": microbatches,
            "devices": [{"memory": memory, "copy_channels": channels}],
            "stages": [stage | {"device": 0}],
        }
    )


def forwards_first(*modes: int) -> Order:
    """All F's, then all BW's, of one stage."""
    numbers = list(enumerate(modes))
    return (
        tuple([Op(0, "F", j, mode) for j, mode in numbers])
        + tuple([Op(0, "BW", j, mode) for j, mode in numbers]),
    )


def times(schedule: Schedule) -> dict[str, tuple[int, int]]:
    ops = {str(t.item): (t.start, t.end) for row in schedule.devices for t in row}
    return ops | {str(t.copy): (t.start, t.end) for row in schedule.copies for t in row}


def test_with_room_copies_are_as_early_and_as_late_as_they_may() -> None:
    """Room for both: nothing but 0's own copies keeps its backward waiting."""
    schedule = time_order(offloading(8), forwards_first(1, 1))
    assert times(schedule) == {
        "0F0": (0, 2), "0F1": (2, 4), "0O0": (2, 4), "0O1": (4, 6),
        "0L0": (4, 6), "0BW0": (6, 9), "0L1": (6, 8), "0BW1": (9, 12),
    }  # fmt: skip
    assert check(offloading(8), schedule) == []


def test_a_forward_waits_for_the_copy_out_that_makes_room() -> None:
    """6 is room for 4 + 1: F1 waits for O0, L0 for O1, L1 for BW0."""
    schedule = time_order(offloading(6), forwards_first(1, 1))
    assert times(schedule) == {
        "0F0": (0, 2), "0O0": (2, 4), "0F1": (4, 6), "0O1": (6, 8),
        "0L0": (8, 10), "0BW0": (10, 13), "0L1": (13, 15), "0BW1": (15, 18),
    }  # fmt: skip
    assert check(offloading(6), schedule) == []


def test_one_channel_runs_one_copy_at_a_time() -> None:
    """Both ways: L0 before O1 gives 13, O1 before L0 gives 14."""
    schedule = time_order(offloading(8, channels=1), forwards_first(1, 1))
    assert times(schedule) == {
        "0F0": (0, 2), "0F1": (2, 4), "0O0": (2, 4), "0L0": (4, 6),
        "0O1": (6, 8), "0BW0": (6, 9), "0L1": (8, 10), "0BW1": (10, 13),
    }  # fmt: skip
    assert check(offloading(8, channels=1), schedule) == []


def test_an_order_that_cannot_fit_is_timed_all_the_same() -> None:
    """The checker says what is wrong, as for orders without copies."""
    found = check(offloading(4), time_order(offloading(4), forwards_first(1, 1)))
    assert {violation.rule for violation in found} == {"memory"}


def test_retiming_moves_everything_to_its_earliest() -> None:
    problem = offloading(6)
    schedule = time_order(problem, forwards_first(1, 1))
    later = Schedule(
        tuple(tuple(Timed(x, a + 7, b + 7) for x, a, b in row) for row in schedule.devices),
        "",
        tuple(tuple(TimedCopy(x, a + 7, b + 7) for x, a, b in row) for row in schedule.copies),
    )
    assert check(problem, later) == []
    assert retime(problem, later) == schedule


def test_retiming_keeps_what_memory_relied_on() -> None:
    """O0 had ended when F1 started, although there was room: it still ends by then.

    L0 started after BW1 had: it still does, and nothing else moves it.
    """
    problem = offloading(None)
    order: Order = ((Op(0, "F", 0, 1), Op(0, "F", 1), Op(0, "BW", 1), Op(0, "BW", 0, 1)),)
    given = Schedule(
        (tuple(map(Timed, order[0], (0, 5, 7, 12), (2, 7, 10, 15))),),
        "",
        ((TimedCopy(Copy(0, "O", 0), 2, 4), TimedCopy(Copy(0, "L", 0), 8, 10)),),
    )
    assert check(problem, given) == []
    # F1 from 4, BW1 from 6 to 9, L0 from 6 to 8, BW0 from 9
    assert times(retime(problem, given)) == {
        "0F0": (0, 2), "0O0": (2, 4), "0F1": (4, 6), "0BW1": (6, 9), "0L0": (6, 8), "0BW0": (9, 12),
    }  # fmt: skip


def test_retiming_keeps_a_copy_back_behind_what_ended_when_it_started() -> None:
    """7 has no room for the 3 of L0 before BW1 ends and frees 4."""
    problem = offloading(7)
    row = Op(0, "F", 0, 1), Op(0, "F", 1), Op(0, "BW", 1), Op(0, "BW", 0, 1)
    copies = TimedCopy(Copy(0, "O", 0), 2, 4), TimedCopy(Copy(0, "L", 0), 12, 14)
    items = map(Timed, row, (0, 4, 9, 14), (2, 6, 12, 17))
    given = Schedule((tuple(items),), "", (copies,))
    assert check(problem, given) == []
    assert times(retime(problem, given)) == {
        "0F0": (0, 2), "0O0": (2, 4), "0F1": (4, 6), "0BW1": (6, 9), "0L0": (9, 11),
        "0BW0": (11, 14),
    }  # fmt: skip


def test_an_offloaded_backward_takes_again_what_was_copied() -> None:
    """Held: 4 while F runs, 1 after it, and 4 again while BW runs."""
    changes = [memory_in_order(offloading(8), Op(0, kind, 0, 1)) for kind in ("F", "BW")]
    assert changes == [(4, -3), (3, -4)]


def test_the_minimum_span_counts_ops_alone() -> None:
    """Two devices: starting the second later shortens its row; copies do not count."""
    document = dict(offloading(None, microbatches=1).document)
    stage = document["stages"][0]
    problem = parse_problem(
        document | {"devices": [{}, {}], "stages": [stage, stage | {"device": 1}]}
    )
    order: Order = ((Op(0, "F", 0, 1), Op(0, "BW", 0, 1)), (Op(1, "F", 0, 1), Op(1, "BW", 0, 1)))
    schedule = time_order(problem, order, "span")
    # device 1: F 2, O 2, L 2, BW 3 in a row: 9; device 0: F 2, 9 of device 1, BW 3
    assert (schedule.span, schedule.makespan) == (14, 14)
    assert check(problem, schedule) == []
    assert retime(problem, schedule, "span").span == 14


@pytest.mark.parametrize("seed", range(40))
def test_copies_of_random_orders_keep_every_rule_but_perhaps_memory(seed: int) -> None:
    """Where everything fits, everything fits again after timing anew, no later than before."""
    chance = Random(seed)
    problem = of("modes", seed, shapes=ONE_ROUTE)
    order = random_order(problem, chance)
    for objective in ("makespan", "span"):
        schedule = time_order(problem, order, objective)  # type: ignore[arg-type]
        found = {violation.rule for violation in check(problem, schedule)}
        assert found <= {"memory"}
        if found:
            continue
        again = retime(problem, schedule, objective)  # type: ignore[arg-type]
        assert check(problem, again) == []
        assert again.value(objective) <= schedule.value(objective)  # type: ignore[arg-type]
