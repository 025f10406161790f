"""What a report shows: a result beside hand-written schedules, their tables, texts made safe."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from pipesat.core import claims
from pipesat.core.amounts import Rounding, memory_text, rounded, rounded_up, time_text
from pipesat.core.ops import Op
from pipesat.core.problem import Problem, Stage
from pipesat.core.result import Result
from pipesat.core.rules import one_of_each
from pipesat.core.schedule import Schedule
from pipesat.core.showing import Column, Table, ranges
from pipesat.core.stage import KEEP, MORE
from pipesat.core.summary import fullest
from pipesat.workflows.best_known import with_hand_written
from pipesat.workflows.hand_written import (
    SOLVER_ROW,
    ScheduleRow,
    hand_written_for,
    solver_row,
    with_ratios,
)
from pipesat.workflows.hand_written import baselines as every_baseline

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


@dataclass(frozen=True)
class Shown:
    """A schedule with its line of the comparison; without a schedule, the reason is in the row.

    ``source`` says where it was published; ``schedule`` is timed for the result's objective.
    """

    row: ScheduleRow
    schedule: Schedule | None
    source: str

    @property
    def name(self) -> str:
        """What the report calls it: ``solver`` or a baseline's name."""
        return self.row.name


@dataclass(frozen=True)
class ReportedCase:
    """One result and all schedules of its problem, the solver's first; ``name`` of several."""

    name: str
    result: Result
    shown: tuple[Shown, ...]


def baselines_of(result: Result) -> list[Shown]:
    """Return the hand-written schedules of the problem that was solved."""
    return [
        Shown(row, schedule, every_baseline()[row.baseline].source)
        for row, schedule in hand_written_for(result.problem, result.target, result.objective)
    ]


def case_of(name: str, result: Result, baselines: Sequence[Shown]) -> ReportedCase:
    """Put a case together: ratios filled in, the best schedules that fit first.

    A baseline that is better than the result is the answer.
    """
    objective = result.objective
    result = with_hand_written(
        result, [s.schedule for s in baselines if s.schedule is not None and s.row.valid]
    )
    source = "" if result.schedule is None else result.schedule.source
    published = every_baseline().get(source)
    if published is not None:
        source = f"{source}: {published.source}"
    everything = [Shown(solver_row(result), result.schedule, source), *baselines]
    rows = with_ratios([shown.row for shown in everything], result)
    first, *others = (replace(shown, row=row) for shown, row in zip(everything, rows, strict=True))

    def rank(shown: Shown) -> tuple[bool, bool, int]:
        return shown.schedule is None, not shown.row.valid, shown.row.value(objective) or 0

    return ReportedCase(name, result, (first, *sorted(others, key=rank)))


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
