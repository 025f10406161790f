"""``pipesat balance``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipesat.cli.commands import command
from pipesat.cli.exits import CHECK_FAILED, note, one_line

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.workflows.order_rows import MicrobatchOrders

_LENGTHS = click.Option(
    ["--lengths"],
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A length per microbatch, in place of the problem's: a JSON list, or one a line.",
)
_QUADRATIC = click.Option(
    ["--quadratic"],
    metavar="Q",
    default="0",
    help="Share of its time that grows with the square of the length.  [default: 0]",
)


@command(
    "balance",
    example="pipesat balance problem.json --schedule 1f1b -o balanced\n"
    "  pipesat balance p.json --lengths l.json --reference 4096 --replicas 8 -o out",
    without=("lengths", "quadratic", "deterministic"),
    extra=(_LENGTHS, _QUADRATIC),
    output="DIR",
)
def balance(asked: Asked) -> int:
    """Find the best order for microbatches whose lengths vary, or the best deal to replicas.

    Shows the best order beside the given one, descending, ascending and small at both ends, under
    each hand-written schedule, with a bound that no schedule goes below. The schedules stay as they
    are, and the problem's own order is ignored.

    With --replicas: which sequence goes to which replica and microbatch, in which order, beside
    what frameworks do, with a bound that no assignment goes below.

    Writes assignment.json, and of one replica problem.json, the problem in this order, into DIR.
    solve takes it and may change the schedule, too.
    """
    from pipesat.cli.terminal import print_json, read_problem
    from pipesat.core.amounts import share
    from pipesat.files.microbatch_list import MOST_CLASSES
    from pipesat.replicas.answer import Assignment

    found: MicrobatchOrders | Assignment = asked.answer(
        lambda answer, folder, _: answer.save(folder),
        problem=read_problem(asked["problem"], MOST_CLASSES * (asked["replicas"] or 1)),
        quadratic=share("--quadratic", asked["quadratic"]),
    )
    if isinstance(found, Assignment):
        if found.value is None:
            asked.output = None  # nothing was written
        asked.show(found, found.document)
        if found.value is None:
            note("pipesat: no assignment was found that fits into memory and tokens")
            return asked.interrupts.exit_code or CHECK_FAILED
        return asked.interrupts.exit_code
    if asked["as_json"]:
        print_json(found.document())
    else:
        _print(found, asked.output)
    if found.best is None:
        note("pipesat: none of the schedules fits into memory in any order tried")
        return asked.interrupts.exit_code or CHECK_FAILED
    return asked.interrupts.exit_code


def _print(found: MicrobatchOrders, folder: Path | None) -> None:
    from pipesat.cli.terminal import Column, print_table, stdout, wrapped
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
        click.echo(wrapped("; ".join(notes), stdout().width))
    bound = found.bound
    if found.objective == "span":
        click.echo("spans: from the start of a device's first op to the end of its last")
    text = one_line(f"no schedule at all is shorter than {bound.value} ({bound.source})")
    click.echo(wrapped(text, stdout().width))
    _print_best(found)
    if folder is not None and found.best is not None:
        click.echo(one_line(f"written to {folder}"))


def _print_best(found: MicrobatchOrders) -> None:
    """Print what the best order takes, what it gains, and the order itself."""
    from pipesat.cli.terminal import stdout, wrapped
    from pipesat.core.claims import Standing, against
    from pipesat.workflows.order_rows import GIVEN

    best = found.best
    if best is None or best.value is None:
        return
    standing, given = Standing(best.value, found.lower_bound), best.values[GIVEN]
    if not standing.proven:
        text = f"orders alone leave {standing.gap_text()} between the best and that bound; "
        text += "`pipesat solve` may change the schedule, too"
        click.echo(wrapped(text, stdout().width))
    unit, seconds = found.problem.time_unit, found.seconds(best.value)
    text = f"{best.value} {unit}".rstrip()
    if seconds is not None and unit != "s":
        text += f" ({seconds:.4g} s)"
    if given is not None:
        text += f", {against(best.value, given, 'in the given order')},"
    text = one_line(f"{best.name} takes {text} if they enter so (numbered from 0):")
    click.echo(wrapped(text, stdout().width))
    click.echo(wrapped(str(found.order), stdout().width))
