"""``pipesat baseline``."""

from __future__ import annotations

from typing import Annotated

import typer

from pipesat.cli.arguments import MOST_MICROBATCHES, OutputFile, ProblemFile
from pipesat.cli.check import print_violations
from pipesat.cli.exits import CHECK_FAILED, one_line


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _list(wanted: bool) -> None:
    """Print every baseline and leave."""
    if not wanted:
        return
    from pipesat.cli.table import Column, print_table
    from pipesat.workflows.hand_written import baselines

    columns = [
        Column(head, number=False)
        for head in ("name", "placement", "splits\nB, W", "runs\npairs", "source")
    ]
    lines = [
        (b.name, b.placement, _yes(b.splits), _yes(b.pairs), b.source) for b in baselines().values()
    ]
    print_table(columns, lines, wrap_last=True)
    typer.echo(
        "\nchain: one stage per device; loop: several, in turns; vee: two, there and back;\n"
        "bidirectional: two routes in opposite directions; any: no matter where."
    )
    raise typer.Exit


def baseline(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="zb-h1, 1f1b, ...; --list shows all.")
    ],
    problem: ProblemFile,
    output: OutputFile,
    microbatches: Annotated[
        str,
        typer.Option(
            metavar="RULE",
            help="Order in which microbatches that differ enter: given, descending, ascending, "
            "both-ends.",
        ),
    ] = "given",
    group: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=MOST_MICROBATCHES,
            show_default="one per device",
            help="Microbatches per group of interleaved-1f1b and -overlapped, as Megatron-LM's "
            "--microbatch-group-size-per-virtual-pipeline-stage.",
        ),
    ] = None,
    listed: Annotated[
        bool,
        typer.Option("--list", callback=_list, is_eager=True, help="List all baselines and exit."),
    ] = False,
) -> None:
    """Write one hand-written schedule as a schedule file, if it keeps every rule."""
    del listed
    from pipesat.cli.reading import read_problem
    from pipesat.core.checker import check
    from pipesat.core.errors import NotApplicable
    from pipesat.files.schedule_file import write_schedule
    from pipesat.workflows.hand_written import baseline as build

    data = read_problem(problem)
    try:
        schedule = build(name, data, microbatches, group)
    except NotApplicable as error:
        raise NotApplicable(f"{name} does not apply to {problem}: {error}") from None
    if violations := check(data, schedule):
        typer.echo(f"pipesat: {name} does not fit this problem; nothing was written", err=True)
        print_violations(violations, err=True)
        raise typer.Exit(CHECK_FAILED)
    write_schedule(output, data, schedule)
    figures = f"makespan {schedule.makespan}, span {schedule.span}"
    typer.echo(one_line(f"{name}: {figures}, written to {output}"))
