"""``pipesat sweep``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipesat.cli.commands import command
from pipesat.cli.derived import writable
from pipesat.cli.exits import CHECK_FAILED, print_failure
from pipesat.core.errors import BadInput, RunFailed

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.sweep.rows import SweepRow
    from pipesat.sweep.study import Sweep

_CSV = click.Option(
    ["--csv"],
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=writable,
    help="Write the rows as a table.",
)


@command(
    "sweep",
    example="pipesat sweep sweep.toml --dry-run",
    names={"folder": "-o/--output"},
    metavars={"spec": "SPEC", "folder": "DIR", "ray": "ADDRESS"},
    extra=(_CSV,),
)
def sweep(asked: Asked) -> int:
    """Solve a grid of problems, resume it, run it on Ray.

    Each case is a row in DIR/rows.jsonl. At the end they are compared. Started again, it goes on
    where it was ended, whatever ended it. A case that fails or exceeds its time or memory is a row
    that says so.

    For --ray, install Ray: pip install 'ray>=2.40'.
    """
    from pipesat.cli import sweep_report
    from pipesat.cli.sweep_report import SweepProgress
    from pipesat.cli.terminal import stderr

    as_json, code = asked["as_json"], 0
    if asked["dry_run"]:
        if asked["csv"] is not None:
            text = "--dry-run runs no case and writes nothing"
            raise BadInput(text, where="--csv", value=str(asked["csv"]))
        found: Sweep = asked.answer()
        known = {row["key"]: row for row in found.rows}
        sweep_report.list_cases(found.cases, known, as_json=as_json)
        return 0
    asked.interrupts.promise = "what has a row is not run again"

    @contextmanager
    def watch(*about: Any) -> Iterator[Callable[[SweepRow], None]]:
        """Hear signals once Ray, which has a handler of its own, has started."""
        shown = nullcontext(_unseen) if asked["quiet"] else SweepProgress(stderr(), *about)
        with asked.interrupts, shown as progress:
            yield progress

    try:
        found = asked.answer(watch=watch, stop=asked.interrupts.stop)
    except RunFailed as error:
        print_failure(error)
        found = asked.answer(dry_run=True, retry=False, schedules=False)
        code = CHECK_FAILED
    if found.cut_off:
        click.echo("pipesat: a row that a crash left unfinished was cut off", err=True)
    if asked["csv"] is not None:
        sweep_report.write_csv(asked["csv"], found.rows)
    sweep_report.report(found.cases, found.rows, found.path, as_json=as_json)
    asked.output = found.path
    return asked.end(contradictions=found.refuted) or code


def _unseen(row: SweepRow) -> None:
    """Show nothing of a row."""
    del row
