"""Rows of results for tables and curves: medians of repetitions, figures at a given time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from runner import Row

SOLVED = ("optimal", "feasible")


def medians(rows: Iterable[Row], objective: str, limit: float) -> dict[tuple[str, str], Row]:
    """Per (problem, variant) the run in the middle, by gap, then by the time of the proof.

    One whole run is taken, so that its value, bound and times belong together; of an even number,
    the worse of the two in the middle.
    """
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row["objective"] == objective and row["limit"] == limit:
            groups[row["problem"], row["variant"]].append(row)
    return {key: sorted(runs, key=_badness)[len(runs) // 2] for key, runs in groups.items()}


def _badness(row: Row) -> tuple[float, float]:
    gap = row.get("gap")
    proof = row.get("proof_s")
    return (math.inf if gap is None else gap, row["wall_s"] if proof is None else proof)


def proven(row: Row) -> bool:
    """Whether the run ended with an optimal schedule."""
    return bool(row["status"] == "optimal")


def gap_of(row: Row) -> float:
    """Its gap; 1 where there is no schedule or no bound."""
    gap = row.get("gap")
    return 1.0 if gap is None else float(gap)


def gap_after(row: Row, seconds: float) -> float:
    """The gap as it stood that long after the start of the process; 1 before there is any."""
    gap = 1.0
    for when, value, bound in row.get("history", ()):
        if when > seconds:
            break
        if value is not None and bound is not None:
            gap = (value - bound) / value if value else 0.0
    return gap


def reached(row: Row, gap: float) -> float:
    """Seconds until the gap was at most this; infinite if it never was."""
    moments = (when for when, *_ in row.get("history", ()))
    return next((when for when in moments if gap_after(row, when) <= gap), math.inf)


def group_of(problem: str) -> str:
    """The group that a problem's name begins with."""
    group = problem.partition("-")[0]
    return group.rstrip("0123456789") if group.startswith("loop") else group


def sizes(problem: str) -> tuple[int, int]:
    """Devices and microbatches in a problem's name."""
    parts = problem.split("-")
    numbers = {part[0]: int(part[1:]) for part in parts if part[0] in "pm" and part[1:].isdigit()}
    return numbers["p"], numbers["m"]


def cap(problem: str) -> float:
    """The cap in a problem's name."""
    return float(problem.rpartition("cap")[2].partition("-")[0])
