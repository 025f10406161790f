"""``pipesat frontier``."""

from __future__ import annotations

from typing import Annotated

import typer

from pipesat.cli.arguments import (
    AsJson,
    LayersPerStage,
    Objective,
    ObjectiveName,
    OutputFolder,
    ProblemFile,
    Seed,
    TimeLimit,
    Workers,
)
from pipesat.cli.exits import keeping, prepared, refuse_contradictions


def frontier(
    context: typer.Context,
    problem: ProblemFile,
    output: OutputFolder = None,
    caps: Annotated[
        str | None,
        typer.Option(
            metavar="CAP[,CAP...]",
            help="Capacities of every device, static memory included; 1f1b*0.75: that share of "
            "1F1B's activations.",
            show_default="where steps are likely",
        ),
    ] = None,
    count: Annotated[
        int, typer.Option("--points", metavar="N", min=2, max=200, help="How many, if not given.")
    ] = 12,
    placements: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,NAME...]",
            help="A curve each for the same layers as chain, loop, vee, bidirectional.",
            show_default="as in the file",
        ),
    ] = None,
    layers: LayersPerStage = None,
    levers: Annotated[
        bool,
        typer.Option("--levers", help="A curve each for keep alone, each memory mode, all."),
    ] = False,
    time_limit: TimeLimit = 600.0,
    workers: Workers = None,
    seed: Seed = 0,
    objective: Objective = ObjectiveName.makespan,
    as_json: AsJson = False,
) -> None:
    """Show what memory buys: the best value, with its bound, at each capacity of the devices.

    The file's own capacities play no part: every device gets the same, from the smallest with which
    a schedule exists to where more buys nothing. Hand-written schedules stand beside the curve, as
    if memory were unlimited. Writes frontier.json, .csv, .png, .svg and a problem and a schedule
    per cap into DIR. Ctrl-C keeps the curve so far.
    """
    from pipesat.cli.console import print_json, stderr
    from pipesat.cli.costs import caps_of, layers_per_stage, names_of
    from pipesat.cli.interrupts import Interrupts
    from pipesat.cli.naming import naming
    from pipesat.cli.options import refuse_given
    from pipesat.cli.progress import Progress
    from pipesat.cli.table import print_answer
    from pipesat.core.doing import doing

    progress = Progress(stderr(), limit=time_limit)
    with Interrupts() as interrupts, progress, prepared(output):
        from pipesat.cli.reading import read_problem
        from pipesat.workflows.memory import frontier as run

        if caps is not None:
            refuse_given(
                context, ["count"], "the caps are given: expected --caps or --points, not both"
            )
        data = read_problem(problem)
        stated = layers_per_stage(layers, placements)
        given = None if caps is None else caps_of("--caps", caps)
        with naming(problem):
            found = run(
                data,
                caps=given,
                count=count,
                placements=None if placements is None else names_of("--placements", placements),
                layers=stated,
                levers=levers,
                objective=objective.value,
                time_limit=time_limit,
                workers=workers,
                seed=seed,
                listener=progress,
                stop=interrupts.stop,
            )
        if output is not None:
            with doing("writing files"):
                found.save(output)
    curves = found.curves
    with keeping(output):
        if as_json:
            print_json(found.document(output))
        else:
            print_answer(found, [("Written to", str(output or ""))])
    refuse_contradictions(
        [text for f in curves.values() for text in f.curve.contradictions], output
    )
    raise typer.Exit(interrupts.exit_code)
