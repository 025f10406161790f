"""Room for whole microbatches only: by hand, and never above the optimum by an oracle."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.bounds.memory_counts import in_whole_microbatches, with_slacks_in_use
from pipesat.problem.problem_file import parse_problem
from tests.oracle.exact import optimum


def vee(slack: int, microbatches: int, held: int = 1) -> dict[str, Any]:
    """Two devices, unit times, F with BW in 1; ``room`` on the turn's device."""
    stage = {"F": 1, "B": 1, "W": 1, "BW": 1, "held_after_F": held, "backward": "fused"}
    return {
        "format": "pipesat.problem/1",
        "microbatches": microbatches,
        "devices": [{}, {"memory": slack}],
        "stages": [stage | {"device": d} for d in (0, 1, 1, 0)],
        "overlap": {
            "pairs": [
                {"ops": [f"{s}F", f"{t}BW"], "time": 1}
                for two in ((0, 3), (1, 2))
                for s, t in product(two, two)
            ]
        },
    }


def test_memory_is_what_sums_of_the_amounts_can_fill() -> None:
    raw = vee(slack=11, microbatches=4, held=4)
    assert with_slacks_in_use(parse_problem(raw)).devices[1].slack == 8
    raw["stages"][1] |= {"held_after_F": 6}
    assert with_slacks_in_use(parse_problem(raw)).devices[1].slack == 10


def test_who_holds_the_later_stage_holds_the_earlier_one_too() -> None:
    counted = list(in_whole_microbatches(parse_problem(vee(slack=5, microbatches=4)), 1))
    # stage 1 alone: 5, which leaves nothing over; stage 2 with stage 1: 2, which leaves 1
    assert [problem.devices[1].slack for problem in counted] == [2]
    assert [counted[0].stages[s].held_after_F for s in (1, 2)] == [0, 1]


@pytest.mark.parametrize("m", [2, 3, 10])
def test_room_for_three_chunks_passes_one_microbatch_at_a_time_behind_the_turn(m: int) -> None:
    # F 0, F 1; then F 2, F 3, BW 3, BW 2 of each, one microbatch after the other; BW 1, BW 0
    raw = vee(slack=3, microbatches=m)
    assert closed_form_bound(parse_problem(raw), "makespan").value == 4 * m + 4
    if m == 2:
        assert optimum(raw, at_most=4 * m + 4, effort=5) == 4 * m + 4
