"""The commands check, export and run."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from pipesat.cli.commands import command
from pipesat.cli.derived import settings
from pipesat.cli.exits import CHECK_FAILED, print_failure, with_options
from pipesat.core.errors import Note, RunFailed, require
from pipesat.core.showing import Said, table_of

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.core.errors import Violation
    from pipesat.measure.processes.run import Measured, ParityReport
    from pipesat.schedule.schedule import Exported


_ASSIGNMENT = "an assignment file"


@command(
    "check",
    also={_ASSIGNMENT: "compare.replicas.judge:check_assignment"},
    example="pipesat check problem.json schedule.json --runtime torch",
    metavars={"lengths": "FILE", "runtime": "RULE"},
    follow={"runtime": ("version",)},
)
def check(asked: Asked) -> int:
    """Check a schedule against every rule and list all violations.

    With --runtime, say whether its order can hang: exit code 1 if it can. With -v, list a safe
    order, by rank. An assignment file, as balance writes it, is judged replica by replica.
    """
    from pipesat.cli.asked import read_problem, states
    from pipesat.compare.schedules import schedule_of
    from pipesat.schedule.metrics import peak_memory
    from pipesat.schedule.summary import figures_text

    if states(asked["schedule"], "assignment"):
        said = "every sequence once, every replica within memory and as long as stated"
        return _judged(asked, asked.instead(_ASSIGNMENT).answer(), said, {})
    problem = read_problem(asked["problem"])
    timed = schedule_of(problem, asked["schedule"])
    violations: list[Violation] = asked.answer(problem=problem, schedule=timed, runtime=None)
    peaks, said = None, ""
    if not violations:
        peaks = peak_memory(problem, timed)
        said = figures_text(problem, timed)
    document: dict[str, Any] = {"makespan": timed.makespan, "span": timed.span}
    document["peak_memory"] = peaks
    if violations or not asked["runtime"]:
        return _judged(asked, violations, said, document)
    from pipesat.runtimes.hangs.verdict import posted_in, verdict

    posted = posted_in(asked["schedule"], problem, timed.order)
    found = verdict(problem, timed, asked["runtime"], posted, asked["version"])
    document = {"valid": True} | document | {"violations": [], "runtime": found.document()}
    asked.show(found, document, [("Valid", said)])
    return 0 if found.safe else CHECK_FAILED


def _judged(asked: Asked, violations: list[Violation], said: str, document: dict[str, Any]) -> int:
    """Print that it is valid, or every violation."""
    lines = [("Valid", said)]
    if violations:
        lines = [("Not valid", f"violations: {len(violations)}")]
        lines += [("", str(violation)) for violation in violations]
    found = {"violations": [asdict(violation) for violation in violations]}
    asked.show(Said(lines), {"valid": not violations} | document | found)
    return CHECK_FAILED if violations else 0


_FILE = click.Option(
    ["-o", "--output", "path"],
    metavar="FILE",
    required=True,
    help="File to write. A folder, as out/, or a name without a suffix has it as schedule.csv and "
    "the like.",
)


@command(
    "export",
    example="pipesat export problem.json zb-auto --to torch -o schedule.csv",
    without=("path",),
    metavars={"to": "FORMAT"},
    follow={"to": ("layers", "exact", "remark", "checkpointing", "pattern", "version")},
    extra=(_FILE,),
)
def export(asked: Asked) -> None:
    """Write a schedule for torch, Megatron-LM, NeMo, a trace."""
    from pipesat.runtimes.knobs import knobs_table
    from pipesat.runtimes.written import file_of, files_beside

    with (
        file_of(asked["path"], asked["to"]) as file,  # known to be written before what is read
        warnings.catch_warnings(action="ignore"),  # the notes say it
    ):
        warnings.simplefilter("always", Note)
        exported: Exported = asked.answer(path=file)
    notes = [with_options(note) for note in exported.notes]
    beside = [*files_beside(exported, file)]
    said = [("Note", note) for note in notes]
    said += [("Written to", f"{file}, for {asked['to']}"), ("Beside it", ", ".join(beside))]
    first = ", ".join(name for name in beside if name.endswith(".txt"))
    said += [("Next", f"read {first} before a run" if first else "")]
    document = {"to": asked["to"], "path": str(file), "beside": beside, "notes": notes}
    problem = asked.read["problem"]
    units = problem.time_unit, problem.memory_unit
    tables = [knobs_table(exported.knobs, *units)] if exported.knobs else []
    asked.show(Said(said, tables), document | {"knobs": [*exported.knobs]})


_ALONE = "--verify alone: add -o FILE"


@command(
    "run",
    also={_ALONE: "measure.torch_runs:parity"},
    example="pipesat run problem.json 1f1b --verify -o timeline.json",
    follow={
        "steps": ("warm_up", "timeout"),
        "model": {"cut": "split"},
        "measure": {"memory": "measure_memory"},
    },
    metavars={"model": "MODEL", "shape": "KEY=VALUE[,...]"},
    extra=(settings("measure", "Measure this, too."),),
    output="[FILE]",
)
def run(asked: Asked) -> int:
    """Run a schedule in torch and write when every op really ran.

    With --verify alone: does it compute the same as one process? Starts one local gloo process
    per rank. Under torchrun, is one rank:
    torchrun --nproc-per-node 4 -m pipesat run PROBLEM SCHEDULE -o FILE.
    Then `pipesat timeline refit` takes its costs, and `pipesat solve` finds a better order.
    Needs PyTorch: pip install 'torch>=2.13'.
    """
    from pipesat.measure.processes.run import leave, under_torchrun

    if asked.output is None:
        return _verify(asked)
    more: dict[str, Any] = (
        {"stop": None} if under_torchrun() else {}
    )  # torchrun ends its ranks itself
    try:
        measured: Measured | None = asked.answer(**more)
    except RunFailed as error:
        if not under_torchrun():
            raise
        print_failure(error)
        leave(CHECK_FAILED)
    return 0 if measured is None else _report(asked, measured)


def _verify(asked: Asked) -> int:
    """Hold one step of a small transformer against one process."""
    require(asked["verify"], "expected a file to write, or --verify", where="--output")
    report: ParityReport = asked.instead(_ALONE).answer()
    asked.show(report, report.document)
    return 0 if report.passed else CHECK_FAILED


def _report(asked: Asked, measured: Measured) -> int:
    from pipesat.cli.timeline import TimelineComparison
    from pipesat.measure.timeline.against_prediction import compare

    assert asked.output is not None  # noqa: S101  else it was verified alone
    measured.timeline.write(asked.output)
    check, problem = measured.check, asked.read["problem"]
    compared = TimelineComparison(problem, compare(problem, measured.timeline))
    peaks = measured.peaks and [asdict(peak) for peak in measured.peaks]
    document = compared.said.document() | {
        "timeline": str(asked.output),
        "check": None if check is None else check.document(),
        "memory": peaks,
    }
    tables = [table_of(peaks)] if peaks else []
    asked.show(Said([*measured.facts(), *compared.facts()], tables), document)
    return 0 if check is None or check.passed else CHECK_FAILED
