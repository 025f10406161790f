"""The table of goals from the rows of builds.py: the old build beside the new one."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import fmean, median

from pages import percent, replaced, table
from rows import gap_of, proven
from runner import HERE, Row

PEERS = HERE / "peers"
BUILDS = ("old", "new")
MOMENTS = {5: "", 10: "", 15: "no longer on 50, mean <= 0.995", 60: "on 54, mean <= 0.985"}
Runs = dict[str, dict[str, list[Row]]]
"""Of one part: by problem or command, and by build."""

Line = tuple[str, str, str, str]
"""What is measured; of the old build; of the new one; the goal."""

Figure = Callable[[Row], float | None]


def print_table(lines: Iterable[Row], page: Path | None) -> None:
    """Print the table, and put it between its marks in a page."""
    lines = [*lines]
    rows = {(row["part"], row["case"], row["build"], row["run"]): row for row in lines}
    latest = {row["build"]: row for row in lines}
    failed = []
    parts: defaultdict[str, Runs] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for (part, case, build, _), row in rows.items():
        if row["product"] != latest[build]["product"]:
            continue
        if "failed" in row:
            failed.append(f"\n- {build}, {part}, {case}: {row['failed']}")
        else:
            parts[part][case][build].append(row)
    made: list[Line] = []
    for part, write in WRITERS.items():
        runs = {case: builds for case, builds in parts[part].items() if len(builds) == len(BUILDS)}
        made += write(part, runs) if runs else ()
    head = (
        "what",
        *(f"{build}, {latest[build]['commit']}" for build in BUILDS if build in latest),
        "goal",
    )
    settings = {f"{r['machine']}, Python {r['python']}, {r['date']}" for r in rows.values()}
    text = f"{table(head, made)}\n\nMeasured on {'; '.join(sorted(settings))}."
    text += "\n\nFailed:\n" * bool(failed) + "".join(failed)
    print(text)
    if page:
        page.write_text(replaced(page.read_text(), "builds", text))


def middle(runs: list[Row], figure: Figure) -> float:
    """The median of a figure over runs; infinite where most have none."""
    return median(math.inf if (one := figure(run)) is None else one for run in runs)


def at(seconds: float) -> Figure:
    """A solve's value that long after its process was started; at its limit, what it ended with."""

    def value(row: Row) -> float | None:
        if seconds >= row["limit"]:
            return row["value"]
        return next((v for s, v, _ in reversed(row["history"]) if s <= seconds), None)

    return value


def of(name: str, each: str | None = None) -> Figure:
    """A figure of a row, for each of another one; ``None`` where the row has none."""
    return lambda row: row[name] / (row[each] if each else 1) if row.get(name) else None


def values(part: str, runs: Runs) -> Iterator[Line]:
    """Values after some seconds, over the old build's at 60 s; and against public tools'."""
    last = {case: middle(builds["old"], at(60)) for case, builds in runs.items()}
    shortest, compared = (
        min(row["limit"] for builds in runs.values() for row in builds[build])
        for build in BUILDS[::-1]
    )
    moments = {seconds: goal for seconds, goal in MOMENTS.items() if seconds <= shortest}
    for seconds, goal in moments.items() if part == "values" else ():
        cells = []
        for build in BUILDS:
            found = {case: middle(runs[case][build], at(seconds)) for case in runs}
            ratios = [found[case] / last[case] for case in runs if found[case] < math.inf]
            kept = sum(found[case] <= last[case] for case in runs)
            cells.append(f"no longer {kept}, mean {fmean(ratios or [math.nan]):.4f}")
        yield f"value at {seconds} s over old at {min(60, compared):g} s, {len(runs)}", *cells, goal
    reference = json.loads((PEERS / ("others" * (part == "others")) / "reference.json").read_text())
    tools = {
        case: reference[name]["peers"] for case in runs if (name := case.split()[0]) in reference
    }
    least = {case: min(peer["makespan"] for peer in own.values()) for case, own in tools.items()}
    for seconds in {5, 60} & moments.keys():
        cells = []
        for build in BUILDS:
            behind = [c for c in tools if middle(runs[c][build], at(seconds)) > least[c]]
            names = "".join(f", {case.split()[0]}" for case in behind[:3])
            cells.append(f"behind on {len(behind)}{names}")
        yield f"public tools' problems, {len(tools)} {part}, at {seconds} s", *cells, "never behind"


def bench(_: str, runs: Runs) -> Iterator[Line]:
    """What is proven of the plain problems, in the middle one of several runs."""
    cells, done = [], {}
    for build in BUILDS:
        ends = [sorted(runs[case][build], key=gap_of) for case in runs]
        final = [own[len(own) // 2] for own in ends]
        done[build] = {row["case"].split()[0] for row in final if proven(row)}
        limit = max(row["limit"] for row in final)
        cells.append(
            f"{limit:g} s: {len(done[build])} proven, {percent(fmean(map(gap_of, final)))}"
        )
    cells[1] += "".join(f", lost {name}" for name in sorted(done["old"] - done["new"]))
    goal = ">= 72 proven, <= 0.13 %, nothing lost"
    yield f"plain problems, {len(runs)}", *cells, f"60 s: {goal}"


def figures(*wanted: tuple[str, Figure, str]) -> Callable[[str, Runs], Iterator[Line]]:
    """A line per case and figure: what it is, how a row tells it, its goal."""

    def write(_: str, runs: Runs) -> Iterator[Line]:
        for case, builds in runs.items():
            for name, figure, goal in wanted:
                old, new = (middle(builds[build], figure) for build in BUILDS)
                if new < math.inf:
                    times = f" ({new / old:.3f} times)" if 0 < old < math.inf else ""
                    before = f"{old:.4g}" if old < math.inf else "-"
                    yield f"{case}: {name}", before, f"{new:.4g}{times}", goal

    return write


WINDOWS = ("windows a second", of("windows", "solve_s"), ">= 3 times")
WRITERS: dict[str, Callable[[str, Runs], Iterable[Line]]] = {
    "values": values,
    "others": values,
    "bench": bench,
    "starts": figures(
        ("all hand-written schedules, s", of("all_s"), "<= 0.05 times"),
        ("first valid schedule, s", of("first_s"), "cold: <= 3 s later"),
        ("ended after, limit 10 s", lambda r: r["wall_s"] if "limit" in r else None, "<= 11"),
    ),
    "cores": figures(("cores used", of("cores"), ">= 1.9"), WINDOWS),
    "memory": figures(("PSS, MiB", of("pss_mib"), "<= 2 times; a further worker <= 400")),
    "startup": figures(
        ("processor, s", of("cpu_s"), "<= 1.05 times"), ("clock, s", of("wall_s"), "")
    ),
    "million": figures(
        ("list schedule and its timing, s", of("list_s"), "10^6: <= 0.6 s"),
        ("timing alone, s", of("timing_s"), ""),
        ("compiled loop of timing, s", of("loop_s"), "10^6: <= 0.05 s"),
        ("check, s", of("check_s"), "not slower"),
    ),
    "workers": figures(WINDOWS, ("value at 10 s", at(10), "")),
}
