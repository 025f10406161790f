"""``pipesat report``."""

from __future__ import annotations

import os.path
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipesat.cli.arguments import writable
from pipesat.cli.exits import one_line, refuse_contradictions
from pipesat.cli.options import refuse_repeated
from pipesat.core.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipesat.report.shown import ReportedCase


def report(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="What solve or compare -o DIR wrote.", show_default=False
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="The HTML file.",
            show_default="DIR/report.html",
            callback=writable,
        ),
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also the schedule as a PNG picture.", callback=writable),
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also the schedule as an SVG picture.", callback=writable
        ),
    ] = None,
    baselines: Annotated[
        bool, typer.Option(help="With the hand-written schedules of the same problem.")
    ] = True,
) -> None:
    """Make one HTML file of a result: timeline, memory, baselines, idle time, assumptions.

    It opens in any browser and loads nothing. Of compare --placements, all placements are in it.
    """
    from pipesat.files.folder import add_files
    from pipesat.report.result_file import result_folders
    from pipesat.report.study import report as run

    _ = list(result_folders(folder))  # refuses a folder without results
    output = folder / "report.html" if output is None else output
    writable(output)
    _refuse_inputs(folder, [path for path in (output, png, svg) if path is not None])
    made = run(folder, baselines=baselines, note=lambda text: typer.echo(one_line(text), err=True))
    refuse_contradictions(made.contradictions, folder)
    files = {output: made.html, **_pictures(made.cases, png, svg)}
    for path, data in files.items():
        add_files(path.parent, {path.name: data})
        typer.echo(f"written: {one_line(str(path))} ({_size(len(data))})")


def _pictures(
    cases: Sequence[ReportedCase], png: Path | None, svg: Path | None
) -> dict[Path, bytes]:
    from pipesat.picture.gantt import gantt_png, gantt_svg
    from pipesat.picture.of_result import title_of

    files: dict[Path, bytes] = {}
    for option, path, draw in (("--png", png, gantt_png), ("--svg", svg, gantt_svg)):
        if path is None:
            continue
        result = cases[0].result
        if len(cases) > 1:
            names = ", ".join(case.name for case in cases)
            raise BadInput(
                f"one picture of {len(cases)} placements: give one of DIR's folders ({names})",
                where=option,
                value=str(path),
            )
        if result.schedule is None:
            raise BadInput("there is no schedule to draw", where=option, value=str(path))
        files[path] = draw(result.problem, result.schedule, title=title_of(result))
    return files


def _refuse_inputs(folder: Path, files: Sequence[Path]) -> None:
    read = {"problem.json", "schedule.json", "result.json"}
    refuse_repeated("outputs", [os.path.realpath(path) for path in files], str(files[-1]))
    for path in files:
        if path.name in read and os.path.realpath(path.parent) == os.path.realpath(folder):
            raise BadInput("expected another file: this one is read", source=str(path))


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"
