"""``pipesat sweep``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pipesat.cli.commands import command
from pipesat.cli.derived import file_option
from pipesat.cli.exits import CHECK_FAILED, note, print_failure
from pipesat.core.errors import BadInput, RunFailed
from pipesat.core.showing import Said, csv_of, table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipesat.cli.asked import Asked
    from pipesat.sweep.rows import SweepRow
    from pipesat.sweep.spec import Case
    from pipesat.sweep.study import Sweep

_CSV = file_option("--csv", "Write the rows as a table.", written=True)
_START = 1.0  # seconds around a solve, for the estimate


@command(
    "sweep",
    example="pipesat sweep sweep.toml --dry-run",
    names={"folder": "-o/--output"},
    metavars={"spec": "SPEC", "folder": "DIR", "ray": "ADDRESS"},
    follow={"processes": ("ray", "max_cases")},
    extra=(_CSV,),
)
def sweep(asked: Asked) -> int:
    """Solve a grid of problems, resume it, run it on Ray.

    Each case is a row in DIR/rows.jsonl. At the end they are compared. Started again, it goes on
    where it was ended, whatever ended it. A case that fails or exceeds its time or memory is a row
    that says so.

    For --processes ray=auto, install Ray: pip install 'ray>=2.40'.
    """
    from pipesat.files.atomic import write_file

    code = 0
    if asked["dry_run"]:
        if asked["csv"] is not None:
            text = "--dry-run runs no case and writes nothing"
            raise BadInput(text, where="--csv", value=str(asked["csv"]))
        found: Sweep = asked.answer()
        cases = found.case_records()
        left = sum(case["status"] is None for case in cases)
        said = [("Cases", f"{len(cases)}, {left} to run")]
        asked.show(Said(said, [table_of([_in_one_row(case) for case in cases])]), cases)
        return 0
    asked.interrupts.promise = "what has a row is not run again"

    @contextmanager
    def watch(
        cases: Sequence[Case], todo: Sequence[Case], room: int
    ) -> Iterator[Callable[[SweepRow], None]]:
        """Hear signals once Ray, which has a handler of its own, has started."""
        with asked.interrupts:
            tell = (lambda _: None) if asked["quiet"] else note
            tell(_plan(len(cases), todo, room))
            ended: list[SweepRow] = []

            def heard(row: SweepRow) -> None:
                ended.append(row)
                tell(f"[{len(ended)}/{len(todo)}] {_described(row)}")

            yield heard

    try:
        found = asked.answer(watch=watch, stop=asked.interrupts.stop)
    except RunFailed as error:
        print_failure(error)
        found = asked.answer(dry_run=True, retry=False, schedules=False)
        code = CHECK_FAILED
    if found.cut_off:
        note("pipesat: a row that a crash left unfinished was cut off")
    if asked["csv"] is not None:
        write_file(asked["csv"], csv_of(found.records()))
    asked.output = None  # facts say where rows are
    asked.show(found, found.document)
    asked.output = found.path
    return asked.end(contradictions=found.refuted) or code


def _in_one_row(case: dict[str, Any]) -> dict[str, Any]:
    axes = {name: None if value is None else f"{value}" for name, value in case["case"].items()}
    return {"key": case["key"][:12]} | axes | {k: case[k] for k in ("ops", "status", "refused")}


def _plan(cases: int, todo: Sequence[Case], room: int) -> str:
    seconds = sum(case.solve["time_limit"] + _START for case in todo if not case.refused) / room
    minutes = int(-(-seconds // 60))
    return (
        f"pipesat: {len(todo)} of {cases} cases to run, {room} at a time, in {minutes} min at most"
    )


def _described(row: SweepRow) -> str:
    case = " ".join(f"{name}={value}" for name, value in row["case"].items() if value is not None)
    result = row["result"] or {}
    return f"{case}: {row['status']} {result.get('value') or row['why'] or ''}".rstrip()
