"""The page: its templates filled with what a report shows. One file, nothing loaded from elsewhere.

The page's policy allows its own script and style by their digests and nothing else: no request, no
further script, whatever a name in a problem file says.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.resources
from collections.abc import Iterator, Sequence
from typing import Any

from pipesat.core.amounts import rounded_down
from pipesat.core.problem import Problem
from pipesat.core.showing import Column, Displayed, Table
from pipesat.picture.style import (
    CAPACITY,
    COPY_BACK,
    COPY_OUT,
    EXCESS,
    FILL,
    HELD,
    MEANING,
    STATIC,
    TINTS,
    class_tints,
    fill,
    ink_on,
    named,
)
from pipesat.report import tables
from pipesat.report.assumptions import assumptions, commands, origin
from pipesat.report.data import LARGEST, case_data
from pipesat.report.tables import ReportedCase, plain, script_json, shown

SCRIPTS = (
    "schedule.js",
    "words.js",
    "memory.js",
    "timeline.js",
    "panel.js",
    "marks.js",
    "pointing.js",
    "figures.js",
    "main.js",
)


def page(cases: Sequence[ReportedCase], folder: str, answer: Displayed | None = None) -> bytes:
    """Return the whole report as an HTML file.

    ``folder`` is where the cases, one per placement, were read from: for the commands that make the
    report again. ``answer``, to a wider question, opens the page: an advice.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    templates = Environment(
        loader=FunctionLoader(_text),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    return (
        templates.get_template("template.html")
        .render(
            title=cases[0].result.problem.name or "schedule",
            lead=_lead(cases),
            digest=_digest,
            style=_style(),
            script=_script(),
            answer=answer,
            overview=_overview(cases),
            cases=[_case(case, folder, len(cases)) for case in cases],
            version=importlib.metadata.version("pipesat"),
        )
        .encode()
    )


def _case(case: ReportedCase, folder: str, count: int) -> dict[str, Any]:
    """Return what a template shows of a case."""
    result, problem = case.result, case.result.problem
    data = case_data(case, LARGEST // count)
    memory = tables.knows_memory(case)
    lines = [shown for shown in case.shown if shown.schedule is not None]
    return {
        "name": case.name,
        "result": result,
        "drawn": [entry["name"] for entry in data["schedules"]],
        "memory": memory,
        "legend": [*_legend(problem, data, memory=memory)],
        "caption": tables.caption(case),
        "columns": tables.COLUMNS,
        "rows": [tables.baseline_row(one, problem) for one in lines],
        "left_out": tables.left_out(case),
        "assumptions": assumptions(problem),
        "stages": tables.stages(problem),
        "commands": commands(result, f"{folder.rstrip('/')}/{case.name}" if case.name else folder),
        "origin": origin(result),
        "data": script_json(data),
    }


def _lead(cases: Sequence[ReportedCase]) -> str:
    result = cases[0].result
    problem = result.problem
    ops = len(result.schedule) if result.schedule is not None else 0
    microbatches = sum(route.microbatches for route in problem.routes)
    parts = [
        tables.counted(len(problem.devices), "rank"),
        tables.counted(len(problem.stages), "stage"),
        tables.counted(microbatches, "microbatch", "es"),
    ]
    if len(cases) > 1:
        parts.append(f"{len(cases)} placements")
    elif ops:
        parts.append(f"{ops:,} ops")
    parts.append(f"objective: {result.objective}")
    return ", ".join(parts)


def _overview(cases: Sequence[ReportedCase]) -> Table:
    """Return one line per placement."""
    objective = cases[0].result.objective
    lines = []
    for case in cases:
        result, row = case.result, case.shown[0].row
        problem, peaks = result.problem, row.peak_memory
        bubble = tables.percent((row.bubble or {}).get(objective))
        peak = tables.held(problem, max(peaks) if peaks else None)
        value = tables.time(problem, result.value)
        bound = tables.time(problem, result.lower_bound, rounded_down)
        lines.append([case.name, result.standing.verdict, value, bound, bubble, peak])
    texts = (Column(name, number=False) for name in ("placement", "status"))
    numbers = map(Column, (objective, "bound", "bubble", "largest peak"))
    return Table([*texts, *numbers], lines)


def _legend(
    problem: Problem, data: dict[str, Any], *, memory: bool
) -> Iterator[tuple[str, str, str]]:
    """Yield sample, text and letters of what occurs in one of the schedules."""
    rows = [row for schedule in data["schedules"] for row in schedule.get("devices", ())]
    letters = {letter for row in rows for letter in row["kinds"]}
    kinds = {"F": "Ff", "B": "Bb", "W": "Ww", "BW": "Xx"}
    for kind in FILL:
        if letters & set(kinds[kind]):
            yield f"kind-{kind}", MEANING[kind].partition(" ")[2], kind
    tints = class_tints(problem)
    for tint, names in {} if tints is None else tints.names.items():
        yield f"tint-{tint}", plain(named(names)), ""
    if any(letter.islower() for letter in letters):
        yield "", "two halves: a pair, run as one", ""
    if any(stage["place"] for stage in data["stages"]):
        yield "chunks", "shades: first to last chunk of a rank", ""
    for mode in sorted({mode for row in rows for mode in row.get("modes", ())} - {0}):
        names = [s.modes[mode - 1].name for s in problem.stages if mode <= len(s.modes)]
        yield f"mode-{min(mode, 3)}", plain("mode " + " or ".join(dict.fromkeys(names))), ""
    if any("copies" in row for row in rows):
        yield "copy-out", "O copy out", ""
        yield "copy-back", "L copy back", ""
    if memory:
        yield "memory-held", "memory", ""
    if any(device["static"] for device in data["devices"]):
        yield "memory-static", "its static part", ""
    if any(device["memory"] is not None for device in data["devices"]):
        yield "memory-cap", "cap", ""
    if any(schedule["over"] for schedule in data["schedules"]):
        yield "memory-excess", "over the cap", ""
    yield "critical-path", "critical path", ""


def _style() -> str:
    colours = {f"fill-{kind}": colour for kind, colour in FILL.items()}
    colours |= {f"ink-{kind}": ink_on(colour) for kind, colour in FILL.items()}
    colours |= {"held": HELD, "static": STATIC, "capacity": CAPACITY, "excess": EXCESS}
    colours |= {"copy-out": COPY_OUT, "copy-back": COPY_BACK}
    rules = " ".join(f"--{name}: {colour};" for name, colour in colours.items())
    shades = "\n".join(
        f".tint-{tint} {{ background: linear-gradient(90deg, "
        f"{fill('F', 0, tint)} 50%, {fill('BW', 0, tint)} 50%); }}"
        for tint in range(TINTS)
    )
    colours_of_chunks = ", ".join(fill("F", share / 3) for share in range(4))
    shades += f"\n.chunks {{ background: linear-gradient(90deg, {colours_of_chunks}); }}"
    return f":root {{ {rules} }}\n{shades}\n{_text('report.css')}"


def _script() -> str:
    """Return the scripts as one, inside a function, so that no name is seen from outside."""
    parts = "\n".join(_text(name) for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


def _digest(text: str) -> str:
    """Digest of an inline script or style, as a content security policy wants it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _text(name: str) -> str:
    return importlib.resources.files("pipesat.report").joinpath(name).read_text("utf-8")
