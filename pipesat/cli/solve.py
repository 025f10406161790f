"""``pipesat solve``."""

from __future__ import annotations

from typing import Annotated

import typer

from pipesat.cli.arguments import (
    AsJson,
    Deterministic,
    Objective,
    ObjectiveName,
    OutputFolder,
    ProblemFile,
    Seed,
    TargetName,
    TimeLimit,
    Workers,
)
from pipesat.cli.exits import end_of_solve, prepared


def solve(
    context: typer.Context,
    problem: ProblemFile,
    output: OutputFolder = None,
    time_limit: TimeLimit = 60.0,
    workers: Workers = None,
    seed: Seed = 0,
    objective: Objective = ObjectiveName.makespan,
    target: Annotated[
        TargetName | None,
        typer.Option("--for", help="Optimise what this runtime can run.", show_default="any"),
    ] = None,
    deterministic: Deterministic = False,
    as_json: AsJson = False,
) -> None:
    """Find the best schedule within the time limit, with a proven lower bound.

    Writes schedule.json, result.json, problem.json, gantt.png, trace.json, solver.log and, where
    torch can run it, schedule.csv with its hazards into DIR.
    Ends early when the schedule is proven optimal. Ctrl-C keeps the best schedule so far.
    """
    from pipesat.cli.console import print_json, stderr  # --help stays fast
    from pipesat.cli.interrupts import Interrupts
    from pipesat.cli.options import refuse_given
    from pipesat.cli.progress import Progress
    from pipesat.cli.table import print_answer

    written = None
    with Interrupts() as interrupts, prepared(output):
        from pipesat.cli.reading import read_problem
        from pipesat.export.result_folder import write_result_folder
        from pipesat.workflows.solve import solve as run

        if deterministic and workers not in (None, 1):
            refuse_given(context, ["workers"], "--deterministic runs one thread")
        data = read_problem(problem)
        with Progress(stderr(), limit=time_limit) as progress:
            result = run(
                data,
                objective=objective.value,
                time_limit=time_limit,
                workers=workers,
                seed=seed,
                deterministic=deterministic,
                target=None if target is None else target.value,
                listener=progress,
                stop=interrupts.stop,
            )
        if output is not None:
            written = write_result_folder(output, result, progress.lines)
    if as_json:
        print_json(result.document(None if written is None else written.schedule))
    else:
        told = "" if written is None else written.told
        print_answer(result, [("Note", told), ("Written to", str(output or ""))])
    end_of_solve([result], interrupts.exit_code, output)
