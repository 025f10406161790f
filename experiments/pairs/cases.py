"""What the scripts of this folder share: problems, one measured solve, tables on pages."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT))

from pipesat.core.metrics import bubbles  # noqa: E402
from pipesat.core.problem import Problem  # noqa: E402
from pipesat.core.schedule import Schedule  # noqa: E402
from pipesat.files.problem_file import parse_problem, read_problem  # noqa: E402
from pipesat.files.schedule_file import read_schedule  # noqa: E402
from pipesat.heuristics import BASELINES  # noqa: E402
from pipesat.workflows.result import Result  # noqa: E402
from pipesat.workflows.solve import solve  # noqa: E402

CHUNK = 10_000
"""Memory that one stage holds for one microbatch after its forward."""

PROBLEM = HERE.parents[1] / "bench" / "beyond" / "problems" / "pair-dsv3-vee-p4-m10.json"
KEPT = HERE / "schedule.json"
"""The best schedule known of that problem."""

PAGE = HERE / "README.md"


class Costs(NamedTuple):
    """Times of one stage, of its pairs, and of a link."""

    F: int
    B: int
    W: int
    pair: int
    comm: int


COSTS = {
    "unit": Costs(4, 4, 4, 11, 0),
    # deepseek-ai/profile-data, train.json: sums of kernel times, and the span of the pair
    "dsv3": Costs(97_391, 111_611, 35_067, 129_012, 500),
}

SHARES = {"F+F": (("F", "F"), 75), "F+W": (("F", "W"), 75), "B+W": (("B", "W"), 78)}
"""Per cent of their sum that other pairs take, in problems that have them: an assumption."""


def vee(costs: str, p: int, m: int, chunks: int | None, more: Sequence[str] = ()) -> Problem:
    """Two stages per device in a V, ``chunks`` of memory each (``None``: no limit)."""
    homes = [min(s, 2 * p - 1 - s) for s in range(2 * p)]
    return _problem(f"vee-{costs}-p{p}-m{m}", costs, homes, {"microbatches": m}, chunks, more)


def bidirectional(costs: str, p: int, m: int, chunks: int, *, pairs: bool = True) -> Problem:
    """Two replicas of p stages in opposite directions, half of the microbatches each."""
    homes = [*range(p), *reversed(range(p))]
    ways = [list(range(p)), list(range(p, 2 * p))]
    routes = {"routes": [{"stages": way, "microbatches": m // 2} for way in ways]}
    name = f"bidirectional-{costs}-p{p}-m{m}{'' if pairs else '-no-pairs'}"
    return _problem(name, costs, homes, routes, chunks, (), pairs=pairs)


def _problem(
    name: str,
    costs: str,
    homes: Sequence[int],
    route: Mapping[str, Any],
    chunks: int | None,
    more: Sequence[str],
    *,
    pairs: bool = True,
) -> Problem:
    c = COSTS[costs]
    held = {"held_after_F": CHUNK, "held_after_B": CHUNK // 2}
    document = {
        "format": "pipesat.problem/1",
        "name": "-".join([name, *more]),
        "time_unit": "us",
        "devices": [{"memory": chunks and chunks * CHUNK} for _ in range(max(homes) + 1)],
        "stages": [{"device": home, "F": c.F, "B": c.B, "W": c.W, **held} for home in homes],
        "comm": {"default": c.comm},
        **route,
    }
    if pairs:
        document["overlap"] = {"pairs": list(_pairs(c, homes, more))}
    return parse_problem(document, name)


def _pairs(c: Costs, homes: Sequence[int], more: Sequence[str]) -> Any:
    times = {("F", "BW"): c.pair}
    for name in more:
        (one, other), share = SHARES[name]
        total = getattr(c, one) + getattr(c, other)
        times[one, other] = -(-total * share // 100)
    for (one, other), time_ in times.items():
        for a, home in enumerate(homes):
            for b, there in enumerate(homes):
                if home == there and (one != other or a <= b):
                    yield {"ops": [f"{a}{one}", f"{b}{other}"], "time": time_}


class Options(NamedTuple):
    """What every script takes."""

    limit: float
    workers: int
    only: Sequence[str]


def options(text: str | None) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(text or "").partition("\n")[0])
    parser.add_argument("--time-limit", type=float, default=600.0, help="seconds per problem")
    parser.add_argument("--workers", type=int, default=2, help="threads of the search")
    parser.add_argument("--only", nargs="*", default=[], help="parts of names of problems")
    given = parser.parse_args()
    return Options(given.time_limit, given.workers, given.only)


def measured(
    problem: Problem, given: Options, schedules: Sequence[Schedule] = ()
) -> tuple[Result, dict[str, Any]]:
    """Solve a problem, from ``schedules`` too; return the result, and the row that is kept."""
    load, begin = os.getloadavg()[0], time.monotonic()
    result = solve(problem, time_limit=given.limit, workers=given.workers, schedules=schedules)
    row = {
        "problem": problem.name,
        "status": result.status,
        "value": result.value,
        "bound": result.lower_bound,
        "gap": result.gap,
        "bubble": None if result.schedule is None else bubbles(problem, result.schedule)[0],
        "baseline": None if result.baseline is None else list(result.baseline),
        "limit_s": given.limit,
        "wall_s": round(time.monotonic() - begin, 1),
        "load_before": round(load, 1),
    }
    print(json.dumps(row), file=sys.stderr, flush=True)
    return result, row


def kept_schedules(problem: Problem) -> list[Schedule]:
    """Return the schedule in the folder, if it is of a V like this one, where it may run, too."""
    if not KEPT.exists() or not problem.name.startswith("vee-dsv3-p4-m10"):
        return []
    return [read_schedule(KEPT, read_problem(PROBLEM))]


def dual(problem: Problem, name: str) -> Any:
    """Return DeepSeek's schedule of a problem."""
    return BASELINES[name](problem)


def keep(name: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put rows into the file of results; return all.

    Of one problem the best value and bound stay: what a run has shown stays shown, its schedule has
    passed the checker. Not so the goals, which ask what one run of a minute shows.
    """
    path = HERE / "results.json"
    everything = json.loads(path.read_text()) if path.exists() else {}
    old = {row["problem"]: row for row in everything.get(name, {"rows": []})["rows"]}
    for row in rows:
        known = old.get(row["problem"], row)
        old[row["problem"]] = row if name == "goals" else better(known, row)
    new = list(old.values())
    machine = f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores"
    everything[name] = {"date": str(date.today()), "machine": machine, "rows": new}
    path.write_text(json.dumps(everything, indent=1) + "\n")
    return new


def better(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Join two rows of one problem."""
    known = [row for row in (old, new) if row["value"] is not None]
    best = dict(min(reversed(known), key=lambda row: row["value"], default=new))
    bounds = [row["bound"] for row in (old, new) if row["bound"] is not None]
    best["bound"] = max(bounds, default=None)
    if best["value"] is not None and bounds:
        best["gap"] = (best["value"] - best["bound"]) / best["value"]
        best["status"] = "feasible" if best["gap"] else "optimal"
    return best


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table for a page; all columns but the first are numbers."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def about(rows: Sequence[dict[str, Any]], unit: str = "problem") -> str:
    """Say how rows were measured; ``unit``: what has the time limit."""
    limits = sorted({row["limit_s"] for row in rows})
    loads = [row["load_before"] for row in rows]
    return (
        f"{' or '.join(f'{limit:g}' for limit in limits)} s per {unit}, 2 threads, "
        f"{date.today()}. Load before it: {min(loads):g} to {max(loads):g} on "
        f"{len(os.sched_getaffinity(0))} cores.\n"
    )


def fill(name: str, text: str) -> None:
    """Print a text and put it between the marks of that name in README.md."""
    print(text)
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
    head, found, rest = PAGE.read_text().partition(begin)
    if found:
        PAGE.write_text(head + begin + text + end + rest.partition(end)[2])


def share(part: float | None) -> str:
    """Show a share as per cent."""
    return "-" if part is None else f"{100 * part:.2f} %" if part else "0"
