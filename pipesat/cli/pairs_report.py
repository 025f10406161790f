"""What ``problem pairs`` prints: times of a model of parts, and what is proven within it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pipesat.core.claims import Standing
    from pipesat.parts.answer import PairTimes


def print_pair_times(found: PairTimes) -> None:
    """Print a table of all times, alone and together, with what is proven of each."""
    from pipesat.cli.table import Column, print_table
    from pipesat.core.claims import change

    columns = [
        Column("", number=False),
        Column("time"),
        Column("in turn"),
        Column("together", number=False, spare=2),
        Column("", number=False, spare=1),
    ]
    rows = [
        [found.name([op]), f"{least.plan.length}", "", "", _verdict(least.standing)]
        for op, least in found.alone.items()
    ]
    for two, least in found.together.items():
        length, in_turn = least.plan.length, found.in_turn(two)
        cells = (f"{length}", f"{in_turn}", change(length, in_turn), _verdict(least.standing))
        rows.append([found.name(two), *cells])
    print_table(columns, rows)
    saving = sum(found.saves(two) for two in found.together)
    click.echo(f"{saving} of {len(found.together)} combinations take less together than in turn")
    click.echo("times are the model's, without launches and shared bandwidth: measure what counts")
    if found.unproven:
        click.echo(
            f"{len(found.unproven)} times are not proven to be the least; a longer --time-limit "
            "may shorten them"
        )


def _verdict(standing: Standing) -> str:
    """Say what is proven: the order of the parts, not the time that a machine takes."""
    return "optimal order of these parts" if standing.proven else standing.verdict
