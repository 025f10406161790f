"""``pipesat timeline``: compare, refit, import."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipesat.cli.command import command
from pipesat.cli.commands import Group, settings
from pipesat.cli.derived import writable
from pipesat.cli.exits import note, one_line

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.timeline.compare import AgainstPrediction
    from pipesat.timeline.refit import Refit
    from pipesat.workflows.trace_answer import TraceAnswer

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

_LARGEST_PROBLEM = 64 << 20
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
        from pipesat.timeline.compare import comparison_png

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
)
def refit(asked: Asked) -> None:
    """Write the problem again with measured costs."""
    from pipesat.cli.problem import write_problem

    new: Refit = asked.answer()
    for line in new.notes:
        note(line)
    write_problem(asked, new.problem)


@command(
    "workflows.traces:import_trace",
    example="pipesat timeline import pp_data -o imported",
    metavars={"paths": "TRACE", "patterns": "FILE"},
    follow={"memory": ("static", "held"), "shape": ("chunks", "microbatches")},
    extra=(settings("shape", "What the files do not say."),),
    output="DIR",
)
def import_(asked: Asked) -> int:
    """Say what traces of a real run tell, and make a problem of them.

    Reads torch's profiler (d9d's too), Primus dump_pp_data, NDTimeline, Megatron's VPP simulator,
    OpenTelemetry spans and timers, and Nsight Systems (sqlite): files of one run, or its folder.

    Writes problem.json with the costs seen, schedule.json, the order that ran, timeline.json and
    best.json, the best order found, into DIR.

    After a problem file, torch's traces of that problem become one timeline: -o is then its file.
    """
    if _is_problem(asked["paths"][0]):
        return _import_of(asked)
    found: TraceAnswer = asked.answer(lambda answer, folder, _: answer.save(folder))
    asked.show(found, found.document)
    return asked.end(found.result)


def _is_problem(path: Path) -> bool:
    """Whether a file that can be read says that it is a problem."""
    try:
        with path.open("rb") as file:
            return b'"pipesat.problem/' in file.read(_LARGEST_PROBLEM)
    except (OSError, ValueError):
        return False  # the reader of traces says what is wrong


def _import_of(asked: Asked) -> int:
    """Import torch's traces of a problem that is given."""
    import json

    from pipesat.cli.console import print_json
    from pipesat.cli.reading import read_problem
    from pipesat.core.errors import BadInput
    from pipesat.files.atomic import require_writable
    from pipesat.timeline.file import write_timeline
    from pipesat.timeline.trace import import_traces

    problem, *paths = asked["paths"]
    if asked.output is None:
        raise BadInput("expected a file to write", where="--output")
    others = (asked.given.keys() & asked.parameters.keys()) - {"paths", "skip"}
    asked.refuse([*others], "this is for traces without a problem file")
    require_writable(asked.output)
    imported = import_traces(read_problem(problem), paths, skip=asked["skip"])
    write_timeline(asked.output, imported.timeline)
    for text in imported.notes:
        note(text)
    if asked["as_json"]:
        print_json(json.loads(asked.output.read_text()))
        return 0
    steps = len(imported.timeline.steps)
    click.echo(f"{steps} steps, written to {one_line(str(asked.output))}")
    return 0
