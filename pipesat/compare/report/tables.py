"""What a report shows of results: schedules side by side, costs, assumptions; texts made safe."""

from __future__ import annotations

import json
import math
import shlex
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from pipesat.compare.best_known import Comparison, over_capacity, why_not
from pipesat.compare.hand_written import SOLVER_ROW, ScheduleRow, baselines
from pipesat.compare.result import Result
from pipesat.core import claims
from pipesat.core.amounts import (
    Rounding,
    memory_text,
    rounded,
    rounded_down,
    rounded_up,
    time_text,
)
from pipesat.core.grouping import grouped
from pipesat.core.showing import Column, Facts, Table, ranges
from pipesat.problem.ops import Op
from pipesat.problem.problem import Problem
from pipesat.problem.rules import one_of_each
from pipesat.problem.stage import AMOUNTS, COSTS, KEEP
from pipesat.schedule.summary import fullest

_MOST_STAGES: Final = 256  # lines of the table of stages
_MOST_CLASSES: Final = 12  # named


def ordered(case: Comparison) -> list[ScheduleRow]:
    """Return the rows: the solver's, then the schedules that fit, the best first, then others."""

    def rank(row: ScheduleRow) -> tuple[bool, bool, bool, int]:
        value = row.value(case.result.objective) or 0
        return row.name != SOLVER_ROW, row.schedule is None, not row.valid, value

    return sorted(case.rows, key=rank)


def source_of(row: ScheduleRow) -> str:
    """Return where a schedule was published; of the answer, which one it is, too."""
    if row.name != SOLVER_ROW:
        return baselines()[row.baseline].source
    found = "" if row.schedule is None else row.schedule.source
    return f"{found}: {baselines()[found].source}" if found in baselines() else found


FIGURES: Final = tuple(
    map(
        Column,
        ("makespan", "bubble", "span", "bubble of span", "peak memory", "to best", "to bound"),
    )
)
COLUMNS: Final = (
    Column("schedule", number=False),
    Column("fits", number=False),
    *FIGURES,
    Column("timeline", number=False),
)
_percent = partial(claims.percent, unknown="unknown")


def line_of(row: ScheduleRow, problem: Problem) -> dict[str, Any]:
    """Return the line of a schedule; ``own`` is the solver's."""
    bubble, peaks = row.bubble or {}, row.peak_memory
    over = over_capacity(problem, row)
    return {
        "name": row.name,
        "source": source_of(row),
        "own": row.name == SOLVER_ROW,
        "valid": row.valid,
        "fits": "fits" if row.valid else "over the cap" if over else "not valid",
        "why_not": "" if row.valid else plain(row.why_not or ""),
        "figures": [
            time(problem, row.makespan),
            _percent(bubble.get("makespan")),
            time(problem, row.span),
            _percent(bubble.get("span")),
            _most_held(problem, peaks),
            claims.times(row.ratio_to_best, "–"),
            claims.times(row.ratio_to_bound, "–", limit=True),
        ],
    }


def _most_held(problem: Problem, peaks: Sequence[int] | None) -> str:
    if not peaks:
        return held(problem, None)
    worst = fullest(problem, peaks)
    return held(problem, peaks[worst], within=problem.devices[worst].memory)


def overview(cases: Sequence[Comparison]) -> Table:
    """Return one line per placement."""
    lines = []
    for case in cases:
        result, figures = case.result, line_of(ordered(case)[0], case.problem)["figures"]
        bound = time(
            result.problem,
            result.lower_bound,
            rounded if result.standing.proven else rounded_down,
        )
        lines.append([case.placement or "", result.standing.verdict, bound, *figures[:-2]])
    texts = (Column(name, number=False) for name in ("placement", "status"))
    return Table([*texts, Column("bound"), *FIGURES[:-2]], lines)


def knows_memory(case: Comparison) -> bool:
    """Whether the problem says anything of memory: a capacity, or what something holds."""
    limited = any(device.memory is not None for device in case.problem.devices)
    return limited or any(any(row.peak_memory or ()) for row in case.rows)


def left_out(case: Comparison) -> list[tuple[str, list[str]]]:
    """Return why schedules do not apply to the placement, with their names, most names first."""
    rows = (row for row in case.rows if row.schedule is None and row.name != SOLVER_ROW)
    return [(plain(reason), names) for reason, names in why_not(rows)]


def stages(problem: Problem) -> Table:
    """Return the table of costs, equal stages together."""
    forwards = (op for op in one_of_each(problem) if op.kind == "F")
    alike = grouped((tuple(_costs(problem, op).items()), op.stage) for op in forwards)
    lines = sorted(alike.items(), key=lambda line: line[1][0])  # stage by stage
    names = dict.fromkeys(name for costs in alike for name, _ in costs)
    rows = [
        [
            plain(ranges(members)),
            plain(ranges(sorted({problem.stages[stage].device for stage in members}))),
            *(dict(costs).get(name, "–") for name in names),
        ]
        for costs, members in lines[:_MOST_STAGES]
    ]
    caption = "Costs per stage and microbatch, and memory held"
    if len(lines) > _MOST_STAGES:
        caption += f" (the first {_MOST_STAGES} of {len(lines)} different ones)"
    texts = ("stage", "rank", "class", "mode", "backward")
    columns = [Column(name, number=name not in texts) for name in ("stage", "rank", *names)]
    return Table(columns, rows, caption)


def _costs(problem: Problem, op: Op) -> dict[str, str]:
    """A stage's amounts for one class in one mode, by the name of their column."""
    stage, own = problem.amounts(op.stage, op.microbatch, op.mode), problem.stages[op.stage]
    cells: dict[str, str] = {}
    if problem.has_lists:
        definitions = problem.routes[problem.route_of[op.stage]].definitions
        kind = problem.class_of(op.stage, op.microbatch)
        cells["class"] = plain(definitions[kind].name) if definitions else "all"
    if problem.has_modes:
        cells["mode"] = plain(own.modes[op.mode - 1].name) if op.mode else KEEP
    for key, factor in AMOUNTS.items():
        if key in COSTS or getattr(stage, key):
            shown = time if factor == "time" else held
            cells[key.replace("_", " ")] = shown(problem, getattr(stage, key))
        if key == "BW":
            cells["backward"] = stage.backward
    if stage.offload is not None:
        cells["copy out"] = time(problem, stage.offload.time_out)
        cells["copy back"] = time(problem, stage.offload.time_in)
        cells["held between"] = held(problem, stage.offload.held)
    return cells


def assumptions(problem: Problem) -> Facts:
    """Return what the model holds to be true of this problem; the page says what of every one."""
    devices, overlap = problem.devices, problem.overlap
    units = (plain(problem.time_unit, 20), plain(problem.memory_unit, 40))
    routes = [
        f"{counted(route.microbatches, 'microbatch', 'es')} through "
        f"{counted(len(route.stages), 'stage')}"
        for route in problem.routes
    ]
    offloads = any(mode.offload for stage in problem.stages for mode in stage.modes)
    modes = dict.fromkeys(plain(mode.name) for stage in problem.stages for mode in stage.modes)
    channels = sorted({device.copy_channels for device in devices})
    links = [
        problem.link(op.stage, op.microbatch, after)
        for op in one_of_each(problem)
        if op.kind == "F"
        for after in problem.after[op.stage]
    ]
    delays = sorted({delay for link in links if link for delay in (link.F, link.B)})
    caps = sorted({device.memory for device in devices if device.memory is not None})
    pairs = [] if overlap is None or not overlap.listed else [f"{len(overlap.listed)} combinations"]
    if overlap is not None and overlap.factor is not None:
        num, den = overlap.factor
        pairs.append(f"an F and a BW of a rank, {num}/{den} of their sum")
    return [
        ("Times in", units[0] or "a unit that the problem does not name"),
        ("Memory in", units[1] or "a unit that the problem does not name"),
        ("Estimated", plain(problem.estimate, 300)),
        ("Work", f"{' and '.join(routes)}, on {counted(len(devices), 'rank')}"),
        ("Classes", "; ".join(filter(None, map(_classes, problem.routes)))),
        ("Order", _ORDERS[problem.order] if problem.has_lists else ""),
        ("Modes", f"keep, {', '.join(modes)}, chosen per {problem.mode_choice}" if modes else ""),
        ("Copy channels", f"{' or '.join(map(str, channels))} of a rank" if offloads else ""),
        ("May pair", "; ".join(pairs)),
        ("Transfers take", _range([time(problem, delay) for delay in delays if any(delays)])),
        ("Capacity", _range([held(problem, cap, rounded_down) for cap in caps]) or "no limit"),
    ]


_ORDERS: Final = {
    "given": "every stage runs its F's, and its backwards, in the order of the numbers",
    "same": "all stages of a route run their F's and their backwards in one order, which is chosen",
    "free": "every stage runs the microbatches in an order of its own",
}


def _classes(route: Any) -> str:
    counts = Counter(route.classes or ())
    named = [
        f"{plain(kind.name)} ({counts[place]:,})"
        for place, kind in enumerate(route.definitions[:_MOST_CLASSES])
    ]
    more = len(route.definitions) - len(named)
    return ", ".join([*named, *([f"{more:,} more"] if more else [])])


def _range(texts: Sequence[str]) -> str:
    """Show the first and the last of ascending amounts."""
    return " to ".join(dict.fromkeys([*texts[:1], *texts[-1:]]))


def commands(result: Result, folder: str) -> list[str]:
    """Return the commands that make the result and its report again."""
    problem, schedule = (f"{folder.rstrip('/')}/{name}.json" for name in ("problem", "schedule"))
    seconds = max(1, math.ceil(result.wall_s))
    solve = ["solve", problem, "-o", "again", "--objective", result.objective]
    solve += ["--time-limit", f"{seconds}", "--workers", f"{result.workers}"]
    solve += ["--seed", f"{result.seed}", *(["--for", result.target] if result.target else [])]
    check = [] if result.schedule is None else [["check", problem, schedule]]
    lines = [solve, *check, ["show", folder, "--html", "report.html"]]
    return [plain(shlex.join(["pipesat", *line]), 1000) for line in lines]


def origin(result: Result) -> str:
    """Say how long the search took, with which versions, and of which problem."""
    versions = ", ".join(f"{name} {version}" for name, version in sorted(result.versions.items()))
    return (
        f"Found in {result.wall_s:.1f} s with {versions or 'unknown versions'}. "
        "The search is limited by time, so another machine may stop with another "
        "schedule; pipesat check verifies this one without the solver. "
        f"Problem's digest: {result.problem.sha256}."
    )


def time(problem: Problem, value: int | None, towards: Rounding = rounded) -> str:
    """Show a time; ``unknown`` if there is none."""
    return "unknown" if value is None else time_text(value, plain(problem.time_unit, 20), towards)


def held(
    problem: Problem,
    value: int | None,
    towards: Rounding = rounded_up,
    *,
    within: int | None = None,
) -> str:
    """Show memory; ``unknown`` if there is none. ``within``: as of ``memory_text``."""
    if value is None:
        return "unknown"
    return memory_text(value, plain(problem.memory_unit, 40), towards, within=within)


def counted(count: int, word: str, ending: str = "s") -> str:
    """Show a number of things: ``1 rank``, ``2 ranks``."""
    return f"{count:,} {claims.plural(count, word, ending)}"


LONGEST = 200  # characters of a name that a report shows


def plain(text: object, longest: int = LONGEST) -> str:
    """Return a text on one line, without control characters, cut in its middle if too long."""
    raw = str(text)
    if len(raw) > 2 * longest:
        raw = raw[:longest] + raw[-longest:]
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in raw)
    if len(line) <= longest:
        return line
    tail = longest // 3  # names differ at their ends
    return f"{line[: longest - tail - 1]}…{line[-tail:]}"


def shown(value: Any) -> Any:
    """Return what a template writes for a value, and then escapes if it is not markup."""
    return value if hasattr(value, "__html__") else plain(value, 20 * LONGEST)


def script_json(document: Any) -> str:
    """Return a document as JSON that may stand inside ``<script type="application/json">``.

    Only ASCII comes out, and none of the characters that could end the element or open a comment.
    """
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
