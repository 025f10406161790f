"""Whether the table's order survives the range of an estimate: rows timed at both of its ends."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any

from pipesat.advise.answer import Answer
from pipesat.advise.rows import Row
from pipesat.core.claims import against
from pipesat.core.problem import Problem
from pipesat.core.timing import time_order
from pipesat.files.problem_file import parse_problem


@dataclass(frozen=True)
class End:
    """One end of the range: all compute takes this share of the stated time, links do not change.

    ``rows`` are those of the table that run, each in its own order, and what they take then.
    """

    share: Fraction
    rows: tuple[tuple[Row, int], ...]

    def document(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        rows = [
            {"schedule": row.name, "split": row.split, "makespan": time} for row, time in self.rows
        ]
        return {"share": float(self.share), "rows": rows}


def ends_of(answer: Answer) -> tuple[End, ...]:
    """Return both ends of the range of an estimate; none where costs have no range."""
    held = answer.question.layers.estimate_range
    if held is None:
        return ()
    rows = [row for row in answer.shown if row.runs]
    shares = [Fraction(share, 1000) for share in held]
    return tuple(End(share, tuple((row, _time_at(row, share)) for row in rows)) for share in shares)


def ends_text(answer: Answer) -> str:
    """Say whether the advice stays the shortest at both ends; empty without a range."""
    chosen, ends = answer.chosen, ends_of(answer)
    if chosen is None or not ends:
        return ""
    better = []
    for end in ends:
        own = next((time for row, time in end.rows if row is chosen), _time_at(chosen, end.share))
        row, least = min(end.rows, key=lambda pair: pair[1], default=(chosen, own))
        if least < own:
            gain = against(least, own, "the advice", 1)
            better.append(f"at {float(end.share):.2f} of all times {row.name} is {gain}")
    if better:
        return f"the advice depends on the estimate: {' and '.join(better)}, links as they are"
    return (
        "at both ends of that range the advice stays the shortest row that runs, all compute "
        "scaled alike and links as they are"
    )


def _time_at(row: Row, share: Fraction) -> int:
    return time_order(_scaled(row.problem, share), row.schedule.order).makespan


def _scaled(problem: Problem, share: Fraction) -> Problem:
    """Return a problem in which every op and pair takes a share of its time, rounded up."""
    document = {**problem.document}
    times = ("F", "B", "W", "BW")
    document["stages"] = [
        entry | {key: ceil(share * entry[key]) for key in times if key in entry}
        for entry in document["stages"]
    ]
    overlap = document.get("overlap", {})
    if "pairs" in overlap:
        pairs = [entry | {"time": ceil(share * entry["time"])} for entry in overlap["pairs"]]
        document["overlap"] = overlap | {"pairs": pairs}
    return parse_problem(document, "problem at an end of the estimate's range")
