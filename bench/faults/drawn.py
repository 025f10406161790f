"""The faults: drawn once from a source (``draw`` at 9f346467), found again in a later one."""

from __future__ import annotations

import ast
import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from fault_places import Place, places

HERE = Path(__file__).resolve().parent
DRAWN, MOVED = HERE / "faults.json", HERE / "moved.json"
SOURCES = ("pipesat/", "solver/", "heuristics/")
KERNELS = "pipesat/kernels/"
"""Loops here are compiled: a place in one cannot tell that it is met, but its caller can."""


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


@cache
def _sources(root: Path) -> tuple[str, ...]:
    command = ["git", "-C", str(root), "ls-files", "*.py"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return tuple(file for file in listed.split() if file.startswith(SOURCES))


@cache
def _read(root: Path, file: str) -> tuple[ast.Module, str]:
    source = (root / file).read_text(encoding="utf-8")
    return ast.parse(source), source


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
    tree, source = _read(root, file)
    if "line" in keys and wanted.line not in source:
        return []
    value = [getattr(wanted, key) for key in keys]
    return [
        At(file, place)
        for place, _ in places(tree, source, wanted)
        if [getattr(place, key) for key in keys] == value
    ]
