"""``pipesat min-memory``."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipesat.cli.arguments import (
    AsJson,
    ObjectiveName,
    OutputFolder,
    ProblemFile,
    Seed,
    TimeLimit,
    Workers,
)
from pipesat.cli.exits import refuse_contradictions

if TYPE_CHECKING:
    from pipesat.frontier.min_memory import Sufficient

_FILES = ("problem.json", "schedule.json", "gantt.png")


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
    objective: Annotated[ObjectiveName, typer.Option(help="What to minimise.")] = (
        ObjectiveName.makespan
    ),
    as_json: AsJson = False,
) -> None:
    """Find the smallest capacity of every device that keeps the objective near the best.

    Then, at that capacity, the smallest sum of the devices' peaks. Both come with what is proven:
    the largest capacity that is surely too little, and a bound on the sum. Writes problem.json,
    schedule.json, gantt.png and result.json into DIR. Ctrl-C keeps what was found so far.
    """
    from pipesat.cli.console import print_json, stderr
    from pipesat.cli.costs import share
    from pipesat.cli.frontier_report import print_sufficient
    from pipesat.cli.interrupts import Interrupts
    from pipesat.cli.progress import Progress
    from pipesat.cli.study import hand_written, solver_of, versions

    with Interrupts() as interrupts:
        from pipesat.files.atomic import prepare_folder
        from pipesat.files.problem_file import read_problem
        from pipesat.frontier.min_memory import least_memory, sufficient_document

        data = read_problem(problem)
        accepted = share("--within", within, 10_000)
        if output is not None:
            prepare_folder(output)
        with Progress(stderr()) as progress:
            found = least_memory(
                data,
                solve=solver_of(objective.value, workers, seed),
                objective=objective.value,
                within=accepted,
                reference=reference.value,
                time_limit=time_limit,
                baselines=hand_written(),
                listener=progress,
                stop=interrupts.stop,
            )
        path = None if output is None or found.known is None else output / "schedule.json"
        about = {"seed": seed, "workers": workers, "versions": versions()}
        if output is not None:
            _write(output, found, lambda: sufficient_document(found, float(accepted), path) | about)
        document = sufficient_document(found, float(accepted), path) | about
    if as_json:
        print_json(document)
    else:
        print_sufficient(found, accepted, output)
    refuse_contradictions(found.curve.contradictions, output)
    raise typer.Exit(interrupts.exit_code)


def _write(folder: Path, found: Sufficient, document: Callable[[], dict[str, Any]]) -> None:
    """Write all files or none; those of an earlier run that have no successor go."""
    from pipesat.files.atomic import write_with_claims
    from pipesat.files.schedule_file import schedule_bytes
    from pipesat.frontier.caps import at_cap
    from pipesat.picture.gantt import gantt_png

    files: dict[str, bytes] = {}
    if found.known is not None and found.cap is not None:
        problem, schedule = at_cap(found.curve.problem, found.cap.enough), found.known.schedule
        unit = f" {problem.time_unit}" if problem.time_unit else ""
        title = f"{problem.name}\n{found.curve.objective} {found.known.value:,}{unit}"
        files["problem.json"] = _json_bytes(problem.document)
        files["schedule.json"] = schedule_bytes(problem, schedule)
        files["gantt.png"] = gantt_png(problem, schedule, title=title)
    write_with_claims(folder, files, lambda: {"result.json": _json_bytes(document())})
    for stale in set(_FILES) - files.keys():
        (folder / stale).unlink(missing_ok=True)


def _json_bytes(content: object) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()
