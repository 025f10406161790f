"""``pipesat check``."""

from __future__ import annotations

from dataclasses import asdict

import typer

from pipesat.cli.arguments import AsJson, ProblemFile, ScheduleFile
from pipesat.cli.exits import CHECK_FAILED, one_line
from pipesat.core.claims import plural


def check(problem: ProblemFile, schedule: ScheduleFile, as_json: AsJson = False) -> None:
    """Check a schedule against every rule, independently of the solver; list all violations."""
    from pipesat.cli.console import print_json
    from pipesat.cli.naming import naming
    from pipesat.cli.reading import read_problem
    from pipesat.core.checker import check as find_violations
    from pipesat.core.memory import peak_memory
    from pipesat.core.ops import members
    from pipesat.workflows.valid import schedule_of

    data = read_problem(problem)
    with naming(problem):
        timed = schedule_of(data, schedule)
    violations = find_violations(data, timed)
    valid = not violations
    if as_json:
        print_json(
            {
                "valid": valid,
                "makespan": timed.makespan,
                "span": timed.span,
                "peak_memory": peak_memory(data, timed) if valid else None,
                "violations": [asdict(violation) for violation in violations],
            }
        )
    elif valid:
        ops = sum(len(members(item)) for row in timed.order for item in row)  # a pair is two
        typer.echo(f"valid: {ops} ops, makespan {timed.makespan}, span {timed.span}")
    else:
        for violation in violations:
            typer.echo(one_line(str(violation)))
        typer.echo(f"not valid: {len(violations)} {plural(len(violations), 'violation')}")
    raise typer.Exit(0 if valid else CHECK_FAILED)
