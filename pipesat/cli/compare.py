"""``pipesat compare``."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipesat.cli.arguments import (
    AsJson,
    LayersPerStage,
    ObjectiveName,
    OutputFolder,
    ProblemFile,
    Seed,
    TimeLimit,
    Workers,
)
from pipesat.cli.exits import end_of_solve, keeping, one_line

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.result import Result


def compare(
    problem: ProblemFile,
    output: OutputFolder = None,
    time_limit: TimeLimit = 60.0,
    workers: Workers = None,
    seed: Seed = 0,
    objective: Annotated[ObjectiveName, typer.Option(help="What to minimise.")] = (
        ObjectiveName.makespan
    ),
    placements: Annotated[
        bool,
        typer.Option("--placements", help="Compare with the same layers in a loop, a V, two ways."),
    ] = False,
    layers: LayersPerStage = None,
    as_json: AsJson = False,
) -> None:
    """Show every applicable baseline beside the solver's answer, best first.

    With -o, also write what `solve` writes. With --placements, the problem has one stage per
    device, and --layers states that stages divide; each placement is solved within the time limit
    and has a folder of its own. With costs per layer, use `plan --placement any`.
    """
    from pipesat.cli.comparison import print_comparison
    from pipesat.cli.console import print_json, stderr
    from pipesat.cli.costs import layers_per_stage, statement_of
    from pipesat.cli.interrupts import Interrupts
    from pipesat.cli.naming import naming
    from pipesat.cli.progress import Progress

    with Interrupts() as interrupts:
        from pipesat.files.atomic import prepare_folder
        from pipesat.files.problem_file import read_problem
        from pipesat.workflows.compare import compare as run
        from pipesat.workflows.solve import solve

        data = read_problem(problem)
        stated = layers_per_stage(layers, placements)
        if output is not None:
            prepare_folder(output)
        if stated and as_json:
            typer.echo(f"pipesat: {statement_of(stated)}", err=True)

        def solve_one(placement: str | None, placed: Problem) -> Result:
            if placement is not None:
                typer.echo(f"pipesat: {placement}", err=True)
            with Progress(stderr()) as progress:
                result = solve(
                    placed,
                    objective=objective.value,
                    time_limit=time_limit,
                    workers=workers,
                    seed=seed,
                    listener=progress,
                    stop=interrupts.stop,
                )
            logs[placement] = progress.lines
            _write(output, placement, result, progress.lines)
            return result

        logs: dict[str | None, list[str]] = {}
        with keeping(output):
            with naming(problem):
                compared = run(
                    data,
                    placements=placements,
                    layers=stated,
                    objective=objective.value,
                    solve_one=solve_one,
                )
            comparisons, rows = compared.comparisons, compared.rows
        for comparison in comparisons:  # baselines may have changed the answer
            _write(output, comparison.placement, comparison.result, logs[comparison.placement])
    if as_json:
        print_json([asdict(row) for row in rows])
    else:
        with keeping(output):
            print_comparison(comparisons, rows, stated)
        if output is not None and any(c.result.schedule for c in comparisons):
            said = output / "*" / "gantt.png" if placements else output / "gantt.png"
            typer.echo(f"\n{'pictures' if placements else 'picture'}: {one_line(str(said))}")
    end_of_solve([c.result for c in comparisons], interrupts.exit_code, output)


def _write(folder: Path | None, placement: str | None, result: Result, log: list[str]) -> None:
    """Write a result's files; each placement has a folder of its own: ``loop-v2``, ``vee``."""
    if folder is None:
        return
    if placement is not None:
        folder /= placement.replace(" ", "-").replace("=", "")
    with warnings.catch_warnings(action="ignore"):  # of torch's order: solver.log has it
        result.save(folder, log)
