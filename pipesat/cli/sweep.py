"""``pipesat sweep``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipesat.cli.arguments import AsJson, seconds, writable
from pipesat.cli.exits import CHECK_FAILED, print_failure, refuse_contradictions
from pipesat.cli.interrupts import Interrupts

if TYPE_CHECKING:
    from pipesat.sweep.cases import Case
    from pipesat.sweep.rows import SweepRow

_MOST_CASES = 5000


def sweep(
    context: typer.Context,
    spec: Annotated[
        Path, typer.Argument(metavar="SPEC", help="Sweep file (TOML).", show_default=False)
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            show_default="SPEC's name with .sweep",
            help="Folder of the rows; what has a row there is not run again.",
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=1024, show_default="cores / workers", help="Cases at a time."
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            show_default="this machine alone",
            help="Run on the Ray cluster with its head at HOST:PORT; auto: this machine's.",
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit",
            metavar="S",
            callback=seconds,
            show_default="what SPEC says",
            help="Seconds per case.",
        ),
    ] = None,
    max_cases: Annotated[
        int, typer.Option(metavar="N", min=1, max=10**9, help="Refuse a larger sweep.")
    ] = _MOST_CASES,
    retry: Annotated[
        bool, typer.Option("--retry", help="Run cases again that failed, not those that ended.")
    ] = False,
    schedules: Annotated[
        bool, typer.Option("--schedules", help="Keep every case's problem and schedule.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the cases and run none.")
    ] = False,
    csv: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the rows as a table.", callback=writable),
    ] = None,
    as_json: AsJson = False,
) -> None:
    r"""Solve a grid of problems, each a row in DIR/rows.jsonl, and compare them.

    Started again, it goes on where it was ended, whatever ended it.
    A case that fails or exceeds its time or memory is a row that says so.
    For --ray, install the extra: pip install 'pipesat\[ray]'.
    """
    from pipesat.cli import sweep_report
    from pipesat.cli.console import stderr
    from pipesat.cli.options import refuse_given
    from pipesat.cli.sweep_progress import SweepProgress
    from pipesat.core.errors import RunFailed
    from pipesat.sweep.study import sweep as run

    if dry_run:
        refuse_given(
            context, ["retry", "schedules", "csv"], "--dry-run runs no case and writes nothing"
        )
    ask = partial(
        run, spec, output, processes=processes, ray=ray, time_limit=time_limit, max_cases=max_cases
    )
    code = 0
    if dry_run:
        found = ask(run=False)
        known = {row["key"]: row for row in found.rows}
        sweep_report.list_cases(found.cases, known, as_json=as_json)
        return
    interrupts = Interrupts("what has a row is not run again")

    @contextmanager
    def watched(
        cases: Sequence[Case], todo: Sequence[Case], room: int
    ) -> Iterator[Callable[[SweepRow], None]]:
        with interrupts, SweepProgress(stderr(), cases, todo, room) as progress:
            yield progress

    try:
        found = ask(retry=retry, schedules=schedules, watch=watched, stop=interrupts.stop)
        code = interrupts.exit_code
    except RunFailed as error:
        print_failure(error)
        found, code = ask(run=False), CHECK_FAILED
    if found.cut_off:
        typer.echo("pipesat: a row that a crash left unfinished was cut off", err=True)
    if csv is not None:
        sweep_report.write_csv(csv, found.rows)
    sweep_report.report(found.cases, found.rows, found.path, as_json=as_json)
    refuse_contradictions(found.refuted, found.path)
    raise typer.Exit(code)
