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
    from pipesat.core.errors import Violation


@command(
    "check",
    example="pipesat check problem.json schedule.json --runtime pair-fifo",
)
def check(asked: Asked) -> int:
    """Check a schedule against every rule and list all violations.

    With --runtime, say whether its order can hang: exit code 1 if it can. With -v, list a safe
    order, by rank.
    """
    from pipesat.cli.console import print_json
    from pipesat.cli.table import print_answer
    from pipesat.core.metrics import peak_memory
    from pipesat.core.ops import members
    from pipesat.hangs.verdict import posted_in, verdict

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
        for violation in violations:
            click.echo(one_line(str(violation)))
        click.echo(f"not valid: {len(violations)} {plural(len(violations), 'violation')}")
    return 0 if valid and (found is None or found.safe) else CHECK_FAILED
