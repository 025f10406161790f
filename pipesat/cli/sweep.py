"""``pipesat sweep``."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from pipesat.cli.arguments import AsJson, seconds, writable
from pipesat.cli.exits import CHECK_FAILED, keeping, refuse_contradictions
from pipesat.cli.interrupts import Interrupts

if TYPE_CHECKING:
    from pipesat.sweep.cases import Case
    from pipesat.sweep.pool import Pool
    from pipesat.sweep.rows import RowFile
    from pipesat.sweep.spec import Spec

_MOST_CASES = 5000


class _Interrupts(Interrupts):
    """The first signal ends the sweep with the rows there are."""

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.received = number
        self.stop.set()
        signal.signal(number, signal.SIG_DFL)
        os.write(2, b"\npipesat: stopping; what has a row is not run again\n")


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
    from pipesat.cli.checked_schedule import naming
    from pipesat.cli.options import refuse_given
    from pipesat.core.errors import BadInput
    from pipesat.sweep.agreement import REFUTED, require_agreement
    from pipesat.sweep.cases import cases_of
    from pipesat.sweep.pool import share_of_memory
    from pipesat.sweep.rows import NAME, RowFile, read_rows
    from pipesat.sweep.spec import read_spec

    if dry_run:
        refuse_given(
            context, ["retry", "schedules", "csv"], "--dry-run runs no case and writes nothing"
        )
    data = read_spec(spec)
    if time_limit is not None:
        data = data.with_time_limit(time_limit)
    if data.most_cases > max_cases:
        raise BadInput(
            f"up to {data.most_cases} cases, expected at most {max_cases}; if you mean it: "
            f"--max-cases {data.most_cases}",
            source=str(spec),
        )
    with naming(spec):
        _refuse_too_many(data, processes, ray)
    folder = output or Path(spec.with_suffix(".sweep").name)
    cases = list(cases_of(data))
    path = folder / NAME
    known, _, _ = read_rows(path)
    if dry_run:
        sweep_report.list_cases(cases, known, as_json=as_json)
        return
    code = 0
    if retry or any(case.key not in known for case in cases):
        with _pool(data, processes, ray) as (pool, room), RowFile(folder) as rows:
            if rows.cut_off:
                typer.echo("pipesat: a row that a crash left unfinished was cut off", err=True)
            if retry:
                rows.forget_failures({case.key for case in cases})
            limit = share_of_memory(room) if ray is None else None
            code = _run(data, cases, rows, pool, room, limit, keep_schedules=schedules)
            known = rows.by_key
    found = [known[case.key] for case in cases if case.key in known]
    with keeping(path):
        require_agreement(found)
    if csv is not None:
        sweep_report.write_csv(csv, found)
    sweep_report.report(cases, found, path, as_json=as_json)
    whys = (row["why"] or "" for row in found)
    refuse_contradictions([why for why in whys if why.startswith(REFUTED)], path)
    raise typer.Exit(code)


def _refuse_too_many(spec: Spec, processes: int | None, ray: str | None) -> None:
    """Refuse more workers or processes than there are cores, whether anything is to run or not."""
    from pipesat.core.errors import BadInput
    from pipesat.core.machine import usable_cores
    from pipesat.sweep.pool import processes_for

    if ray is None:
        processes_for(spec.workers_per_case, usable_cores(), processes)
    elif processes is not None:
        raise BadInput("Ray decides how many cases run at a time", where="--processes")


def _run(
    spec: Spec,
    cases: Sequence[Case],
    rows: RowFile,
    pool: Pool,
    room: int,
    memory_limit: int | None,
    *,
    keep_schedules: bool,
) -> int:
    """Run what has no row yet; return the exit code."""
    from pipesat.cli.console import stderr
    from pipesat.cli.parity import print_failure
    from pipesat.cli.sweep_progress import SweepProgress
    from pipesat.core.errors import RunFailed
    from pipesat.sweep.run import run_sweep

    todo = [case for case in cases if case.key not in rows.by_key]
    try:
        with (
            _Interrupts() as interrupts,
            SweepProgress(stderr(), cases, todo, room) as progress,
        ):
            run_sweep(
                spec,
                cases,
                rows,
                pool,
                memory_limit=memory_limit,
                keep_schedules=keep_schedules,
                stop=interrupts.stop,
                listener=progress,
            )
    except RunFailed as error:
        print_failure(error)
        return CHECK_FAILED
    return interrupts.exit_code


@contextmanager
def _pool(spec: Spec, processes: int | None, address: str | None) -> Iterator[tuple[Pool, int]]:
    """Yield the pool and how many cases run at a time."""
    workers = spec.workers_per_case
    if address is None:
        from pipesat.core.machine import usable_cores
        from pipesat.sweep.pool import local_pool, processes_for

        count = processes_for(workers, usable_cores(), processes)
        yield local_pool(count), count
        return
    from pipesat.sweep.ray_pool import ray_pool

    with ray_pool(address, workers) as found:
        yield found
