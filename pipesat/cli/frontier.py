"""``pipesat frontier``."""

from __future__ import annotations

from collections.abc import Sequence
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
from pipesat.cli.exits import keeping, refuse_contradictions

if TYPE_CHECKING:
    from pipesat.core.problem import Problem


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
    time_limit: TimeLimit = 600.0,
    workers: Workers = None,
    seed: Seed = 0,
    objective: Annotated[ObjectiveName, typer.Option(help="What to minimise.")] = (
        ObjectiveName.makespan
    ),
    as_json: AsJson = False,
) -> None:
    """Show what memory buys: the best value, with its bound, at each capacity of the devices.

    The file's own capacities play no part: every device gets the same, from the smallest with which
    a schedule exists to where more buys nothing. Hand-written schedules stand beside the curve, as
    if memory were unlimited. Writes frontier.json, .csv, .png, .svg and a problem and a schedule
    per cap into DIR. Ctrl-C keeps the curve so far.
    """
    from pipesat.cli.checked_schedule import naming
    from pipesat.cli.console import print_json, stderr
    from pipesat.cli.costs import caps_of, layers_per_stage
    from pipesat.cli.frontier_report import print_frontier
    from pipesat.cli.interrupts import Interrupts
    from pipesat.cli.options import refuse_given
    from pipesat.cli.progress import Progress

    with Interrupts() as interrupts:
        from pipesat.files.atomic import prepare_folder
        from pipesat.files.problem_file import read_problem
        from pipesat.frontier.caps import readable_caps
        from pipesat.frontier.files import document, write_frontier
        from pipesat.workflows.studies import frontiers, versions

        if caps is not None:
            refuse_given(
                context, ["count"], "the caps are given: expected --caps or --points, not both"
            )
        data = read_problem(problem)
        stated = layers_per_stage(layers, placements)
        with naming(problem):
            placed = _placed(data, placements, stated)
        given = None if caps is None else caps_of("--caps", caps)
        chosen = {
            name: None if given is None else readable_caps(one, given, "--caps")
            for name, one in placed.items()
        }
        if output is not None:
            prepare_folder(output)
        with Progress(stderr()) as progress:
            curves = frontiers(
                placed,
                caps=chosen,
                count=count,
                objective=objective.value,
                time_limit=time_limit,
                workers=workers,
                seed=seed,
                listener=progress,
                stop=interrupts.stop,
            )
        about = {"seed": seed, "workers": workers, "versions": versions()}
        basis: dict[str, list[int]] = {"layers": stated} if stated else {}
        if output is not None:
            write_frontier(output, curves, **about, **basis)
    with keeping(output):
        if as_json:
            print_json(document(curves, output, **about, **basis))
        else:
            print_frontier(curves, output, stated)
    refuse_contradictions(
        [text for f in curves.values() for text in f.curve.contradictions], output
    )
    raise typer.Exit(interrupts.exit_code)


def _placed(
    problem: Problem, names: str | None, layers: Sequence[int]
) -> dict[str | None, Problem]:
    """The problem, or its layers in the placements asked for."""
    from pipesat.cli.options import refuse_repeated
    from pipesat.core.errors import BadInput
    from pipesat.placement.elsewhere import same_layers_elsewhere
    from pipesat.placement.geometry import PLACEMENTS, Geometry

    if names is None:
        return {None: problem}
    words = [word.strip() for word in names.split(",")]
    wanted = [name for word in words for name in PLACEMENTS if name == word]
    if len(wanted) < len(words):
        expected = f"expected some of {', '.join(PLACEMENTS)}, parted by commas"
        raise BadInput(expected, where="--placements", value=names)
    refuse_repeated("--placements", words, names)
    found = same_layers_elsewhere(problem, layers, wanted)
    placed: dict[str | None, Problem] = {}
    for name in wanted:
        label = Geometry(name, len(problem.devices)).label
        if label not in found:
            impossible = f"{name} is not possible with these devices and microbatches"
            raise BadInput(impossible, where="--placements", value=names)
        placed[label] = found[label]
    return placed
