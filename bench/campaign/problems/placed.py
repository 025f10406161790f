"""Problems of one route as runtimes place them, and some as none does; layers, layouts."""

from __future__ import annotations

from random import Random
from typing import Any

from campaign.problems import draw


def placed(rng: Random) -> dict[str, Any]:
    """A chain, a loop, a V or anything; at times the route runs through stages out of order."""
    devices = rng.choice([1, 2, 2, 3, 4])
    there = [*range(devices)]
    loop, vee = there * rng.choice([2, 2, 3]), there + there[::-1]
    homes = rng.choice([there, there, loop, loop, vee, vee, [*reversed(there)], there + there[:1]])
    microbatches = rng.choice([1, 2, devices, 2 * devices, 3 * devices, 3 * devices + 1, 9])
    F = rng.randint(1, 6)
    stages = [{"device": d, "F": F, "B": F, "W": rng.choice([F, 1])} for d in homes]
    if rng.random() < 0.4:
        stages = [draw.stage(rng, d, range(1, 6)) for d in homes]
    draw.holdings(rng, stages)
    document: dict[str, Any] = {
        "format": "pipesat.problem/1",
        "devices": [{} for _ in there],
        "stages": stages,
    }
    order = [*range(len(stages))]
    if rng.random() < 0.2:
        rng.shuffle(order)
        document["stages"] = [stages[order.index(s)] for s in range(len(stages))]
    if order == sorted(order) and rng.random() < 0.7:
        document["microbatches"] = microbatches
    else:
        document["routes"] = [{"stages": order, "microbatches": microbatches}]
    if rng.random() < 0.15:
        document["overlap"] = {"FB": [3, 4]}
    if rng.random() < 0.3:
        document["comm"] = {"default": rng.randint(1, 3)}
    return document


def lettered(rng: Random, devices: int, *, plain: bool) -> dict[str, Any]:
    """Layers with letters of Megatron-LM's layouts; unless plain, also such as have none."""
    times = {"F": 2, "B": 2, "W": 1}
    blocks = devices * rng.randint(2, 4) + rng.randint(0, 1)
    found: list[dict[str, Any]] = [{"role": "block", "repeat": blocks} | times]
    if rng.random() < 0.6:
        found.insert(0, {"role": "embedding", "first": True} | times)
    if rng.random() < 0.3:
        found.append({"role": "mtp"} | times)
    if rng.random() < 0.7:
        heads = 1 if plain else rng.choice([1, 2, 4])
        found.append({"role": "head", "repeat": heads} | times)
    if not plain and rng.random() < 0.4:  # an encoder's blocks on the first stage
        found.insert(0, {"repeat": 4, "F": 1, "B": 0, "W": 0, "first": True})
    return {"format": "pipesat.layers/1", "layers": found}


def layout(rng: Random, stages: int, blocks: int, mtp: int) -> str:
    """A layout of so many blocks, often with a fault: short of one, an L too early, a bar more."""
    cuts = sorted(rng.randint(0, blocks) for _ in range(stages - 1))
    counts = [b - a for a, b in zip([0, *cuts], [*cuts, blocks], strict=True)]

    def many(n: int) -> str:
        return rng.choice(["t" * n, f"t*{n}"]) if n > 1 else "t" * n

    parts = [many(n) for n in counts]
    parts[0] = "E" + parts[0]
    parts[-1] += "m" * mtp + "L"
    text = "|".join(parts)
    fault = rng.choice(["", "", "", "early", "bar", "less", "none", "comma", "group", "zero"])
    if fault == "early":
        text = text.replace("L", "") + "|tL|"[rng.randint(0, 1) :]
        text = text if text.endswith("L|") else "|".join([*parts[:-2], parts[-1], ""])
    elif fault == "bar":
        text += "|"
    elif fault == "less":
        text = text.replace("t", "", 1)
    elif fault == "none":
        text = text.replace(rng.choice("EL"), "")
    elif fault == "comma":
        text = text.replace("|", "|,", 1)
    elif fault == "group":
        text = text.replace("tt", "(t)*2", 1)
    elif fault == "zero":
        text = text.replace("|", "t*0|", 1)
    return text
