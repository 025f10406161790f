"""Does HiGHS contradict what pipesat says of small problems of all kinds?

    python -m experiments.second-prover.run [--seeds N] [--seconds S]

HiGHS is installed into a virtual environment of its own, in a temporary folder. Fills the table of
README.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

import pipesat
from bench.pages import measured, put, table
from pipesat.problem.problem_file import parse_problem
from tests.oracle.generator import FAMILIES, of_family

HERE = Path(__file__).resolve().parent
HIGHS = "highspy==1.16.0"
OBJECTIVES = "makespan", "span"
LIMIT = 0.3  # deterministic seconds of a solve
HEADS = (
    *("family", "problems", "pipesat proves", "infeasible", "HiGHS decides", "both, and equal"),
    *("bounds that it confirms", "contradictions", "HiGHS, seconds"),
)
Row = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=16, help="problems of each family")
    parser.add_argument("--seconds", type=float, default=120.0, help="of HiGHS, per problem")
    options = parser.parse_args()
    asked = [said(family, seed) for family in FAMILIES for seed in range(options.seeds)]
    for row, answer in zip(asked, second(asked, options.seconds), strict=True):
        row["answer"] = answer
        for what in contradictions(row):
            print(f"{row['name']}: {what}", flush=True)
    lines = [line(name, [r for r in asked if r["family"] == name]) for name in FAMILIES]
    lines.append(line("all", asked))
    text = f"{measured(HIGHS, f'{LIMIT} deterministic seconds a solve')}\n\n{table(HEADS, lines)}"
    put(HERE / "README.md", "table", text, whole=options.seeds == parser.get_default("seeds"))
    return int(any(map(contradictions, asked)))


def said(family: str, seed: int) -> Row:
    """What pipesat says of a problem: its status, value and bound."""
    document = of_family(family, seed)
    objective: Any = OBJECTIVES[seed % 2]
    result = pipesat.solve(
        parse_problem(document), objective=objective, deterministic=True, time_limit=LIMIT
    )
    said = result.document()
    names = "status", "objective", "value", "makespan", "lower_bound"
    row = {"name": f"{family} {seed}, {objective}", "family": family, "document": document}
    return row | {name: said[name] for name in names}


def second(asked: list[Row], seconds: float) -> list[Row]:
    """What HiGHS says, in its own environment."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "-q", HIGHS], check=True)
        done = subprocess.run(
            [python, HERE / "prover.py", "--seconds", f"{seconds}"],
            input="".join(f"{json.dumps(row)}\n" for row in asked),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def contradictions(row: Row) -> list[str]:
    """What of pipesat's cannot be true if HiGHS is right."""
    answer, value, bound = row["answer"], row["value"], row["lower_bound"]
    if answer["status"] == "Infeasible":
        return [] if value is None else [f"no schedule of {value}"]
    if answer["status"] != "Optimal":
        return []
    if row["status"] == "infeasible":
        return [f"called infeasible, {answer['value']} is possible"]
    return [f"bound {bound}, {answer['value']} is possible"] if answer["value"] < bound else []


def line(name: str, rows: list[Row]) -> list[object]:
    """A row of the table."""

    def count(test: Any) -> int:
        return sum(map(bool, map(test, rows)))

    decided = [row for row in rows if row["answer"]["status"] in ("Optimal", "Infeasible")]
    return [
        *(name, len(rows)),
        *(count(lambda row, s=status: row["status"] == s) for status in ("optimal", "infeasible")),
        len(decided),
        sum(
            row["status"] == "infeasible"
            if row["answer"]["status"] == "Infeasible"
            else row["status"] == "optimal" and row["answer"]["value"] == row["value"]
            for row in decided
        ),
        sum((row["lower_bound"] or 0) <= row["answer"].get("value", 0) for row in decided),
        count(contradictions),
        f"{sum(row['answer']['seconds'] for row in rows):.0f}",
    ]


if __name__ == "__main__":
    sys.exit(main())
