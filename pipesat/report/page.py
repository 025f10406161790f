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
from string import Template
from typing import Any

from pipesat.core.problem import Problem
from pipesat.core.showing import Displayed
from pipesat.picture.classes import class_tints, named
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
    fill,
    ink_on,
)
from pipesat.report import tables
from pipesat.report.assumptions import assumptions, reproduce
from pipesat.report.data import LARGEST, case_data
from pipesat.report.markup import Markup, element, escaped, joined, plain, script_json, table
from pipesat.report.shown import ReportedCase

SCRIPTS = (
    "schedule.js",
    "words.js",
    "paint.js",
    "timeline.js",
    "panel.js",
    "marks.js",
    "pointing.js",
    "figures.js",
    "main.js",
)


def page(cases: Sequence[ReportedCase], folder: str, answer: Displayed | None = None) -> bytes:
    """Return the whole report as an HTML file.

    Parameters
    ----------
    cases
        One, or one per placement.
    folder
        Where they were read from: for the commands that make the report again.
    answer
        To a wider question, which opens the page: an advice.
    """
    style, script = _style(), _script()
    sections = [_case(case, number, folder, len(cases)) for number, case in enumerate(cases)]
    title = plain(cases[0].result.problem.name or "schedule")
    return _filled(
        "template.html",
        title=escaped(title),
        lead=escaped(_lead(cases)),
        policy=Markup(
            "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
            f"script-src '{_digest(script)}'; style-src '{_digest(style)}'"
        ),
        style=style,
        script=script,
        overview=_opening(answer)
        if answer is not None
        else _overview(cases)
        if len(cases) > 1
        else Markup(""),
        cases=joined(sections),
        version=escaped(importlib.metadata.version("pipesat")),
    ).encode()


def _case(case: ReportedCase, number: int, folder: str, count: int) -> Markup:
    problem = case.result.problem
    data = case_data(case, LARGEST // count)
    drawn = [entry["name"] for entry in data["schedules"]]
    place = f"{folder.rstrip('/')}/{case.name}" if case.name else folder
    memory = tables.knows_memory(case)
    return _filled(
        "case.html",
        id=Markup(number),
        label=escaped(case.name or "result"),
        heading=element("h2", case.name) if case.name else Markup(""),
        hidden=Markup("" if drawn else "hidden"),
        memory_hidden=Markup("" if memory else "hidden"),
        memory_checked=Markup("checked" if memory else ""),
        summary=tables.summary(case.result),
        legend=_legend(problem, data, memory=memory),
        baselines=tables.baselines(case, str(number), drawn),
        assumptions=assumptions(problem),
        stages=tables.stages(problem),
        reproduce=reproduce(case.result, place),
        data=script_json(data),
    )


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


def _opening(answer: Displayed) -> Markup:
    """Return an answer's lines, then its tables."""
    tables_ = []
    for one in answer.tables():
        heads = [f"{'#' * column.number}{column.head}" for column in one.columns]
        lines = [[line] if isinstance(line, str) else line for line in one.lines]
        tables_.append(table(one.title, heads, lines))
    return joined([tables.summary(answer), *tables_])


def _overview(cases: Sequence[ReportedCase]) -> Markup:
    """Return one line per placement."""
    objective = cases[0].result.objective
    rows = []
    for number, case in enumerate(cases):
        result, row = case.result, case.shown[0].row
        bubble = (row.bubble or {}).get(objective)
        bound = result.lower_bound
        link = element("a", case.name, href=f"#case-{number}")
        rows.append(
            [
                link,
                result.standing.verdict,
                tables.number(result.value),
                tables.number(bound),
                tables.percent(bubble),
                tables.number(max(row.peak_memory or [], default=None)),
            ]
        )
    head = ["placement", "status", f"#{objective}", "#bound", "#bubble", "#largest peak"]
    return table("The same layers in each placement", head, rows)


def _legend(problem: Problem, data: dict[str, Any], *, memory: bool) -> Markup:
    """Explain only what occurs in one of the schedules."""
    letters = {
        letter
        for schedule in data["schedules"]
        for row in schedule.get("devices", ())
        for letter in row["kinds"]
    }
    kinds = {"F": "Ff", "B": "Bb", "W": "Ww", "BW": "Xx"}
    entries = [
        _entry(f"kind-{kind}", MEANING[kind].partition(" ")[2], kind)
        for kind in FILL
        if letters & set(kinds[kind])
    ]
    tints = class_tints(problem)
    for tint, names in {} if tints is None else tints.names.items():
        entries.append(_entry(f"tint-{tint}", plain(named(names))))
    if any(letter.islower() for letter in letters):
        entries.append(element("li", "two halves: a pair, run as one"))
    if any(stage["place"] for stage in data["stages"]):
        entries.append(_entry("chunks", "shades: first to last chunk of a rank"))
    entries += _modes_and_copies(problem, data)
    unit = f" ({data['memoryUnit']})" if data["memoryUnit"] else ""
    if memory:
        entries.append(_entry("memory-held", f"memory{unit}"))
    if any(device["static"] for device in data["devices"]):
        entries.append(_entry("memory-static", "its static part"))
    if any(device["memory"] is not None for device in data["devices"]):
        entries.append(_entry("memory-cap", "cap"))
    if any(schedule["over"] for schedule in data["schedules"]):
        entries.append(_entry("memory-excess", "over the cap"))
    entries.append(_entry("critical-path", "critical path"))
    return element("ul", entries, class_="legend", aria_label="legend")


def _modes_and_copies(problem: Problem, data: dict[str, Any]) -> Iterator[Markup]:
    rows = [row for schedule in data["schedules"] for row in schedule.get("devices", ())]
    for mode in sorted({mode for row in rows for mode in row.get("modes", ())} - {0}):
        names = [s.modes[mode - 1].name for s in problem.stages if mode <= len(s.modes)]
        text = "mode " + " or ".join(dict.fromkeys(names))
        yield _entry(f"mode-{min(mode, 3)}", plain(text))
    if any("copies" in row for row in rows):
        yield _entry("copy-out", "O copy out")
        yield _entry("copy-back", "L copy back")


def _entry(sample: str, text: str, letters: str = "") -> Markup:
    swatch = element("span", letters, class_=f"swatch {sample}", aria_hidden="true")
    return element("li", [swatch, f"{letters} {text}".strip()])


def _style() -> Markup:
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
    return Markup(f":root {{ {rules} }}\n{shades}\n{_text('report.css')}")


def _script() -> Markup:
    """Return the scripts as one, inside a function, so that no name is seen from outside."""
    parts = "\n".join(_text(name) for name in SCRIPTS)
    return Markup(f'"use strict";\n(() => {{\n{parts}}})();\n')


def _digest(text: str) -> str:
    """Digest of an inline script or style, as a content security policy wants it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _filled(name: str, **values: Markup) -> Markup:
    return Markup(Template(_text(name)).substitute(values))


def _text(name: str) -> str:
    return importlib.resources.files("pipesat.report").joinpath(name).read_text("utf-8")
