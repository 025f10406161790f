"""``pipesat show``."""

from __future__ import annotations

import os.path
from pathlib import Path
from typing import Annotated, Any

import typer

from pipesat.cli.arguments import SCHEDULE, AsJson, writable
from pipesat.cli.exits import one_line


def _file(name: str, text: str) -> Any:
    return typer.Option(name, metavar="FILE", help=text, callback=writable, show_default=False)


def show(
    context: typer.Context,
    given: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT",
            help="A problem, layers, profile, parts or timeline file, or a folder that a command "
            "wrote.",
            show_default=False,
        ),
    ],
    schedule: Annotated[Path | None, SCHEDULE] = None,
    steps: Annotated[
        bool,
        typer.Option(
            "--steps",
            help="List each rank's steps, sends and receives included, in an order that cannot "
            "deadlock even where both block.",
        ),
    ] = False,
    critical_path: Annotated[
        bool, typer.Option("--critical-path", help="List the chain that sets the makespan.")
    ] = False,
    html: Annotated[
        Path | None, _file("--html", "Write a folder's result as one page for any browser.")
    ] = None,
    png: Annotated[Path | None, _file("--png", "Write the schedule as a PNG picture.")] = None,
    svg: Annotated[Path | None, _file("--svg", "Write the schedule as an SVG picture.")] = None,
    baselines: Annotated[
        bool, typer.Option(help="In the page: the hand-written schedules of the same problem.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Show any file or folder of pipesat, as text or picture.

    Of a problem with a schedule: a text grid, and where each device's time goes. For example:
    pipesat show problem.json 1f1b; pipesat show out/ --html report.html.
    """
    from pipesat.cli.naming import naming
    from pipesat.cli.options import refuse_given
    from pipesat.cli.reading import read_problem
    from pipesat.cli.show_folder import show_folder
    from pipesat.cli.show_inputs import show_file
    from pipesat.cli.show_schedule import picture, show_schedule, show_steps
    from pipesat.files.folder import add_files
    from pipesat.workflows.valid import valid_schedule

    files = {path: kind for path, kind in ((html, "html"), (png, "png"), (svg, "svg")) if path}
    options = ["steps", "critical_path"]
    if html is None:
        refuse_given(context, ["baselines"], "expected --html FILE with it")
    if os.path.isdir(given):
        refuse_given(context, ["schedule", *options], "expected a problem file, not a folder")
        made = show_folder(given, files, baselines=baselines, as_json=as_json)
    elif schedule is None:
        refuse_given(context, [*options, "png", "svg"], "expected a problem and a SCHEDULE")
        refuse_given(context, ["html"], "expected a folder that solve or compare wrote")
        made = {}
        show_file(given, as_json=as_json)
    else:
        refuse_given(
            context, ["html"], "expected a folder: pipesat compare PROBLEM SCHEDULE -o DIR"
        )
        data = read_problem(given)
        with naming(given):
            timed = valid_schedule(data, schedule)
            made = {path: picture(kind, data, timed, "") for path, kind in files.items()}
            if steps:
                show_steps(data, timed, as_json=as_json)
            elif not made:
                show_schedule(data, timed, critical_path=critical_path, as_json=as_json)
    for path, content in made.items():
        add_files(path.parent, {path.name: content})
        size = len(content)
        text = f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
        typer.echo(f"written: {one_line(str(path))} ({text})", err=as_json)
