"""``pipesat compare``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from pipesat.cli.exits import end_of_solve, keeping, note, prepared

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.result import Result
    from pipesat.core.schedule import Schedule


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _list(wanted: bool) -> None:
    """Print every hand-written schedule and leave."""
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


def compare(
    problem: ProblemFile,
    schedules: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[SCHEDULE]...",
            help="Yours, to be compared too: files, folders of a solve, torch's CSVs.",
            show_default=False,
        ),
    ] = None,
    output: OutputFolder = None,
    time_limit: TimeLimit = 60.0,
    workers: Workers = None,
    seed: Seed = 0,
    objective: Objective = ObjectiveName.makespan,
    placements: Annotated[
        bool,
        typer.Option("--placements", help="Compare with the same layers in a loop, a V, two ways."),
    ] = False,
    layers: LayersPerStage = None,
    listed: Annotated[
        bool,
        typer.Option(
            "--list", callback=_list, is_eager=True, help="List all hand-written schedules; exit."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show every applicable baseline beside the solver's answer, best first.

    Schedules of your own, as files, have a row each, and a line says how far above the optimum
    they are at most. The search starts from them too.

    With -o, also write what `solve` writes. With --placements, the problem has one stage per
    device, and --layers states that stages divide; each placement is solved within the time limit
    and has a folder of its own. With costs per layer, use `plan --placement any`.
    """
    del listed
    from pipesat.cli.console import print_json, stderr
    from pipesat.cli.interrupts import Interrupts
    from pipesat.cli.naming import naming
    from pipesat.cli.progress import Progress
    from pipesat.cli.table import print_answer

    with Interrupts() as interrupts, prepared(output):
        from pipesat.cli.reading import read_problem
        from pipesat.export.result_folder import write_result_folder
        from pipesat.workflows.compare import compare as run
        from pipesat.workflows.solve import solve

        data = read_problem(problem)
        stated = _stated(layers, placements=placements, as_json=as_json)

        def solve_one(placement: str | None, placed: Problem, own: Sequence[Schedule]) -> Result:
            if placement is not None:
                note(f"pipesat: {placement}")
            with Progress(stderr(), limit=time_limit) as progress:
                result = solve(
                    placed,
                    objective=objective.value,
                    time_limit=time_limit,
                    workers=workers,
                    seed=seed,
                    schedules=own,
                    listener=progress,
                    stop=interrupts.stop,
                )
            logs[placement] = progress.lines
            if output is not None:
                write(output, placement, result)
            return result

        def write(folder: Path, placement: str | None, result: Result) -> None:
            homes = [_home(name) for name in logs if name != placement]
            log, home = logs[placement], _home(placement)
            write_result_folder(folder, result, log, home=home, keep=homes)

        logs: dict[str | None, list[str]] = {}
        with keeping(output), naming(problem):
            compared = run(
                data,
                schedules={str(path): path for path in schedules or ()},
                placements=placements,
                layers=stated,
                objective=objective.value,
                solve_one=solve_one,
            )
        for comparison in compared.comparisons:  # baselines may have changed the answer
            if output is not None:
                write(output, comparison.placement, comparison.result)
    if as_json:
        print_json([asdict(row) for row in compared.rows])
    else:
        with keeping(output):
            print_answer(compared, [("Written to", str(output or ""))], verbose=True)
    end_of_solve([c.result for c in compared.comparisons], interrupts.exit_code, output)


def _stated(layers: str | None, *, placements: bool, as_json: bool) -> list[int]:
    """What --layers states; rows of --json do not repeat it, so it is said here."""
    from pipesat.cli.costs import layers_per_stage
    from pipesat.core.summary import statement_of

    stated = layers_per_stage(layers, placements)
    if stated and as_json:
        note(f"pipesat: {statement_of(stated)}")
    return stated


def _home(placement: str | None) -> str:
    """Each placement has a folder of its own: ``loop-v2``, ``vee``."""
    return "" if placement is None else placement.replace(" ", "-").replace("=", "")
