"""The report's page: its templates filled with what it shows. One file, nothing is loaded."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from typing import Any

from pipesat.compare.best_known import Comparison
from pipesat.compare.report import tables
from pipesat.compare.report.data import LARGEST, case_data
from pipesat.compare.report.drawing import legend, rendered
from pipesat.compare.report.tables import script_json
from pipesat.compare.result import Result
from pipesat.core.showing import Displayed


def page(cases: Sequence[Comparison], folder: str, answer: Displayed | None = None) -> bytes:
    """Return the whole report as an HTML file.

    ``folder`` is where the cases, one per placement, were read from: for the commands that make the
    report again. ``answer``, to a wider question, opens the page: an advice.
    """
    return rendered(
        "template.html",
        __package__ or "",
        scripts=("main.js",),
        title=cases[0].result.problem.name or "schedule",
        lead=lead(cases[0].result),
        answer=answer,
        overview=tables.overview(cases),
        cases=[_case(case, folder, len(cases)) for case in cases],
        version=importlib.metadata.version("pipesat"),
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
        "legend": legend(problem, data, memory=memory),
        "columns": tables.COLUMNS,
        "rows": [tables.line_of(row, problem) for row in rows],
        "left_out": tables.left_out(case),
        "assumptions": tables.assumptions(problem),
        "stages": tables.stages(problem),
        "commands": tables.commands(result, home),
        "origin": tables.origin(result),
        "data": script_json(data),
    }


def lead(result: Result) -> str:
    """Say in a line how large a problem is, and what is wanted."""
    problem, counted = result.problem, tables.counted
    microbatches = counted(sum(route.microbatches for route in problem.routes), "microbatch", "es")
    parts = [counted(len(problem.devices), "rank"), counted(len(problem.stages), "stage")]
    return ", ".join([*parts, microbatches, f"objective: {result.objective}"])
