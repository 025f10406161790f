"""Solve hard problems with one part of the solver switched off at a time.

    python bench/ablate.py [--limit S] [--only GLOB] ...

The parts are the switches of pipesat.solver.SearchParts, and the warm starts, of which only the
first list-scheduling policy is left. Appends to results/ablate.jsonl.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ours
from runner import Case, Row, main, repeated

ALL = "everything"
WARM_STARTS = "warm_starts"

# Too hard for closed forms alone, of every kind of placement and memory.
SELECTION = (
    "lowcap-6.2B-p8-m16-cap0.75",
    "lowcap-6.2B-p8-m32-cap0.75",
    "lowcap-6.2B-p16-m32-cap0.5",
    "uneven-6.2B-s1-p8-m16-cap1",
    "uneven-6.2B-s2-p8-m32-cap1",
    "table5-1.5B-p8-m32-cap2",
    "vee-6.2B-p4-m8-cap0.5",
    "vee-6.2B-p8-m16-cap0.625",
    "vee-6.2B-p16-m32-cap0.5625",
    "torch-6.2B-p4-m8-cap8",
    "torch-6.2B-p8-m16-cap12",
    "bidir-6.2B-p8-m20",
    "loop2-6.2B-p8-m16-cap1",
    "uneven-6.2B-s3-p8-m1024-cap0.75",
)


def cases(options: argparse.Namespace, files: list[Path]) -> Iterator[Case]:
    """Everything, then without each part."""
    from pipesat.solver.options import SearchParts

    switches = [field.name for field in dataclasses.fields(SearchParts)]
    yield from repeated(options, files, [ALL, WARM_STARTS, *switches])


def measure(case: Case, launched: float) -> Row:
    """Solve without the part that the case names."""
    import pipesat.solver

    if case.variant != ALL:
        without = _without(case.variant, pipesat.solver.solve)
        pipesat.solver.solve = without
    return ours.measure(case, launched)


def _without(part: str, search: Callable[..., Any]) -> Callable[..., Any]:
    """The search as ``pipesat.solve`` calls it, but for one part.

    It is replaced underneath, so that all else is what a user's solve hands to it.
    """
    from pipesat.heuristics.list_scheduling import list_schedules
    from pipesat.solver import SearchParts

    def reduced(problem: Any, options: Any) -> Any:
        if part == WARM_STARTS:
            first = itertools.islice(list_schedules(problem), 1)
            return search(problem, replace(options, starts="none", schedules=first))
        return search(problem, replace(options, parts=SearchParts(**{part: False})))

    return reduced


if __name__ == "__main__":
    sys.exit(main(__file__, cases, measure, description=__doc__, selection=SELECTION))
