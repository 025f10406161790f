"""What each way of ordering microbatches of random lengths takes over the bound.

    python -m experiments.microbatch-orders.run [--limit S] [--cases N]

Solves the cases that results.csv does not have, then fills the tables of README.md and draws
docs/pictures/microbatch-orders.png. The limit is in the search's own time, so results do not depend
on the load; 0.5 is one to seven seconds of one core.
"""

from __future__ import annotations

import argparse
import csv
import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import pipesat
from bench.pages import put, table
from pipesat.heuristics import BASELINES
from pipesat.heuristics.list_scheduling import list_schedules, policies
from pipesat.heuristics.microbatch_orders import entered_by, permutation_by
from pipesat.problem.lengths import microbatches_from_lengths
from pipesat.schedule.microbatch_order import permuted, relabelled
from pipesat.schedule.timing import time_order

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.csv"
PICTURE = HERE.parents[1] / "docs" / "pictures" / "microbatch-orders.png"
DRAWS, DEVICES, PER_DEVICE = 10, (4, 8, 16), (2, 4)
MEAN = 4096
SHORTEST, LONGEST = MEAN // 16, 4 * MEAN
SCHEDULES = ("1f1b", "zb-h1", "zb-h2")
POLICIES = 2  # of list scheduling, the usually best
WAYS = {"given": "#999999", "descending": "#e6a15c", "both-ends": "#4c8bc2", "ours": "#1a7f5a"}
RULES = ("given", "descending", "both-ends")


def normal(deviation: float) -> Callable[[random.Random], float]:
    return lambda draw: draw.gauss(1, deviation)


DISTRIBUTIONS: dict[str, Callable[[random.Random], float]] = {
    **{f"normal {deviation}": normal(deviation) for deviation in (0.1, 0.3, 0.6, 1.0)},
    "lognormal": lambda draw: draw.lognormvariate(-0.32, 0.8),  # mean 1
    "long tail": lambda draw: draw.choices([0.5, 1, 2, 4], [40, 40, 15, 5])[0],
}
"""From the mean length on, cut off at 1/16 and at 4 times the mean."""


class Case(NamedTuple):
    """One draw of microbatches for one pipeline."""

    distribution: str
    devices: int
    microbatches: int
    draw: int


def cases() -> Iterator[Case]:
    """Yield one draw of everything after the other."""
    for draw in range(DRAWS):
        for distribution in DISTRIBUTIONS:
            for devices in DEVICES:
                for per_device in PER_DEVICE:
                    yield Case(distribution, devices, per_device * devices, draw)


def problem_of(case: Case) -> pipesat.Problem:
    """Return a chain with the costs of the Zero Bubble paper's 6.2B model.

    A fifth of the time grows with the square of the length. Memory is for 2p microbatches of the
    mean length.
    """
    chance = random.Random(str(tuple(case)))
    drawn = (DISTRIBUTIONS[case.distribution](chance) for _ in range(case.microbatches))
    lengths = [min(max(round(MEAN * x), SHORTEST), LONGEST) for x in drawn]
    amounts = {"F": 29802, "B": 29428, "W": 19530, "held_after_F": 10000, "held_after_B": 5000}
    memory = 2 * case.devices * 10000
    microbatches = microbatches_from_lengths(lengths, MEAN, Fraction(1, 5))
    more = {"memory": memory, "comm": 577, "order": "same"}
    return pipesat.Problem.chain(case.devices, microbatches, **amounts, **more)  # type: ignore[arg-type]


def solved(case: Case, limit: float) -> dict[str, int]:
    """Makespans under the rules, from which a search starts, and its bound."""
    from pipesat.solver import SolveOptions, solve

    problem = problem_of(case)
    under = {rule: best_under(problem, rule) for rule in RULES}
    starts = sorted(under.values(), key=lambda schedule: schedule.makespan)
    options = SolveOptions(time_limit=limit, deterministic=True, starts="none", schedules=starts)
    result = solve(problem, options)
    assert result.value is not None
    assert result.lower_bound is not None
    makespans = {rule: schedule.makespan for rule, schedule in under.items()}
    return makespans | {"ours": result.value, "bound": result.lower_bound}


def best_under(problem: pipesat.Problem, rule: str) -> pipesat.Schedule:
    """Return the shortest of some hand-written schedules that fits, in one order."""
    permutation = permutation_by(problem, rule)
    made = [entered_by(BASELINES[name], problem, rule, permutation) for name in SCHEDULES]
    entering = permuted(problem, permutation)
    for schedule in list_schedules(entering, chosen=list(policies(entering))[:POLICIES]):
        order = relabelled(problem, schedule.order, permutation)
        made.append(time_order(problem, order, source=f"list-scheduling, {rule}"))
    by_makespan = sorted(made, key=lambda schedule: schedule.makespan)
    return next(schedule for schedule in by_makespan if not pipesat.check(problem, schedule))


def known() -> dict[Case, dict[str, int]]:
    """Return what has been written so far."""
    with RESULTS.open() as file:
        rows = [*csv.DictReader(file)]
    return {
        Case(row["distribution"], *(int(row[key]) for key in Case._fields[1:])): {
            way: int(row[way]) for way in (*WAYS, "bound")
        }
        for row in rows
    }


def tables(over: dict[Case, dict[str, float]]) -> str:
    """A row per distribution, then one per size of pipeline: means over the draws, in percent."""
    parts = [f"{len(over)} cases, makespan over the proven bound, in percent"]
    groups: dict[str, Callable[[Case], Hashable]] = {
        "lengths": lambda case: case.distribution,
        "devices, microbatches": lambda case: f"{case.devices}, {case.microbatches}",
    }
    for title, group_of in groups.items():
        found = defaultdict(list)
        for case, values in sorted(over.items(), key=lambda item: item[0][1:]):
            found[group_of(case)].append(values)
        order: Iterable[Hashable] = DISTRIBUTIONS if title == "lengths" else found
        rows = [
            [
                key,
                len(found[key]),
                *(f"{fmean(row[way] for row in found[key]):.1f}" for way in WAYS),
            ]
            for key in order
        ]
        parts.append(table((title, "draws", *WAYS), rows, right=1))
    ours = [(values["ours"], min(values[rule] for rule in RULES)) for values in over.values()]
    parts.append(
        f"Ours is proven optimal in {sum(own == 0 for own, _ in ours)}, shorter than every rule "
        f"in {sum(own < rule for own, rule in ours)}, longer than one in "
        f"{sum(own > rule for own, rule in ours)}."
    )
    return "\n\n".join(parts)


def draw(over: dict[Case, dict[str, float]]) -> None:
    """Draw bars: means over all sizes and draws, with the single cases as dots."""
    from matplotlib.figure import Figure

    figure, width = Figure(figsize=(9, 3.8), layout="constrained"), 0.2
    axes = figure.subplots()
    for number, (way, colour) in enumerate(WAYS.items()):
        at = [place + (number - 1.5) * width for place in range(len(DISTRIBUTIONS))]
        values = [
            [value[way] for case, value in over.items() if case.distribution == name]
            for name in DISTRIBUTIONS
        ]
        axes.bar(at, [fmean(own) for own in values], width, label=way, color=colour)
        for x, own in zip(at, values, strict=True):
            axes.plot([x] * len(own), own, ".", color="black", alpha=0.35, markersize=3)
    axes.set_xticks(range(len(DISTRIBUTIONS)), list(DISTRIBUTIONS))
    axes.set(xlabel="lengths of microbatches", ylabel="makespan over the bound, %")
    axes.grid(axis="y", color="#e3e3e3", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, title="order")
    figure.savefig(PICTURE, dpi=130, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--limit", type=float, default=0.5, help="of each search (0.5)")
    parser.add_argument("--cases", type=int, help="at most so many new ones")
    options = parser.parse_args()
    done = known()
    for case in [case for case in cases() if case not in done][: options.cases]:
        done[case] = solved(case, options.limit)
        with RESULTS.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow([*case, *done[case].values()])
        print(*case, done[case], flush=True)
    over = {
        case: {way: 100 * (values[way] / values["bound"] - 1) for way in WAYS}
        for case, values in done.items()
    }
    put(HERE / "README.md", "tables", tables(over))
    draw(over)


if __name__ == "__main__":
    main()
