"""Random small problems in which ops may run in pairs, of every kind, as documents."""

from __future__ import annotations

from itertools import combinations_with_replacement, product
from random import Random
from typing import Any

from tests.support.zero_lengths import random_document

_KINDS = ("F", "B", "W", "BW")
_COMBINATIONS = [frozenset(pair) for pair in combinations_with_replacement(_KINDS, 2)]


def random_paired_document(rng: Random, *, zeros: bool = True) -> dict[str, Any]:
    """Draw a problem as :func:`random_document` does, with pairs, by a factor or listed.

    Listed are F with backwards, or any kinds drawn, or all of them; a pair's time lies anywhere
    from 1, so it is often shorter than a member, to a little more than the sum.
    """
    document = random_document(rng, zeros=zeros)
    if rng.random() < 0.15:
        return document | {"overlap": {"FB": [rng.randint(1, 5), rng.randint(3, 6)]}}
    usual = [frozenset("F") | {kind} for kind in ("B", "W", "BW")]
    drawn = rng.sample(_COMBINATIONS, rng.randint(1, 4))
    allowed = rng.choice([usual[2:], usual, drawn, drawn, _COMBINATIONS])
    stages = document["stages"]
    ops = [(s, kind) for s in range(len(stages)) for kind in _KINDS]
    pairs = []
    for one, other in combinations_with_replacement(ops, 2):
        here = stages[one[0]]["device"] == stages[other[0]]["device"]
        if not here or frozenset({one[1], other[1]}) not in allowed or rng.random() < 0.2:
            continue
        times = [_time(stages[s], kind) for s, kind in (one, other)]
        least = rng.choice([1, max(1, *times), max(1, sum(times) // 2)])
        time = rng.randint(least, max(least, sum(times) + rng.choice([0, 0, 1])))
        pairs.append({"ops": [f"{s}{kind}" for s, kind in (one, other)], "time": time})
    overlap: dict[str, Any] = {"pairs": pairs}
    if rng.random() < 0.2:
        overlap["FB"] = [rng.randint(1, 5), rng.randint(3, 6)]
    return document | {"overlap": overlap}


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
