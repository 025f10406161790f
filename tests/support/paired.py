"""Random small problems in which ops may run in pairs, of every kind, as documents."""

from __future__ import annotations

from itertools import combinations_with_replacement, product
from random import Random
from typing import Any

_KINDS = ("F", "B", "W", "BW")
_COMBINATIONS = [frozenset(pair) for pair in combinations_with_replacement(_KINDS, 2)]
_OF_BACKWARDS = [kinds for kinds in _COMBINATIONS if "F" not in kinds]
_WITH_F = [kinds for kinds in _COMBINATIONS if "F" in kinds and len(kinds) == 2]

SPLIT_VEE: dict[str, Any] = {
    "format": "pipesat.problem/1",
    "microbatches": 4,
    "devices": [{"memory": 12}, {"memory": 12}],
    "stages": [
        {"device": d, "F": 2, "B": 3, "W": 1, "held_after_F": 2, "held_after_B": 1}
        for d in (0, 1, 1, 0)
    ],
    "overlap": {"pairs": [{"ops": ["1F", "2BW"], "time": 4}]},
}
"""Four microbatches in a V of two devices, room for six chunks on each; F 1 may pair with BW 2."""


def random_paired_document(rng: Random, *, zeros: bool = True) -> dict[str, Any]:
    """Draw a problem in which many kinds of ops may pair, of one stage or of several on a device.

    One to three devices hold two to four stages in any order, on one route or two, with memory for
    anything from a little less than one microbatch to all. A pair's time lies anywhere from 1, so
    it is at times shorter than a member, to a little more than the sum. Without ``zeros`` every op
    takes time.
    """
    homes = rng.choice([_anywhere(rng), _anywhere(rng), (0, 1, 1, 0), (0, 1, 0, 1), (0, 1, 2, 1)])
    count, most = len(homes), 3 if len(homes) == 2 else 2
    often = rng.choice([0.2, 0.5, 0.8]) if zeros else 0.0
    longest = rng.choice([3, 3, 5])

    def time() -> int:
        return 0 if rng.random() < often else rng.randint(0 if zeros else 1, longest)

    stages = []
    for home in homes:
        stage: dict[str, Any] = {"device": home} | {key: time() for key in ("F", "B", "W")}
        stage |= {key: rng.randint(0, 3) for key in ("held_after_F", "held_after_B")}
        stage["backward"] = rng.choice(["either", "either", "split", "fused"])
        if rng.random() < 0.4:
            stage["BW"] = rng.randint(0 if zeros else 1, stage["B"] + stage["W"] + 1)
        stages.append(stage)
    routes: dict[str, Any] = {"microbatches": rng.choice([1, most, most])}
    if rng.random() < 0.3:
        order, cut = rng.sample(range(count), count), rng.randint(1, count - 1)
        parts = order[:cut], order[cut:]
        routes = {"routes": [{"stages": s, "microbatches": rng.randint(1, most)} for s in parts]}
    return routes | {
        "format": "pipesat.problem/1",
        "devices": [_room(rng, stages, d, most) for d in range(max(homes) + 1)],
        "stages": stages,
        "comm": {"default": rng.choice([0, 0, 1, 2])},
        "overlap": _overlap(rng, stages),
    }


def _anywhere(rng: Random) -> tuple[int, ...]:
    devices, count = rng.choice([1, 1, 2, 2, 3]), rng.choice([2, 2, 3, 3, 4])
    return tuple(rng.randrange(devices) for _ in range(count))


def _room(rng: Random, stages: list[dict[str, Any]], device: int, most: int) -> dict[str, Any]:
    here = [stage for stage in stages if stage["device"] == device]
    held = sum(max(stage["held_after_F"], stage["held_after_B"]) for stage in here)
    static = rng.choice([0, 0, 1])
    if rng.random() < 0.5:
        return {"static": static}
    return {"static": static, "memory": static + rng.randint(max(0, held - 1), held * most)}


def _overlap(rng: Random, stages: list[dict[str, Any]]) -> dict[str, Any]:
    """Draw a share of some combinations of kinds, of any two stages, of two, or of one."""
    few = rng.sample(_COMBINATIONS, rng.randint(1, 4))
    allowed = rng.choice([_COMBINATIONS, _COMBINATIONS, _OF_BACKWARDS, _WITH_F, few])
    apart = rng.choice([(False, True), (False, True), (True,), (False,)])
    share = rng.choice([0.2, 0.5, 0.9])
    pairs = []
    for one, other in combinations_with_replacement(product(range(len(stages)), _KINDS), 2):
        here = stages[one[0]]["device"] == stages[other[0]]["device"]
        if not here or frozenset({one[1], other[1]}) not in allowed or rng.random() >= share:
            continue
        if (one[0] != other[0]) not in apart:
            continue
        times = [_time(stages[s], kind) for s, kind in (one, other)]
        least = max(1, rng.choice([max(times), max(times), sum(times) // 2, 1]))
        time = rng.randint(least, max(least, sum(times) + rng.choice([0, 0, 1])))
        ops = [f"{s}{kind}" for s, kind in rng.sample((one, other), 2)]
        pairs.append({"ops": ops, "time": time})
    rng.shuffle(pairs)
    overlap: dict[str, Any] = {"pairs": pairs}
    if rng.random() < 0.25:
        overlap["FB"] = [rng.randint(1, 5), rng.randint(3, 6)]
    return overlap


def random_tight_document(rng: Random) -> dict[str, Any]:
    """Draw a problem with pairs whose devices cannot hold all microbatches at once.

    A chain, a V, a loop, several chunks on one device, or two routes; every op takes time.
    """
    homes, most = rng.choice(
        [
            ((0, 1), 4),
            ((0, 1), 4),
            ((0, 1, 2), 3),
            ((0, 0), 4),
            ((0, 1, 1, 0), 2),
            ((0, 1, 0, 1), 2),
        ]
    )
    stages: list[dict[str, Any]] = [
        {key: rng.randint(1, 4) for key in ("F", "B", "W")}
        | {"held_after_F": rng.randint(1, 3), "held_after_B": rng.choice([0, 1, 1, 2])}
        | {"backward": rng.choice(["either", "either", "split", "fused"])}
        for _ in homes
    ]
    if rng.random() < 0.6:
        stages = [dict(stages[0]) for _ in homes]
    if rng.random() < 0.3:
        stages[0]["BW"] = rng.randint(1, 7)
    stages = [stage | {"device": home} for stage, home in zip(stages, homes, strict=True)]
    usual = [frozenset({"F", "BW"})]
    more = [frozenset(pair) for pair in rng.sample([("F", "B"), ("F", "W"), ("F",), ("B", "W")], 2)]
    allowed = rng.choice([usual, usual, usual + more, _COMBINATIONS])
    pairs = []
    for one, other in combinations_with_replacement(
        [(s, kind) for s in range(len(homes)) for kind in _KINDS], 2
    ):
        if homes[one[0]] == homes[other[0]] and frozenset({one[1], other[1]}) in allowed:
            times = [_time(stages[s], kind) for s, kind in (one, other)]
            least = max(1, max(times) - rng.choice([0, 0, 2]))
            time = rng.randint(least, max(least, sum(times)))
            pairs.append({"ops": [f"{s}{kind}" for s, kind in (one, other)], "time": time})
    count = rng.randint(2, most)
    routes: dict[str, Any] = {"microbatches": count}
    if homes == (0, 1, 1, 0) and rng.random() < 0.5:
        routes = {"routes": [{"stages": s, "microbatches": count} for s in ([0, 1], [2, 3])]}
    devices = []
    for device in sorted(set(homes)):
        here = [stage for stage in stages if stage["device"] == device]
        least = sum(max(stage["held_after_F"], stage["held_after_B"]) for stage in here)
        total = count * sum(stage["held_after_F"] for stage in here)
        devices.append({"memory": rng.randint(least, max(least, total - 1))})
    return routes | {
        "format": "pipesat.problem/1",
        "devices": devices,
        "stages": stages,
        "comm": {"default": rng.choice([0, 0, 1])},
        "overlap": {"pairs": pairs},
    }


def random_waiting_document(rng: Random) -> dict[str, Any]:
    """Draw a problem in which microbatches may wait on their way: pairs with one F each.

    A chain, a V, a loop or chunks that share a device, of small memory on one device or on several.
    """
    homes, most = rng.choice(
        [
            ((0, 1), 5),
            ((0, 1, 2), 4),
            ((0, 1, 1), 4),
            ((0, 0, 1), 3),
            ((0, 1, 1, 0), 3),
            ((0, 1, 1, 0), 3),
            ((0, 1, 0, 1), 3),
            ((0, 1, 2, 1), 2),
        ]
    )
    longest = rng.choice([3, 5])
    stages: list[dict[str, Any]] = [
        {key: rng.randint(1, longest) for key in ("F", "B", "W")}
        | {"held_after_F": rng.randint(1, 2), "held_after_B": rng.choice([0, 1, 1])}
        | {"backward": rng.choice(["either", "either", "split", "fused"])}
        for _ in homes
    ]
    if rng.random() < 0.5:
        stages = [dict(stages[0]) for _ in homes]
    if rng.random() < 0.3:
        stages[rng.randrange(len(stages))]["BW"] = rng.randint(1, 7)
    stages = [stage | {"device": home} for stage, home in zip(stages, homes, strict=True)]
    partners = ("BW", "B", "W")[: rng.choice([1, 1, 2, 3])]
    pairs = []
    for one, other in product(range(len(homes)), repeat=2):
        for kind in partners:
            if homes[one] != homes[other] or rng.random() < 0.2:
                continue
            times = [_time(stages[one], "F"), _time(stages[other], kind)]
            least = 1 if rng.random() < 0.1 else max(1, max(times) - rng.choice([0, 0, 1, 3]))
            time = rng.randint(least, max(least, sum(times)))
            pairs.append({"ops": [f"{one}F", f"{other}{kind}"], "time": time})
    count = rng.randint(2, most)
    routes: dict[str, Any] = {"microbatches": count}
    if homes == (0, 1, 1, 0) and rng.random() < 0.4:
        routes = {"routes": [{"stages": s, "microbatches": count} for s in ([0, 1], [2, 3])]}
    devices: list[dict[str, Any]] = []
    for device in sorted(set(homes)):
        here = [stage for stage in stages if stage["device"] == device]
        least = sum(max(stage["held_after_F"], stage["held_after_B"]) for stage in here)
        total = count * sum(stage["held_after_F"] for stage in here)
        devices.append({"memory": rng.randint(least, max(least, total - 1))})
    if rng.random() < 0.5:
        devices[rng.randrange(len(devices))] = {}
    return routes | {
        "format": "pipesat.problem/1",
        "devices": devices,
        "stages": stages,
        "comm": {"default": rng.choice([0, 0, 1, 2])},
        "overlap": {"pairs": pairs},
    }


def random_rank_document(rng: Random) -> dict[str, Any]:
    """Draw a problem on one route whose microbatches come to a device one after another.

    A V, a loop, a chain or chunks that share a device, mostly of unequal stages, in which every F
    may pair with every backward of its device; memory for some microbatches, or for all.
    """
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
        times = [_time(stages[one], "F"), _time(stages[other], "BW")]
        if homes[one] == homes[other]:
            least = max(1, max(times) - rng.choice([0, 0, 0, 1]))
            time = rng.randint(least, max(least, sum(times) * 3 // 4))
            pairs.append({"ops": [f"{one}F", f"{other}BW"], "time": time})
    count, devices = rng.randint(3, 5), len(set(homes))
    some = rng.random() < 0.7
    memory = [
        {"memory": rng.randint(2, len(homes)) * 2 + 1} if some else {} for _ in range(devices)
    ]
    return {
        "format": "pipesat.problem/1",
        "microbatches": count,
        "devices": memory,
        "stages": stages,
        "comm": {"default": rng.choice([0, 0, 1])},
        "overlap": {"pairs": pairs},
    }


def _time(stage: dict[str, Any], kind: str) -> int:
    return int(stage.get(kind, stage["B"] + stage["W"]))
