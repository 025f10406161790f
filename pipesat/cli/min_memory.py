"""``pipesat min-memory``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from pipesat.cli.arguments import (
    AsJson,
    Objective,
    ObjectiveName,
    OutputFolder,
    ProblemFile,
    Seed,
    TimeLimit,
    Workers,
)
from pipesat.cli.exits import prepared, refuse_contradictions


class ReferenceName(StrEnum):
    """What the best is of."""

    unlimited = "unlimited"
    file = "file"


def min_memory(
    problem: ProblemFile,
    within: Annotated[
        str, typer.Option(metavar="SHARE", help="How much longer than the best is accepted.")
    ] = "5%",
    reference: Annotated[
        ReferenceName,
        typer.Option("--of", help="The best with unlimited memory, or with the file's capacities."),
    ] = ReferenceName.unlimited,
    output: OutputFolder = None,
    time_limit: TimeLimit = 120.0,
    workers: Workers = None,
    seed: Seed = 0,
    objective: Objective = ObjectiveName.makespan,
    as_json: AsJson = False,
) -> None:
    """Find the smallest capacity of every device that keeps the objective near the best.

    Then, at that capacity, the smallest sum of the devices' peaks. Both come with what is proven:
    the largest capacity that is surely too little, and a bound on the sum. Writes problem.json,
    schedule.json, gantt.png and result.json into DIR. Ctrl-C keeps what was found so far.
    """
    from pipesat.cli.console import print_json, stderr
    from pipesat.cli.interrupts import Interrupts
    from pipesat.cli.progress import Progress
    from pipesat.cli.table import print_answer
    from pipesat.core.amounts import share

    with Interrupts() as interrupts, prepared(output):
        from pipesat.cli.reading import read_problem
        from pipesat.workflows.memory import min_memory as run

        data = read_problem(problem)
        accepted = share("--within", within, 10_000)
        with Progress(stderr(), limit=time_limit) as progress:
            answer = run(
                data,
                within=accepted,
                reference=reference.value,
                objective=objective.value,
                time_limit=time_limit,
                workers=workers,
                seed=seed,
                listener=progress,
                stop=interrupts.stop,
            )
        if output is not None:
            answer.save(output)
        document = answer.document(output)
    found = answer.found
    if as_json:
        print_json(document)
    else:
        print_answer(answer, [("Written to", str(output or ""))])
    refuse_contradictions(found.curve.contradictions, output)
    raise typer.Exit(interrupts.exit_code)
