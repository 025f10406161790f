"""``pipesat timeline``: compare, refit, import."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipesat.cli.arguments import AsJson, OutputFile, ProblemFile, writable
from pipesat.cli.exits import note, one_line

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.timeline.timeline import Timeline

app = typer.Typer(
    help="Measured timelines: against the prediction, as new costs, from torch's profiler.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

TimelineFile = Annotated[
    Path, typer.Argument(metavar="TIMELINE", help="Timeline file (JSON).", show_default=False)
]


@app.command()
def compare(
    problem: ProblemFile,
    timeline: TimelineFile,
    shortest: Annotated[
        bool, typer.Option("--shortest", help="Take the shortest step alone: for a machine in use.")
    ] = False,
    png: Annotated[
        Path | None,
        typer.Option("--png", metavar="FILE", help="Draw both timelines.", callback=writable),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare predicted and measured times, and say which assumption the difference comes from.

    The order that ran is timed again with one measured quantity after the other: op costs, their
    spread, calls that block, overhead, link delays.
    """
    from pipesat.cli.console import print_json
    from pipesat.cli.timeline_report import print_summary, print_tables
    from pipesat.files.atomic import write_file
    from pipesat.workflows.timelines import compare_timeline

    data, measured = _read(problem, timeline)
    if shortest:
        measured = measured.shortest
    comparison = compare_timeline(data, measured)
    if png is not None:
        from pipesat.timeline.picture import comparison_png

        write_file(png, comparison_png(data, measured, comparison))
    if as_json:
        print_json(comparison.document())
        return
    print_tables(data, comparison)
    print_summary(comparison)
    if png is not None:
        typer.echo(f"picture written to {one_line(str(png))}")


@app.command()
def refit(problem: ProblemFile, timeline: TimelineFile, output: OutputFile) -> None:
    """Write the problem again with the costs and delays of a timeline, for a second solve."""
    import json

    from pipesat.cli.naming import naming
    from pipesat.files.atomic import write_file
    from pipesat.timeline.refit import refit as refit_with

    data, measured = _read(problem, timeline)
    with naming(timeline):
        new = refit_with(data, measured)
    text = json.dumps(new.problem.document, indent=1, ensure_ascii=False)
    write_file(output, f"{text}\n".encode())
    for text in new.notes:
        note(text)
    typer.echo(f"problem written to {one_line(str(output))}")


@app.command("import")
def import_(
    problem: ProblemFile,
    traces: Annotated[
        list[Path],
        typer.Argument(metavar="TRACE...", help="Chrome traces of torch's profiler, one per rank."),
    ],
    output: OutputFile,
    skip: Annotated[
        int, typer.Option("--skip", min=0, max=1_000_000, help="Steps to leave out first.")
    ] = 0,
) -> None:
    """Read a timeline from torch's profiler traces (.json, .json.gz): the ranges PP:0F0."""
    from pipesat.cli.naming import naming
    from pipesat.cli.reading import read_problem
    from pipesat.timeline.file import write_timeline
    from pipesat.timeline.trace import import_traces

    data = read_problem(problem)
    with naming(problem):
        imported = import_traces(data, traces, skip=skip)
    write_timeline(output, imported.timeline)
    for text in imported.notes:
        note(text)
    typer.echo(f"{len(imported.timeline.steps)} steps, written to {one_line(str(output))}")


def _read(problem: Path, timeline: Path) -> tuple[Problem, Timeline]:
    from pipesat.cli.reading import read_problem
    from pipesat.timeline.file import read_timeline

    data = read_problem(problem)
    measured = read_timeline(timeline, data)
    if measured.problem_sha256 != data.sha256:
        typer.echo("this was measured with another problem of the same shape", err=True)
    return data, measured
