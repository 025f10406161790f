"""The same problem in another dress: what is proven of one holds of the other."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from bench.campaign.case import Case
from bench.campaign.judge import false_claims, load, schedule_in
from bench.campaign.problems import MOST, multiplied
from tests.oracle.reading import Document


class Change(NamedTuple):
    """Its optimum is ``factor`` times the original's, or at most that if not ``equal``.

    ``same``: nothing has changed, so that even the search finds and proves the same.
    """

    name: str
    document: Document
    factor: int = 1
    equal: bool = True
    same: bool = False


def case(case: Case) -> None:
    document, objective = case.problem(), case.objective()
    if case.rng.random() < 0.25 and plain(document):  # only whole backwards have a reverse
        for stage in document["stages"]:
            stage["backward"] = "fused"
        case.write("problem.json", document)
        every = [Change("reversed", reversed_in_time(document))]
    else:
        every = [*changes(case.rng, document)]
    change = case.rng.choice([one for one in every if _largest(one.document) <= MOST])
    case.write("changed.json", change.document)
    found = []
    limit = case.limit()
    for source, problem in (("problem", document), ("changed", change.document)):
        words = ["--time-limit", limit if change.same else case.limit(), "--workers", 1]
        words += ["--objective", objective, *["--deterministic"] * change.same]
        ran = case.run("solve", f"{source}.json", "-o", source, *words, codes=(0, 3))
        path = case.folder / source / "result.json"
        if ran.code not in (0, 3) or not path.exists():
            return
        result, judged = load(path), case.truth(problem, objective, 0.1)
        schedule = schedule_in(case.folder / source / "schedule.json")
        claims = false_claims(judged, result, schedule, ran.code)
        case.violations += [f"{source}: {claim}" for claim in claims]
        found.append(result)
    case.violations += [f"{change.name}: {what}" for what in wrong(change, *found)]


def wrong(change: Change, one: Document, other: Document) -> Iterator[str]:
    """Hold the bound of each against the value of the other, and what is infeasible."""
    factor, above, value = change.factor, other["lower_bound"], one["value"]
    if above is not None and value is not None and above > factor * value:
        yield f"bound {above}, but {factor} x {value} exists"
    if other["status"] == "infeasible" and value is not None:
        yield f"infeasible, though the original has {value}"
    if change.same:
        first, second = ([x[k] for k in ("status", "value", "lower_bound")] for x in (one, other))
        if first != second:
            yield f"{first} became {second}"
    if not change.equal:
        return
    bound, reached = one["lower_bound"], other["value"]
    if bound is not None and reached is not None and factor * bound > reached:
        yield f"{factor} x bound {bound}, but {reached}"
    if one["status"] == "infeasible" and reached is not None:
        yield f"original infeasible, but it has {reached}"


def plain(document: Document) -> bool:
    """Whether there are neither lists of microbatches nor modes, nor held_in_backward."""
    keys = {key for stage in document["stages"] for key in stage}
    return "order" not in document and not {"modes", "held_in_backward"} & keys


def changes(rng: Random, document: Document) -> Iterator[Change]:
    """Every change that the problem can have."""
    yield Change("renamed", renamed(document))
    yield Change("idle device", document | {"devices": [*document["devices"], {"memory": 7}]})
    yield Change("more memory", more_memory(document), equal=False)
    yield Change("delays removed", document | {"comm": {}}, equal=False)
    pairs, order = document.get("overlap", {}).get("pairs", []), document.get("order")
    if order is None and not any("time" in entry for entry in pairs):
        yield Change("one class", as_list(rng, document))
    if order in ("given", "same"):
        freer = rng.choice(["same", "free"]) if order == "given" else "free"
        yield Change(f"order {freer}", document | {"order": freer}, equal=False)
    if document.get("mode_choice") == "stage":
        each = document | {"mode_choice": "microbatch"}
        yield Change("a mode per microbatch", each, equal=False)
    if plain(document):
        yield Change("an idle key", idle_key(document), same=True)
        mode = {"name": "recompute", "held_after_F": 0, "BW": 9, "backward": "fused"}
        stages = [
            stage if stage["backward"] == "none" else stage | {"modes": [mode]}
            for stage in document["stages"]
        ]
        yield Change("with modes", document | {"stages": stages}, equal=False)
        if "overlap" not in document:
            factor = rng.choice([2, 7, 1000])
            yield Change(f"times x {factor}", multiplied(document, factor), factor)


def idle_key(document: Document) -> Document:
    """Every backward holds at least what it holds anyhow."""
    stages = []
    for entry in document["stages"]:
        amounts = [entry.get("held_after_F", 0)]
        if entry.get("backward") == "split":
            amounts.append(entry.get("held_after_B", 0))
        stages.append(entry | {"held_in_backward": max(amounts)})
    return document | {"stages": stages}


def as_list(rng: Random, document: Document) -> Document:
    """Numbers of microbatches as lists of one class, which changes nothing without an order."""

    def listed(count: int) -> list[Document]:
        first = rng.randint(1, count)
        found: list[Document] = [{"name": "all", "count": first}]
        return found + [{"name": "all", "count": count - first}] * (first < count)

    if "routes" in document:
        routes = [r | {"microbatches": listed(r["microbatches"])} for r in document["routes"]]
        return document | {"routes": routes}
    return document | {"microbatches": listed(document["microbatches"])}


def _largest(value: Any) -> int:
    if isinstance(value, dict):
        return max(map(_largest, value.values()), default=0)
    if isinstance(value, list):
        return max(map(_largest, value), default=0)
    return value if isinstance(value, int) else 0


def renamed(document: Document) -> Document:
    """Devices in reverse order and under other names."""
    last = len(document["devices"]) - 1
    devices = [entry | {"name": f"r{n}"} for n, entry in enumerate(document["devices"])]
    stages = [stage | {"device": last - stage["device"]} for stage in document["stages"]]
    return document | {"devices": devices[::-1], "stages": stages, "name": "renamed"}


def more_memory(document: Document) -> Document:
    devices = [
        entry | ({} if entry.get("memory") is None else {"memory": entry["memory"] + 1})
        for entry in document["devices"]
    ]
    return document | {"devices": devices}


def reversed_in_time(document: Document) -> Document:
    """Where all backwards are fused, time may run the other way: F and BW change places.

    The way back becomes the way there over the same stages, gradients become activations; what is
    held from the start of F to the end of BW is so in both directions, and a pair lasts the same.
    """
    stages = []
    for stage in document["stages"]:
        backward = stage.get("BW", stage["B"] + stage["W"])
        stages.append(stage | {"F": backward, "B": stage["F"], "W": 0, "BW": stage["F"]})
    found, turned = document | {"stages": stages}, {"F": "BW", "BW": "F"}
    if "edges" in (comm := document.get("comm", {})):
        other = {"F": "B", "B": "F"}
        ways = [{other.get(key, key): x for key, x in edge.items()} for edge in comm["edges"]]
        found["comm"] = comm | {"edges": ways}
    if "pairs" in (overlap := document.get("overlap", {})):
        entries = []
        for entry in overlap["pairs"]:
            ops = [(text.rstrip("FBW"), text.lstrip("0123456789")) for text in entry["ops"]]
            if all(kind in turned for _, kind in ops):
                entries.append(entry | {"ops": [stage + turned[kind] for stage, kind in ops]})
        found["overlap"] = overlap | {"pairs": entries}
    return found
