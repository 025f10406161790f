"""``pipesat show``."""

from __future__ import annotations

import os.path
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipesat.cli.commands import command
from pipesat.cli.exits import one_line

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.core.schedule import Schedule


def shown(
    given: Path,
    schedule: Schedule | Path | None = None,
    *,
    steps: bool = False,
    critical_path: bool = False,
    html: Path | None = None,
    png: Path | None = None,
    svg: Path | None = None,
    baselines: bool = True,
    as_json: bool = False,
    note: Callable[[str], None] | None = None,
) -> dict[Path, bytes]:
    """Print an input, or return the files that are asked for.

    Parameters
    ----------
    given
        A problem, layers, profile, parts, timeline or assignment file, or a folder that a command
        wrote.
    schedule
        A schedule.
    steps
        List each rank's steps, sends and receives included, in an order that cannot deadlock even
        where both block.
    critical_path
        List the chain that sets the makespan.
    html
        Write a folder's result as one page for any browser.
    png
        Write the schedule as a PNG picture.
    svg
        Write the schedule as an SVG picture.
    baselines
        In the page: the hand-written schedules of the same problem.
    as_json
        Whether it is printed so.
    note
        Called with what is to be said of a page.
    """
    from pipesat.cli.exits import naming
    from pipesat.cli.show_folder import show_folder
    from pipesat.cli.show_inputs import show_file
    from pipesat.cli.show_schedule import show_schedule, show_steps
    from pipesat.cli.terminal import read_problem
    from pipesat.picture.gantt import gantt, title_of_schedule
    from pipesat.workflows.schedules import valid_schedule

    files = {path: kind for path, kind in ((html, "html"), (png, "png"), (svg, "svg")) if path}
    if os.path.isdir(given):
        return show_folder(given, files, baselines=baselines, as_json=as_json, note=note)
    if schedule is None:
        show_file(given, as_json=as_json)
        return {}
    data = read_problem(given)
    with naming(given):
        timed = valid_schedule(data, schedule)
        title = title_of_schedule(data, timed)
        made = {path: gantt(data, timed, title=title, kind=kind) for path, kind in files.items()}
        if steps:
            show_steps(data, timed, as_json=as_json)
        elif not made:
            show_schedule(data, timed, critical_path=critical_path, as_json=as_json)
    return made


@command(
    "cli.show:shown",
    example="pipesat show problem.json 1f1b\n  pipesat show out/ --html report.html",
    names={"schedule": "[SCHEDULE]"},
    metavars={"given": "INPUT"},
    without=("as_json", "critical_path"),
    follow={"html": ("baselines",)},
    written=("html", "png", "svg"),
)
def show(asked: Asked) -> None:
    """Show any file or folder of pipesat, as text or picture.

    Of a problem with a schedule: a text grid, and where each device's time goes.
    """
    from pipesat.files.folder import add_files

    _refuse_unused(asked)
    made: dict[Path, bytes] = asked.answer(as_json=asked["as_json"], critical_path=asked["verbose"])
    for path, content in made.items():
        add_files(path.parent, {path.name: content})
        size = len(content)
        text = f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
        click.echo(f"written: {one_line(str(path))} ({text})", err=asked["as_json"])


def _refuse_unused(asked: Asked) -> None:
    """Refuse what says nothing of a folder, a file or a schedule."""
    if asked["html"] is None:
        asked.refuse(["baselines"], "expected --html FILE with it")
    if os.path.isdir(asked["given"]):
        asked.refuse(["schedule", "steps"], "expected a problem file, not a folder")
    elif asked["schedule"] is None:
        text = "expected a problem and a SCHEDULE, as in pipesat show problem.json 1f1b"
        asked.refuse(["steps", "png", "svg"], text)
        asked.refuse(["html"], "expected a folder that solve or compare wrote")
    else:
        asked.refuse(["html"], "expected a folder: pipesat compare PROBLEM SCHEDULE -o DIR")
