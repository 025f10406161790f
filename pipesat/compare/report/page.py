"""The page: its templates filled with what a report shows. One file, nothing loaded from elsewhere.

The page's policy allows its own script and style by their digests and nothing else: no request, no
further script, whatever a name in a problem file says.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.resources
from collections.abc import Sequence
from typing import Any

from pipesat.compare.best_known import Comparison
from pipesat.compare.report import tables
from pipesat.compare.report.data import LARGEST, case_data
from pipesat.compare.report.tables import plain, script_json, shown
from pipesat.compare.result import Result
from pipesat.core.showing import Displayed
from pipesat.draw.style import (
    CAPACITY,
    COPY_BACK,
    COPY_OUT,
    EXCESS,
    FILL,
    HELD,
    MEANING,
    SHADES_OF_CHUNKS,
    STATIC,
    TINTS,
    class_tints,
    fill,
    ink_on,
    mode_text,
    named,
)
from pipesat.problem.problem import Problem

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


def page(cases: Sequence[Comparison], folder: str, answer: Displayed | None = None) -> bytes:
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
            lead=_lead(cases[0].result),
            digest=_digest,
            style=_style(),
            script=_script(),
            answer=answer,
            overview=tables.overview(cases),
            cases=[_case(case, folder, len(cases)) for case in cases],
            version=importlib.metadata.version("pipesat"),
        )
        .encode()
    )


def _case(case: Comparison, folder: str, count: int) -> dict[str, Any]:
    """Return what a template shows of a case."""
    result, problem = case.result, case.result.problem
    data = case_data(case, LARGEST // count)
    memory = tables.knows_memory(case)
    rows = [row for row in tables.ordered(case) if row.schedule is not None]
    home = f"{folder.rstrip('/')}/{case.placement}" if case.placement else folder
    return {
        "name": case.placement,
        "result": result,
        "drawn": [entry["name"] for entry in data["schedules"]],
        "memory": memory,
        "legend": _legend(problem, data, memory=memory),
        "columns": tables.COLUMNS,
        "rows": [tables.line_of(row, problem) for row in rows],
        "left_out": tables.left_out(case),
        "assumptions": tables.assumptions(problem),
        "stages": tables.stages(problem),
        "commands": tables.commands(result, home),
        "origin": tables.origin(result),
        "data": script_json(data),
    }


def _lead(result: Result) -> str:
    problem = result.problem
    microbatches = sum(route.microbatches for route in problem.routes)
    parts = [
        tables.counted(len(problem.devices), "rank"),
        tables.counted(len(problem.stages), "stage"),
        tables.counted(microbatches, "microbatch", "es"),
        f"objective: {result.objective}",
    ]
    return ", ".join(parts)


def _legend(problem: Problem, data: dict[str, Any], *, memory: bool) -> list[tuple[str, str, str]]:
    """Return sample, text and letters of what occurs in one of the schedules."""
    rows = [row for schedule in data["schedules"] for row in schedule.get("devices", ())]
    letters = {letter for row in rows for letter in row["kinds"]}
    used = {letter.upper().replace("X", "BW") for letter in letters}
    modes = sorted({mode for row in rows for mode in row.get("modes", ())} - {0})
    tints = class_tints(problem)
    copied = any("copies" in row for row in rows)
    limited = any(device["memory"] is not None for device in data["devices"])
    occurs = [
        *((kind in used, f"kind-{kind}", MEANING[kind].partition(" ")[2], kind) for kind in FILL),
        *(
            (True, f"tint-{tint}", plain(named(names)), "")
            for tint, names in ({} if tints is None else tints.names).items()
        ),
        (any(map(str.islower, letters)), "", "two halves: a pair, run as one", ""),
        (any(stage["place"] for stage in data["stages"]), "chunks", SHADES_OF_CHUNKS, ""),
        *((True, f"mode-{min(mode, 3)}", plain(mode_text(problem, mode)), "") for mode in modes),
        (copied, "copy-out", "O copy out", ""),
        (copied, "copy-back", "L copy back", ""),
        (memory, "memory-held", "memory", ""),
        (any(d["static"] for d in data["devices"]), "memory-static", "its static part", ""),
        (limited, "memory-cap", "cap", ""),
        (any(s["over"] for s in data["schedules"]), "memory-excess", "over the cap", ""),
        (True, "critical-path", "critical path", ""),
    ]
    return [(sample, text, letters) for there, sample, text, letters in occurs if there]


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
    return importlib.resources.files("pipesat.compare.report").joinpath(name).read_text("utf-8")
