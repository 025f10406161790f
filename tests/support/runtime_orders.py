"""Ten orders for each runtime that takes Python: chains, loops, Vs, split and whole, pairs."""

from __future__ import annotations

from typing import Any, Final

from pipesat.compare.hand_written import baseline
from pipesat.problem.ops import Pair
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.timing import time_order
from tests.support.problems import chain, loop, vee

COSTS: Final[dict[str, Any]] = {"F": 4, "B": 5, "W": 3}


def paired(problem: Problem, *kinds: str) -> Problem:
    """The problem whose F, of any stage, may run with another op of its device in less time."""
    pairs = [
        {"ops": [f"{one}F", f"{two}{kind}"], "time": problem.stages[two].BW + 1}
        for one, stage in enumerate(problem.stages)
        for two, other in enumerate(problem.stages)
        for kind in kinds
        if stage.device == other.device
    ]
    return problem.with_overlap({"pairs": pairs})


def with_halves(problem: Problem, schedule: Schedule) -> Schedule:
    """Each pair of F and BW as a pair of F and B, then W."""
    rows = tuple(
        tuple(
            new
            for item in row
            for new in (
                [Pair(item[0], item[1]._replace(kind="B")), item[1]._replace(kind="W")]
                if isinstance(item, Pair)
                else [item]
            )
        )
        for row in schedule.order
    )
    return time_order(problem, rows, source="halves")


def orders() -> dict[str, tuple[Problem, Schedule]]:
    """The ten, by name."""
    plain = {
        "1f1b": chain(3, 6, **COSTS),
        "gpipe": chain(3, 5, **COSTS),
        "zb-h1": chain(4, 6, **COSTS),
        "zb-auto": chain(3, 7, **COSTS),
        "interleaved-1f1b": loop(3, 2, 6, **COSTS),
        "interleaved-zb": loop(2, 3, 6, **COSTS),
        "zb-v": vee(3, 6, **COSTS),
        "v-half": vee(4, 6, **COSTS),
    }
    made = {name: (problem, baseline(name, problem)) for name, problem in plain.items()}
    whole = paired(vee(3, 8, **COSTS), "BW")
    made["dualpipev"] = whole, baseline("dualpipev", whole)
    halves = paired(vee(3, 8, **COSTS), "BW", "B")
    made["dualpipev, halves"] = halves, with_halves(halves, baseline("dualpipev", halves))
    return made
