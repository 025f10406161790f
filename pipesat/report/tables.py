"""The report's tables and lists, as HTML: the result, the baselines, the problem's costs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pipesat.core import claims
from pipesat.core.ops import Op
from pipesat.core.problem import Problem, Stage
from pipesat.core.rules import one_of_each
from pipesat.core.schedule import Objective
from pipesat.core.showing import Displayed, ranges
from pipesat.core.stage import KEEP, MORE
from pipesat.core.summary import fullest, units_of
from pipesat.report.markup import Markup, element, joined, plain, table
from pipesat.report.shown import ReportedCase, Shown
from pipesat.workflows.rows import SOLVER_ROW

MOST_STAGES = 256  # lines of the table of stages


def number(value: int | None, unit: str = "") -> str:
    """Show an integer with separators; ``unknown`` if there is none."""
    if value is None:
        return "unknown"
    return f"{value:,} {unit}" if unit else f"{value:,}"


def counted(count: int, word: str, ending: str = "s") -> str:
    """Show a number of things: ``1 rank``, ``2 ranks``."""
    return f"{count:,} {claims.plural(count, word, ending)}"


percent = partial(claims.percent, unknown="unknown")


def summary(answer: Displayed) -> Markup:
    """Return the lines of an answer, one term and text each."""
    lines = [(label, text) for label, text in answer.facts() if text]
    parts = [part for label, text in lines for part in (element("dt", label), element("dd", text))]
    return element("dl", parts, class_="facts")


def knows_memory(case: ReportedCase) -> bool:
    """Whether the problem says anything of memory: a capacity, or what something holds."""
    limited = any(device.memory is not None for device in case.result.problem.devices)
    return limited or any(any(shown.row.peak_memory or ()) for shown in case.shown)


def baselines(case: ReportedCase, identifier: str, drawn: Sequence[str]) -> Markup:
    """Return the table of all schedules, the best that fit first, and what does not apply."""
    objective, problem = case.result.objective, case.result.problem
    lines = [s for s in case.shown if s.schedule is not None]
    rows = [_line(s, problem, identifier, drawn, objective) for s in lines]
    head = [
        "schedule",
        "fits",
        "#makespan",
        "#bubble",
        "#span",
        "#bubble of span",
        "#peak memory",
        "#to best",
        "#to bound",
        "timeline",
    ]
    caption = "; ".join(
        ["All schedules of this problem", *units_of(problem), f"ratios by {objective}"]
    )
    parts = [table(caption, head, rows)]
    left_out = [s for s in case.shown if s.schedule is None and s.name != SOLVER_ROW]
    if left_out:
        parts.append(_left_out(left_out))
    return joined(parts)


def _line(
    shown: Shown, problem: Problem, identifier: str, drawn: Sequence[str], objective: Objective
) -> list[object]:
    row = shown.row
    bubble = row.bubble or {}
    name = element("span", shown.name, title=shown.source) if shown.source else shown.name
    peaks = row.peak_memory
    peak = number(peaks[fullest(problem, peaks)]) if peaks else "unknown"
    over = [
        number
        for number, (device, peak) in enumerate(
            zip(problem.devices, row.peak_memory or (), strict=False)
        )
        if device.memory is not None and peak > device.memory
    ]
    if row.valid:
        fits = element("span", "fits", class_="badge good")
    elif over:
        everywhere = len(over) == len(problem.devices)
        ranks = "all ranks" if everywhere else counted(len(over), "rank")
        fits = element(
            "span", f"over the cap: {ranks}", class_="badge bad", title=plain(row.why_not or "")
        )
    else:
        fits = element("span", "not valid", class_="badge bad", title=plain(row.why_not or ""))
    best = element("strong", number(row.value(objective)))
    return [
        name,
        fits,
        best if objective == "makespan" else number(row.makespan),
        percent(bubble.get("makespan")),
        best if objective == "span" else number(row.span),
        percent(bubble.get("span")),
        peak,
        claims.times(row.ratio_to_best, "–"),
        claims.times(row.ratio_to_bound, "–"),
        _buttons(shown.name, identifier) if shown.name in drawn else "left out, to keep this small",
    ]


def _buttons(name: str, identifier: str) -> Markup:
    buttons = [
        element(
            "button",
            "show",
            type="button",
            data_show=name,
            data_case=identifier,
            aria_label=f"show {name} in the timeline",
        )
    ]
    if name != SOLVER_ROW:
        buttons.append(
            element(
                "button",
                "beside",
                type="button",
                data_beside=name,
                data_case=identifier,
                aria_label=f"show {name} beside",
            )
        )
    return element("span", buttons, class_="buttons")


def _left_out(left_out: Sequence[Shown]) -> Markup:
    groups: dict[str, list[str]] = {}
    for shown in left_out:
        groups.setdefault(plain(shown.row.why_not or ""), []).append(shown.name)
    items = [
        element("li", [element("b", ", ".join(names)), f": {reason}"])
        for reason, names in sorted(groups.items(), key=lambda group: -len(group[1]))
    ]
    title = element("summary", f"{len(left_out)} schedules do not apply to this placement")
    return element("details", [title, element("ul", items)])


def stages(problem: Problem) -> Markup:
    """Return the table of costs, equal stages together."""
    lists = problem.has_lists
    modes = problem.has_modes
    more = [key for key in MORE if any(_states(stage, key) for stage in problem.stages)]
    head = ["stage", "rank", *(["class"] if lists else []), *(["mode"] if modes else [])]
    head += ["#F", "#B", "#W", "#BW", "backward", "#held after F", "#held after B"]
    head += [f"#{key.replace('_', ' ')}" for key in more]
    head += ["#copy out", "#copy back", "#held between"] if modes else []
    alike: dict[tuple[object, ...], list[int]] = {}
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
    return table(caption, head, rows[:MOST_STAGES])


def _states(stage: Stage, key: str) -> bool:
    return key in stage.more or any(key in dict(mode.stated) for mode in stage.modes)


def _costs(
    problem: Problem, op: Op, lists: bool, modes: bool, more: Sequence[str]
) -> tuple[object, ...]:
    """Columns of a stage's amounts for one class in one mode."""
    s = problem.amounts(op.stage, op.microbatch, op.mode)
    cells: list[object] = []
    if lists:
        definitions = problem.routes[problem.route_of[op.stage]].definitions
        kind = problem.class_of(op.stage, op.microbatch)
        cells.append(plain(definitions[kind].name) if definitions else "all")
    if modes:
        own = problem.stages[op.stage].modes
        cells.append(plain(own[op.mode - 1].name) if op.mode else KEEP)
    cells += [*map(number, (s.F, s.B, s.W, s.BW)), s.backward]
    cells += (number(getattr(s, key)) for key in ("held_after_F", "held_after_B", *more))
    if modes:
        copies = s.offload and (s.offload.time_out, s.offload.time_in, s.offload.held)
        cells += map(number, copies) if copies else ["–"] * 3
    return tuple(cells)


def _ranges(numbers: Sequence[int]) -> str:
    return plain(ranges(numbers))
