"""``pipesat sweep``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipesat.cli.commands import command
from pipesat.cli.derived import file_option
from pipesat.cli.exits import note
from pipesat.core.errors import require
from pipesat.core.showing import Said, csv_of, table_of

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.compare.sweep.cases import Sweep

_CSV = file_option("--csv", "Write the rows as a table.")


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
    where it was ended, whatever ended it. A case that fails is a row that says so.

    For --processes ray=auto, install Ray: pip install 'ray>=2.40'.
    """
    from pipesat.core.atomic import write_file

    require(
        not asked["dry_run"] or asked["csv"] is None,
        "--dry-run runs no case and writes nothing",
        where="--csv",
        value=str(asked["csv"]),
    )
    asked.interrupts.promise = "what has a row is not run again"
    found: Sweep = asked.answer(listener=(lambda _: None) if asked["quiet"] else note)
    if asked["dry_run"]:
        cases = found.case_records()
        left = sum(case["status"] is None for case in cases)
        said = [("Cases", f"{len(cases)}, {left} to run")]
        asked.show(Said(said, [table_of([_in_one_row(case) for case in cases])]), cases)
        return 0
    if asked["csv"] is not None:
        write_file(asked["csv"], csv_of(found.records()))
    asked.output = None  # facts say where rows are
    asked.show(found, found.document)
    asked.output = found.path
    return asked.end(contradictions=found.refuted)


def _in_one_row(case: dict[str, Any]) -> dict[str, Any]:
    return {
        "key": case["key"][:12],
        **case["case"],
        **{name: case[name] for name in ("ops", "status", "refused")},
    }
