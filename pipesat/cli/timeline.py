"""``pipesat timeline``: compare, refit, import."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipesat.cli.command import command
from pipesat.cli.commands import Group
from pipesat.cli.derived import writable
from pipesat.cli.exits import note, one_line

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.timeline.compare import AgainstPrediction
    from pipesat.timeline.refit import Refit
    from pipesat.timeline.trace import ImportedTrace

app = Group(
    "timeline",
    "Explain measured times: compare, refit, import.",
    {
        "Commands": {
            "compare": "timeline",
            "refit": "timeline",
            "import": "timeline:import_",
        }
    },
)

_PNG = click.Option(
    ["--png"],
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=writable,
    help="Draw both timelines.",
)


@command(
    "workflows.timelines:compare_timeline",
    example="pipesat timeline compare problem.json timeline.json --png both.png",
    extra=(_PNG,),
)
def compare(asked: Asked) -> None:
    """Compare measured times with the prediction.

    The order that ran is timed again with one measured quantity after the other: op costs, their
    spread, calls that block, overhead, link delays.
    """
    from pipesat.cli.console import print_json
    from pipesat.cli.timeline_report import print_summary, print_tables
    from pipesat.files.atomic import write_file

    comparison: AgainstPrediction = asked.answer()
    problem, measured, png = asked.read["problem"], asked.read["timeline"], asked["png"]
    if png is not None:
        from pipesat.timeline.picture import comparison_png

        ran = measured.shortest if asked["shortest"] else measured
        write_file(png, comparison_png(problem, ran, comparison))
    if asked["as_json"]:
        print_json(comparison.document())
        return
    print_tables(problem, comparison)
    print_summary(comparison)
    if png is not None:
        click.echo(f"picture written to {one_line(str(png))}")


@command(
    "timeline.refit:refit",
    example="pipesat timeline refit problem.json timeline.json -o again.json",
    output="FILE",
    json=False,
)
def refit(asked: Asked) -> None:
    """Write the problem again with measured costs."""
    import json

    from pipesat.files.atomic import write_file

    new: Refit = asked.answer()
    text = json.dumps(new.problem.document, indent=1, ensure_ascii=False)
    write_file(asked["output"], f"{text}\n".encode())
    for line in new.notes:
        note(line)
    click.echo(f"problem written to {one_line(str(asked.output))}")


@command(
    "timeline.trace:import_traces",
    example="pipesat timeline import problem.json rank*.json -o timeline.json",
    metavars={"paths": "TRACE"},
    output="FILE",
    json=False,
)
def import_(asked: Asked) -> None:
    """Read a timeline from torch's profiler traces."""
    from pipesat.timeline.file import write_timeline

    imported: ImportedTrace = asked.answer()
    write_timeline(asked["output"], imported.timeline)
    for text in imported.notes:
        note(text)
    steps = len(imported.timeline.steps)
    click.echo(f"{steps} steps, written to {one_line(str(asked.output))}")
