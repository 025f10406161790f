"""What ``frontier -o DIR`` and ``frontier --within -o DIR`` write."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from pipesat.core.amounts import time_text
from pipesat.files.folder import write_folder
from pipesat.files.schedule_file import schedule_bytes
from pipesat.frontier.caps import Cap, at_cap
from pipesat.frontier.levers import Lever
from pipesat.frontier.min_memory import Sufficient, sufficient_document
from pipesat.frontier.picture import Staircase, frontier_pictures
from pipesat.frontier.trace import CapRow, Frontier, PublishedPoint
from pipesat.picture.gantt import gantt

FORMAT: Final = "pipesat.frontier/1"
_COLUMNS: Final = (
    "placement", "lever", "kind", "name", "cap", "share_of_1f1b", "value", "lower_bound", "gap",
    "status", "source", "largest_peak", "baseline", "baseline_value", "seconds",
)  # fmt: skip

Curves = Mapping[str | None, Frontier]
"""By placement or lever; ``None`` for the problem as it is."""


def document(curves: Curves, folder: Path | None, **about: object) -> dict[str, Any]:
    """Return everything as one JSON document; paths are those within ``folder``, if there is one.

    ``about`` are further entries of the document, such as the seed.
    """
    first = next(iter(curves.values())).curve
    for frontier in curves.values():
        frontier.require_consistent()
    return {
        "format": FORMAT,
        "problem": first.problem.name,
        "objective": first.objective,
        "time_unit": first.problem.time_unit,
        "memory_unit": first.problem.memory_unit,
        "curves": [
            {
                **named(placement),
                "scale": None if frontier.scale is None else vars(frontier.scale),
                "points": [_point(placement, row, folder) for row in frontier.rows],
                "published": [_published(frontier, point) for point in frontier.points],
                "wall_s": round(frontier.wall_s, 3),
            }
            for placement, frontier in curves.items()
        ],
        **about,
    }


def named(name: str | None) -> dict[str, str | None]:
    """Return a curve's name under what it stands for: a placement or a lever."""
    lever = isinstance(name, Lever)
    return {"placement": None if lever else name, "lever": str(name) if lever else None}


def _point(placement: str | None, row: CapRow, folder: Path | None) -> dict[str, Any]:
    known, bound = row.known, row.bound
    home = None if folder is None else folder / folder_of(placement, row.cap)
    return {
        "cap": row.cap,
        "share_of_1f1b": row.share,
        "status": row.status,
        "value": None if known is None else known.value,
        "lower_bound": None if bound is None else bound.value,
        "lower_bound_source": None if bound is None else bound.source,
        "gap": row.gap,
        "source": None if known is None else known.schedule.source,
        "peak_memory": None if known is None else list(known.peaks),
        "baseline": None if row.baseline is None else row.baseline._asdict(),
        "seconds": round(row.seconds, 3),
        "problem": None if home is None else str(home / "problem.json"),
        "schedule": None if home is None or known is None else str(home / "schedule.json"),
    }


def _published(frontier: Frontier, point: PublishedPoint) -> dict[str, Any]:
    """A hand-written schedule, and the curve at its peak: never above it."""
    bound = frontier.curve.bound(point.known.peak)
    return {
        "name": point.name,
        "value": point.known.value,
        "peak_memory": list(point.known.peaks),
        "value_at_its_peak": frontier.curve.value(point.known.peak),
        "lower_bound_at_its_peak": None if bound is None else bound.value,
    }


def folder_of(placement: str | None, cap: Cap) -> Path:
    """Where a cap's problem and schedule lie: ``caps/40000``, ``vee/caps/unlimited``."""
    home = Path() if placement is None else Path(placement.replace(" ", "-").replace("=", ""))
    return home / "caps" / ("unlimited" if cap is None else str(cap))


def csv_bytes(curves: Curves) -> bytes:
    """Return the table: a line per cap, then one per hand-written schedule."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(table_rows(curves))
    return text.getvalue().encode()


def table_rows(curves: Curves) -> Iterator[dict[str, Any]]:
    """Yield a row per cap, then one per hand-written schedule, curve by curve."""
    blank = dict.fromkeys(_COLUMNS)
    for placement, frontier in curves.items():
        home = {key: value or "" for key, value in named(placement).items()}
        for row in frontier.rows:
            yield blank | home | _cells(row)
        for point in frontier.points:
            cells = {"name": point.name, "value": point.known.value}
            cells |= {"largest_peak": point.known.peak}
            yield blank | home | {"kind": "published"} | cells


def _cells(row: CapRow) -> dict[str, Any]:
    point = _point(None, row, None)
    baseline, baseline_value = row.baseline or (None, None)
    return {key: value for key, value in point.items() if key in _COLUMNS} | {
        "kind": "cap",
        "cap": "unlimited" if row.cap is None else row.cap,
        "largest_peak": None if row.known is None else row.known.peak,
        "baseline": baseline,
        "baseline_value": baseline_value,
    }


def staircases(curves: Curves) -> list[Staircase]:
    """Return what the picture shows of each curve."""
    return [_staircase(placement or "", frontier) for placement, frontier in curves.items()]


def _staircase(name: str, frontier: Frontier) -> Staircase:
    curve = frontier.curve
    lowest = min(row.cap for row in frontier.rows if row.cap is not None)
    caps = {row.cap for row in frontier.rows} | {known.peak for known in curve.schedules}
    caps |= {cap for cap, _ in curve.bounds}
    steps = sorted(cap for cap in caps if cap is not None and cap >= lowest)
    bounds = [curve.bound(cap) for cap in [*steps, None]]
    return Staircase(
        name=name,
        caps=steps,
        values=[curve.value(cap) for cap in steps],
        bounds=[None if bound is None else bound.value for bound in bounds],
        marks=[row.cap for row in frontier.rows if row.cap is not None],
        published=[(p.name, p.known.peak, p.known.value) for p in frontier.points],
    )


def write_frontier(folder: Path, curves: Curves, **about: object) -> None:
    """Write ``frontier.json``, ``.csv``, ``.png``, ``.svg``, and a problem and schedule per cap.

    Raises
    ------
    BadInput
        If the folder cannot be written.
    Contradiction
        If the curves contradict themselves; then problems and schedules are written all the same.
    """
    files: dict[str, bytes] = {}
    for placement, frontier in curves.items():
        for row in frontier.rows:
            home = folder_of(placement, row.cap)
            at = at_cap(frontier.curve.problem, row.cap)
            files[str(home / "problem.json")] = _json_bytes(at.document)
            if row.known is not None:
                files[str(home / "schedule.json")] = schedule_bytes(at, row.known.schedule)

    def claims() -> dict[str, bytes]:
        said = _json_bytes(document(curves, folder, **about))
        return {"frontier.json": said, "frontier.csv": csv_bytes(curves)}

    write_folder(folder, files, claims=claims, pictures=lambda: _pictures(curves))


def _pictures(curves: Curves) -> dict[str, bytes]:
    first = next(iter(curves.values()))
    about = first.curve.problem, first.curve.objective
    drawn = frontier_pictures(*about, staircases(curves), first.scale)
    return {f"frontier.{kind}": data for kind, data in drawn.items()}


def write_sufficient(folder: Path, found: Sufficient, within: Fraction, **about: object) -> None:
    """Write all files of a least memory.

    Raises
    ------
    BadInput
        If the folder cannot be written.
    Contradiction
        If the answer contradicts itself; then problem and schedule are written all the same.
    """
    known, cap = found.known, found.cap
    at = None if cap is None else at_cap(found.curve.problem, cap.enough)
    files: dict[str, bytes] = {}
    if known is not None and at is not None:
        files["problem.json"] = _json_bytes(at.document)
        files["schedule.json"] = schedule_bytes(at, known.schedule)

    def claims() -> dict[str, bytes]:
        return {"result.json": _json_bytes(sufficient_document(found, within, folder, **about))}

    def pictures() -> dict[str, bytes]:
        if known is None or at is None:
            return {}
        title = f"{at.name}\n{found.curve.objective} {time_text(known.value, at.time_unit)}"
        return {"gantt.png": gantt(at, known.schedule, title=title)}

    write_folder(folder, files, claims=claims, pictures=pictures)


def _json_bytes(content: object) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()
