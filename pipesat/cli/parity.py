"""``pipesat parity``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from pipesat.cli.arguments import AsJson, ProblemFile, ScheduleFile, Timeout
from pipesat.cli.exits import CHECK_FAILED, end_of_run, note, one_line

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.runtime.parity import ParityReport


def parity(
    problem: ProblemFile, schedule: ScheduleFile, timeout: Timeout = 120.0, as_json: AsJson = False
) -> None:
    r"""Run a schedule in torch and compare with one process: losses and every gradient.

    Starts one local process per rank on the CPU, with a small transformer cut into the problem's
    stages. Needs the extra: pip install 'pipesat\[torch]'.
    """
    from pipesat.cli.console import print_json
    from pipesat.cli.interrupts import Interrupts
    from pipesat.cli.naming import naming
    from pipesat.cli.reading import read_problem
    from pipesat.core.errors import RunFailed
    from pipesat.workflows.torch_runs import parity as run

    data = read_problem(problem)
    with Interrupts() as interrupts, naming(problem):
        try:
            report = run(data, schedule, timeout=timeout, note=note, stop=interrupts.stop)
        except RunFailed as error:
            end_of_run(error, interrupts.exit_code)
    if as_json:
        print_json(report.document())
    else:
        _print_report(data, report)
    raise typer.Exit(0 if report.passed else CHECK_FAILED)


def _print_report(problem: Problem, report: ParityReport) -> None:
    worst = report.check.worst
    typer.echo(
        f"{'passed' if report.passed else 'failed'}: largest relative error "
        f"{worst.relative_error:.1e} ({worst.name}), limit {report.check.tolerance:.0e}"
    )
    for text in report.check.complaints:
        typer.echo(one_line(text))
    typer.echo(
        f"compared {len(report.losses)} losses and the gradients of {report.gradients} parameters "
        f"({report.numbers} numbers)"
    )
    for rank, count in enumerate(report.counts):
        planned = report.planned[rank] == report.executed[rank]
        letters = ", ".join(f"{number} {letter}" for letter, number in count.items() if number)
        remark = "in the order of the schedule" if planned else "NOT the order of the schedule"
        typer.echo(one_line(f"{problem.device_name(rank)} ran {letters}, {remark}"))
