"""Solve the problems with memory modes; print value, bound and the best schedules in one mode.

``run.py baselines`` and ``run.py solve [SECONDS]`` write results, ``run.py table`` prints them.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import pipesat  # noqa: E402
from pipesat.core.checker import check  # noqa: E402
from pipesat.core.problem import Problem  # noqa: E402
from pipesat.core.schedule import Schedule  # noqa: E402
from pipesat.core.timing import time_order  # noqa: E402
from pipesat.solver.modes.assign import in_modes  # noqa: E402
from pipesat.workflows.hand_written import hand_written  # noqa: E402

HERE = Path(__file__).parent
PROBLEMS = ROOT / "experiments" / "bench-next" / "problems"


def problems() -> Iterator[tuple[str, Problem]]:
    """Names and problems with memory modes."""
    for path in sorted(PROBLEMS.glob("mode-*.json")):
        yield path.stem, pipesat.read_problem(path)


def baselines() -> None:
    """Write, per problem, the best valid schedule in keep and in each single mode."""
    results: dict[str, dict[str, list[Any]]] = {}
    for name, problem in problems():
        found: dict[str, list[Any]] = {}
        guides = [made for _, made in hand_written(problem, "makespan") if made is not None]
        for number in range(1 + max(len(stage.modes) for stage in problem.stages)):
            mode = "keep" if not number else problem.stages[0].modes[number - 1].name
            valid = [
                (timed.makespan, guide.source)
                for guide in guides
                for timed in [in_mode(problem, guide, number)]
                if not check(problem, timed)
            ]
            found[mode] = list(min(valid)) if valid else []
        results[name] = found
        print(name, found, flush=True)
    (HERE / "baselines.json").write_text(json.dumps(results, indent=1) + "\n")


def in_mode(problem: Problem, guide: Schedule, mode: int) -> Schedule:
    """Time a guide with every microbatch of every stage in one mode."""
    counts = enumerate(problem.microbatches)
    modes = {(stage, m): mode for stage, count in counts for m in range(count)}
    return time_order(problem, in_modes(problem, guide.order, modes))


def solve(seconds: float) -> None:
    """Write what two threads find and prove in so many seconds."""
    results = {}
    for name, problem in problems():
        result = pipesat.solve(problem, time_limit=seconds, workers=2)
        assert result.schedule is not None
        assert result.lower_bound is not None
        used = Counter(result.schedule.modes.values())
        results[name] = {
            "status": result.status,
            "value": result.value,
            "bound": result.lower_bound.value,
            "by": result.lower_bound.source,
            "modes": {problem.stages[0].modes[mode - 1].name: n for mode, n in used.items()},
        }
        print(name, results[name], flush=True)
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")


def table() -> None:
    """Print the table of the README."""
    known = json.loads((HERE / "baselines.json").read_text())
    print("| problem | keep | best single mode | value | bound | gap |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    gaps = []
    for name, found in json.loads((HERE / "results.json").read_text()).items():
        keep, *others = known[name].values()
        single = min(value[0] for value in others if value)
        gap = 1 - found["bound"] / found["value"]
        gaps.append(gap)
        cells = [f"{keep[0]:,}", f"{single:,}", f"{found['value']:,}", f"{found['bound']:,}"]
        print(f"| `{name}` | {' | '.join(cells)} | {gap:.1%} |")
    print(f"\nMean gap {sum(gaps) / len(gaps):.1%}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["baselines"]:
            baselines()
        case ["solve", *limit]:
            solve(float(limit[0]) if limit else 60.0)
        case _:
            table()
