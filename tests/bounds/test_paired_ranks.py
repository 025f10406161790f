"""First backwards by rank: by hand, and never above what a schedule reaches."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import pytest

from pipesat.bounds.paired import paired_bounds, with_least_times
from pipesat.bounds.paired_ranks import RankTimes
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from tests.oracle.claims import least
from tests.oracle.reading import Document
from tests.support.problems import document, vee

VEE = parse_problem(
    document(
        vee(2, 4, cap=12, F=2, B=3, W=1, held=(2, 1)),
        overlap={"pairs": [{"ops": ["1F", "2BW"], "time": 4}]},
    )
)
"""First backward of device 0: 8, after 4 F; of device 1: 11."""


def _ranks(problem: Problem) -> RankTimes:
    return RankTimes(problem, with_least_times(problem), (8, 11))


def test_backwards_come_as_fast_as_the_turn_runs_two_forwards_of_each() -> None:
    # of stage 3: F 1 and F 2 take 4 each from 2 on, then F 3, so 8, 12, 16, 20; of stage 0: 17, and
    # 6 more for B 2 and B 1 of each
    assert _ranks(VEE).backwards(0, 6) == [8, 12, 16, 17, 20, 23]


def test_two_forwards_in_a_pair_or_ops_without_time_make_it_silent() -> None:
    assert _ranks(VEE).apply
    assert VEE.overlap is not None
    two = replace(VEE.overlap, times={**VEE.overlap.times, ((0, "F"), (3, "F")): 3})
    assert not _ranks(replace(VEE, overlap=two)).apply
    nothing = replace(VEE.stages[0], W=0)
    assert not _ranks(replace(VEE, stages=(nothing, *VEE.stages[1:]))).apply


def test_a_device_that_starts_later_need_not_wait_for_its_forwards() -> None:
    # in the makespan, backward k of device 1 comes after k F's of 4 on device 0, and F 1; in the
    # span, device 1 may start at 26, when all F's are there: F 1, four pairs 2 each, B 1, W 30
    late = parse_problem(
        {
            "format": "pipesat.problem/1",
            "microbatches": 5,
            "devices": [{}, {"memory": 2}],
            "stages": [
                {"device": 0, "F": 4, "B": 1, "W": 1, "BW": 1, "backward": "fused"},
                {"device": 1, "F": 1, "B": 1, "W": 30, "held_after_F": 1},
            ],
            "overlap": {"pairs": [{"ops": ["1F", "1BW"], "time": 2}]},
        }
    )
    ranks = RankTimes(late, with_least_times(late), (6, 5))
    assert ranks.backwards(1, 3) == [5, 9, 13]
    assert ranks.backwards(1, 3, own=True) == [5, 6, 7]
    assert max(bound.value for bound in paired_bounds(late, "span")) == 1 + 4 * 2 + 1 + 30


def drawn(seed: int) -> Document:
    """Unequal stages of a V, a loop or a chain, whose F's may pair with every BW of their device.

    Microbatches come to a device one after another, which few problems of the generator let show.
    """
    rng = Random(seed)
    homes = rng.choice([(0, 1, 1, 0), (0, 1, 2, 2, 1, 0), (0, 1, 0, 1), (0, 1, 2), (0, 1, 2, 1, 0)])
    longest = rng.choice([3, 5])
    stages = [
        {key: rng.randint(longest // 2, longest) for key in ("F", "B")}
        | {"device": home, "W": rng.randint(1, 2), "held_after_F": 2}
        | {"held_after_B": rng.choice([0, 1, 2]), "backward": rng.choice(["either", "fused"])}
        for home in homes
    ]
    pairs = []
    for one, other in product(range(len(homes)), repeat=2):
        times = [stages[one]["F"], stages[other]["B"] + stages[other]["W"]]
        if homes[one] == homes[other]:
            least_time = max(1, max(times) - rng.choice([0, 0, 0, 1]))
            time = rng.randint(least_time, max(least_time, sum(times) * 3 // 4))
            pairs.append({"ops": [f"{one}F", f"{other}BW"], "time": time})
    count, some = rng.randint(3, 5), rng.random() < 0.7
    memory = [{"memory": rng.randint(2, len(homes)) * 2 + 1} if some else {} for _ in set(homes)]
    return {"format": "pipesat.problem/1", "microbatches": count, "devices": memory} | {
        "stages": stages,
        "comm": {"default": rng.choice([0, 0, 1])},
        "overlap": {"pairs": pairs},
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", [29, 88, 110, 148, 212])
def test_no_schedule_is_shorter(seed: int) -> None:
    raw = drawn(seed)
    bounds = {x.source: x.value for x in paired_bounds(parse_problem(raw), "makespan")}
    ranks = max(value for source, value in bounds.items() if "by rank of" in source)
    loads = [value for source, value in bounds.items() if "load with pairs of" in source]
    assert ranks > max(loads)
    assert least(raw, "makespan", ranks - 1)[0] is None
