"""The commands check, export and run."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipesat.cli.commands import command
from pipesat.cli.derived import value_of
from pipesat.cli.exits import CHECK_FAILED, one_line, print_failure
from pipesat.cli.options import settings
from pipesat.core.claims import plural
from pipesat.core.errors import BadInput, RunFailed
from pipesat.core.settings import Seconds

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.core.errors import Violation
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Exported
    from pipesat.runtime.answers import Check
    from pipesat.runtime.run import Measured, ParityReport
    from pipesat.runtime.tuned import Tuned


@command(
    "check",
    example="pipesat check problem.json schedule.json --runtime pair-fifo",
    extra=[
        click.Option(
            ["--lengths"],
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="The lengths that were dealt, where SCHEDULE is an assignment file.",
        )
    ],
)
def check(asked: Asked) -> int:
    """Check a schedule against every rule and list all violations.

    With --runtime, say whether its order can hang: exit code 1 if it can. With -v, list a safe
    order, by rank. An assignment file, as balance writes it, is judged replica by replica.
    """
    from pipesat.cli.terminal import print_answer, print_json
    from pipesat.core.metrics import peak_memory
    from pipesat.core.ops import members
    from pipesat.hangs.verdict import posted_in, verdict

    if _is_assignment(asked["schedule"]):
        return _check_assignment(asked)
    asked.refuse(["lengths"], "only an assignment file has lengths")
    violations: list[Violation] = asked.answer(runtime=None)
    problem, timed = asked.read["problem"], asked.read["schedule"]
    valid = not violations
    found = None
    if valid and asked["runtime"]:
        posted = posted_in(asked["schedule"], problem, timed.order)
        found = verdict(problem, timed, asked["runtime"], posted)

    if asked["as_json"]:
        said = {
            "valid": valid,
            "makespan": timed.makespan,
            "span": timed.span,
            "peak_memory": peak_memory(problem, timed) if valid else None,
            "violations": [asdict(violation) for violation in violations],
        }
        print_json(said if found is None else said | {"runtime": found.document()})
    elif valid:
        ops = sum(len(members(item)) for row in timed.order for item in row)  # a pair is two
        click.echo(f"valid: {ops} ops, makespan {timed.makespan}, span {timed.span}")
        if found is not None:
            click.echo()
            print_answer(found, verbose=asked["verbose"])
    else:
        _list(violations)
    return 0 if valid and (found is None or found.safe) else CHECK_FAILED


def _is_assignment(path: Path) -> bool:
    with contextlib.suppress(OSError), path.open("rb") as file:
        return b'"pipesat.assignment/' in file.read(1 << 10)
    return False


def _check_assignment(asked: Asked) -> int:
    from pipesat.cli.terminal import print_json
    from pipesat.replicas.judge import check_assignment

    asked.refuse(["runtime"], "expected a schedule: an assignment has one per replica")
    violations = asked.other(check_assignment).answer()
    if asked["as_json"]:
        print_json({"valid": not violations, "violations": [asdict(one) for one in violations]})
    elif violations:
        _list(violations)
    else:
        click.echo("valid: every sequence once, every replica within memory and as long as stated")
    return CHECK_FAILED if violations else 0


def _list(violations: Sequence[Violation]) -> None:
    for violation in violations:
        click.echo(one_line(str(violation)))
    click.echo(f"not valid: {len(violations)} {plural(len(violations), 'violation')}")


_FILE = click.Option(
    ["-o", "--output", "path"],
    metavar="FILE",
    required=True,
    help="File to write. A folder, as out/, has it as schedule.csv and the like.",
)


@command(
    "export",
    example="pipesat export problem.json zb-auto --to torch -o schedule.csv",
    without=("path",),
    metavars={"to": "FORMAT"},
    follow={"to": ("layers", "exact", "remark", "checkpointing", "pattern")},
    extra=(_FILE,),
)
def export(asked: Asked) -> None:
    """Write a schedule for torch, Megatron-LM, NeMo, a trace."""
    from pipesat.cli.exits import with_options
    from pipesat.cli.terminal import print_json
    from pipesat.core.errors import Note
    from pipesat.workflows.exports import file_of, files_beside

    file = file_of(asked["path"], asked["to"])
    with warnings.catch_warnings(action="ignore"):  # the notes say it
        warnings.simplefilter("always", Note)
        exported: Exported = asked.answer(path=file)
    notes = [with_options(note) for note in exported.notes]
    beside = [*files_beside(exported, file)]
    if asked["as_json"]:
        print_json({"to": asked["to"], "path": str(file), "beside": beside, "notes": notes})
        return
    for note in notes:
        click.echo(one_line(note))
    click.echo(f"{asked['to']} written to {one_line(str(file))}")
    for name in beside:
        purpose = "read before you run it" if name.endswith(".txt") else "beside it"
        click.echo(f"{purpose}: {one_line(str(file.parent / name))}")


@command(
    "run",
    example="pipesat run problem.json 1f1b --verify -o timeline.json",
    follow={
        "steps": ("warm_up", "timeout"),
        "model": {"cut": "split"},
        "measure": {"memory": "measure_memory"},
    },
    metavars={"model": "MODEL", "shape": "KEY=VALUE[,...]"},
    extra=(
        settings("measure", "Measure this, too."),
        click.Option(
            ["--tune"],
            is_flag=True,
            is_eager=True,
            help="Run, take the costs, solve, run again. Then -o is a folder, and steps are 20.",
        ),
        click.Option(
            ["--time-limit"],
            type=value_of(Seconds),
            metavar="S",
            help="Seconds for each search of --tune.  [default: 10]",
        ),
    ),
    output="[FILE]",
)
def run(asked: Asked) -> int:
    """Run a schedule in torch and write when every op really ran.

    With --verify alone: does it compute the same as one process? Starts one local gloo process
    per rank. Under torchrun, is one rank:
    torchrun --nproc-per-node 4 -m pipesat run PROBLEM SCHEDULE -o FILE.
    With --tune: which order is the fastest here? What does it gain over 1F1B and torch's
    best, and is that more than noise?
    Needs PyTorch: pip install 'torch>=2.13'.
    """
    from pipesat.runtime.torchrun import leave, under_torchrun

    if asked["tune"]:
        return _tune(asked)
    asked.refuse(["time_limit"], "only --tune searches")
    if asked.output is None:
        return _verify(asked)
    more = {"stop": None} if under_torchrun() else {}  # torchrun ends its ranks itself
    try:
        measured: Measured | None = asked.answer(**more)
    except RunFailed as error:
        if not under_torchrun():
            raise
        print_failure(error)
        leave(CHECK_FAILED)
    return 0 if measured is None else _report(asked, measured)


def _tune(asked: Asked) -> int:
    """Find the best order where it runs."""
    from pipesat.cli.terminal import print_answer, print_json
    from pipesat.workflows.tuning import tune, tuned_files

    looped = asked.other(tune)
    looped.limit = 0.0  # of each search, not of all
    others = asked.parameters.keys() - looped.parameters.keys()
    asked.refuse([*others], "not with --tune")

    def save(found: Tuned, folder: Path, _: object) -> None:
        from pipesat.files.folder import write_folder

        write_folder(folder, tuned_files(found), keep=())

    found: Tuned = looped.answer(save)
    if asked["as_json"]:
        print_json(found.document())
    else:
        print_answer(found, [("Written to", str(asked.output))] if asked.output else [])
    return 0


def _verify(asked: Asked) -> int:
    """Hold one step of a small transformer against one process."""
    from pipesat.cli.terminal import print_json
    from pipesat.workflows.torch_runs import parity

    if not asked["verify"]:
        raise BadInput("expected a file to write, or --verify", where="--output")
    kept = {"problem", "schedule", "verify", "timeout"}
    names = [name for name in asked.given if name in asked.parameters.keys() - kept]
    asked.refuse(names, "expected -o FILE with it: --verify alone runs a step of its own")
    report: ParityReport = (alone := asked.other(parity)).answer()
    if asked["as_json"]:
        print_json(report.document())
    else:
        _print_parity(alone.read["problem"], report)
    return 0 if report.passed else CHECK_FAILED


def _report(asked: Asked, measured: Measured) -> int:
    from pipesat.cli.terminal import print_json
    from pipesat.cli.timeline import print_peaks, print_summary
    from pipesat.timeline.compare import compare
    from pipesat.timeline.file import write_timeline

    assert asked.output is not None  # noqa: S101  else it was verified alone
    write_timeline(asked.output, measured.timeline)
    problem: Problem = asked.read["problem"]
    comparison = compare(problem, measured.timeline)
    check = measured.check
    if asked["as_json"]:
        document = comparison.document() | {"timeline": str(asked.output)}
        peaks = measured.peaks and [peak.document() for peak in measured.peaks]
        document |= {"check": None if check is None else check.document(), "memory": peaks}
        print_json(document)
    else:
        if check is not None:
            _print_check(check)
        print_summary(comparison)
        if measured.peaks is not None:
            print_peaks(problem, measured.peaks)
        click.echo(f"timeline written to {one_line(str(asked.output))}")
    return 0 if check is None or check.passed else CHECK_FAILED


def _print_parity(problem: Problem, report: ParityReport) -> None:
    worst = report.check.worst
    click.echo(
        f"{'passed' if report.passed else 'failed'}: largest relative error "
        f"{worst.relative_error:.1e} ({worst.name}), limit {report.check.tolerance:.0e}"
    )
    for text in report.check.complaints:
        click.echo(one_line(text))
    click.echo(
        f"compared {len(report.losses)} losses and the gradients of {report.gradients} parameters "
        f"({report.numbers} numbers)"
    )
    for rank, count in enumerate(report.counts):
        planned = report.planned[rank] == report.executed[rank]
        letters = ", ".join(f"{number} {letter}" for letter, number in count.items() if number)
        remark = "in the order of the schedule" if planned else "NOT the order of the schedule"
        click.echo(one_line(f"{problem.device_name(rank)} ran {letters}, {remark}"))


def _print_check(check: Check) -> None:
    click.echo(
        f"check {'passed' if check.passed else 'failed'}: largest relative error "
        f"{check.worst.relative_error:.1e} ({check.worst.name}) of {check.compared} losses and "
        f"gradients, limit {check.tolerance:.0e}"
    )
    for text in check.complaints:
        click.echo(one_line(text))
