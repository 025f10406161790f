"""Problems with steady states, that published schedules are made for: no exact oracle."""

from __future__ import annotations

from random import Random
from typing import Any

from campaign.problems import draw


def _placed(rng: Random) -> tuple[int, list[int], int]:
    count = rng.choice([2, 2, 3, 4])
    there = list(range(count))
    homes = rng.choice([there, there, there * 2, there + there[::-1], there * 3])
    microbatches = rng.choice([1, count, 2 * count, 2 * count + 1, 3 * count])
    return count, homes, microbatches


def uniform(rng: Random) -> dict[str, Any]:
    """All stages alike: chains, loops and V's that most baselines take."""
    count, homes, microbatches = _placed(rng)
    F = rng.randint(1, 12)
    one = {"F": F, "B": max(0, F + rng.randint(-2, 2)), "W": rng.choice([F, F // 2, 2 * F, 0])}
    if rng.random() < 0.3:
        one["BW"] = one["B"] + one["W"] + rng.choice([-1, 1]) if one["B"] else one["W"]
    one |= {"held_after_F": rng.choice([0, 1, 4]), "held_after_B": rng.choice([0, 1, 2, 5])}
    stages = [{"device": home} | one for home in homes]
    document = draw.problem(rng, stages, count, microbatches, slack=rng.choice([0.3, 0.6, 1]))
    if rng.random() < 0.3:
        document["overlap"] = {"FB": rng.choice([[1, 2], [3, 4], [9, 10]])}
    return document


def uneven(rng: Random) -> dict[str, Any]:
    """Stages that differ, by a little or by much."""
    count, homes, microbatches = _placed(rng)
    times = rng.choice([range(1, 4), range(8, 13), range(1, 200), range(6)])
    stages = [draw.stage(rng, home, times) for home in homes]
    draw.holdings(rng, stages)
    return draw.problem(
        rng, stages, count, microbatches, slack=rng.choice([0.3, 0.6, 1]), delays=(0, 1, 7)
    )


def two_ways(rng: Random) -> dict[str, Any]:
    """Two routes in opposite directions, with pairs at times: DualPipe's and Chimera's home."""
    count = rng.choice([2, 4])
    there = list(range(count))
    F, B, W = (rng.randint(1, 6) for _ in range(3))
    one = {"F": F, "B": B, "W": W, "held_after_F": rng.choice([0, 1]), "held_after_B": 1}
    stages = [{"device": home} | one for home in there + there[::-1]]
    microbatches = rng.choice([count, count + 1, 2 * count])
    document: dict[str, Any] = {
        "format": "pipesat.problem/1",
        "devices": draw.devices(rng, count, stages, microbatches, 1.0),
        "stages": stages,
        "routes": [
            {"stages": there, "microbatches": microbatches},
            {"stages": [count + d for d in there], "microbatches": microbatches},
        ],
    }
    if rng.random() < 0.6:
        document["overlap"] = {"FB": rng.choice([[1, 2], [3, 4], [1, 1]])}
    return document
