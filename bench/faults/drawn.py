"""The faults: drawn once from a source, found again in a later one."""

from __future__ import annotations

import ast
import json
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from fault_places import Place, places

HERE = Path(__file__).resolve().parent
DRAWN, MOVED = HERE / "faults.json", HERE / "moved.json"
COUNT, SEED = 200, 29
CHECKER = ("check", "restated", "ties", "violation")
FILES = ("atomic", "complaint", "folder", "microbatch_list", "problem_", "schedule_file", "strict_")
SOURCES = ("pipesat/", "solver/", "heuristics/")


@dataclass(frozen=True)
class At:
    """A place in a file."""

    file: str
    place: Place


@dataclass(frozen=True)
class Fault:
    """A fault as it was drawn, and where it is ``now``."""

    number: int
    group: str
    drawn: At
    now: At

    @property
    def text(self) -> str:
        """What was drawn, in one line."""
        at = self.drawn
        change = f"{at.place.before} -> {at.place.after}"
        return f"{at.file} {at.place.function}: {change} in {at.place.line!r}"


def group_of(file: str) -> str | None:
    """Return what a file belongs to; ``None`` if no faults are drawn from it."""
    parts = file.split("/")
    if parts[0] in ("solver", "heuristics"):
        return parts[0]
    match parts[1]:
        case "core" if parts[-1].startswith(CHECKER):
            return "checker"
        case "core":
            return "files" if parts[-1].startswith(FILES) else "rules"
        case "bounds":
            return parts[1]
    return None


@cache
def _sources(root: Path) -> tuple[str, ...]:
    command = ["git", "-C", str(root), "ls-files", "*.py"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return tuple(file for file in listed.split() if file.startswith(SOURCES))


@cache
def _places(root: Path, file: str) -> tuple[Place, ...]:
    source = (root / file).read_text(encoding="utf-8")
    return tuple(found.place for found in places(ast.parse(source), source))


def draw(root: Path) -> list[Fault]:
    """Draw as many of each group as its share of all places, kinds equally likely, one a line."""
    groups: dict[str, list[At]] = defaultdict(list)
    for file in _sources(root):
        if group := group_of(file):
            groups[group] += [At(file, place) for place in _places(root, file)]
    every = sum(map(len, groups.values()))
    exact = {group: COUNT * len(found) / every for group, found in groups.items()}
    counts = {group: int(share) for group, share in exact.items()}
    by_rest = sorted(exact, key=lambda group: counts[group] - exact[group])
    for group in by_rest[: COUNT - sum(counts.values())]:
        counts[group] += 1
    rng = Random(SEED)
    chosen = [(group, at) for group in groups for at in _some(rng, groups[group], counts[group])]
    return [Fault(number, group, at, at) for number, (group, at) in enumerate(chosen)]


def _some(rng: Random, found: Sequence[At], count: int) -> list[At]:
    kinds: dict[str, list[At]] = defaultdict(list)
    for at in found:
        kinds[at.place.kind].append(at)
    chosen: dict[tuple[str, str, str], At] = {}
    while len(chosen) < count:
        at = rng.choice(kinds[rng.choice(sorted(kinds))])
        chosen.setdefault((at.file, at.place.function, at.place.line), at)
    return sorted(chosen.values(), key=lambda at: (at.file, at.place.function))


def write_drawn(faults: Sequence[Fault]) -> None:
    rows = [
        {"number": f.number, "group": f.group, "file": f.drawn.file} | asdict(f.drawn.place)
        for f in faults
    ]
    text = ",\n".join(json.dumps(row) for row in rows)
    DRAWN.write_text(f"[\n{text}\n]\n", encoding="utf-8")


def read_drawn() -> list[Fault]:
    """Read the faults that were drawn, each where ``moved.json`` says it is now, but those gone."""
    moved = json.loads(MOVED.read_text(encoding="utf-8")) if MOVED.exists() else {}
    places = [(row, moved.get(str(row["number"]), {})) for row in _rows()]
    return [_fault(row, place) for row, place in places if "gone" not in place]


def _rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DRAWN.read_text(encoding="utf-8"))
    return found


def _fault(row: dict[str, Any], moved: dict[str, Any]) -> Fault:
    number, group = row.pop("number"), row.pop("group")
    drawn = At(row.pop("file"), Place(**row))
    place = replace(drawn.place, **{k: v for k, v in moved.items() if k in Place.__annotations__})
    return Fault(number, group, drawn, At(moved.get("file", drawn.file), place))


def located(root: Path, faults: Sequence[Fault]) -> tuple[list[Fault], list[Fault]]:
    """Return the faults that a source has, each where it is there, and those it does not have.

    A fault whose file does not have it is looked for in all others: there must be one place alone
    with the same change, in a line and a function of the same words.
    """
    found, missing = [], []
    for fault in faults:
        places = [*_matching(root, fault.now)]
        if len(places) == 1:
            found.append(replace(fault, now=places[0]))
        else:
            missing.append(fault)
    return found, missing


def _matching(root: Path, wanted: At) -> Iterator[At]:
    same = _at(root, wanted.file, wanted.place, ("kind", "function", "before", "after", "nth"))
    if same:
        yield same[0]
        return
    for keys in (("function", "line", "before", "after"), ("line", "before", "after")):
        here = [at for f in _sources(root) for at in _at(root, f, wanted.place, keys)]
        if here:
            yield from here
            return


def _at(root: Path, file: str, wanted: Place, keys: Sequence[str]) -> list[At]:
    if not (root / file).exists():
        return []
    value = [getattr(wanted, key) for key in keys]
    return [
        At(file, place)
        for place in _places(root, file)
        if [getattr(place, key) for key in keys] == value
    ]
