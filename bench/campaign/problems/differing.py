"""Problems whose microbatches differ, and those with memory modes, tiny and middle-sized."""

from __future__ import annotations

from random import Random
from typing import Any

from campaign.problems import medium, tiny

Document = dict[str, Any]
HELD = ("held_after_F", "held_after_B", "held_in_backward")


def classes(rng: Random) -> Document:
    """Tiny, with a list of microbatches on one route or two; all times may be 0 at times."""
    document = rng.choice([tiny.chain, tiny.chunks, tiny.routes, tiny.zero])(rng)
    if "routes" in document:
        entries = document["routes"]
        which = [rng.random() < 0.7 for _ in entries]
        which[rng.randrange(len(which))] = True
        for entry, chosen in zip(entries, which, strict=True):
            if chosen:
                entry["microbatches"] = _list(rng, document, entry["microbatches"], entry["stages"])
    else:
        stages = range(len(document["stages"]))
        count = min(document["microbatches"], 3)
        document["microbatches"] = _list(rng, document, count, stages)
    if rng.random() < 0.8:
        document["order"] = rng.choice(["given", "same", "same", "free"])
    _held_in_backward(rng, document)
    if rng.random() < 0.15:
        document["overlap"] = {"FB": rng.choice([[1, 2], [2, 3], [1, 1]])}
        for stage in document["stages"]:  # a pair of no length would wait for itself
            stage["F"] = max(1, stage["F"])
    return document


def routes_with_classes(rng: Random) -> Document:
    """Tiny, two routes in one or in opposite directions, a list on one of them or on both."""
    document = tiny.routes(rng)
    entries = document["routes"]
    for entry in rng.sample(entries, rng.choice([1, 2, 2])):
        count = 2 if rng.random() < 0.7 else entry["microbatches"]
        entry["microbatches"] = _list(rng, document, count, entry["stages"])
    if rng.random() < 0.9:
        document["order"] = rng.choice(["given", "same", "same", "free"])
    _held_in_backward(rng, document)
    return document


def modes(rng: Random) -> Document:
    """Tiny, with memory modes on most stages; copies on one channel or two."""
    document = rng.choice([tiny.chain, tiny.chunks, tiny.zero])(rng)
    document["microbatches"] = min(document["microbatches"], 3)
    with_modes(rng, document)
    return document


def held_zero_modes(rng: Random) -> Document:
    """Tiny, with lengths of 0, every held amount, and memory modes, lists or pairs."""
    document = tiny.held_zero(rng)
    extra = rng.choice(["modes", "modes", "list", "pairs"])
    if extra == "pairs":
        return tiny.with_pairs(rng, document)
    if extra == "modes":
        with_modes(rng, document)
    if "routes" not in document and (extra == "list" or rng.random() < 0.3):
        count = document["microbatches"] = min(2, document["microbatches"])
        document["microbatches"] = _list(rng, document, count, range(len(document["stages"])))
        document["order"] = rng.choice(["given", "same", "free"])
    return document


def zero_modes(rng: Random) -> Document:
    """Tiny, lengths of 0 on stages with modes, capacities about what one microbatch needs."""
    document = held_zero_modes(rng)
    while not any(stage.get("modes") for stage in document["stages"]):
        document = held_zero_modes(rng)
    often = rng.choice([0.3, 0.7])
    for mode in (mode for stage in document["stages"] for mode in stage.get("modes", [])):
        timed = mode.get("offload", mode)
        for key in ("F", "B", "W", "BW", "out", "in"):
            if key in timed and rng.random() < often:
                timed[key] = 0
    for number, device in enumerate(document["devices"]):
        here = [entry for entry in document["stages"] if entry["device"] == number]
        one = [max(entry.get(key, 0) for key in HELD) for entry in here]
        device["memory"] = device.get("static", 0) + rng.randint(0, sum(one))
    return document


def classes_and_modes(rng: Random) -> Document:
    """Tiny, with both; amounts of single stages only where these have no modes."""
    document = modes(rng)
    stages = range(len(document["stages"]))
    count = min(document["microbatches"], 2)
    document["microbatches"] = _list(rng, document, count, stages)
    document["order"] = rng.choice(["given", "same", "free"])
    return document


def mixture(rng: Random) -> Document:
    """Tiny, anything that has two of pairs, a list of microbatches, and modes, at least."""
    shapes = [tiny.chain, tiny.chunks, tiny.routes, tiny.zero, tiny.zero_chunks, tiny.held_zero]
    document = rng.choice(shapes)(rng)
    without = rng.choice(["pairs", "list", "modes", "", "", ""])
    holders = document.get("routes", [document])
    for holder in holders:
        holder["microbatches"] = min(2, holder["microbatches"])
    if without != "modes":
        with_modes(rng, document)
    if without != "list":
        for holder in rng.sample(holders, rng.randint(1, len(holders))):
            every = range(len(document["stages"]))
            stages = holder["stages"] if "routes" in document else every
            holder["microbatches"] = _list(rng, document, holder["microbatches"], stages)
        document["order"] = rng.choice(["given", "same", "free"])
    if without != "pairs":
        tiny.with_pairs(rng, document, by_time=rng.choice([0, 0.5]) if without == "list" else 0)
    return document


def lengths(rng: Random) -> Document:
    """Middle-sized, microbatches of three lengths on stages that published schedules are for."""
    document = medium.uniform(rng)
    document.pop("overlap", None)
    _three_lengths(rng, document)
    return document


def tight_modes(rng: Random) -> Document:
    """Middle-sized, with memory that is short and modes alike on all stages."""
    document = medium.uniform(rng)
    document.pop("overlap", None)
    for entry in document["stages"]:
        entry["held_after_F"] = max(2, entry.get("held_after_F", 0))
    offload = {"out": rng.randint(0, 12), "in": rng.randint(0, 12), "held": rng.choice([0, 1])}
    for entry in document["stages"]:
        again = {"name": "again", "backward": "fused", "held_after_F": 1}
        again["BW"] = entry["F"] + entry["B"] + entry["W"]
        found = [again, {"name": "host", "offload": offload}]
        entry["modes"] = rng.choice([found, found[:1], found[1:]])
        entry["held_in_backward"] = rng.choice([0, 0, 3])
    for device in document["devices"]:
        device["copy_channels"] = rng.choice([1, 2])
    return document


def with_modes(rng: Random, document: Document) -> None:
    """Give most stages one or two modes."""
    for stage in document["stages"]:
        found = []
        if rng.random() < 0.6:
            copies = {"out": rng.choice([0, 1, 2, 4]), "in": rng.choice([0, 1, 2, 4])}
            copies["held"] = rng.randint(0, stage.get("held_after_F", 0))
            found.append({"name": rng.choice(["host", "ж|1"]), "offload": copies})
        if rng.random() < 0.6:
            found.append(_stated(rng, stage))
        rng.shuffle(found)
        if found:
            stage["modes"] = found
    for device in document["devices"]:
        if rng.random() < 0.6:
            device["copy_channels"] = rng.choice([1, 2])
    if rng.random() < 0.7:
        document["mode_choice"] = rng.choice(["microbatch", "stage"])
    _held_in_backward(rng, document)


def _stated(rng: Random, stage: Document) -> Document:
    """A mode that states some of a stage's amounts."""
    found: Document = {"name": "again"}
    if rng.random() < 0.7:
        found |= {"BW": stage["F"] + stage["B"] + stage["W"], "backward": "fused"}
    else:
        found[rng.choice(["B", "W", "F"])] = rng.randint(0, 5)
        found["backward"] = rng.choice(["split", "fused", "either"])
    found["held_after_F"] = rng.randint(0, 1)
    if rng.random() < 0.5:
        found["held_in_backward"] = rng.randint(0, 3)
    return found


def _held_in_backward(rng: Random, document: Document) -> None:
    for stage in document["stages"]:
        if rng.random() < 0.2:
            stage["held_in_backward"] = rng.randint(0, 5)


def _list(rng: Random, document: Document, count: int, stages: Any) -> list[Document]:
    """Write microbatches as a list; names may come again, classes may be equal."""
    names = rng.sample(["long", "short", "é<b>", ""], rng.choice([1, 2, 2, 3]))
    found: list[Document] = []
    seen: set[str] = set()
    while count:
        name = rng.choice(names)
        entry: Document = {"name": name, "count": rng.randint(1, count)}
        if name not in seen:
            seen.add(name)
            for key in ("time", "held", "comm"):
                if rng.random() < 0.5:
                    entry[key] = [rng.randint(1, 3), rng.randint(1, 2)]
            _outright(rng, document, entry, stages)
        count -= entry["count"]
        found.append(entry)
    return found


def _outright(rng: Random, document: Document, entry: Document, stages: Any) -> None:
    free = [s for s in stages if not document["stages"][s].get("modes")]
    if not free or rng.random() < 0.7:
        return
    keys = rng.sample(["F", "B", "W", "BW", *HELD], rng.randint(1, 3))
    entry["stages"] = {str(rng.choice(free)): {key: rng.randint(0, 4) for key in keys}}


def _three_lengths(rng: Random, document: Document) -> None:
    count = document["microbatches"]
    shares = {"short": [1, 1], "middle": [3, 2], "long": rng.choice([[2, 1], [4, 1], [9, 4]])}
    found: list[Document] = []
    seen: set[str] = set()
    for _ in range(count):
        name = rng.choice([*shares])
        entry: Document = {"name": name, "count": 1}
        if name not in seen:
            entry |= {"time": shares[name], "held": shares[name]}
            seen.add(name)
        found.append(entry)
    document["microbatches"] = found
    document["order"] = rng.choice(["given", "same", "free"])
    for device in document["devices"]:
        if device.get("memory") is not None:
            device["memory"] = 2 * device["memory"]
