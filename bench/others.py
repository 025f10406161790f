"""The same problems by a plain CP-SAT model and by an ILP, same machine and limits.

    python bench/others.py [--limit S] [--only GLOB] ...

Needs `pip install highspy` for the ILP. Values are those of the orders that came out, timed and
checked by pipesat; bounds are what the solvers report. Appends to results/others.jsonl.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import ours
from runner import Case, Row, main, repeated, since

from pipesat.files.problem_file import read_problem

if TYPE_CHECKING:
    from answer import Answer

    from pipesat.core.problem import Problem

OURS, PLAIN, ILP, ILP_STARTED = "pipesat", "plain CP-SAT", "ILP", "ILP with a start"
METHODS = (OURS, PLAIN, ILP, ILP_STARTED)

# From tiny to 8 devices and 16 microbatches, of every kind of placement and memory.
SELECTION = (
    "tiny-6.2B-p2-m4-cap1",
    "tiny-6.2B-p3-m6-cap1",
    "vee-unit-p4-m4-cap0.75",
    "adaptis-p4-m8",
    "lowcap-6.2B-p4-m8-cap0.5",
    "tessel-V-p4-m8-cap4",
    "tessel-X-p4-m8-cap4",
    "bidir-6.2B-p4-m8",
    "vee-6.2B-p4-m8-cap0.75",
    "torch-6.2B-p4-m8-cap8",
    "lowcap-6.2B-p8-m16-cap0.75",
    "uneven-6.2B-s1-p8-m16-cap1",
    "head-6.2B-p8-m16-cap1",
    "vee-6.2B-p8-m16-cap0.625",
)


def measure(case: Case, launched: float) -> Row:
    """Solve by the method that the case names; the limit counts from when the problem is read."""
    if case.variant == OURS:
        return ours.measure(case, launched)
    from pipesat.core.errors import NotApplicable

    problem = read_problem(case.file)
    if case.objective != "makespan":
        return {"status": "not applicable", "why": "these models have the makespan only"}
    method = _method(case.variant)
    began = since(launched)
    try:
        answer = method(problem, case)
    except NotApplicable as error:
        return {"status": "not applicable", "why": str(error)}
    return row_of(problem, answer, began)


def _method(variant: str):  # type: ignore[no-untyped-def]
    if variant == PLAIN:
        import plain_cpsat

        return lambda problem, case: plain_cpsat.solve(
            problem, limit=case.limit, workers=case.workers, seed=case.seed
        )
    import ilp

    return lambda problem, case: ilp.solve(
        problem,
        limit=case.limit,
        workers=case.workers,
        seed=case.seed,
        started=variant == ILP_STARTED,
    )


def row_of(problem: Problem, answer: Answer, began: float) -> Row:
    """Time and check the order; a schedule that breaks a rule counts as none."""
    from pipesat.core.checker import check
    from pipesat.core.errors import Deadlock
    from pipesat.core.timing import time_order

    value, why = None, None
    if answer.order is not None:
        try:
            schedule = time_order(problem, answer.order)
        except Deadlock as error:
            why = f"its order: {error}"
        else:
            violations = check(problem, schedule)
            why = f"its order: {violations[0]}" if violations else None
            value = None if violations else schedule.makespan
    status = answer.status if value is not None or answer.order is None else "wrong"
    seconds = [began + s for s, _ in answer.found]
    bound = answer.bound
    return {
        "status": status,
        "value": value,
        "claimed": answer.claimed,
        "bound": bound,
        "gap": (value - bound) / value if value and bound is not None else None,
        "first_s": round(seconds[0], 3) if seconds else None,
        "best_s": round(seconds[-1], 3) if seconds else None,
        "proof_s": round(began + answer.seconds, 3) if status == "optimal" else None,
        "size": answer.size,
        "why": why,
    }


if __name__ == "__main__":
    sys.exit(
        main(
            __file__,
            lambda options, files: repeated(options, files, METHODS),
            measure,
            description=__doc__,
            selection=SELECTION,
        )
    )
