"""From which size of times CP-SAT says what is not true of our models.

    python experiments/2026-11-22-large-times/run.py [--problems 300]

Writes results.json and the table in README.md. Models are built without the limit that
`pipesat.solver.model.times` sets: this is where it comes from.
"""

from __future__ import annotations

import argparse
import collections
import json
import platform
import random
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ortools.sat.python import cp_model

from pipesat.core.checker import check
from pipesat.core.problem import Link, Problem
from pipesat.core.timing import time_order
from pipesat.files.problem_file import FORMAT, parse_problem
from pipesat.solver.model import times
from pipesat.solver.model.model import build_model
from pipesat.solver.run.runner import FOUND, new_solver

HERE = Path(__file__).resolve().parent
BEGIN, END = "<!-- begin table -->\n", "<!-- end table -->"
EXPONENTS = [6, 7, 8, 8.5, 9, 9.5, 10, 10.5, 11, 11.5, 12, 13, 14]  # of ten: the makespan
LIMIT = 1.0  # deterministic seconds per model
MODEST = 10_000  # the longest time before scaling
MOST = 9  # added to every time, so that nothing is left in common
VARIANTS = ("plain", "strong propagation")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--problems", type=int, default=300)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    with ProcessPoolExecutor(arguments.processes) as pool:
        cases = [case for cases in pool.map(cases_of, range(arguments.problems)) for case in cases]
    (HERE / "results.json").write_text(json.dumps(summary(cases), indent=1) + "\n")
    about = f"OR-Tools {version('ortools')}, Python {platform.python_version()}.\n\n"
    head, rest = (HERE / "README.md").read_text().split(BEGIN)
    _, tail = rest.split(END)
    (HERE / "README.md").write_text(f"{head}{BEGIN}{about}{table(cases)}\n{END}{tail}")


def cases_of(seed: int) -> list[dict[str, Any]]:
    """Solve one small problem exactly, then its scaled versions; say what each came to."""
    times.LARGEST = 1 << 62  # type: ignore[misc]
    chance = random.Random(seed)
    problem = random_problem(chance)
    cases: list[dict[str, Any]] = []
    if problem.has_modes:
        return cases
    devices = [d for d, stages in enumerate(problem.stages_on) if stages]
    subsets = [devices, sorted(chance.sample(devices, chance.randint(1, len(devices))))]
    horizon = sum((s.F + s.B + s.W) * 3 for s in problem.stages) * 20
    for kept in subsets:
        small = solved(problem, kept, 0, horizon, "plain", None)
        if small["status"] != "optimal":
            continue
        least = small["value"]
        for exponent in EXPONENTS:
            factor = int(10**exponent) // max(1, least)
            large, slack = scaled(problem, factor, chance)
            most = factor * least + slack  # the same order takes no longer
            for variant in VARIANTS:
                # as a proof asks: within a target that a schedule meets, and far above it
                for upper in (most, most + factor * chance.randint(1, 5)):
                    found = solved(large, kept, 0, upper, variant, (factor * least, most))
                    cases.append(
                        {"seed": seed, "exponent": exponent, "variant": variant}
                        | {"whole": kept == devices}
                        | found
                    )
    return cases


def solved(
    problem: Problem,
    devices: list[int],
    lower: int,
    upper: int,
    variant: str,
    bracket: tuple[int, int] | None,
) -> dict[str, Any]:
    """Solve a model of the makespan; compare it with what the optimum lies between."""
    model = build_model(problem, "makespan", lower, upper, devices)
    solver = new_solver(seed=0)
    solver.parameters.max_deterministic_time = LIMIT
    solver.parameters.use_strong_propagation_in_disjunctive = variant == "strong propagation"
    solver.parameters.cp_model_presolve = variant != "no presolve"
    status = solver.solve(model.cp)
    value = model.unit * round(solver.objective_value) if status in FOUND else None
    bound = model.unit * round(solver.best_objective_bound) if status in FOUND else None
    wrong = None
    if bracket is not None and bound is not None and value is not None:
        least, most = bracket
        if bound > most:
            wrong = "bound above a schedule"
        elif value < least or (status == cp_model.OPTIMAL and value > most):
            wrong = "optimum outside of its bracket"
        elif len(devices) == len(problem.devices):
            timed = time_order(problem, model.order(solver.value))
            if timed.makespan > value or check(problem, timed):
                wrong = "not a schedule"
    elif bracket is not None and status == cp_model.INFEASIBLE:
        wrong = "infeasible, though there is a schedule"
    elif status == cp_model.MODEL_INVALID:
        wrong = "refused"
    return {"status": solver.status_name(status).lower(), "value": value, "wrong": wrong}


def random_problem(chance: random.Random) -> Problem:
    """Two to six devices in a chain or a V, with memory that is scarce; times up to 10,000."""
    p, vee = chance.randint(2, 6), chance.random() < 0.5
    stages = []
    uniform = chance.random() < 0.5
    alike = {kind: random_time(chance) for kind in ("F", "B", "W")}
    held = chance.choice([(1, 1), (2, 1), (1, 3)])
    for number in range(2 * p if vee else p):
        stage: dict[str, Any] = {"device": min(number, 2 * p - 1 - number) if vee else number}
        stage |= alike if uniform else {kind: random_time(chance) for kind in ("F", "B", "W")}
        if chance.random() < 0.2:
            stage["BW"] = chance.randint(stage["B"], stage["B"] + stage["W"])
        stage["held_after_F"], stage["held_after_B"] = held
        stage["backward"] = chance.choice(["split", "fused", "either", "either"])
        stages.append(stage)
    return parse_problem(
        {
            "format": FORMAT,
            "microbatches": chance.randint(2, 3 if vee else 6),
            "devices": [{"memory": held[0] * (1 + vee) + chance.randint(2, 5)} for _ in range(p)],
            "stages": stages,
            "comm": {
                "default": random_time(chance),
                "edges": [
                    {"src": s, "dst": s + 1, "F": random_time(chance), "B": random_time(chance)}
                    for s in range(len(stages) - 1)
                    if stages[s]["device"] != stages[s + 1]["device"] and chance.random() < 0.5
                ],
            },
        }
    )


def random_time(chance: random.Random) -> int:
    """Equal times, times that are nearly equal, small ones, and any."""
    kind = chance.randrange(4)
    if kind < 2:
        return MODEST - kind * chance.randint(0, 5)
    return chance.randint(1, 20 if kind == 2 else MODEST)


def scaled(problem: Problem, factor: int, chance: random.Random) -> tuple[Problem, int]:
    """Scale all times and add a little; return how much longer an order can become by that."""

    def longer(time: int) -> int:
        return factor * time + chance.randint(0, MOST)

    stages = (
        replace(s, F=longer(s.F), B=longer(s.B), W=longer(s.W), BW=longer(s.BW))
        for s in problem.stages
    )
    links = {ends: Link(longer(link.F), longer(link.B)) for ends, link in problem.links.items()}
    large = replace(problem, stages=tuple(stages), links=links)
    return large, 2 * MOST * problem.op_count


def summary(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Count what is wrong, and name the first cases of each kind."""
    wrong = [case for case in cases if case["wrong"]]
    return {
        "cases": len(cases),
        "wrong": dict(collections.Counter(case["wrong"] for case in wrong)),
        "examples": wrong[:20],
    }


def table(cases: list[dict[str, Any]]) -> str:
    """Wrong and settled cases per size and variant."""
    lines = [["makespan", *(f"{v}: cases | settled | wrong" for v in VARIANTS)]]
    lines = [["makespan"] + [f"{v}, {what}" for v in VARIANTS for what in ("cases", "wrong")]]
    lines.append(["---"] * len(lines[0]))
    for exponent in EXPONENTS:
        row = [f"10^{exponent:g}"]
        for variant in VARIANTS:
            here = [c for c in cases if c["exponent"] == exponent and c["variant"] == variant]
            row += [str(len(here)), str(sum(c["wrong"] is not None for c in here))]
        lines.append(row)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
