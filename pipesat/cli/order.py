"""``pipesat order``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipesat.cli.arguments import (
    MOST_AMOUNT,
    AsJson,
    Objective,
    ObjectiveName,
    ProblemFile,
    Seed,
    TimeLimit,
    writable,
)
from pipesat.cli.exits import CHECK_FAILED, one_line

if TYPE_CHECKING:
    from pipesat.workflows.order_rows import MicrobatchOrders


def order(
    problem: ProblemFile,
    lengths: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A length per microbatch, in place of the problem's: a JSON list, or one a line.",
            show_default="the problem's",
        ),
    ] = None,
    reference: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=MOST_AMOUNT, help="Length that the costs are of."),
    ] = None,
    quadratic: Annotated[
        str,
        typer.Option(
            metavar="Q", help="Share of its time that grows with the square of the length."
        ),
    ] = "0",
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Your own schedule, as in `baseline`; repeatable.",
            show_default="all that apply",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write the best order, a list of microbatch numbers (JSON).",
            show_default="no",
            callback=writable,
        ),
    ] = None,
    objective: Objective = ObjectiveName.makespan,
    time_limit: TimeLimit = 10.0,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Find the order in which microbatches that differ should enter your schedule.

    Shows the best order beside the given one, descending, ascending and small at both ends, under
    each hand-written schedule, with a bound that no schedule goes below. The schedules stay as they
    are, and the problem's own order is ignored. With -o, the best of all is written; name your own
    schedule with --baseline.
    """
    import json

    from pipesat.cli.console import print_json, stderr
    from pipesat.cli.interrupts import Interrupts
    from pipesat.cli.progress import Progress
    from pipesat.core.amounts import share

    with Interrupts() as interrupts, Progress(stderr()):
        from pipesat.cli.reading import read_problem
        from pipesat.files.atomic import write_file
        from pipesat.placement.lengths import read_lengths
        from pipesat.workflows.microbatch_orders import microbatch_orders

        found = microbatch_orders(
            read_problem(problem),
            lengths=None if lengths is None else read_lengths(lengths),
            reference=reference,
            quadratic=share("--quadratic", quadratic),
            baselines=baseline,
            objective=objective.value,
            time_limit=time_limit,
            seed=seed,
            stop=interrupts.stop,
        )
    if output is not None and found.order is not None:
        write_file(output, (json.dumps(found.order) + "\n").encode())
    if as_json:
        print_json(found.document())
    else:
        _print(found)
        if output is not None and found.best is not None:
            typer.echo(one_line(f"order written to {output}"))
    if found.best is None:
        typer.echo("pipesat: none of the schedules fits into memory in any order tried", err=True)
        raise typer.Exit(interrupts.exit_code or CHECK_FAILED)
    raise typer.Exit(interrupts.exit_code)


def _print(found: MicrobatchOrders) -> None:
    from pipesat.cli.table import Column, print_table, wrapped
    from pipesat.core.claims import Standing, change
    from pipesat.core.summary import units_of
    from pipesat.workflows.order_rows import BEST, GIVEN

    fitting = [row for row in found if row.value is not None]
    spare = {GIVEN: 0, "descending": 1, "ascending": 2, "both-ends": 1, BEST: 0}
    columns = [Column("schedule", number=False), *(Column(r, spare=s) for r, s in spare.items())]
    columns += [Column("gap to bound"), Column("best against given", number=False, spare=3)]
    lines = []
    for row in fitting:
        times = {rule: row.values[rule] for rule in spare}
        given, value = times[GIVEN], times[BEST]
        gap = Standing(value, found.lower_bound).gap_text()
        gain = "" if given is None or value is None else change(value, given)
        shown = ["-" if time is None else str(time) for time in times.values()]
        lines.append([row.name, *shown, gap, gain])
    print_table(columns, lines)
    exceed = [row.name for row in found if row.values and row.value is None]
    notes = units_of(found.problem)
    if any(None in row.values.values() for row in fitting):
        notes.append("-: exceeds memory")
    if exceed:
        notes.append(f"no order found in which {', '.join(exceed)} fits")
    if notes:
        typer.echo(wrapped("; ".join(notes), 100))
    bound = found.bound
    if found.objective == "span":
        typer.echo("spans: from the start of a device's first op to the end of its last")
    typer.echo(one_line(f"no schedule at all is shorter than {bound.value} ({bound.source})"))
    _print_best(found)


def _print_best(found: MicrobatchOrders) -> None:
    """Print what the best order takes, what it gains, and the order itself."""
    from pipesat.cli.table import wrapped
    from pipesat.core.claims import Standing, against
    from pipesat.workflows.order_rows import GIVEN

    best = found.best
    if best is None or best.value is None:
        return
    standing, given = Standing(best.value, found.lower_bound), best.values[GIVEN]
    if not standing.proven:
        typer.echo(
            f"orders alone leave {standing.gap_text()} between the best and that bound; "
            "`pipesat solve` may change the schedule, too"
        )
    unit, seconds = found.problem.time_unit, found.seconds(best.value)
    text = f"{best.value} {unit}".rstrip()
    if seconds is not None and unit != "s":
        text += f" ({seconds:.4g} s)"
    if given is not None:
        text += f", {against(best.value, given, 'in the given order')},"
    typer.echo(one_line(f"{best.name} takes {text} if they enter so (numbered from 0):"))
    typer.echo(wrapped(str(found.order), 100))
