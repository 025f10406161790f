"""The report's tables: the schedules, why others do not apply, the problem's costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from pipesat.core import claims
from pipesat.core.amounts import Rounding, memory_text, rounded, rounded_up, time_text
from pipesat.core.ops import Op
from pipesat.core.problem import Problem, Stage
from pipesat.core.rules import one_of_each
from pipesat.core.showing import Column, Table, ranges
from pipesat.core.stage import KEEP, MORE
from pipesat.core.summary import fullest
from pipesat.report.markup import plain
from pipesat.report.shown import ReportedCase, Shown
from pipesat.workflows.rows import SOLVER_ROW

MOST_STAGES = 256  # lines of the table of stages


def time(problem: Problem, value: int | None, towards: Rounding = rounded) -> str:
    """Show a time; ``unknown`` if there is none."""
    return "unknown" if value is None else time_text(value, plain(problem.time_unit, 20), towards)


def held(problem: Problem, value: int | None, towards: Rounding = rounded_up) -> str:
    """Show memory; ``unknown`` if there is none."""
    return (
        "unknown" if value is None else memory_text(value, plain(problem.memory_unit, 40), towards)
    )


def counted(count: int, word: str, ending: str = "s") -> str:
    """Show a number of things: ``1 rank``, ``2 ranks``."""
    return f"{count:,} {claims.plural(count, word, ending)}"


percent = partial(claims.percent, unknown="unknown")


def knows_memory(case: ReportedCase) -> bool:
    """Whether the problem says anything of memory: a capacity, or what something holds."""
    limited = any(device.memory is not None for device in case.result.problem.devices)
    return limited or any(any(shown.row.peak_memory or ()) for shown in case.shown)


COLUMNS: Final = (
    Column("schedule", number=False),
    Column("fits", number=False),
    *map(Column, ("makespan", "bubble", "span", "bubble of span")),
    *map(Column, ("peak memory", "to best", "to bound")),
    Column("timeline", number=False),
)


@dataclass(frozen=True)
class BaselineRow:
    """A schedule's line: the best that fit come first. ``own`` is the solver's."""

    name: str
    source: str
    own: bool
    valid: bool
    fits: str
    why_not: str
    figures: list[str]


def caption(case: ReportedCase) -> str:
    """Return what the table of all schedules is called."""
    return f"All schedules of this problem; ratios by {case.result.objective}"


def baseline_row(shown: Shown, problem: Problem) -> BaselineRow:
    """Return the line of a schedule."""
    row = shown.row
    bubble, peaks = row.bubble or {}, row.peak_memory
    over = over_capacity(problem, peaks or ())
    everywhere = len(over) == len(problem.devices)
    where = "all ranks" if everywhere else counted(len(over), "rank")
    return BaselineRow(
        name=shown.name,
        source=shown.source,
        own=shown.name == SOLVER_ROW,
        valid=bool(row.valid),
        fits="fits" if row.valid else f"over the cap: {where}" if over else "not valid",
        why_not="" if row.valid else plain(row.why_not or ""),
        figures=[
            time(problem, row.makespan),
            percent(bubble.get("makespan")),
            time(problem, row.span),
            percent(bubble.get("span")),
            held(problem, peaks[fullest(problem, peaks)] if peaks else None),
            claims.times(row.ratio_to_best, "–"),
            claims.times(row.ratio_to_bound, "–"),
        ],
    )


def over_capacity(problem: Problem, peaks: Sequence[int]) -> list[int]:
    """Return the devices that hold more than their capacity."""
    held = zip(problem.devices, peaks, strict=False)
    return [n for n, (d, peak) in enumerate(held) if d.memory is not None and peak > d.memory]


def left_out(case: ReportedCase) -> list[tuple[str, list[str]]]:
    """Return why schedules do not apply to the placement, with their names, most names first."""
    groups: dict[str, list[str]] = {}
    for shown in case.shown:
        if shown.schedule is None and shown.name != SOLVER_ROW:
            groups.setdefault(plain(shown.row.why_not or ""), []).append(shown.name)
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def stages(problem: Problem) -> Table:
    """Return the table of costs, equal stages together."""
    lists = problem.has_lists
    modes = problem.has_modes
    more = [key for key in MORE if any(_states(stage, key) for stage in problem.stages)]
    head = ["stage", "rank", *(["class"] if lists else []), *(["mode"] if modes else [])]
    head += ["#F", "#B", "#W", "#BW", "backward", "#held after F", "#held after B"]
    head += [f"#{key.replace('_', ' ')}" for key in more]
    head += ["#copy out", "#copy back", "#held between"] if modes else []
    alike: dict[tuple[str, ...], list[int]] = {}
    for op in one_of_each(problem):
        if op.kind == "F":
            alike.setdefault(_costs(problem, op, lists, modes, more), []).append(op.stage)
    lines = sorted(alike.items(), key=lambda line: line[1][0])  # stage by stage
    rows = [
        [_ranges(members), _ranges(sorted({problem.stages[s].device for s in members})), *costs]
        for costs, members in lines
    ]
    caption = "Costs per stage and microbatch, and memory held"
    if len(rows) > MOST_STAGES:
        caption += f" (the first {MOST_STAGES} of {len(rows)} different ones)"
    columns = [Column(name.lstrip("#"), number=name.startswith("#")) for name in head]
    return Table(columns, rows[:MOST_STAGES], caption)


def _states(stage: Stage, key: str) -> bool:
    return key in stage.more or any(key in dict(mode.stated) for mode in stage.modes)


def _costs(
    problem: Problem, op: Op, lists: bool, modes: bool, more: Sequence[str]
) -> tuple[str, ...]:
    """Columns of a stage's amounts for one class in one mode."""
    s = problem.amounts(op.stage, op.microbatch, op.mode)
    cells: list[str] = []
    if lists:
        definitions = problem.routes[problem.route_of[op.stage]].definitions
        kind = problem.class_of(op.stage, op.microbatch)
        cells.append(plain(definitions[kind].name) if definitions else "all")
    if modes:
        own = problem.stages[op.stage].modes
        cells.append(plain(own[op.mode - 1].name) if op.mode else KEEP)
    cells += [*(time(problem, value) for value in (s.F, s.B, s.W, s.BW)), s.backward]
    cells += (held(problem, getattr(s, key)) for key in ("held_after_F", "held_after_B", *more))
    if modes and s.offload:
        cells += [time(problem, value) for value in (s.offload.time_out, s.offload.time_in)]
        cells.append(held(problem, s.offload.held))
    elif modes:
        cells += ["–"] * 3
    return tuple(cells)


def _ranges(numbers: Sequence[int]) -> str:
    return plain(ranges(numbers))
