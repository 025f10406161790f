"""Ops of length zero: whether a problem is feasible, its value and its bound, by instants."""

from __future__ import annotations

from typing import Any

import pytest

from pipesat.bounds.feasibility import preflight, smallest_capacities, sure_order
from pipesat.check.checker import check
from pipesat.compare.solve import solve
from pipesat.core.errors import Infeasible
from pipesat.problem.ops import Op
from pipesat.problem.problem_file import FORMAT, parse_problem
from pipesat.schedule.timing import time_order
from tests.oracle.exact import optimum
from tests.support.problems import chain

# Device 0 of capacity 0 holds nothing if stage 1's F and backward run in the instant of its own F:
# only B (no time) does, not BW. Device 1 of capacity 1 has room for BW, not for what B leaves.
TOGETHER_TOO_SMALL: dict[str, Any] = {
    "format": FORMAT,
    "microbatches": 1,
    "devices": [{"memory": 0}, {"memory": 1}],
    "stages": [
        {"device": 0, "F": 0, "B": 0, "W": 0, "held_after_F": 1},
        {"device": 1, "F": 0, "B": 0, "W": 2, "BW": 3, "held_after_F": 1, "held_after_B": 5},
    ],
}


def test_chunks_that_pass_in_one_instant_need_less() -> None:
    # F, F, B, B, W with W of 5 at the end. Held: 10 after the first F; then the second F of length
    # 1 brings 12, its B leaves 12 in the same instant in which the first B frees 10: 12 are enough.
    stages = [
        {"device": 0, "F": 1, "B": 0, "W": 0, "held_after_F": 10, "held_after_B": 0},
        {"device": 0, "F": 1, "B": 0, "W": 5, "held_after_F": 2, "held_after_B": 12},
    ]
    document = {
        "format": FORMAT,
        "microbatches": 1,
        "devices": [{"memory": 12}],
        "stages": [stage | {"backward": "split"} for stage in stages],
    }
    problem = parse_problem(document)
    assert [need.capacity for need in smallest_capacities(problem)] == [12]
    assert check(problem, time_order(problem, sure_order(problem))) == []
    with pytest.raises(Infeasible, match="the smallest capacity that works is 12"):
        preflight(parse_problem(document | {"devices": [{"memory": 11}]}))


def test_devices_that_are_too_small_only_together() -> None:
    problem = parse_problem(TOGETHER_TOO_SMALL)
    assert [need.capacity for need in smallest_capacities(problem)] == [0, 1]
    with pytest.raises(Infeasible, match=r"F on stage 0, .*, device 0 or device 1 holds too much"):
        preflight(problem)
    assert optimum(TOGETHER_TOO_SMALL) is None
    for enough in ([{"memory": 1}, {"memory": 1}], [{"memory": 0}, {"memory": 5}]):
        more = TOGETHER_TOO_SMALL | {"devices": enough}
        preflight(parse_problem(more))
        assert optimum(more) is not None


def test_earliest_timing_waits_for_the_instant_that_memory_needs() -> None:
    # nothing fits on device 0, so F and backward share an instant: with microbatch 0's W on
    # device 1 until 3, microbatch 1 passes at 3 and not before
    document = TOGETHER_TOO_SMALL | {"microbatches": 2, "devices": [{"memory": 0}, {}]}
    document["stages"] = [document["stages"][0], document["stages"][1] | {"W": 3, "BW": 4}]
    problem = parse_problem(document)
    order = sure_order(problem)
    for objective in ("makespan", "span"):
        timed = time_order(problem, order, objective)  # type: ignore[arg-type]
        assert check(problem, timed) == []
        assert [(t.start, t.end) for t in timed.devices[0]][-2:] == [(3, 3), (3, 3)]


ZERO_BACKWARD: dict[str, Any] = {"device": 0, "B": 0, "W": 3, "held_in_backward": 5}


@pytest.mark.parametrize(
    ("stages", "need"),
    [
        # F, B and W of 3 at time 0: B takes no time, holds nothing and leaves nothing
        ([ZERO_BACKWARD | {"F": 0, "held_after_F": 2}], 0),
        # F of 1 holds 2; B as before
        ([ZERO_BACKWARD | {"F": 1, "held_after_F": 2}], 2),
        # B leaves 4 to W, BW holds 5 while it runs
        ([ZERO_BACKWARD | {"F": 1, "held_after_F": 2, "held_after_B": 4}], 4),
        # B leaves 7 to W, so BW is the better one
        ([ZERO_BACKWARD | {"F": 1, "held_after_F": 2, "held_after_B": 7}], 5),
        # B of 1 holds 5, too
        ([ZERO_BACKWARD | {"F": 0, "B": 1, "held_after_F": 2}], 5),
        # the same after another chunk, which holds 3 from its F to its BW
        (
            [
                {"device": 0, "F": 1, "B": 1, "W": 0, "held_after_F": 3, "backward": "fused"},
                ZERO_BACKWARD | {"F": 1, "held_after_F": 2},
            ],
            5,
        ),
    ],
)
def test_a_backward_of_no_time_holds_nothing_on_top(
    stages: list[dict[str, Any]], need: int
) -> None:
    document = {"format": FORMAT, "microbatches": 1, "devices": [{"memory": need}]}
    document["stages"] = stages
    problem = parse_problem(document)
    assert [found.capacity for found in smallest_capacities(problem)] == [need]
    assert check(problem, time_order(problem, sure_order(problem))) == []
    assert optimum(document) is not None
    if need:
        less = document | {"devices": [{"memory": need - 1}]}
        assert optimum(less) is None
        with pytest.raises(Infeasible, match=f"the smallest capacity that works is {need}"):
            preflight(parse_problem(less))


def test_what_takes_no_time_needs_no_memory_in_any_mode() -> None:
    """F and B run in one instant, so that no mode need be chosen for memory."""
    recompute = {"name": "recompute", "held_after_F": 1}
    stage = {"device": 0, "F": 0, "B": 0, "W": 0, "held_after_F": 2, "modes": [recompute]}
    document = {"format": FORMAT, "microbatches": 1, "devices": [{"memory": 0}], "stages": [stage]}
    assert [need.capacity for need in smallest_capacities(parse_problem(document))] == [0]
    assert optimum(document) == 0


def test_a_forward_waits_for_the_backward_that_it_shares_an_instant_with() -> None:
    # device 0 holds one: 0F1 is listed before 0BW0, which is there when 1F0 and 1BW0 are over
    stage = {"held_after_F": 1, "backward": "fused"}
    stages = [{"device": d, "F": d, "B": d, "W": 0} | stage for d in range(2)]
    devices = [{"memory": 1}, {}]
    document = {"format": FORMAT, "microbatches": 2, "devices": devices, "stages": stages}
    problem = parse_problem(document)
    rows = ["F0 F1 BW0 BW1", "F0 BW0 F1 BW1"]
    order = tuple(
        tuple(Op(d, op[:-1], int(op[-1])) for op in row.split())  # type: ignore[arg-type]
        for d, row in enumerate(rows)
    )
    timed = time_order(problem, order)
    assert [t.start for t in timed.devices[0]] == [0, 2, 2, 4]
    assert check(problem, timed) == []


def test_one_unit_of_time_elsewhere_parts_the_instants_of_a_device() -> None:
    stages = [{"device": d, "F": d, "B": 0, "W": 0, "held_after_F": 1} for d in range(2)]
    document = {"format": FORMAT, "microbatches": 1, "devices": [{}, {}], "stages": stages}
    assert [need.capacity for need in smallest_capacities(parse_problem(document))] == [1, 1]
    assert optimum(document | {"devices": [{"memory": 0}, {}]}) is None


def test_sure_order_runs_one_microbatch_after_the_other() -> None:
    rows = sure_order(chain(2, 2, cap=1))
    assert [str(op) for op in rows[0]] == ["0F0", "0BW0", "0F1", "0BW1"]


@pytest.mark.slow
def test_a_zero_length_forward_shares_the_instant_of_another_microbatch_s_backward() -> None:
    # Two chunks on a device that holds 7 of microbatch 0 already; F of microbatch 1 takes 7 more
    # while the last of microbatch 0's zero-length backwards frees 7. By order 19, by instants 18:
    # the load of device 0 is 2 (1 + 0 + 2 + 3 + 0 + 3) = 18.
    stages = [
        {"device": 0, "F": 1, "B": 0, "W": 2, "held_after_F": 7, "backward": "either"},
        {"device": 1, "F": 1, "B": 0, "W": 4, "held_after_F": 7, "held_after_B": 11},
        {"device": 0, "F": 3, "B": 0, "W": 3, "held_after_B": 3, "backward": "split"},
    ]
    document = {
        "format": FORMAT,
        "microbatches": 2,
        "devices": [{"memory": 15}, {}],
        "stages": [stages[0], stages[1] | {"backward": "split"}, stages[2]],
    }
    result = solve(parse_problem(document), time_limit=20, deterministic=True)
    assert result.schedule is not None
    assert (result.status, result.schedule.makespan) == ("optimal", 18)
