"""``pipesat show``: a schedule, a file by its format, or a folder that a command wrote."""

from __future__ import annotations

import contextlib
import csv
import os.path
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pipesat.cli.asked import read_problem
from pipesat.cli.commands import command
from pipesat.cli.derived import Argument, Option, file_option
from pipesat.cli.exits import note, refuse_contradictions
from pipesat.cli.terminal import console, print_json
from pipesat.core.amounts import memory_text, rounded, rounded_down, time_text
from pipesat.core.arguments import require_once
from pipesat.core.errors import BadInput, require
from pipesat.core.settings import PICTURES
from pipesat.core.showing import Displayed, Said, table_of
from pipesat.core.text_tables import one_line

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.compare.report.study import Report
    from pipesat.compare.schedules import ShownSchedule
    from pipesat.problem.problem import Problem
    from pipesat.runtimes.steps import RankStep, Steps

_READ: Final = {"problem.json", "schedule.json", "result.json"}
_ANSWERS: Final = {"result.json", "plan.json", "advice.json", "frontier.json", "rows.jsonl"}
_LONG: Final = 24  # lines: what is longer would push the answer off the screen
_MOST_OPS: Final = 2_000  # whose texts are even looked at: so many take more lines than that
_OF_A_FRONTIER: Final = (
    *("placement", "lever", "name", "cap", "value", "lower_bound", "gap"),
    *("share_of_1f1b", "largest_peak", "status"),
)
_PATH: Final = click.Path(path_type=Path)


_INPUT = Argument(
    ["given"],
    type=_PATH,
    is_eager=True,
    metavar="INPUT",
    help="A problem, layers, profile, timeline or assignment file, or a folder that a "
    "command wrote.",
)
_SCHEDULE = Argument(
    ["schedule"],
    type=_PATH,
    is_eager=True,
    metavar="[SCHEDULE]",
    required=False,
    help="A schedule file, the folder of a solve, a runtime's order (.csv, .py), or a name as "
    "compare --list has them.",
)
_OPTIONS: Final = (
    Option(
        ["--steps"],
        is_flag=True,
        help="List each rank's steps, sends and receives included, in an order that cannot "
        "deadlock even where both block.",
    ),
    file_option("--html", "Write a folder's result as one page for any browser."),
    file_option("--png", "Write the schedule as a PNG picture."),
    file_option("--svg", "Write the schedule as an SVG picture."),
    file_option("--pdf", "Write the schedule as a PDF picture."),
    Option(
        ["--title/--no-title"], default=True, help="In pictures: a title, which papers have below."
    ),
    Option(["--whole"], is_flag=True, help="In pictures: all of it, also a middle that repeats."),
    Option(
        ["--baselines/--no-baselines"],
        default=True,
        help="In the page: the hand-written schedules of the same problem.",
    ),
)


@command(
    "show",
    example="pipesat show problem.json 1f1b\n  pipesat show out/ --html report.html",
    without=("problem", "schedule", "width"),
    extra=(_INPUT, _SCHEDULE, *_OPTIONS),
    follow={"html": ("baselines",)},
)
def show(asked: Asked) -> None:
    """Show any file or folder of pipesat, as text or picture.

    Of a problem with a schedule: a text grid, and where each device's time goes. With -v, the
    chain of ops that sets the makespan. Of a folder: the answer, and with -v all ops of a long
    schedule.
    """
    from pipesat.core.folder import add_files

    given = asked["given"]
    if given.name in _ANSWERS and given.is_file():  # its folder has what it refers to
        given = given.parent
    files = {asked[kind]: kind for kind in ("html", *PICTURES) if asked[kind]}
    if not files.keys() - {asked["html"]}:
        asked.refuse(
            ["title", "whole"], f"expected {' or '.join(f'--{kind} FILE' for kind in PICTURES)}"
        )
    if os.path.isdir(given):
        asked.refuse(["schedule", "steps"], "expected a problem file, not a folder")
        asked.refuse([] if asked["html"] else ["baselines"], "expected --html FILE with it")
        made = _show_folder(asked, given, files)
    else:
        require(
            not asked.given.keys() & {"html", "baselines"},
            "--html: expected a folder that solve or compare wrote",
            source=str(given),
        )
        if asked["schedule"] is not None:
            made = _show_schedule(asked, given, files)
        else:
            asked.refuse(
                ["steps", *PICTURES],
                "expected a problem and a SCHEDULE, as in pipesat show problem.json 1f1b",
            )
            made = _show_file(asked, given)
    for path, content in made.items():
        add_files(path.parent, {path.name: content})
        said = one_line(f"{path} ({len(content) / 1e3:.1f} kB)")
        click.echo(f"Written to  {said}", err=asked["as_json"])


def _show_schedule(asked: Asked, given: Path, files: Mapping[Path, str]) -> dict[Path, bytes]:
    from pipesat.compare.schedules import show as shown
    from pipesat.compare.schedules import steps
    from pipesat.draw.gantt import gantt, title_of_schedule

    problem = asked.read["problem"] = read_problem(given)
    found: ShownSchedule = shown(problem, asked["schedule"], width=console().width)
    timed = found.schedule
    title = title_of_schedule(problem, timed) if asked["title"] else ""
    whole = asked["whole"]
    made = {
        path: gantt(problem, timed, title=title, kind=kind, whole=whole)
        for path, kind in files.items()
    }
    if made and not (asked["steps"] or asked["as_json"]):
        return made
    answer: Displayed = found
    document: Any = found.document(critical_path=asked["verbose"])
    if asked["steps"]:
        document = _step_documents(problem, steps(problem, timed))
        answer = Said(
            shown=[
                table_of([step | {"mode": step.get("mode")} for step in one["steps"]], one["name"])
                for one in document
            ]
        )
    if not asked["as_json"]:
        click.echo(f"{found}\n")
    asked.show(answer, document)
    return made


def _step_documents(problem: Problem, ranks: Steps) -> list[dict[str, Any]]:
    """Each rank's steps; a compute step in a mode says which."""
    from pipesat.problem.ops import members

    def modes(step: RankStep) -> dict[str, str]:
        found = [
            problem.stages[op.stage].modes[op.mode - 1].name
            for op in (members(step.item) if step.peer is None else ())
            if op.mode
        ]
        return {"mode": ", ".join(found)} if found else {}

    return [
        {
            "device": rank,
            "name": problem.device_name(rank),
            "steps": [
                {"step": s.kind, "op": str(s.item), "peer": s.peer} | modes(s) for s in steps
            ],
        }
        for rank, steps in enumerate(ranks)
    ]


def _show_file(asked: Asked, path: Path) -> dict[Path, bytes]:
    from pipesat.cli.show_inputs import view_of
    from pipesat.core.strict_json import LARGEST_RUN, read_json

    require(path.is_file() or not path.exists(), "expected a file, not a pipe", source=str(path))
    order = path.suffix in {".csv", ".py"}
    document = {} if order else read_json(path, LARGEST_RUN)
    stated = document.get("format") if isinstance(document, dict) else None
    require(
        not (order or str(stated).startswith("pipesat.schedule/")),
        "expected its problem first: pipesat show PROBLEM FILE",
        source=str(path),
    )
    answer = view_of(path, document)
    if asked["as_json"] and (remark := dict(answer.facts()).get("Remark")):
        note(f"pipesat: remark: {remark}")
    asked.show(answer, document)
    return {}


def _show_folder(asked: Asked, folder: Path, files: Mapping[Path, str]) -> dict[Path, bytes]:
    """Print what a folder has, as JSON in any case; return the page and the pictures asked for."""
    from pipesat.compare.report.result_file import result_folders
    from pipesat.compare.report.study import report
    from pipesat.compare.sweep.cases import Sweep
    from pipesat.compare.sweep.row_file import NAME, read_rows
    from pipesat.core.folder import listed
    from pipesat.core.progress import doing
    from pipesat.core.strict_json import LARGEST_RUN, read_json, read_text

    drawn: dict[Path, bytes] = {}
    if files:
        _ = list(result_folders(folder))  # refuses a folder without results
        require_once("outputs", [os.path.realpath(path) for path in files])
        for path in files:
            require(
                path.name not in _READ or os.path.realpath(path.parent) != os.path.realpath(folder),
                "expected another file: this one is read",
                source=str(path),
            )
        html = "html" in files.values()
        with asked.progress() as told, doing("making the page" if html else "drawing"):
            made = report(folder, baselines=asked["baselines"] and html, note=told.note)
        asked.output = folder
        refuse_contradictions(made.contradictions)
        drawn = {path: _drawn(made, kind, path, asked) for path, kind in files.items()}
        if not asked["as_json"]:
            return drawn
    if os.path.exists(folder / NAME):
        rows = [*read_rows(folder / NAME).values()]
        asked.show(Sweep((), tuple(rows), folder / NAME), rows)
    elif os.path.exists(folder / "frontier.json"):
        table = csv.DictReader(read_text(folder / "frontier.csv", LARGEST_RUN).splitlines())
        document: Any = read_json(folder / "frontier.json", LARGEST_RUN)
        asked.show(Said(shown=[table_of([_point(row, document) for row in table])]), document)
    elif os.path.exists(dealt := folder / "assignment.json"):
        return _show_file(asked, dealt)
    elif listed(folder) == ["problem.json"]:  # an order of microbatches on several routes
        return _show_file(asked, folder / "problem.json")
    else:
        _show_results(asked, folder)
    return drawn


def _point(row: Mapping[str, str], document: Mapping[str, str]) -> dict[str, float | str | None]:
    """Return the cells of a row of frontier.csv, times and memory with their units."""
    time, memory = document["time_unit"], document["memory_unit"]
    towards = rounded if row["value"] == row["lower_bound"] else rounded_down
    shown = {
        "value": partial(time_text, unit=time),
        "lower_bound": partial(time_text, unit=time, towards=towards),
    }
    shown |= dict.fromkeys(("cap", "largest_peak"), partial(memory_text, unit=memory))
    cells = {name: _number(row.get(name, "")) for name in _OF_A_FRONTIER}
    return {
        name: shown[name](cell) if name in shown and isinstance(cell, int) else cell
        for name, cell in cells.items()
    }


def _number(text: str) -> float | str | None:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text or None


def _drawn(made: Report, kind: str, path: Path, asked: Asked) -> bytes:
    from pipesat.draw.gantt import gantt, title_of

    if kind == "html":
        return made.html
    result, wrong = made.cases[0].result, ""
    if len(made.cases) > 1:
        names = ", ".join(case.placement or "" for case in made.cases)
        wrong = f"one picture of {len(made.cases)} placements: give one of DIR's folders ({names})"
    elif result.schedule is None:
        wrong = "there is no schedule to draw"
    if wrong or result.schedule is None:
        raise BadInput(wrong, where=f"--{kind}", value=str(path))
    title, whole = title_of(result) if asked["title"] else "", asked["whole"]
    return gantt(result.problem, result.schedule, title=title, kind=kind, whole=whole)


def _show_results(asked: Asked, folder: Path) -> None:
    """Show the answers in a folder: of advise and plan their own, then each placement's."""
    from pipesat.compare.report.result_file import read_advice, result_folders
    from pipesat.compare.report.study import result_in
    from pipesat.compare.schedules import show as shown
    from pipesat.core.folder import has_file
    from pipesat.core.strict_json import LARGEST_RUN, read_json

    found: dict[str, Any] = {}
    for name, place in result_folders(folder):
        own = [file for file in ("advice.json", "plan.json") if has_file(place, file)]
        traced = not has_file(place, "result.json") and has_file(place, "best.json")
        last = "schedule.json" if traced else "result.json"
        found[name] = document = read_json(place / (own or [last])[0], LARGEST_RUN)
        if asked["as_json"]:
            continue
        texts = isinstance(document, dict) and (own or "within" in document)  # frontier --within
        said = [
            (key.replace("_", " "), f"{value}")
            for key, value in (document.items() if texts else ())
            if isinstance(value, str | int | float) and key != "format"
        ]
        said += [("Schedule", "what ran. best.json is the best order found")] * traced
        answer: Displayed = Said(said) if texts or traced else result_in(place)
        asked.show(read_advice(place) or answer, None, [("Placement", name)])
        if has_file(place, "schedule.json"):
            problem = read_problem(place / "problem.json")
            grid = shown(problem, place / "schedule.json", width=console().width)
            text = str(grid) if asked["verbose"] or problem.op_count <= _MOST_OPS else ""
            long = not asked["verbose"] and not 0 < text.count("\n") < _LONG
            many = f"{problem.op_count:,} ops. -v lists them, --svg FILE draws them"
            click.echo(f"\n{many if long else text}\n")
            short = long and len(problem.devices) > _LONG
            asked.show(Said(grid.facts()) if short else grid, None)
    if asked["as_json"]:
        print_json(found.get("", found))
