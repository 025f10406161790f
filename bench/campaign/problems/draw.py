"""Parts of random problem documents that several families share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

BACKWARDS = ("either", "either", "either", "split", "fused")


def stage(rng: Random, device: int, times: Sequence[int]) -> dict[str, Any]:
    """Return one stage; every optional key is absent at times."""
    F, B, W = (rng.choice(times) for _ in range(3))
    found: dict[str, Any] = {"device": device, "F": F, "B": B, "W": W}
    if rng.random() < 0.5:  # below and above B + W
        found["BW"] = max(0, rng.choice([B + W - 1, B + W + 1, B, max(B, W), B + W]))
    if rng.random() < 0.6:
        found["backward"] = rng.choice(BACKWARDS)
    return found


def holdings(rng: Random, stages: Sequence[dict[str, Any]]) -> None:
    """Give stages memory to hold; what is held after B may be more than after F."""
    for entry in stages:
        entry["held_after_F"] = rng.choice([0, 1, 1, 2, 3])
        if rng.random() < 0.7:
            entry["held_after_B"] = rng.choice([0, 1, 1, 2, 4])


def devices(
    rng: Random, count: int, stages: Sequence[dict[str, Any]], microbatches: int, slack: float
) -> list[dict[str, Any]]:
    """Return devices, some with memory: about ``slack`` of what all microbatches would hold."""
    found = []
    for number in range(count):
        entry: dict[str, Any] = {}
        held = sum(
            max(s.get("held_after_F", 0), s.get("held_after_B", 0))
            for s in stages
            if s["device"] == number
        )
        if rng.random() < 0.3:
            entry["name"] = rng.choice(["rank", "α", "GPU 0", "a|b", ""]) + str(number)
        if held and rng.random() < 0.8:
            entry["static"] = rng.choice([0, 0, 3, 100])
            most = max(1, round(held * microbatches * slack))
            entry["memory"] = entry["static"] + rng.randint(min(held, most), max(held, most))
        elif rng.random() < 0.2:
            entry["memory"] = None
        found.append(entry)
    return found


def comm(rng: Random, route: Sequence[int], delays: Sequence[int]) -> dict[str, Any] | None:
    """Return delays by edge, by default, or none at all."""
    if rng.random() < 0.3:
        return None
    found: dict[str, Any] = {"default": rng.choice(delays)}
    edges = []
    for src, dst in pairwise(route):
        if rng.random() < 0.4:
            edge = {"src": src, "dst": dst}
            for kind in "FB":
                if rng.random() < 0.8:
                    edge[kind] = rng.choice(delays)
            edges.append(edge)
    if edges:
        found["edges"] = edges
    return found


def problem(
    rng: Random,
    stages: list[dict[str, Any]],
    count: int,
    microbatches: int,
    *,
    slack: float = 0.7,
    delays: Sequence[int] = (0, 0, 1, 2, 5),
) -> dict[str, Any]:
    """Put a document of one route together."""
    document: dict[str, Any] = {
        "format": "pipesat.problem/1",
        "microbatches": microbatches,
        "devices": devices(rng, count, stages, microbatches, slack),
        "stages": stages,
    }
    found = comm(rng, range(len(stages)), delays)
    if found is not None:
        document["comm"] = found
    if rng.random() < 0.3:
        document |= {"name": "case é|1", "time_unit": "us", "memory_unit": "MiB"}
    return document


def homes(rng: Random, count: int, stages: int) -> list[int]:
    """Return devices of stages: in a loop, there and back, or anywhere."""
    there = list(range(count))
    if stages == count:
        return rng.choice([there, there, there[::-1]])
    ways = [[s % count for s in range(stages)], [rng.randrange(count) for _ in range(stages)]]
    if stages == 2 * count:
        ways.append(there + there[::-1])
    return rng.choice(ways)
