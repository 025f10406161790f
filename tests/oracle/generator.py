"""Small random problem documents: one generator, with a flag for each dimension.

Each flag is what is drawn from: ``lists=("given", "")`` makes half of the problems lists in the
given order. ``FAMILIES`` names sets of flags.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement, pairwise, product
from random import Random
from typing import Any

from tests.oracle.reading import HELD, KINDS, Document

SHAPES = ("one device", "chain", "loop", "V", "anywhere", "bidirectional", "routes")
ONE_ROUTE = SHAPES[:5]
RULES = ("given", "same", "free")
PAIRS = ("time", "factor", "FB", "time and FB", "factor and FB")
MODES = ("recompute", "offload", "recompute and offload")
MEMORY = ("none", "ample", "enough", "tight", "any")
BACKWARDS = ("either", "either", "split", "fused")


def drawn(
    seed: object,
    *,
    shapes: Sequence[str] = SHAPES,
    devices: tuple[int, int] = (1, 3),
    stages: int = 6,
    microbatches: tuple[int, int] = (1, 4),
    ops: int = 24,
    longest: int = 6,
    zeros: Sequence[float] = (0.0,),
    backwards: Sequence[str] = BACKWARDS,
    held: float = 0.0,
    uniform: float = 0.2,
    memory: Sequence[str] = MEMORY,
    delays: Sequence[int] = (0, 0, 1, 2),
    lists: Sequence[str] = ("",),
    classes: tuple[int, int] = (2, 3),
    large: bool = False,
    pairs: Sequence[str] = ("",),
    kinds: Sequence[tuple[str, str]] = tuple(combinations_with_replacement(KINDS, 2)),
    modes: Sequence[str] = ("",),
    choices: Sequence[str] = ("microbatch", "stage"),
    graphs: Sequence[bool] = (False,),
    slices: Sequence[int] = (1,),
    nones: Sequence[float] = (0.0,),
) -> Document:
    """Draw a problem of at most about so many F, B and W; the same one for the same seed.

    Parameters
    ----------
    seed
        Names the problem.
    shapes
        Placements: how stages lie on devices, and whether there are two routes.
    devices, microbatches
        The least and the most, where ``ops`` allows.
    stages
        The most of them.
    longest, zeros
        Times go from 1 to ``longest``; a share ``zeros`` of them is 0.
    backwards
        Ways of the backward that stages allow.
    held
        How often a backward holds more while it runs.
    uniform
        How often all stages are alike.
    memory
        Of each device: no limit; room for all; for one microbatch and a bit; for one exactly; or
        anything from nothing on, so that some problems are infeasible.
    lists, classes, large
        The rule of a list of microbatches ("" for a number), how many classes it has, and whether
        some are several times as large as others.
    pairs, kinds
        How pairs are stated ("" for none), and of which kinds.
    modes, choices
        Memory modes of stages ("" for none), and who chooses.
    graphs
        Whether routes state edges, with delays of their own, their stages in any order.
    slices
        How many microbatches are a sequence.
    nones
        How often a stage that may be without a backward is.
    """
    chance, more = Random(f"{seed}"), Random(f"{seed} of section 12")
    count, homes, cut = _placed(chance, chance.choice(shapes), chance.randint(*devices), stages)
    often = chance.choice(zeros)
    rows = [_stage(chance, longest, often, backwards, held) for _ in homes]
    if chance.random() < uniform:
        rows = [dict(rows[0]) for _ in homes]
    for stage, home in zip(rows, homes, strict=True):
        stage["device"] = home
    document: Document = {"format": "pipesat.problem/1", "stages": rows}
    document["comm"] = {"default": chance.choice(delays)}
    wanted = chance.choice(modes)
    if wanted:
        document["mode_choice"] = chance.choice(choices)
        for stage in rows:
            stage["modes"] = _modes(chance, stage, wanted, 0 if often else 1)
    most = max(1, min(microbatches[1], ops // (3 * len(homes))))
    numbers = [chance.randint(min(microbatches[0], most), most) for _ in range(2)]
    rule = chance.choice(lists)
    cuts = [more.choice(slices) for _ in numbers]
    numbers = [max(n, number - number % n) for n, number in zip(cuts, numbers, strict=True)]
    said: list[Any] = [*numbers]
    if rule:
        document["order"] = rule
        said = [_list(chance, n, classes, large=large) for n in numbers]
    parts = ([*range(cut)], [*range(cut, len(homes))]) if cut else ([*range(len(homes))],)
    for part, entries in zip(parts, said, strict=False) if rule else ():
        _state_outright(chance, [s for s in part if not rows[s].get("modes")], entries)
    if cut:
        document["routes"] = [
            {"stages": part, "microbatches": n} for part, n in zip(parts, said, strict=True)
        ]
    else:
        document["microbatches"] = said[0]
    graph, alone = more.choice(graphs), more.choice(nones)
    if graph or alone or max(cuts) > 1:
        if not cut:
            del document["microbatches"]
            document["routes"] = [{"stages": parts[0], "microbatches": said[0]}]
        for route, n in zip(document["routes"], cuts, strict=False):
            _as_graph(more, document, route, n, graph=graph, alone=alone)
    if by := chance.choice([way for way in pairs if not (rule and "time" in way)]):
        document["overlap"] = _overlap(chance, rows, by, kinds)
    sizes = [-(-f[0] // f[1]) for kinds in said if rule for e in kinds if (f := e.get("held"))]
    counts = max(sizes, default=1), most
    document["devices"] = [
        _device(chance, _held(rows, d, document), chance.choice(memory), counts)
        for d in range(count)
    ]
    return document


def _as_graph(
    chance: Random, document: Document, route: Document, n: int, *, graph: bool, alone: float
) -> None:
    """Edges of a route that connect its stages, slices, and first stages without a backward."""
    if n > 1:
        route["slices"] = n
    stages = route["stages"]
    edges = [*pairwise(stages)]
    if graph:
        if chance.random() < 0.5:
            chance.shuffle(stages)
        places, there, joined = [*range(len(stages))], set[tuple[int, int]](), list[int]()
        for place in chance.sample(places, len(places)):
            if joined:
                other = chance.choice(joined)
                there.add((min(place, other), max(place, other)))
            joined.append(place)
        there |= {two for two in combinations(places, 2) if chance.random() < 0.2}
        edges = [(stages[a], stages[b]) for a, b in chance.sample(sorted(there), len(there))]
        route["edges"] = [[*two] for two in edges]
        apart = [two for two in edges if chance.random() < 0.4]
        document["comm"].setdefault("edges", []).extend(
            {"src": a, "dst": b}
            | {way: chance.randint(0, 4) for way in chance.choice(["F", "B", "FB"])}
            for a, b in apart
        )
    without: set[int] = set()
    for s in stages:
        if chance.random() < alone and {a for a, b in edges if b == s} <= without:
            without.add(s)
            stage = document["stages"][s]
            stage["backward"] = "none"
            if chance.random() < 0.5:
                stage |= {"B": 0, "W": 0}
            if "modes" in stage:
                stage["modes"] = [mode for mode in stage["modes"] if "offload" not in mode]
                for mode in stage["modes"]:
                    mode.pop("backward", None)


def _placed(chance: Random, shape: str, p: int, most: int) -> tuple[int, list[int], int]:
    """Number of devices, device of each stage, and where the second route begins (0: nowhere)."""
    there = [*range(p)]
    while len(there) > 1 and len(there) * (1 if shape == "chain" else 2) > most:
        there.pop()
    p = len(there)
    homes = {
        "one device": [0] * chance.choice([1, 2, 2, 3]),
        "chain": there,
        "loop": there * 2,
        "V": there + there[::-1],
        "bidirectional": there + there[::-1],
    }.get(shape) or [chance.randrange(p) for _ in range(chance.randint(2, 4))]
    if shape == "routes":
        chance.shuffle(homes)
    homes = homes[:most]
    cut = len(homes) // 2 if shape in ("bidirectional", "routes") else 0
    return max(homes) + 1, homes, cut


def _stage(
    chance: Random, longest: int, often: float, backwards: Sequence[str], held: float
) -> Document:
    def time() -> int:
        return 0 if chance.random() < often else chance.randint(1, longest)

    stage: Document = {kind: time() for kind in ("F", "B", "W")}
    stage |= {"held_after_F": chance.randint(0, 4), "held_after_B": chance.randint(0, 4)}
    stage["backward"] = chance.choice(backwards)
    if chance.random() < 0.4:
        sums = stage["B"] + stage["W"]
        stage["BW"] = max(0 if often else 1, sums + chance.choice([-2, -1, 0, 1]))
    if chance.random() < held:
        stage["held_in_backward"] = chance.randint(0, 8)
    return stage


def _modes(chance: Random, stage: Document, wanted: str, least: int) -> list[Document]:
    found: list[Document] = []
    if "offload" in wanted and chance.random() < 0.7:
        rest = chance.randint(0, stage["held_after_F"])
        times = {"out": chance.randint(least, 3), "in": chance.randint(least, 3)}
        found.append({"name": "offload", "offload": times | {"held": rest}})
    if "recompute" in wanted and chance.random() < 0.7:
        again: Document = {"name": "recompute", "held_after_F": chance.randint(0, 1)}
        again["backward"] = chance.choice(["fused", "fused", "either", "split"])
        for kind in chance.choice([("BW",), ("BW",), ("B",), ("B", "BW"), ("F", "W")]):
            again[kind] = chance.randint(least, 6)
        if chance.random() < 0.5:
            again["held_in_backward"] = chance.randint(0, 4)
        found.append(again)
    return found


def _list(chance: Random, count: int, classes: tuple[int, int], *, large: bool) -> list[Document]:
    """Entries of one microbatch each; a class has its factors where it is first named."""
    names = "abc"[: chance.randint(*classes)]
    factors = [[1, 2], [2, 3], [3, 2], [2, 1], [5, 3]] + [[3, 1], [5, 1]] * large
    entries: list[Document] = []
    for _ in range(count):
        entry: Document = {"name": chance.choice(names), "count": 1}
        if all(other["name"] != entry["name"] for other in entries):
            size = chance.choice(factors)
            for key in ("time", "held", "comm"):
                if chance.random() < 0.7:
                    entry[key] = size if large else chance.choice(factors)
        entries.append(entry)
    return entries


def _state_outright(chance: Random, stages: list[int], entries: list[Document]) -> None:
    """Let a class state amounts of a stage."""
    if stages and chance.random() < 0.3:
        outright = {"F": chance.randint(1, 6), "held_after_F": chance.randint(0, 2)}
        entries[0]["stages"] = {str(chance.choice(stages)): outright}


def _overlap(
    chance: Random, stages: list[Document], by: str, kinds: Sequence[tuple[str, str]]
) -> Document:
    """Some combinations of ops; of a pair the time may be less than a member's, or the sum's."""
    overlap: Document = {}
    if "FB" in by:
        overlap["FB"] = chance.choice([[1, 2], [2, 3], [3, 4], [1, 1], [5, 4]])
    if by == "FB":
        return overlap
    share = chance.choice([0.2, 0.5, 1.0])
    allowed = [{*two} for two in chance.choice([kinds, kinds, kinds[:1]])]
    overlap["pairs"] = []
    for one, other in combinations_with_replacement(product(range(len(stages)), KINDS), 2):
        here = stages[one[0]]["device"] == stages[other[0]]["device"]
        if not here or {one[1], other[1]} not in allowed:
            continue
        if overlap["pairs"] and chance.random() >= share:
            continue
        entry: Document = {"ops": [f"{s}{kind}" for s, kind in chance.sample((one, other), 2)]}
        if "factor" in by:
            entry["factor"] = chance.choice([[1, 3], [1, 2], [2, 3], [3, 4], [1, 1]])
        else:
            times = [stages[s].get(k, stages[s]["B"] + stages[s]["W"]) for s, k in (one, other)]
            least = max(1, chance.choice([max(times), max(times), sum(times) // 2, 1]))
            entry["time"] = chance.randint(least, max(least, sum(times)))
        overlap["pairs"].append(entry)
    return overlap


def _held(rows: list[Document], device: int, document: Document) -> int:
    """Memory of a microbatch of each stage of a device, of all slices of a sequence."""
    sizes = {s: r.get("slices", 1) for r in document.get("routes", ()) for s in r["stages"]}
    return sum(
        max(stage.get(key, 0) for key in HELD) * sizes.get(s, 1)
        for s, stage in enumerate(rows)
        if stage["device"] == device
    )


def _device(chance: Random, held: int, memory: str, counts: tuple[int, int]) -> Document:
    """One microbatch of each stage, of the largest class, fits but for ``any``."""
    device: Document = {"static": chance.choice([0, 0, 1]), "copy_channels": chance.choice([1, 2])}
    if memory == "none":
        return device
    largest, microbatches = counts
    one = largest * held
    rest = one * (microbatches - 1)
    slack = {
        "ample": one + rest,
        "enough": one + chance.randint(0, rest // 2),
        "tight": one,
        "any": chance.randint(0, one + rest // 2 + 1),
    }[memory]
    return device | {"memory": device["static"] + slack}


FIT = ("none", "ample", "enough", "enough", "tight")
"""Memory that one microbatch always fits into."""
WITH_F = (("F", "BW"), ("F", "B"), ("F", "W"))
FAMILIES: dict[str, dict[str, Any]] = {
    "plain": {"ops": 18, "memory": FIT},
    "zeros": {"zeros": (0.3, 0.6, 0.9), "ops": 18, "held": 0.3, "longest": 3},
    "lists": {"lists": RULES, "ops": 12, "held": 0.3},
    "tight lists": {
        "shapes": ("chain",), "lists": ("given", "same"), "large": True, "memory": ("enough",),
        "ops": 18, "longest": 4,
    },
    "pairs": {"pairs": PAIRS, "ops": 18, "zeros": (0.0, 0.0, 0.5)},
    "tight pairs": {
        "pairs": ("time",), "kinds": WITH_F, "ops": 24, "longest": 4, "microbatches": (2, 4),
        "memory": ("enough",), "uniform": 0.5, "shapes": ("chain", "loop", "V", "bidirectional"),
    },
    "modes": {"modes": MODES, "ops": 12, "longest": 3, "held": 0.3},
    "zero modes": {"modes": MODES, "ops": 12, "longest": 3, "held": 0.3, "zeros": (0.2, 0.5)},
    "mixtures": {
        "lists": ("", *RULES), "pairs": ("", "factor", "FB", "factor and FB"), "ops": 12,
        "modes": ("", *MODES), "longest": 3, "held": 0.3, "zeros": (0.0, 0.3),
    },
    "tight mixtures": {
        "lists": ("", *RULES), "pairs": ("time", "factor", "FB"), "modes": ("", *MODES),
        "kinds": WITH_F, "ops": 18, "longest": 4, "microbatches": (2, 4), "memory": ("enough",),
        "uniform": 0.5, "shapes": ("chain", "loop", "V", "bidirectional"),
        "choices": ("microbatch",),
    },
    "graphs": {"graphs": (True,), "ops": 18, "memory": FIT, "nones": (0.0, 0.0, 0.5)},
    "slices": {
        "slices": (2, 2, 3, 4), "lists": ("", *RULES), "microbatches": (2, 4), "ops": 18,
        "shapes": ("one device", "chain", "anywhere", "bidirectional"), "longest": 4,
    },
    "forward-only": {"nones": (0.5, 1.0, 1.0), "graphs": (False, True), "ops": 18, "held": 0.3},
    "graph-mixtures": {
        "graphs": (False, True, True), "slices": (1, 2, 3), "nones": (0.0, 0.0, 0.5),
        "lists": ("", *RULES), "pairs": ("", *PAIRS), "modes": ("", "", *MODES), "ops": 14,
        "longest": 3, "held": 0.3, "zeros": (0.0, 0.0, 0.3), "stages": 5,
    },
}  # fmt: skip
"""What ``drawn`` is told for a family of problems."""
GRAPHS = [*FAMILIES][-4:]
"""Families with edges, slices and stages without a backward."""


def of_family(name: str, seed: object, **more: Any) -> Document:
    """Draw a problem of a family, with some flags changed."""
    return drawn(f"{name} {seed}", **(FAMILIES[name] | more))
