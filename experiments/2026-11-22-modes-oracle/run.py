"""Compare checker, feasibility, bounds and placed copies with the oracle for memory modes."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from pipesat.bounds.closed_form import closed_form_bound  # noqa: E402
from pipesat.bounds.feasibility import sure_order  # noqa: E402
from pipesat.core.checker import check  # noqa: E402
from pipesat.core.errors import Infeasible  # noqa: E402
from pipesat.core.ops import parse_item  # noqa: E402
from pipesat.core.problem import Problem  # noqa: E402
from pipesat.core.schedule import Order  # noqa: E402
from pipesat.core.timing import time_order  # noqa: E402
from pipesat.files.problem_file import parse_problem  # noqa: E402
from tests.support.oracle_by_instants import Found, solve  # noqa: E402
from tests.support.tiny_modes import random_order, tiny  # noqa: E402

ORDERS = 400
MOST_STAGES_TIMES_MICROBATCHES = 4


def main(first: int, last: int) -> None:
    """Print and write what the seeds from ``first`` to before ``last`` come to."""
    counts: Counter[str] = Counter()
    for seed in range(first, last):
        document = tiny(Random(seed))
        problem = parse_problem(document)
        if sum(problem.microbatches) <= MOST_STAGES_TIMES_MICROBATCHES:
            counts["problems"] += 1
            counts.update(compare(document, problem, Random(seed)))
    text = json.dumps({"seeds": [first, last]} | dict(counts), indent=1) + "\n"
    print(text, end="")
    (Path(__file__).parent / "results.json").write_text(text)
    if any(name.endswith("!") for name in counts):
        raise SystemExit(1)


def compare(document: dict[str, Any], problem: Problem, chance: Random) -> list[str]:
    """Name what holds of one problem; what must never hold ends in ``!``."""
    try:
        best = time_order(problem, sure_order(problem)).makespan
    except Infeasible:
        return ["infeasible" if solve(document) is None else "false infeasible!"]
    for _ in range(ORDERS):
        schedule = time_order(problem, random_order(problem, chance))
        if schedule.makespan < best and not check(problem, schedule):
            best = schedule.makespan
    found = solve(document, at_most=best)
    if found is None:
        return ["better than the optimum!"]
    names = ["attained by random orders"] if found.value == best else []
    if closed_form_bound(problem, "makespan").value > found.value:
        names.append("false bound!")
    if any(found.copies):
        names.append("optimum has copies")
        placed = time_order(problem, order_of(problem, found))
        valid = not check(problem, placed)
        names.append(
            "placed again at the optimum"
            if valid and placed.makespan == found.value
            else "placed again and longer"
        )
    return names


def order_of(problem: Problem, found: Found) -> Order:
    """The oracle's order with its modes, without its copies."""
    modes = {
        (s, m): 1 + [mode.name for mode in problem.stages[s].modes].index(name)
        for s, m, name in found.modes
    }

    def item(text: str) -> Any:
        op: Any = parse_item(text)
        return op._replace(mode=modes.get((op.stage, op.microbatch), 0))

    return tuple(tuple(item(text) for text, _, _ in row) for row in found.devices)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
