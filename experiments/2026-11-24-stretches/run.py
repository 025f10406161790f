"""Bounds from stretches of random small problems against an exact oracle.

    python experiments/2026-11-24-stretches/run.py [PROBLEMS] [FIRST_SEED]

Each problem has one route, any placement, half of them many ops of length zero. Stretches with
debts of a drawn device and of some drawn devices' models are solved to the end; no sum of them may
exceed the optimum of a model of intervals, or of instants, that shares no code with pipesat's.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from random import Random

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from pipesat.core.errors import BadInput  # noqa: E402
from pipesat.core.problem import Problem  # noqa: E402
from pipesat.core.schedule import Objective  # noqa: E402
from pipesat.files.problem_file import parse_problem  # noqa: E402
from pipesat.solver.proof.stretch_search import Known  # noqa: E402
from pipesat.solver.proof.stretches import Debt, Part, stretch_model  # noqa: E402
from tests.support.against_oracle import least_value  # noqa: E402
from tests.support.optimum import solved  # noqa: E402
from tests.support.oracle import plain_model_optimum  # noqa: E402
from tests.support.zero_lengths import random_document  # noqa: E402

OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")
PARTS: tuple[Part, ...] = ("step", "last", "first")
FAR, MOST_OPS, EFFORT = 300, 15, 0.5


def bound(
    problem: Problem, debt: Debt, objective: Objective, kept: frozenset[int], lengths: range
) -> int:
    """Return what follows from all stretches of some lengths, each solved to its optimum."""
    known = Known(-FAR)
    for part in PARTS:
        for n in lengths:
            model = stretch_model(problem, debt, part, n, objective, -FAR, FAR, kept)
            assert model is not None
            model.variables.cp.minimize(model.value)
            solver = solved(model.variables.cp)
            unit = model.variables.times.unit
            known.learn(part, n, unit * round(solver.objective_value))
    return known.whole(problem.routes[0].microbatches)


def _optimum(problem: Problem, objective: Objective) -> int | None:
    """Of a model of intervals, or of one of instants where ops may take no time."""
    if all(min(stage.F, stage.B, stage.W, stage.BW) > 0 for stage in problem.stages):
        return plain_model_optimum(problem, objective)
    return least_value(problem.document, objective, None, EFFORT)[0]


def main() -> None:
    """Print every bound above an optimum, and how many bounds there were and were equal to it."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    found: Counter[str] = Counter()
    for seed in range(first, first + count):
        rng = Random(seed)
        document = random_document(rng, zeros=bool(seed % 2))
        document.pop("routes", None)
        for stage in document["stages"] if seed % 2 == 0 else ():
            stage.pop("held_in_backward", None)
        most = min(5, MOST_OPS // (3 * len(document["stages"])))
        document["microbatches"] = rng.randint(2, max(2, most))
        try:
            problem = parse_problem(document)
        except BadInput:
            continue
        if seed % 50 == 49:
            print(seed + 1, dict(found), flush=True)
        for objective in OBJECTIVES:
            optimum = _optimum(problem, objective)
            if optimum is None:
                found["undecided or infeasible"] += 1
                continue
            used = [d for d, stages in enumerate(problem.stages_on) if stages]
            debt = Debt(rng.choice(used), rng.randint(0, 3))
            kept = {problem.stages[problem.routes[0].stages[0]].device, debt.device}
            kept |= {d for d in used if rng.random() < 0.7}
            lengths = range(1, rng.randint(2, problem.routes[0].microbatches + 1))
            least = bound(problem, debt, objective, frozenset(kept), lengths)
            found[f"{objective} judged"] += 1
            found[f"{objective} equal"] += least == optimum
            if least > optimum:
                found["wrong"] += 1
                print(f"seed {seed}, {objective}, {debt}: {least} above {optimum}", flush=True)
    print(dict(found), flush=True)
    sys.exit(bool(found["wrong"]))


if __name__ == "__main__":
    main()
