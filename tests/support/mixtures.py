"""Tiny problems that mix pairs, microbatches that differ and memory modes, all drawn together."""

from __future__ import annotations

from itertools import combinations_with_replacement, product
from random import Random
from typing import Any, NamedTuple

Document = dict[str, Any]
_KINDS = ("F", "B", "W", "BW")
_HELD = ("held_after_F", "held_after_B", "held_in_backward")
PLACEMENTS = {
    "one device": ((0,), (0, 0)),
    "chain": ((0, 1), (0, 1), (0, 1, 2)),
    "loop": ((0, 1, 0), (0, 1, 0, 1)),
    "V": ((0, 1, 1, 0), (0, 1, 0)),
    "routes": ((0, 0), (0, 1, 1, 0), (0, 1, 0, 1), (0, 1, 0)),
}
"""Devices of the stages; of two routes, the first half of the stages is the first one's."""


class Mixture(NamedTuple):
    """A document, and by name what it mixes."""

    document: Document
    pairs: str
    lists: str
    modes: str
    choice: str
    placement: str

    @property
    def label(self) -> str:
        """What it mixes, in a few words."""
        modes = f"{self.modes} per {self.choice}" if self.modes else ""
        said = (f"pairs by {self.pairs}" if self.pairs else "", self.lists, modes)
        return " + ".join(part for part in said if part)


def mixture(chance: Random, *, with_modes: bool = True) -> Mixture:
    """Draw a problem of few (stage, microbatch)s that has two of pairs, lists and modes at least.

    Of four with modes, else of six, at most.
    """
    while True:
        lists = chance.choice(["", "given", "same", "free"])
        by = ["", "factor", "factor", "FB", "factor and FB"]
        pairs = chance.choice(by if lists else [*by, "time", "time", "time and FB"])
        some = ["", "recompute", "offload", "both", "both"]
        modes = chance.choice(some) if with_modes else ""
        if sum(map(bool, (pairs, lists, modes))) > 1:
            break
    choice = chance.choice(["microbatch", "stage"]) if modes else ""
    placement = chance.choice([*PLACEMENTS])
    homes = chance.choice(PLACEMENTS[placement])
    least = chance.choice([0, 0, 1])  # of a time
    stages = [_stage(chance, home, least) for home in homes]
    document: Document = {
        "format": "pipesat.problem/1",
        "devices": [_device(chance) for _ in range(max(homes) + 1)],
        "stages": stages,
        "comm": {"default": chance.choice([0, 0, 1, 2])},
    }
    if modes:
        document["mode_choice"] = choice
        for stage in stages:
            stage["modes"] = _modes(chance, stage, modes, least)
    _microbatches(chance, document, lists, two=placement == "routes")
    if pairs:
        document["overlap"] = _overlap(chance, homes, pairs)
    return Mixture(document, pairs, lists, modes, choice, placement)


def _stage(chance: Random, device: int, least: int) -> Document:
    stage: Document = {"device": device}
    stage |= {kind: chance.randint(least, 3) for kind in ("F", "B", "W")}
    stage |= {key: chance.choice([0, 1, 2, 3]) for key in _HELD if chance.random() < 0.7}
    stage["backward"] = chance.choice(["either", "either", "split", "fused"])
    if chance.random() < 0.3:
        stage["BW"] = chance.randint(least, 5)
    return stage


def _device(chance: Random) -> Document:
    memory = chance.choice([None, *range(2, 9)])
    static = chance.choice([0, 0, 1])
    return {"memory": memory, "static": static, "copy_channels": chance.choice([1, 2])}


def _modes(chance: Random, stage: Document, which: str, least: int) -> list[Document]:
    found: list[Document] = []
    if which in ("offload", "both"):
        held = chance.randint(0, stage.get("held_after_F", 0))
        times = {"out": chance.randint(least, 3), "in": chance.randint(least, 3)}
        found.append({"name": "offload", "offload": times | {"held": held}})
    if which in ("recompute", "both"):
        again: Document = {"name": "recompute", "held_after_F": chance.randint(0, 1)}
        again["backward"] = chance.choice(["fused", "fused", "either", "split"])
        for kind in chance.choice([("BW",), ("BW",), ("B",), ("B", "BW"), ("F", "W")]):
            again[kind] = chance.randint(least, 5)
        if chance.random() < 0.5:
            again["held_in_backward"] = chance.randint(0, 3)
        found.append(again)
    return found


def _microbatches(chance: Random, document: Document, lists: str, *, two: bool) -> None:
    stages = range(len(document["stages"]))
    most = max(1, (4 if "mode_choice" in document else 6) // len(stages))
    if two:
        half = len(stages) // 2
        document["routes"] = [
            {"stages": [*part], "microbatches": chance.randint(1, most)}
            for part in (stages[:half], stages[half:])
        ]
    else:
        document["microbatches"] = chance.randint(min(2, most), most)
    holders: list[Document] = document.get("routes", [document])
    if lists:
        document["order"] = lists
        for holder in holders if chance.random() < 0.7 else holders[:1]:
            own = holder.get("stages", []) if two else [*stages]
            count = holder["microbatches"]
            holder["microbatches"] = _list(chance, document, count, own)


def _list(chance: Random, document: Document, count: int, stages: list[int]) -> list[Document]:
    entries: list[Document] = []
    for _ in range(count):
        name = chance.choice(["long", "short"])
        entry: Document = {"name": name, "count": 1}
        if all(other["name"] != name for other in entries):
            for key in ("time", "held", "comm"):
                if chance.random() < 0.5:
                    entry[key] = chance.choice([[1, 2], [2, 3], [3, 2], [2, 1]])
            free = [s for s in stages if not document["stages"][s].get("modes")]
            if free and chance.random() < 0.3:
                keys = chance.sample([*_KINDS, *_HELD], 2)
                stated = {key: chance.randint(0, 3) for key in keys}
                entry["stages"] = {str(chance.choice(free)): stated}
        entries.append(entry)
    return entries


def _overlap(chance: Random, homes: tuple[int, ...], by: str) -> Document:
    kinds = [
        (f"{a}{x}", f"{b}{y}")
        for (a, x), (b, y) in combinations_with_replacement(product(range(len(homes)), _KINDS), 2)
        if homes[a] == homes[b]
    ]
    overlap: Document = {}
    if "FB" in by:
        overlap["FB"] = chance.choice([[1, 2], [2, 3], [3, 4], [1, 1], [5, 4]])
    if by != "FB":
        share = chance.choice([0.2, 0.5, 1.0])
        entries = []
        for ops in kinds:
            if chance.random() < share:
                entry: Document = {"ops": [*chance.sample(ops, 2)]}
                if "factor" in by:
                    entry["factor"] = chance.choice([[1, 3], [1, 2], [2, 3], [3, 4], [1, 1]])
                else:
                    entry["time"] = chance.randint(1, 6)
                entries.append(entry)
        overlap["pairs"] = entries
    return overlap
