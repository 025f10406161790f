"""``pipesat check``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from pipesat.cli.command import command
from pipesat.cli.exits import CHECK_FAILED, one_line
from pipesat.core.claims import plural

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.core.violation import Violation


@command("check", example="pipesat check problem.json schedule.json")
def check(asked: Asked) -> int:
    """Check a schedule against every rule; list all violations."""
    from pipesat.cli.console import print_json
    from pipesat.core.memory import peak_memory
    from pipesat.core.ops import members

    violations: list[Violation] = asked.answer()
    problem, timed = asked.read["problem"], asked.read["schedule"]
    valid = not violations

    if asked["as_json"]:
        print_json(
            {
                "valid": valid,
                "makespan": timed.makespan,
                "span": timed.span,
                "peak_memory": peak_memory(problem, timed) if valid else None,
                "violations": [asdict(violation) for violation in violations],
            }
        )
    elif valid:
        ops = sum(len(members(item)) for row in timed.order for item in row)  # a pair is two
        click.echo(f"valid: {ops} ops, makespan {timed.makespan}, span {timed.span}")
    else:
        for violation in violations:
            click.echo(one_line(str(violation)))
        click.echo(f"not valid: {len(violations)} {plural(len(violations), 'violation')}")
    return 0 if valid else CHECK_FAILED
