"""``pipesat show`` of a folder that a command wrote: its answer, page and pictures."""

from __future__ import annotations

import csv
import os.path
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pipesat.cli.exits import one_line, refuse_contradictions
from pipesat.core.arguments import require_once
from pipesat.core.errors import BadInput
from pipesat.core.progress import doing

if TYPE_CHECKING:
    from pipesat.report.study import Report

_READ: Final = {"problem.json", "schedule.json", "result.json"}
_LARGEST: Final = 1 << 28


def show_folder(
    folder: Path,
    files: Mapping[Path, str],
    *,
    baselines: bool,
    as_json: bool,
    note: Callable[[str], None] | None,
) -> dict[Path, bytes]:
    """Print what a folder has, or return the page and the pictures that are asked for."""
    from pipesat.report.result_file import result_folders
    from pipesat.report.study import report

    if files:
        _ = list(result_folders(folder))  # refuses a folder without results
        _refuse_inputs(folder, [*files])
        html = any(kind == "html" for kind in files.values())
        with doing("making the page" if html else "drawing"):
            made = report(folder, baselines=baselines and html, note=note)
        refuse_contradictions(made.contradictions, folder)
        return {path: _drawn(made, kind, path) for path, kind in files.items()}
    if os.path.exists(folder / "rows.jsonl"):
        _show_sweep(folder, as_json=as_json)
    elif os.path.exists(folder / "frontier.json"):
        _show_frontier(folder, as_json=as_json)
    else:
        _show_results(folder, as_json=as_json)
    return {}


def _drawn(made: Report, kind: str, path: Path) -> bytes:
    from pipesat.picture.gantt import gantt, title_of

    if kind == "html":
        return made.html
    result, option = made.cases[0].result, f"--{kind}"
    if len(made.cases) > 1:
        names = ", ".join(case.name for case in made.cases)
        raise BadInput(
            f"one picture of {len(made.cases)} placements: give one of DIR's folders ({names})",
            where=option,
            value=str(path),
        )
    if result.schedule is None:
        raise BadInput("there is no schedule to draw", where=option, value=str(path))
    return gantt(result.problem, result.schedule, title=title_of(result), kind=kind)


def _refuse_inputs(folder: Path, files: list[Path]) -> None:
    require_once("outputs", [os.path.realpath(path) for path in files])
    for path in files:
        if path.name in _READ and os.path.realpath(path.parent) == os.path.realpath(folder):
            raise BadInput("expected another file: this one is read", source=str(path))


def _show_sweep(folder: Path, *, as_json: bool) -> None:
    from pipesat.cli.sweep_report import print_rows
    from pipesat.cli.terminal import print_json
    from pipesat.sweep.rows import read_rows

    rows = [*read_rows(folder / "rows.jsonl").values()]
    if as_json:
        print_json(rows)
    else:
        print_rows(rows)


def _show_frontier(folder: Path, *, as_json: bool) -> None:
    from pipesat.cli.terminal import Column, print_json, print_table
    from pipesat.files.strict_json import read_json, read_text

    if as_json:
        print_json(read_json(folder / "frontier.json", _LARGEST))
        return
    rows = [*csv.DictReader(read_text(folder / "frontier.csv", _LARGEST).splitlines())]
    names = [name for name in (rows or [{}])[0] if any(row[name] for row in rows)]
    words = {"placement", "lever", "kind", "name", "status", "source", "baseline"}
    columns = [
        Column(name.replace("_", "\n"), number=name not in words, spare=place)
        for place, name in enumerate(names)
    ]
    print_table(columns, [[row[name] or "-" for name in names] for row in rows])


def _show_results(folder: Path, *, as_json: bool) -> None:
    """Show the answers in a folder: of advise and plan their own, then each placement's."""
    from pipesat.cli.show_schedule import print_schedule
    from pipesat.cli.terminal import print_answer, print_facts, print_json, read_problem, stdout
    from pipesat.files.folder import has_file
    from pipesat.files.strict_json import read_json
    from pipesat.report.result_file import result_folders
    from pipesat.report.study import result_in
    from pipesat.workflows.schedules import show

    found: dict[str, Any] = {}
    for name, place in result_folders(folder):
        own = [file for file in ("advice.json", "plan.json") if has_file(place, file)]
        found[name] = document = read_json(place / (own or ["result.json"])[0], _LARGEST)
        if as_json:
            continue
        if name:
            print_facts([("placement", name)])
        if own or (isinstance(document, dict) and "within" in document):  # frontier --within
            print_facts(_facts(document))
        else:
            print_answer(result_in(place))
        if has_file(place, "schedule.json"):
            click.echo("")
            problem = read_problem(place / "problem.json")
            print_schedule(show(problem, place / "schedule.json", width=stdout().width))
    if as_json:
        print_json(found.get("", found))


def _facts(document: Any) -> list[tuple[str, str]]:
    """The labelled lines of a document: whatever is a text or a number."""
    return [
        (key.replace("_", " "), one_line(f"{value}"))
        for key, value in (document.items() if isinstance(document, dict) else ())
        if isinstance(value, str | int | float) and key != "format"
    ]
