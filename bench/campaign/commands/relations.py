"""The same problem in another dress: what is proven of one holds of the other."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from random import Random
from typing import Any

from campaign.case import Case
from campaign.commands.common import a_limit, a_problem, an_objective, schedule_in, truth_of
from campaign.judge.claims import false_claims
from campaign.judge.reading import load, pipe_of
from campaign.problems.big import MOST, multiplied
from campaign.problems.differing import with_modes

Document = dict[str, Any]


@dataclass
class Change:
    """Its optimum is ``factor`` times the original's, or at most that if not ``equal``.

    ``same``: nothing has changed, so that even the search finds and proves the same.
    """

    document: Document
    factor: int = 1
    equal: bool = True
    same: bool = False


def case(case: Case) -> None:
    document, objective = a_problem(case), an_objective(case)
    name, change = case.rng.choice(_changes(case, document))
    case.notes.add(name)
    case.write("changed.json", change.document)
    found = []
    limit = a_limit(case)
    for source, problem in (("problem", document), ("changed", change.document)):
        ran = case.run(
            "solve",
            f"{source}.json",
            "-o",
            source,
            "--workers",
            1,
            "--time-limit",
            limit if change.same else a_limit(case),
            "--objective",
            objective,
            "--json",
            *(["--deterministic"] if change.same else []),
            codes=(0, 3),
        )
        path = case.folder / source / "result.json"
        if ran.code not in (0, 3) or not path.exists():
            return
        result, judged = load(path), truth_of(case, problem, objective, 0.01)
        schedule = schedule_in(case.folder / source / "schedule.json")
        case.violations += [
            f"{source}: {claim}" for claim in false_claims(judged, result, schedule, ran.code)
        ]
        found.append(result)
    compare(case, name, change, *found)


def compare(case: Case, name: str, change: Change, one: Any, other: Any) -> None:
    """Hold the bound of each against the value of the other, and what is infeasible."""
    factor = change.factor
    above, value = other["lower_bound"], one["value"]
    if above is not None and value is not None:
        case.expect(
            above <= factor * value, f"{name}: bound {above}, but {factor} x {value} exists"
        )
    if other["status"] == "infeasible":
        case.expect(value is None, f"{name}: infeasible, though the original has {value}")
    if change.same:
        first, second = (
            [x[key] for key in ("status", "value", "lower_bound")] for x in (one, other)
        )
        case.expect(first == second, f"{name}: {first} became {second}")
    if not change.equal:
        return
    bound, reached = one["lower_bound"], other["value"]
    if bound is not None and reached is not None:
        case.expect(factor * bound <= reached, f"{name}: {factor} x bound {bound}, but {reached}")
    if one["status"] == "infeasible":
        case.expect(reached is None, f"{name}: original infeasible, but it has {reached}")


def _changes(case: Case, document: Document) -> list[tuple[str, Change]]:
    rng = case.rng
    found = [
        ("renamed", Change(renamed(document))),
        ("idle device", Change(document | {"devices": [*document["devices"], {"memory": 7}]})),
        ("more memory", Change(more_memory(document), equal=False)),
        ("doubled delays removed", Change(document | {"comm": {}}, equal=False)),
    ]
    found += _of_differing(rng, document)
    if pipe_of(document).plain:
        found += [("an idle key", Change(idle_key(document), same=True))] * 2
    if "overlap" not in document and pipe_of(document).plain:
        factor = rng.choice([2, 7, 1000])
        found.append((f"times x {factor}", Change(multiplied(document, factor), factor)))
    if (
        rng.random() < 0.25 and pipe_of(document).plain
    ):  # only a problem without split backwards has a reverse
        for stage in document["stages"]:
            stage["backward"] = "fused"
        case.write("problem.json", document)
        turned = reversed_in_time(document)
        found = [("reversed", Change(turned)), ("renamed", Change(renamed(document)))]
        found = found[: 1 if _largest(turned) <= MOST else 2]
    return [named for named in found if _largest(named[1].document) <= MOST]


def _of_differing(rng: Random, document: Document) -> list[tuple[str, Change]]:
    """Relations of lists of microbatches and of modes."""
    found = []
    pipe = pipe_of(document)
    lists = any(classes is not None for classes in pipe.classes)
    pairs = document.get("overlap", {}).get("pairs", [])
    if not lists and not any("time" in entry for entry in pairs):
        found.append(("one class", Change(as_list(rng, document))))
    if lists and pipe.order != "free":
        freed = {"given": rng.choice(["same", "free"]), "same": "free"}[pipe.order]
        found.append((f"order {freed}", Change(document | {"order": freed}, equal=False)))
    if pipe.mode_choice == "stage":
        each = document | {"mode_choice": "microbatch"}
        found.append(("a mode per microbatch", Change(each, equal=False)))
    if pipe.plain:
        changed = copy.deepcopy(document)
        with_modes(rng, changed)
        for stage in changed["stages"]:
            stage.pop("held_in_backward", None)
        found.append(("with modes", Change(changed, equal=False)))
    return found


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


def _parted(text: str) -> tuple[str, str]:
    digits = text.rstrip("FBW")
    return digits, text[len(digits) :]


def reversed_in_time(document: Document) -> Document:
    """Where all backwards are fused, time may run the other way: F and BW change places.

    The way back becomes the way there over the same stages, gradients become activations; what is
    held from the start of F to the end of BW is so in both directions, and a pair lasts the same.
    """
    stages = []
    for stage in document["stages"]:
        backward = stage.get("BW", stage["B"] + stage["W"])
        stages.append(stage | {"F": backward, "B": stage["F"], "W": 0, "BW": stage["F"]})
    found = document | {"stages": stages}
    if "pairs" in (overlap := document.get("overlap", {})):
        turned = {"F": "BW", "BW": "F"}
        entries = []
        for entry in overlap["pairs"]:
            kinds = [_parted(text) for text in entry["ops"]]
            if all(kind in turned for _, kind in kinds):
                ops = [digits + turned[kind] for digits, kind in kinds]
                entries.append(entry | {"ops": ops})
        found["overlap"] = overlap | {"pairs": entries}
    comm = document.get("comm")
    if comm and "edges" in comm:
        usual = comm.get("default", 0)
        edges = [
            edge | {"F": edge.get("B", usual), "B": edge.get("F", usual)} for edge in comm["edges"]
        ]
        found["comm"] = comm | {"edges": edges}
    return found
