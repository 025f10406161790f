"""The steady state alone: how soon a period without idling is found for Tessel's V and X.

    python experiments/2026-11-21-benchmark/4_steady.py [--limit S] [--repeat N] [--only GLOB] ...

A value is a period in time units, a bound what no period can go below; with value = bound the
busiest device never idles. Appends to results/steady.jsonl.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ours import first, thinned
from runner import Case, Row, main, repeated, since

from pipesat.files.problem_file import read_problem

STEADY = "steady"
MICROBATCHES = 1  # per period and route


def cases(options: argparse.Namespace, files: list[Path]) -> Iterator[Case]:
    """Every problem, as often as asked."""
    for case in repeated(options, files, [STEADY]):
        yield replace(case, objective=STEADY)


def measure(case: Case, launched: float) -> Row:
    """Search shorter and shorter periods; seconds count from the start of the process."""
    from pipesat.solver.run.clock import Clock
    from pipesat.solver.run.runner import Runner
    from pipesat.solver.steady.period import microbatches_per_period, period_bound
    from pipesat.solver.steady.search import shorter_and_shorter

    problem = read_problem(case.file)
    bound = period_bound(problem, microbatches_per_period(problem, MICROBATCHES))
    history: list[tuple[float, int | None, int | None]] = [(since(launched), None, bound)]
    clock = Clock(case.limit)
    runner = Runner(clock, case.workers)
    found = shorter_and_shorter(problem, MICROBATCHES, runner=runner, clock=clock, seed=case.seed)
    history += ((since(launched), repetend.period, bound) for repetend in found)
    *_, (_, period, _) = history
    return {
        "status": "unknown" if period is None else "optimal" if period == bound else "feasible",
        "value": period,
        "bound": bound,
        "gap": None if period is None else (period - bound) / period,
        "first_s": first(history, lambda value, _: value is not None),
        "best_s": first(history, lambda value, _: value is not None and value == period),
        "proof_s": first(history, lambda value, bound: value == bound),
        "history": thinned(history),
        "versions": {name: importlib.metadata.version(name) for name in ("pipesat", "ortools")},
    }


if __name__ == "__main__":
    selection = ("tessel-*",)
    sys.exit(main(__file__, cases, measure, description=__doc__, selection=selection, repeat=3))
