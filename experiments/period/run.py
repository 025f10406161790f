"""The least period against memory: values with schedules that have it, and bounds.

    python -m experiments.period.run [minutes]
    python -m experiments.period.run open

Writes results.json, tables of README.md and docs/pictures/period.png. After so many minutes no
other open entry is searched. With ``open`` the entries of results.json that are open are followed.
"""

from __future__ import annotations

import json
import sys
import time
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path

from pipesat.bounds.feasibility import sure_order
from pipesat.bounds.period import steady_bounds
from pipesat.check.checker import check
from pipesat.core.errors import PipesatError
from pipesat.heuristics import BASELINES
from pipesat.heuristics.registry import never
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.schedule.timing import time_order
from pipesat.solver.growth.periodic import periodic_orders, steady_rate
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import Runner
from pipesat.solver.model.left_out import with_microbatches
from pipesat.solver.proof.whole_route import WholeRoute, whole_route_applies
from tests.oracle import period as states

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs"
# F, B, W, delay, held after F and after B of a whole stage; Table 9 of the Zero Bubble paper, us
COSTS = {
    "F = B = W": (2, 2, 2, 0, 2, 0),
    "6.2B": (29802, 29428, 19530, 577, 10000, 4324),
    "28.3B": (10419, 10207, 7715, 408, 10000, 4507),
}
NAMED = {
    "chain": ("1f1b", "zb-h1"),
    "V": ("1f1b-v", "zb-v", "v-half", "v-min"),
}
DEVICES = range(2, 9)
SEARCH, SEARCH_OF_UNIT = 0.6, 2.0  # deterministic seconds of annealing, per entry
FOLLOW, RUN = 8.0, 8  # seconds to follow all ways of an open entry, of as many times the run


def problem_of(costs: str, shape: str, p: int, halves: int) -> Problem:
    """One with memory for so many halves of a stage's activations on each device."""
    parts = 2 if shape == "V" else 1
    f, b, w, comm, held, after = COSTS[costs]
    homes = [*range(p), *reversed(range(p))] if shape == "V" else [*range(p)]
    stage = {"F": round(f / parts), "B": round(b / parts), "W": round(w / parts)}
    stage |= {"held_after_F": held // parts, "held_after_B": round(after / parts)}
    return parse_problem(
        {
            "format": "pipesat.problem/1",
            "microbatches": 6 * p,
            "devices": [{"memory": halves * held // 2}] * p,
            "stages": [{"device": d} | stage for d in homes],
            "comm": {"default": comm},
        }
    )


def entry(costs: str, shape: str, p: int, halves: int) -> dict:
    """What is known of one case, in parts of a device's load."""
    problem = problem_of(costs, shape, p, halves)
    load = sum(
        problem.stages[s].F + problem.stages[s].least_backward_work for s in problem.stages_on[0]
    )
    least = max(steady.rate for steady in steady_bounds(problem, "makespan"))
    rates: dict[str, Fraction] = {}
    for name in NAMED[shape]:
        try:
            schedule = BASELINES[name](problem, never)
        except PipesatError:
            continue
        if not check(problem, schedule):
            rates[name] = steady_rate(problem, schedule)
    if costs == "F = B = W" and shape == "V" and halves < 6 and (halves < 5 or p < 7):
        least = max(least, exhausted(p, halves))
    found = {"costs": costs, "shape": shape, "p": p, "halves": halves, "load": load}
    return found | {"bound": str(least), "rates": {k: str(v) for k, v in rates.items()}}


def exhausted(p: int, halves: int) -> Fraction:
    """Least period of F = B = 1 on a V, without W, which no order with W beats: all states.

    A microbatch that is under way holds a half on device 0, so no more than ``halves`` are.
    """
    stage = {"F": 1, "B": 1, "W": 1, "BW": 1, "held_after_F": 1, "backward": "fused"}
    stages = [{"device": d} | stage for d in [*range(p), *reversed(range(p))]]
    document = {"devices": [{"memory": halves}] * p, "stages": stages}
    states._UNDER_WAY = halves + 1
    return states.least_period(document, most=120_000) or Fraction(0)


def searched(found: dict) -> None:
    """Look for a better period of an open case, by annealing."""
    problem = problem_of(*(found[key] for key in ("costs", "shape", "p", "halves")))
    clock, rates, bound = (
        Clock(SEARCH_OF_UNIT if found["costs"] == "F = B = W" else SEARCH, deterministic=True),
        found["rates"],
        Fraction(found["bound"]),
    )
    for _, order_of in periodic_orders(problem, clock, 0):
        timed = time_order(problem, order_of(problem))
        if check(problem, timed):
            continue
        rate = steady_rate(problem, timed)
        rates["annealed"] = str(min(rate, Fraction(rates.get("annealed", rate))))
        if rate == bound:
            return


def followed(found: dict) -> None:
    """Follow all ways to run an open case: its least period, where they come again, and a schedule.

    Of a longer run, which costs no more: what comes again is followed once.
    """
    problem = problem_of(*(found[key] for key in ("costs", "shape", "p", "halves")))
    problem = with_microbatches(problem, [RUN * problem.routes[0].microbatches])
    incumbent = Incumbent(problem, "makespan", Clock(FOLLOW))
    if (
        not whole_route_applies(problem)
        or incumbent.offer(sure_order(problem), "one by one") is None
    ):
        return
    proofs, runner = WholeRoute(problem, incumbent), Runner(incumbent.clock)
    while not (proofs.finished or incumbent.proven or incumbent.clock.over):
        proofs.step(runner)
    found["bound"] = str(max(Fraction(found["bound"]), incumbent.rate))
    rate = steady_rate(problem, incumbent.schedule)
    found["rates"]["followed"] = str(rate)


def best(found: dict) -> Fraction | None:
    return min(map(Fraction, found["rates"].values()), default=None)


def is_open(found: dict) -> bool:
    value = best(found)
    return value is not None and value > Fraction(found["bound"])


def cell(found: dict) -> str:
    """Value over load; below it the bound where it is open, ``-`` where no schedule was found."""
    value, bound, load = best(found), Fraction(found["bound"]), found["load"]
    if value is None:
        return f">{float(bound / load):.2f}"
    text = f"{float(value / load):.3f}"
    return text if value == bound else f"{text}>{float(bound / load):.2f}"


def aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(x.rjust(w) for x, w in zip(row, widths, strict=True)) for row in rows]


def least_period(rows: list[dict], costs: str, shape: str) -> str:
    """One table: devices down, memory across in halves of a stage's activations."""
    own = [r for r in rows if (r["costs"], r["shape"]) == (costs, shape)]
    memory = sorted({r["halves"] for r in own})
    lines = [["p", *(f"{h / 2:g}" for h in memory)]]
    for p in DEVICES:
        cells = {r["halves"]: cell(r) for r in own if r["p"] == p}
        lines.append([str(p), *(cells.get(h, "") for h in memory)])
    return "\n".join([f"{costs}, {shape}", *(line.rstrip() for line in aligned(lines))])


def attained(rows: list[dict]) -> str:
    """Least memory at which a hand-written schedule has the least period known, by devices."""
    lines = [["schedule", "costs", "attained", *(f"p={p}" for p in DEVICES)]]
    for shape, names in NAMED.items():
        for name, costs in product(names, COSTS):
            own = [r for r in rows if r["costs"] == costs and r["shape"] == shape]
            fit = [r for r in own if name in r["rates"]]
            at = [r for r in fit if Fraction(r["rates"][name]) == best(r)]
            least = [min((r["halves"] for r in at if r["p"] == p), default=0) for p in DEVICES]
            shown = [f"{h / 2:g}" if h else "-" for h in least]
            lines.append([name, costs, f"{len(at)} of {len(fit)}", *shown])
    return "\n".join(aligned(lines))


def carried(rows: list[dict]) -> None:
    """A schedule fits into more memory, too, and what holds with more holds with less."""
    ordered = sorted(rows, key=lambda r: (r["costs"], r["shape"], r["p"], r["halves"]))
    for less, more in pairwise(ordered):
        if less["halves"] < more["halves"] and (value := best(less)) is not None:
            more["rates"]["less memory"] = str(value)
    for less, more in reversed([*pairwise(ordered)]):
        if less["halves"] < more["halves"]:
            less["bound"] = str(max(Fraction(less["bound"]), Fraction(more["bound"])))


def written(rows: list[dict]) -> None:
    """Put tables into the README."""
    unit = [least_period(rows, "F = B = W", shape) for shape in NAMED]
    others = [least_period(rows, c, shape) for c in [*COSTS][1:] for shape in NAMED]
    page, text = HERE / "README.md", (HERE / "README.md").read_text()
    parts = {"unit": "\n\n".join(unit), "attained": attained(rows), "measured": "\n\n".join(others)}
    for name, table in parts.items():
        head, rest = text.split(f"<!-- begin {name} -->\n")
        after = rest.partition("<!-- end")[2]
        text = f"{head}<!-- begin {name} -->\n```text\n{table}\n```\n<!-- end{after}"
    page.write_text(text)


def picture(rows: list[dict]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True)
    for axis, shape in zip(axes, NAMED, strict=True):
        for p in (2, 4, 6, 8):
            own = [r for r in rows if (r["costs"], r["shape"], r["p"]) == ("F = B = W", shape, p)]
            own = sorted((r for r in own if best(r)), key=lambda r: r["halves"])
            x = [r["halves"] / 2 / p for r in own]
            found = [float(best(r) / r["load"]) for r in own]
            bound = [float(Fraction(r["bound"]) / r["load"]) for r in own]
            style = {"drawstyle": "steps-post", "ms": 4}  # activations come in whole numbers
            (line,) = axis.plot(x, found, "o-", label=f"{p} devices", **style)
            axis.plot(x, bound, ":", color=line.get_color(), **style)
        axis.set(title=shape, xlabel="memory over 1F1B's", ylim=(0.95, 3))
        axis.legend()
    axes[0].set_ylabel("period over load (dotted: bound)")
    figure.tight_layout()
    figure.savefig(PAGE / "pictures" / "period.png", dpi=90)


def searched_anew(minutes: float) -> list[dict]:
    """All entries, with what annealing finds in so many minutes."""
    until, rows = time.monotonic() + 60 * minutes, []
    for p, costs, shape in product(DEVICES, COSTS, NAMED):
        memory = range(2, 2 * p + 1, 1 if shape == "V" else 2)
        rows += [entry(costs, shape, p, halves) for halves in memory]
    left = [r for r in rows if not r["rates"] or is_open(r)]
    left.sort(key=lambda r: [*COSTS].index(r["costs"]))
    print(f"{len(rows)} entries, {len(left)} to search", flush=True)
    for number, found in enumerate(left):
        if time.monotonic() > until:
            print(f"{len(left) - number} entries were not searched", flush=True)
            break
        searched(found)
    return rows


def main(told: str) -> None:
    known = HERE / "results.json"
    rows = json.loads(known.read_text()) if told == "open" else searched_anew(float(told))
    left = [r for r in rows if not r["rates"] or is_open(r)]
    for number, found in enumerate(left):
        followed(found)
        print(f"{number + 1} of {len(left)}: {found}", flush=True)
    carried(rows)
    known.write_text(json.dumps(rows, indent=0) + "\n")
    written(rows)
    picture(rows)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "25")
