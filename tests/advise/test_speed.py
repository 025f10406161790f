"""Devices of different speed: layers' times there, the even split, and the best of all cuts."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import combinations, pairwise
from math import ceil
from typing import Any

import pytest

import pipesat
from pipesat.advise.splits import even_partition
from pipesat.core.errors import BadInput
from pipesat.layers.layers_file import parse_layers
from pipesat.layers.pipeline import Pipeline, speed_of
from pipesat.layers.stages import problem_of_split

SPEEDS = ("1", "0.5", "0.75", "1.3", "2")


def drawn(seed: int) -> tuple[dict[str, Any], list[str]]:
    chance = random.Random(seed)
    layers = [
        {kind: chance.randint(1, 9) for kind in ("F", "B", "W")} | {"name": f"l{k}"}
        for k in range(chance.randint(3, 5))
    ]
    for layer in layers:
        layer["held_after_F"] = chance.randint(1, 3)
    speeds = [chance.choice(SPEEDS) for _ in range(chance.randint(2, 3))]
    return {"format": "pipesat.layers/1", "layers": layers}, speeds


def by_hand(layers: dict[str, Any], speeds: list[str], cuts: tuple[int, ...], m: int) -> Any:
    """The problem of a cut, each time of each layer rounded up at its device's speed."""
    ends = (0, *cuts, len(layers["layers"]))
    stages = []
    for device, (a, b) in enumerate(pairwise(ends)):
        own = layers["layers"][a:b]
        times = {
            kind: sum(ceil(Fraction(x[kind]) / Fraction(speeds[device])) for x in own)
            for kind in ("F", "B", "W")
        }
        held = sum(x["held_after_F"] for x in own)
        stages.append({"device": device, **times, "held_after_F": held})
    return pipesat.Problem.from_stages(stages, m)


@pytest.mark.parametrize("seed", range(4))
def test_the_plan_is_the_best_of_all_cuts(seed: int) -> None:
    layers, speeds = drawn(seed)
    p, count = len(speeds), len(layers["layers"])
    values = []
    for cuts in combinations(range(1, count), p - 1):
        found = pipesat.solve(by_hand(layers, speeds, cuts, 3), time_limit=10, workers=1)
        assert found.status == "optimal"
        values.append(found.value)
    planned = pipesat.plan(
        parse_layers(layers), p, 3, speed=speeds, time_limit=3, workers=1, compare=False
    )
    assert planned.value == min(values)
    assert planned.bound is None or planned.bound.value <= min(values)


def test_the_even_split_gives_fast_devices_more() -> None:
    layers = parse_layers({"format": "pipesat.layers/1", "layers": [{"F": 2, "B": 2, "W": 2}] * 12})
    shape = Pipeline(devices=3, microbatches=4, speed=speed_of(["1", "0.5", "1.5"], 3))
    assert [len(part) for part in even_partition(layers, shape)] == [4, 2, 6]
    problem = problem_of_split(layers, even_partition(layers, shape), shape)
    assert [stage.F for stage in problem.stages] == [8, 8, 6 * 2]


@pytest.mark.parametrize("wrong", ["0", "-1", "1e3", "0.1234567", "fast", ["1", "2", "3"]])
def test_what_a_speed_may_not_be(wrong: Any) -> None:
    with pytest.raises(BadInput, match="speed"):
        speed_of(wrong, 2)


def test_a_layer_s_share_and_the_ideal_are_of_times_on_its_device() -> None:
    """Rank 1 is half as fast: its one layer takes 4 + 4 + 4, all of the rank's load.

    Work of 4 x 12 at speeds that sum up to 1.5 takes 32. An even share for the fast rank is 8 of
    12, so neither layer of 6 is more than every share.
    """
    one = {"F": 2, "B": 2, "W": 2}
    layers = parse_layers({"format": "pipesat.layers/1", "layers": [one, one]})
    advice = pipesat.advise(layers, 2, 4, speed=["1", "0.5"], time_limit=1, workers=1)
    assert advice.chosen is not None
    (limit,) = (text for head, text in advice.facts() if head == "Limit")
    assert limit.startswith("the bottleneck is rank 1")
    assert limit.endswith("layer 1 is 100 % of that")
    assert advice.chosen.share_of_ideal(advice.question) == 32 / advice.chosen.makespan


def test_a_layer_s_share_of_a_stage_that_recomputes_counts_that() -> None:
    """Alone: F = 2 and BW = 4. With its activations computed again: 2 and 2 + 4."""
    again = {"F": 2, "B": 4, "W": 2, "held_after_F": 1}
    layer = {"F": 2, "B": 2, "W": 2, "held_after_F": 9, "recompute": again}
    layers = parse_layers({"format": "pipesat.layers/1", "layers": [layer, layer]})
    advice = pipesat.advise(layers, 2, 4, memory=9, reserve=0, time_limit=1, workers=1)
    row = advice.chosen
    assert row is not None
    assert row.again
    for stage in range(2):
        expected = 2 + (6 if stage in row.again else 4)
        assert [*advice.question.works_on(stage, row.candidate)] == [(stage, expected)]


def test_what_is_proven_without_recomputation_says_so() -> None:
    """Without a limit of memory nothing recomputes, whatever an odd file says of what that takes.

    As it is, rank 1 alone takes 1 + 2 x 4 + 1 = 10. Recomputing, it would take 4.
    """
    again = {"F": 1, "B": 0, "W": 0, "held_after_F": 1}
    one = {"F": 1, "B": 2, "W": 1, "held_after_F": 1, "recompute": again}
    layers = parse_layers({"format": "pipesat.layers/1", "layers": [one, one]})
    advice = pipesat.advise(layers, 2, 2, time_limit=1, workers=1)
    (proof,) = (text for head, text in advice.facts() if head == "Proof")
    assert "on any split of chain without recomputation" in proof


def test_what_is_proven_for_elf_speaks_of_whole_backwards_where_stages_recompute() -> None:
    """ELF recomputes within B, so it splits such backwards, which advise does not try."""
    again = {"F": 1, "B": 2, "W": 1, "held_after_F": 0}
    one = {"F": 1, "B": 1, "W": 1, "held_after_F": 1, "recompute": again}
    layers = parse_layers({"format": "pipesat.layers/1", "layers": [one, one]})
    for target, said in (("elf", "recompute with whole backwards,"), ("torch", "recompute,")):
        advice = pipesat.advise(
            layers, 2, 2, memory=1, reserve=0, target=target, time_limit=1, workers=1
        )
        (proof,) = (text for head, text in advice.facts() if head == "Proof")
        assert f"whichever stages {said}" in proof
