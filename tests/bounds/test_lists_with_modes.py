"""Closed forms where microbatches differ and may recompute, against the oracle for lists.

Each way to choose the modes is a problem of lists alone: a class per microbatch, with the amounts
of its modes written out. The least of their optima is that of the problem.
"""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest

from pipesat.bounds.closed_form import closed_form_bounds
from pipesat.core.schedule import Objective
from pipesat.files.problem_file import parse_problem
from tests.support.class_oracle import Oracle
from tests.support.seeds import seeds

SEEDS = seeds(16, quick=6)


def drawn(seed: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A problem, and the problems without modes that it may become."""
    draw, number = random.Random(seed), random.Random(seed).randint
    count, devices = draw.choice([(2, 2), (3, 1), (2, 1)])
    stages = [
        {"device": d, "F": number(1, 5), "B": 2, "W": 2, "held_after_F": number(2, 5)}
        | {"BW": number(3, 6), "backward": "fused"}
        for d in range(devices)
    ]
    sizes = [number(1, 3) for _ in range(count)]
    document: dict[str, Any] = {
        "format": "pipesat.problem/1",
        "devices": [{"memory": number(6, 18)} for _ in range(devices)],
        "order": draw.choice(["given", "same", "free"]),
        "comm": {"default": number(0, 3)},
    }
    modes = [
        {"name": "again", "BW": stage["BW"] + number(1, 4), "held_after_F": number(0, 1)}
        for stage in stages
    ]

    def entries(chosen: dict[tuple[int, int], bool]) -> list[dict[str, Any]]:
        """Every amount of each microbatch, by stage, in units of its size."""
        kinds = ("F", "BW", "held_after_F")
        return [
            {"name": f"m{m}", "count": 1}
            | {
                "stages": {
                    str(s): {
                        key: size * (modes[s] if chosen[s, m] and key in modes[s] else stage)[key]
                        for key in kinds
                    }
                    for s, stage in enumerate(stages)
                }
            }
            for m, size in enumerate(sizes)
        ]

    cells = list(product(range(devices), range(count)))
    ways = [dict(zip(cells, of, strict=True)) for of in product((False, True), repeat=len(cells))]
    classes = [
        {"name": f"m{m}", "count": 1, "time": [size, 1], "held": [size, 1]}
        for m, size in enumerate(sizes)
    ]
    own = [stage | {"modes": [mode]} for stage, mode in zip(stages, modes, strict=True)]
    apart = [document | {"stages": stages, "microbatches": entries(chosen)} for chosen in ways]
    return document | {"stages": own, "microbatches": classes}, apart


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_no_bound_is_above_the_least_optimum(seed: int, objective: Objective) -> None:
    document, apart = drawn(seed)
    optima = [optimum for one in apart if (optimum := Oracle(one).optimum(objective)) is not None]
    for bound in closed_form_bounds(parse_problem(document), objective) if optima else ():
        assert bound.value <= min(optima), bound


def test_a_long_microbatch_that_recomputes_is_seen_as_long() -> None:
    """F 3 and 1, BW 6 and 2 at least on one device after another of the same: 4 F, 8 BW, 1 before.

    With the least of both classes there were 2 F and 4 BW.
    """
    stage = {"F": 1, "B": 1, "W": 1, "BW": 2, "held_after_F": 2, "backward": "fused"}
    mode = {"name": "again", "BW": 3, "held_after_F": 1}
    document = {
        "format": "pipesat.problem/1",
        "devices": [{}, {}],
        "stages": [stage | {"device": d, "modes": [mode]} for d in (0, 1)],
        "microbatches": [
            {"name": "long", "count": 1, "time": [3, 1]},
            {"name": "short", "count": 1},
        ],
    }
    found = {b.source: b.value for b in closed_form_bounds(parse_problem(document), "makespan")}
    assert found["closed form: load of device 0"] == 12
    assert found["closed form: load of device 1"] == 13
