"""``pipesat timeline``: compare, refit, import."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipesat.cli.commands import Group, command
from pipesat.cli.derived import writable
from pipesat.cli.exits import note, one_line
from pipesat.cli.options import settings
from pipesat.core.claims import percent

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.core.problem import Problem
    from pipesat.runtime.answers import DevicePeak
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
    "workflows.traces:compare_timeline",
    example="pipesat timeline compare problem.json timeline.json --png both.png",
    extra=(_PNG,),
)
def compare(asked: Asked) -> None:
    """Compare measured times with the prediction.

    The order that ran is timed again with one measured quantity after the other: op costs, their
    spread, calls that block, overhead, link delays.
    """
    from pipesat.cli.terminal import print_json
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

    After a problem file, traces of that problem's run become one timeline: -o is then its file.
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
    """Import traces of a problem that is given."""
    import json

    from pipesat.cli.terminal import print_json, read_problem
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


_EXPLAIN = 0.15  # error of the makespan from which users are told what to do
_ADVICE = {
    "op costs": "profile again, or take the measured costs: pipesat timeline refit",
    "cores shared with others": "ranks and other work take turns on the cores: run it on as many "
    "idle cores as there are ranks",
    "op times that vary": "the machine is shared or its clocks change: compare --noise says "
    "what the order stands",
    "send and receive calls that block": "the runtime blocks while it sends: raise the costs by "
    "it, as pipesat timeline refit does",
    "overhead between ops": "the runtime needs time for every op: larger microbatches, or costs "
    "that include it, as pipesat timeline refit has them",
    "link delays": "the links are not as fast as the problem says: pipesat timeline refit",
    "not explained": "delays that vary, or work outside of the ops",
}


def milliseconds(us: float) -> str:
    """Show microseconds as milliseconds."""
    return f"{us / 1000:,.2f}"


def print_summary(comparison: AgainstPrediction) -> None:
    """Print makespans, error, and which assumption makes how much of it."""
    c = comparison
    if c.toy_model:
        _print_shape(c)
        return
    click.echo(
        f"makespan: predicted {milliseconds(c.predicted)} ms, measured {milliseconds(c.measured)} "
        f"ms (median of {c.steps} steps, {milliseconds(c.shortest)} to {milliseconds(c.longest)}), "
        f"error {percent(c.error, 1, sign=True)}"
    )
    for part in (part for part in c.parts if part.makes):
        share = percent(part.makes / c.measured if c.measured else 0.0, 1, sign=True)
        click.echo(
            f"  {part.assumption:<33} {part.makes / 1000:>+10,.2f} ms  {share:>8} of measured"
        )
    if abs(c.error) > _EXPLAIN:
        click.echo(f"largest: {c.largest.assumption}; {_ADVICE[c.largest.assumption]}")


def _print_shape(c: AgainstPrediction) -> None:
    """Print what a toy model's run says of an order: no times, which are of another model."""
    click.echo(
        "toy model: a small transformer ran, not the model that the costs are of (--model takes "
        "that one). The costs are scaled to its compute, so that only shapes are compared"
    )
    compute = sum(row.busy for row in c.devices) / len(c.devices)
    if compute:
        click.echo(
            f"makespan / mean compute of a device: predicted {c.predicted / compute:.2f}, measured "
            f"{c.measured / compute:.2f} (median of {c.steps} steps)"
        )


def print_peaks(problem: Problem, peaks: Sequence[DevicePeak]) -> None:
    """Print the most memory that each device held, predicted and measured."""
    from pipesat.cli.terminal import Column, print_table
    from pipesat.core.amounts import readable

    unit = f"\n({problem.memory_unit})" if problem.memory_unit else ""
    columns = [
        Column("device", number=False),
        Column(f"capacity{unit}"),
        Column(f"predicted{unit}"),
        Column("measured\npeak"),
        Column("error"),
        Column("", number=False),
    ]
    rows = [
        [
            peak.device,
            "unlimited" if peak.capacity is None else str(peak.capacity),
            str(peak.predicted),
            readable(peak.measured) if peak.in_units is None else f"{peak.in_units:.0f}",
            "-" if peak.error is None else percent(peak.error, 1, sign=True),
            "EXCEEDS its capacity" if peak.fits is False else "",
        ]
        for peak in peaks
    ]
    print_table(columns, rows)


def print_tables(problem: Problem, comparison: AgainstPrediction) -> None:
    """Print the tables of op kinds, devices and links; times in ms."""
    _print(("device", "op"), _KINDS, list(_kinds(problem, comparison)))
    _print(("device",), _DEVICES, list(_devices(problem, comparison)))
    _print(("stages",), _LINKS, list(_links(comparison)))


_KINDS = (
    "ops",
    "predicted\nms",
    "measured\nms",
    "measured /\npredicted",
    "5 % to 95 %",
    "on a\ncore",
)
_DEVICES = (
    "busy,\npredicted\nms",
    "busy\nms",
    "idle,\npredicted\nms",
    "idle\nms",
    "calls\nms",
    "overhead\nms",
)
_LINKS = ("predicted\nms", "measured\nms", "seen")


def _print(names: Sequence[str], heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, and an empty line after it; nothing where there are no rows."""
    from pipesat.cli.terminal import Column, print_table

    if rows:
        columns = [*(Column(name, number=False) for name in names), *map(Column, heads)]
        print_table(columns, rows)
        click.echo("")


def _kinds(problem: Problem, comparison: AgainstPrediction) -> Iterator[list[str]]:
    for row in comparison.kinds:
        yield [
            problem.device_name(row.device),
            row.kind,
            str(row.count),
            milliseconds(row.predicted),
            milliseconds(row.measured),
            f"{row.measured / row.predicted:.2f}" if row.predicted else "-",
            f"{milliseconds(row.low)} to {milliseconds(row.high)}",
            "-" if row.cpu is None else milliseconds(row.cpu),
        ]


def _devices(problem: Problem, comparison: AgainstPrediction) -> Iterator[list[str]]:
    for row in comparison.devices:
        busy_and_idle = (row.predicted_busy, row.busy, row.predicted_idle, row.idle)
        times = (*busy_and_idle, row.calls, row.overhead)
        yield [problem.device_name(row.device), *map(milliseconds, times)]


def _links(comparison: AgainstPrediction) -> Iterator[list[str]]:
    for row in comparison.links:
        measured = "-" if row.measured is None else milliseconds(row.measured)
        predicted = milliseconds(row.predicted)
        yield [f"{row.source} -> {row.target}", predicted, measured, str(row.count)]
