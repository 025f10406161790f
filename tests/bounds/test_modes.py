"""Bounds that count modes: by hand, and never above the optimum by an oracle."""

from __future__ import annotations

from typing import Any

import pytest

from pipesat.bounds.modes import counted_bounds
from pipesat.problem.problem_file import FORMAT, parse_problem
from pipesat.schedule.schedule import Objective
from tests.oracle.exact import optimum

RECOMPUTE = {"name": "recompute", "backward": "fused", "BW": 3, "held_after_F": 0}


def offload(out: int, back: int) -> dict[str, Any]:
    return {"name": "offload", "offload": {"out": out, "in": back, "held": 0}}


def best(document: dict[str, Any], objective: Objective = "makespan") -> int:
    return max(bound.value for bound in counted_bounds(parse_problem(document), objective))


def far_chain(modes: list[dict[str, Any]], channels: int, memory: int = 5) -> dict[str, Any]:
    """Two devices 20 apart: each of 30 microbatches is away from the first for 42 at least."""
    stage = {"F": 1, "B": 1, "W": 1, "held_after_F": 1}
    return {
        "format": FORMAT,
        "microbatches": 30,
        "devices": [{"memory": memory, "copy_channels": channels}, {}],
        "stages": [{"device": 0, "modes": modes} | stage, {"device": 1} | stage],
        "comm": {"default": 20},
    }


def test_offloading_is_free_while_copies_take_no_longer_than_compute() -> None:
    """k = (out + in) / (F + B + W): free up to 1 with one channel, up to 2 with two."""
    free = best(far_chain([offload(0, 0)], 2, memory=9))
    assert free < 30 * 3 + 60
    assert best(far_chain([offload(1, 2)], 1, memory=9)) == free
    assert best(far_chain([offload(3, 3)], 2, memory=9)) == free
    assert best(far_chain([offload(4, 4)], 1, memory=9)) > free
    # two channels, 8 each way: whatever is not offloaded stays 44 with 5 places, so the n that are
    # take 8 n + 2 <= T, and memory (30 - n) 44 + n 18 <= 5 T: T >= 150 at least
    assert best(far_chain([offload(8, 8)], 2)) >= 150


def test_one_mode_may_take_a_thousand_times_as_long_as_another() -> None:
    # both have to be recomputed: F of 1 and BW of 1000, twice
    slow = RECOMPUTE | {"BW": 1000, "held_after_F": 1}
    stage = {"device": 0, "F": 1, "B": 1, "W": 1, "held_after_F": 2000, "modes": [slow]}
    document = {"format": FORMAT, "devices": [{"memory": 1000}], "stages": [stage]}
    assert best(document | {"microbatches": 2}) == 2 * 1001


def test_a_backward_of_no_time_leaves_the_memory_to_weight_gradients() -> None:
    # the fifth F and B at 25, their way home of 20 and BW of 1: 46; four W's run meanwhile
    stage = {"device": 1, "F": 0, "B": 0, "W": 3, "backward": "split"}
    stage |= {"held_after_F": 4, "held_after_B": 1, "modes": [{"name": "less", "held_after_F": 3}]}
    document = far_chain([], 2) | {"microbatches": 5, "devices": [{}, {"memory": 5}]}
    document["stages"] = [{"device": 0, "F": 1, "B": 1, "W": 0, "backward": "fused"}, stage]
    assert best(document) <= optimum(document) == 46


def test_recomputing_costs_its_work() -> None:
    """Area: a kept one stays 44 and a recomputed one needs no memory, but one unit more work."""
    # n recomputed: T >= 90 + n and 5 T >= 44 (30 - n), so 49 n >= 870, n >= 18
    document = far_chain([RECOMPUTE], 2)
    assert best(document) >= 90 + 18
    # one mode for all: 44 * 30 / 5 kept, 120 recomputed with what is idle around
    per_stage = best(document | {"mode_choice": "stage"})
    assert 120 <= per_stage < 44 * 30 // 5


@pytest.mark.parametrize(("held_after_B", "pending"), [(2, 2), (1, 3), (3, 1)])
def test_the_last_backward_holds_memory_too(held_after_B: int, pending: int) -> None:
    """Of room 6 it holds 4 while it runs; W's that were pending then have the rest."""
    stage = {"F": 2, "B": 2, "W": 2, "held_after_F": 4}
    own = {"device": 1, "held_after_B": held_after_B, "modes": [offload(1, 1)]}
    document = {
        "format": FORMAT,
        "microbatches": 4,
        "devices": [{}, {"memory": 6}],
        "stages": [{"device": 0} | stage, stage | own],
        "comm": {"default": 10},
    }
    # 12 until the first F is there, 24 of work, 10 + B + W home, during which W's may run
    assert best(document) == 12 + 24 + 14 - 2 * pending


def test_problems_without_modes_are_none_of_its_business() -> None:
    document = far_chain([], 2)
    assert not [*counted_bounds(parse_problem(document), "makespan")]


def test_a_device_without_work_that_waits() -> None:
    # device 0 runs nothing but ops of length 0, and holds 1 of 3 while 1F0 takes 1: the span is 1
    none = {"F": 0, "B": 0, "W": 0, "device": 0}
    again = {"name": "again", "BW": 0, "held_after_F": 1}
    document = {
        "format": FORMAT,
        "devices": [{"memory": 3}, {}],
        "stages": [
            none | {"held_after_F": 1, "modes": [again]},
            none | {"device": 1, "F": 1},
            none,
        ],
        "routes": [{"stages": [0, 1], "microbatches": 1}, {"stages": [2], "microbatches": 1}],
    }
    assert max(bound.value for bound in counted_bounds(parse_problem(document), "span")) == 1
