"""Problems of at most some 30 ops, whose optimum the exact oracle finds."""

from __future__ import annotations

from itertools import combinations_with_replacement, product
from random import Random
from typing import Any

from campaign.problems import draw

POSITIVE = (1, 1, 2, 3, 4, 6)
ZEROS = (0, 0, 0, 1, 2, 3)


def _sizes(rng: Random, stages: int) -> int:
    """Microbatches such that the oracle is fast."""
    return rng.randint(1, max(1, min(4, 8 // stages)))


def chain(rng: Random) -> dict[str, Any]:
    """One stage per device."""
    count = rng.randint(1, 3)
    stages = [draw.stage(rng, d, POSITIVE) for d in draw.homes(rng, count, count)]
    draw.holdings(rng, stages)
    return draw.problem(rng, stages, count, _sizes(rng, count), slack=rng.choice([0.4, 0.7, 1]))


def chunks(rng: Random) -> dict[str, Any]:
    """Several stages on a device, in a loop, a V or anywhere; devices without stages."""
    count, number = rng.choice([(1, 2), (2, 3), (2, 4), (3, 4), (1, 3)])
    stages = [draw.stage(rng, d, POSITIVE) for d in draw.homes(rng, count, number)]
    draw.holdings(rng, stages)
    idle = rng.choice([0, 0, 1])
    return draw.problem(rng, stages, count + idle, _sizes(rng, number))


def routes(rng: Random) -> dict[str, Any]:
    """Two routes over the same devices, in one or in opposite directions."""
    count = rng.randint(1, 2)
    there = list(range(count))
    back = rng.choice([there, there[::-1]])
    stages = [draw.stage(rng, d, POSITIVE) for d in there + back]
    draw.holdings(rng, stages)
    document = draw.problem(rng, stages, count, 2)
    del document["microbatches"]
    document.pop("comm", None)
    ids = list(range(2 * count))
    if rng.random() < 0.5:
        rng.shuffle(ids)
    parts = [ids[:count], ids[count:]]
    for number, device in zip(parts[0] + parts[1], there + back, strict=True):
        stages[number]["device"] = device
    document["routes"] = [{"stages": part, "microbatches": rng.randint(1, 2)} for part in parts]
    if rng.random() < 0.5:
        document["comm"] = {"default": rng.choice([0, 1, 3])}
    return document


def zero(rng: Random) -> dict[str, Any]:
    """A chain in which many times are 0."""
    count = rng.randint(1, 3)
    stages = [draw.stage(rng, d, ZEROS) for d in range(count)]
    draw.holdings(rng, stages)
    return draw.problem(
        rng, stages, count, _sizes(rng, count), slack=rng.choice([0.3, 0.6, 1]), delays=(0, 0, 1, 2)
    )


def zero_chunks(rng: Random) -> dict[str, Any]:
    """Several stages per device, many times 0 (some stages nothing but 0), little memory."""
    count, number = rng.choice([(1, 2), (1, 3), (2, 3), (2, 4)])
    stages = [draw.stage(rng, d, ZEROS) for d in draw.homes(rng, count, number)]
    for entry in stages:
        if rng.random() < 0.2:
            entry |= {"F": 0, "B": 0, "W": 0}
            entry.pop("BW", None)
    draw.holdings(rng, stages)
    document = draw.problem(rng, stages, count, _sizes(rng, number), delays=(0, 0, 1))
    if rng.random() < 0.6:
        _instants(rng, document)
    return document


def held_zero(rng: Random) -> dict[str, Any]:
    """Many times 0, every amount held, in the backward too; memory from none to ample."""
    document = rng.choice([zero, zero_chunks, zero_chunks, routes])(rng)
    often = rng.choice([0.3, 0.6, 0.9])
    for entry in document["stages"]:
        for kind in ("F", "B", "W", "BW"):
            if kind in entry and rng.random() < often:
                entry[kind] = 0
        entry["held_after_F"] = rng.choice([0, 1, 2, 4])
        entry["held_after_B"] = rng.choice([0, 0, 1, 3, 7])
        entry["held_in_backward"] = rng.choice([0, 1, 3, 5, 9])
    for number, device in enumerate(document["devices"]):
        here = [entry for entry in document["stages"] if entry["device"] == number]
        most = sum(max(entry[key] for key in entry if key.startswith("held_")) for entry in here)
        if rng.random() < 0.8:
            device["memory"] = device.get("static", 0) + rng.randint(0, round(1.3 * most))
    return document


def _instants(rng: Random, document: dict[str, Any]) -> None:
    """Let backwards pass in an instant, with memory for less than one microbatch's way at most."""
    for entry in document["stages"]:
        entry.pop("BW", None)
        entry |= {"B": 0, "backward": rng.choice(["split", "split", "either"])}
        entry["held_after_F"] = rng.choice([0, 2, 5, 8, 10])
        entry["held_after_B"] = rng.choice([0, 0, 3, 11, 12])
    for number, device in enumerate(document["devices"]):
        here = [s for s in document["stages"] if s["device"] == number]
        held = [max(s["held_after_F"], s["held_after_B"]) for s in here]
        if held:
            device["memory"] = device.get("static", 0) + rng.randint(max(held), sum(held))


def tight(rng: Random) -> dict[str, Any]:
    """Memory at, just below or just above what one microbatch takes; static up to the brim."""
    document = rng.choice([chain, chunks])(rng)
    for number, device in enumerate(document["devices"]):
        held = [
            max(s.get("held_after_F", 0), s.get("held_after_B", 0))
            for s in document["stages"]
            if s["device"] == number
        ]
        static = device.get("static", 0)
        if rng.random() < 0.7:
            one = rng.choice([sum(held), max(held, default=0)])
            device["memory"] = max(0, static + one + rng.choice([-1, 0, 0, 1, 1, 2]))
    return document


def overlap(rng: Random) -> dict[str, Any]:
    """F and BW in pairs, from a great gain to a loss."""
    document = rng.choice([chain, chunks, routes])(rng)
    document["overlap"] = {"FB": rng.choice([[1, 2], [2, 3], [4, 5], [1, 1], [9, 8], [1, 100]])}
    for entry in document["stages"]:  # a pair of no length would wait for itself
        entry["backward"] = rng.choice(["either", "fused", "fused"])
    return document


def pairs(rng: Random) -> dict[str, Any]:
    """Two ops of any kinds that run as one, shorter than a member or longer than both in turn."""
    return with_pairs(rng, rng.choice([chain, chunks, routes, zero, zero_chunks, tight])(rng))


def with_pairs(rng: Random, document: dict[str, Any], *, by_time: float = 0.7) -> dict[str, Any]:
    """Let ops of any kinds pair, this share of them by time and the others by factor."""
    homes = [entry["device"] for entry in document["stages"]]
    kinds = [
        (f"{a}{x}", f"{b}{y}")
        for a, b in combinations_with_replacement(range(len(homes)), 2)
        for x, y in product(("F", "B", "W", "BW"), repeat=2)
        if homes[a] == homes[b] and (a < b or x <= y)
    ]
    entries = []
    most = rng.choice([8, 8, len(kinds)])  # a few, or up to every combination
    for one, other in rng.sample(kinds, min(len(kinds), rng.randint(1, most))):
        entry: dict[str, Any] = {"ops": rng.choice([[one, other], [other, one]])}
        if rng.random() < by_time:
            entry["time"] = rng.randint(1, 8)
        else:
            entry["factor"] = rng.choice([[1, 4], [1, 2], [2, 3], [4, 5], [1, 1], [999, 10**6]])
        entries.append(entry)
    document["overlap"] = {"pairs": entries}
    if rng.random() < 0.2:
        document["overlap"]["FB"] = rng.choice([[2, 3], [1, 1]])
        for entry in document["stages"]:  # a pair of no length would wait for itself
            entry["F"] = max(1, entry["F"])
    return document
