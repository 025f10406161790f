"""Memory modes in problem files, the amounts that result, and every refusal."""

from typing import Any

import pytest

from pipesat.core.errors import BadInput
from pipesat.problem.problem import Offload, Problem
from pipesat.problem.problem_file import parse_problem

STAGE = {"device": 0, "F": 10, "B": 20, "W": 5, "held_after_F": 7, "held_after_B": 3}


def parsed(stage: dict[str, Any], **rest: Any) -> Problem:
    return parse_problem(
        {
            "format": "pipesat.problem/1",
            "devices": [{}],
            "stages": [STAGE | stage],
            "microbatches": 2,
        }
        | rest,
        "p.json",
    )


def complaint(stage: dict[str, Any], **rest: Any) -> str:
    with pytest.raises(BadInput) as caught:
        parsed(stage, **rest)
    return str(caught.value)


def test_a_mode_states_what_differs() -> None:
    recompute = {
        "name": "r",
        "backward": "fused",
        "BW": 34,
        "held_after_F": 2,
        "held_in_backward": 9,
    }
    offload = {"name": "o", "offload": {"out": 8, "in": 6, "held": 1}}
    problem = parsed({"modes": [recompute, offload]}, mode_choice="stage")
    keep, one, two = (problem.amounts(0, 1, mode) for mode in range(3))
    assert (keep.F, keep.BW, keep.backward, keep.held_in_backward) == (10, 25, "either", 0)
    assert (one.F, one.BW, one.backward, one.held_after_F, one.held_in_backward) == (
        10, 34, "fused", 2, 9,
    )  # fmt: skip
    assert (two.BW, two.held_after_F, two.offload) == (25, 7, Offload(8, 6, 1))
    assert problem.mode_choice == "stage"
    assert not problem.alike


@pytest.mark.parametrize(
    ("stage", "mode", "wanted"),
    [
        ({}, {"B": 30}, 35),  # no BW anywhere: a sum
        ({"BW": 22}, {"B": 30}, 35),  # the mode states B: its own sum
        ({"BW": 22}, {"W": 6}, 26),
        ({"BW": 22}, {"F": 1}, 22),  # as the stage has it
        ({"BW": 22}, {"B": 30, "BW": 31}, 31),
    ],
)
def test_where_BW_of_a_mode_comes_from(
    stage: dict[str, int], mode: dict[str, int], wanted: int
) -> None:
    assert wanted == parsed(stage | {"modes": [{"name": "m"} | mode]}).amounts(0, 0, 1).BW


def test_classes_scale_modes_before_sums_are_formed() -> None:
    modes = [
        {"name": "m", "B": 5, "held_in_backward": 5},
        {"name": "o", "offload": {"out": 5, "in": 7, "held": 3}},
    ]
    listed = [{"name": "a", "count": 1, "time": [1, 2], "held": [3, 2]}]
    problem = parsed({"modes": modes}, microbatches=listed)
    assert problem.amounts(0, 0, 1).BW == 6  # ceil(5/2) + ceil(5/2), not ceil(10/2)
    assert problem.amounts(0, 0, 1).held_in_backward == 8
    assert problem.amounts(0, 0, 2).offload == Offload(8, 11, 5)  # copies scale with held


@pytest.mark.parametrize(
    ("stage", "rest", "wanted"),
    [
        (
            {"modes": [{"name": "keep"}]},
            {},
            "stages[0].modes[0].name: got 'keep', expected another name",
        ),
        ({"modes": [{"name": "a"}, {"name": "a"}]}, {}, "modes[1].name: got 'a', expected another"),
        ({"modes": [{"F": 1}]}, {}, "stages[0].modes[0].name: this key is required"),
        (
            {"modes": [{"name": str(n)} for n in range(17)]},
            {},
            "stages[0].modes: 17 entries, expected at most 16",
        ),
        (
            {"modes": [{"name": "o", "offload": {"out": 1, "in": 1, "held": 8}}]},
            {},
            "modes[0].offload.held: got 8, expected at most held_after_F, 7",
        ),
        (
            {"modes": [{"name": "o", "F": 3, "offload": {"out": 1, "in": 1, "held": 0}}]},
            {},
            "stages[0].modes[0]: expected offload alone, without F",
        ),
        (
            {"modes": [{"name": "o", "offload": {"out": 1, "held": 0}}]},
            {},
            "stages[0].modes[0].offload.in: this key is required",
        ),
        (
            {"modes": [{"name": "o", "offload": None}]},
            {},
            "modes[0].offload: got null, expected an object",
        ),
        (
            {"modes": [{"name": "o", "backwards": "fused"}]},
            {},
            "stages[0].modes[0].backwards: unknown key; the nearest known key is backward",
        ),
        ({"modes": [{"name": "o", "device": 0}]}, {}, "modes[0].device: unknown key"),
        ({"held_in_backward": -1}, {}, "held_in_backward: got -1, expected an integer from 0"),
        ({}, {"mode_choice": "all"}, "p.json: mode_choice: got 'all', expected one of"),
        ({}, {"devices": [{"copy_channels": 3}]}, "devices[0].copy_channels: got 3, expected"),
        ({}, {"devices": [{"copy_channels": True}]}, "copy_channels: got true, expected"),
        (
            {"modes": [{"name": "m"}]},
            {"microbatches": [{"name": "a", "count": 1, "stages": {"0": {"F": 1}}}]},
            "microbatches[0].stages['0']: stage 0 has modes, so a class cannot state its amounts",
        ),
        (
            {"modes": [{"name": "m", "BW": 10**9}]},
            {"microbatches": [{"name": "a", "count": 1, "time": [1001, 1]}]},
            "BW of stage 0 in mode m becomes 1001000000000, expected at most 10^12",
        ),
    ],
)
def test_bad_modes_get_one_line(stage: dict[str, Any], rest: dict[str, Any], wanted: str) -> None:
    text = complaint(stage, **rest)
    assert wanted in text
    assert "\n" not in text
