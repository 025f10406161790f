"""Whether an assignment keeps every rule, and takes as long as its file says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pipesat.check.checker import check
from pipesat.compare.replicas.assignment import Assignment, parse_assignment
from pipesat.core.arrays import Ints
from pipesat.core.atomic import digest
from pipesat.core.errors import BadInput, Violation, require, said_of
from pipesat.core.strict_json import LARGEST_RUN, read_json
from pipesat.problem.lengths import read_lengths
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Objective
from pipesat.schedule.timing import retime


def check_assignment(
    problem: Problem, schedule: Path, lengths: Sequence[int] | Path | None = None
) -> list[Violation]:
    """Return every violation of an assignment file; none: it holds.

    The schedule that the file names is built for every replica, with the costs of the sequences in
    each of its microbatches, the checker judges it, and its value has to be that of the file.

    Parameters
    ----------
    schedule
        The assignment file.
    lengths
        The lengths that were dealt, or their file, if SCHEDULE is an assignment of them.

    Raises
    ------
    BadInput, NotApplicable
        If the assignment is of another problem or other lengths, or its schedule does not apply.
    """
    from pipesat.heuristics import BASELINES  # numpy is slow to import, here and below

    deal = parse_assignment(read_json(schedule, LARGEST_RUN), str(schedule))
    lengths = read_lengths(lengths) if isinstance(lengths, Path) else lengths
    with said_of(str(schedule)):
        require(
            deal.problem_sha256 == problem.sha256,
            f"expected {problem.sha256}, the digest of the problem",
            where="problem_sha256",
            value=deal.problem_sha256,
        )
        require(
            deal.schedule in BASELINES,
            f"expected one of {', '.join(BASELINES)}",
            where="schedule",
            value=deal.schedule,
        )
    return [*_violations(problem, deal, _costs(problem, deal, lengths), lengths or ())]


def _costs(problem: Problem, deal: Assignment, lengths: Sequence[int] | None) -> Ints:
    from pipesat.compare.replicas.replay import costs_of_lengths, costs_of_list

    about = deal.lengths
    if about is None:
        return costs_of_list(problem)
    if lengths is None or digest(json.dumps([*lengths]).encode()) != about["sha256"]:
        raise BadInput(
            f"expected the lengths that were dealt, of digest {about['sha256']}", where="lengths"
        )
    return costs_of_lengths(problem, lengths, about["reference"], about["quadratic"])


def _violations(
    problem: Problem, deal: Assignment, costs: Ints, lengths: Sequence[int]
) -> Iterator[Violation]:
    about = deal.lengths
    dealt = sum(len(part) for row in deal.replicas for part in row)
    wanted = problem.routes[0].microbatches // (1 if about else len(deal.replicas))
    if dealt != len(costs) or len(deal.replicas[0]) != wanted:
        text = f"{dealt} sequences in {len(deal.replicas[0])} microbatches of each replica, "
        yield Violation("missing", f"{text}expected {len(costs)} in {wanted}")
        return
    most = about and about["tokens"]
    for number, (row, value) in enumerate(zip(deal.replicas, deal.makespans, strict=True)):
        filled = max(sum(lengths[n] for n in part) for part in row) if most else 0
        if most and filled > most:
            text = f"replica {number} has a microbatch of {filled} tokens, at most {most} may be"
            yield Violation("memory", text)
        found = replica_violations(problem, deal.schedule, costs, row, value, deal.objective)
        for violation in found:
            yield replace(violation, message=f"replica {number}: {violation.message}")


def replica_violations(
    problem: Problem,
    schedule: str,
    costs: Ints,
    row: Sequence[Sequence[int]],
    value: int,
    objective: Objective = "makespan",
) -> list[Violation]:
    """Build a replica's schedule anew, let the checker judge it, and hold its value against it."""
    import numpy as np

    from pipesat.compare.replicas.replay import problem_of
    from pipesat.heuristics import BASELINES

    one = problem_of(problem, np.array([costs[part].sum(axis=0) for part in row]))
    timed = retime(one, BASELINES[schedule](one), objective, schedule)
    found = check(one, timed)
    if (takes := timed.value(objective)) != value:
        found.append(Violation("time", f"it takes {takes}, the assignment says {value}"))
    return found
