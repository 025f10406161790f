"""What do pairs buy per unit of memory? Makespan against memory, with and without pairs.

python experiments/pairs/2_frontier.py [--time-limit S]

4 devices in a V, 10 microbatches, DeepSeek's costs; S seconds for each of the two curves. Also
draws frontier.png.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cases import CHUNK, HERE, about, fill, keep, kept_schedules, options, share, table, vee

from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.core.solving import Solve, Starts
from pipesat.frontier.picture import Staircase, frontier_figure, staircases
from pipesat.frontier.trace import Frontier, trace
from pipesat.picture.figures import file_of
from pipesat.workflows.hand_written import published
from pipesat.workflows.result import Result
from pipesat.workflows.studies import solver_of

CHUNKS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16)


def main() -> None:
    given = options(__doc__)
    both = vee("dsv3", 4, 10, None)
    plain = dict(both.document)
    del plain["overlap"]
    curves, rows = {}, []
    known: list[Schedule] = []
    for name, problem in (("without", type(both).from_document(plain)), ("with pairs", both)):
        load, begin = os.getloadavg()[0], time.monotonic()
        curves[name] = trace(
            problem,
            solve=from_these(known, given.workers),
            caps=[count * CHUNK for count in CHUNKS],
            baselines=published(),
            time_limit=given.limit,
        )
        print(f"{name}: {time.monotonic() - begin:.0f} s", file=sys.stderr)
        rows += list(kept(name, curves[name], given.limit, load))
        # what runs without pairs may run with them; so does the schedule of the picture
        known = [found.schedule for found in curves[name].curve.schedules]
        known += kept_schedules(both)
    rows = keep("frontier", rows)
    row_of = {row["problem"]: row for row in rows}
    lines = []
    for cap in [*map(str, CHUNKS), "unlimited"]:
        one, other = row_of[f"with pairs, {cap}"], row_of[f"without, {cap}"]
        saved = 1 - one["value"] / other["value"]
        cells = [text for row in (one, other) for text in cells_of(row)]
        lines.append([cap, *cells, share(saved)])
    heads = ["chunks", "with pairs", "bound", "gap", "without", "bound", "gap", "pairs save"]
    fill(
        "frontier", about(rows, f"curve of {len(CHUNKS) + 1} problems") + "\n" + table(heads, lines)
    )
    frontier = curves["with pairs"]
    figure = frontier_figure(
        replace(both, memory_unit="1e-4 chunk"),
        "makespan",
        [with_kept(one, row_of) for one in staircases(curves)],
        frontier.scale,
        "DeepSeek's costs in a V, 4 devices, 10 microbatches: what memory and pairs buy",
    )
    (HERE / "frontier.png").write_bytes(file_of(figure, "png"))


def with_kept(curve: Staircase, row_of: Mapping[str, dict[str, Any]]) -> Staircase:
    """Return a curve with what earlier runs have shown, as the table has it."""
    rows = {
        math.inf if cap == "unlimited" else int(cap) * CHUNK: row_of[f"{curve.name}, {cap}"]
        for cap in [*map(str, CHUNKS), "unlimited"]
    }

    def value(cap: int, known: int | None) -> int | None:
        fitting = [row["value"] for at, row in rows.items() if at <= cap]
        return min((v for v in [known, *fitting] if v is not None), default=None)

    def bound(cap: float, known: int | None) -> int | None:
        holding = [row["bound"] for at, row in rows.items() if at >= cap]  # of less memory too
        return max((b for b in [known, *holding] if b is not None), default=None)

    return replace(
        curve,
        values=[value(*known) for known in zip(curve.caps, curve.values, strict=True)],
        bounds=[bound(*known) for known in zip([*curve.caps, math.inf], curve.bounds, strict=True)],
    )


def from_these(schedules: Sequence[Schedule], workers: int) -> Solve:
    """Return how a frontier solves: from ``schedules``, too."""
    alone = solver_of("makespan", workers, 0)

    def search(problem: Problem, *, starts: Starts, **told: Any) -> Result:
        told["schedules"] = [*told["schedules"], *schedules]
        return alone(problem, starts=starts, **told)

    return search


def kept(name: str, frontier: Frontier, limit: float, load: float):
    """Yield a row per cap."""
    for row in frontier.rows:
        cap = "unlimited" if row.cap is None else str(row.cap // CHUNK)
        yield {
            "problem": f"{name}, {cap}",
            "value": None if row.known is None else row.known.value,
            "bound": None if row.bound is None else row.bound.value,
            "gap": row.standing.gap,
            "limit_s": limit,
            "load_before": round(load, 1),
        }


def cells_of(row: dict) -> list[str]:
    """Value, bound and gap."""
    return [
        *(f"{row[key]:,}" if row[key] else "-" for key in ("value", "bound")),
        share(row["gap"]),
    ]


if __name__ == "__main__":
    main()
