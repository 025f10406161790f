"""One case, from the document of its problem to its answer. Runs in a process of its own."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any, TypeAlias

from pipesat.core.errors import BadInput, NotApplicable

Job: TypeAlias = Mapping[str, Any]
"""``problem`` (a document), ``solve`` (keyword arguments), ``kill_after`` in seconds,
``memory_limit`` in bytes, and whether the schedule is wanted: ``schedule``. Ready for JSON."""

Answer: TypeAlias = dict[str, Any]
"""``status``, ``why`` and ``result`` of a row, and ``schedule``: a file's text or ``None``. The
process's ``wall_s`` and ``peak_mib`` are added by who ran it."""


def answer(status: str, why: str | None = None, result: Mapping[str, Any] | None = None) -> Answer:
    """Return an answer without a schedule."""
    return {"status": status, "why": why, "result": result, "schedule": None}


def run_case(job: Job) -> Answer:
    """Solve; whatever goes wrong is an answer too."""
    try:
        return _solved(job)
    except (BadInput, NotApplicable) as error:
        return answer("refused", str(error))
    except MemoryError:
        return answer("out of memory", "Python could get no more memory")
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
        return answer("error", f"{type(error).__name__}: {error} ({where})")


def _solved(job: Job) -> Answer:
    from pipesat.files.problem_file import parse_problem
    from pipesat.files.schedule_file import schedule_bytes
    from pipesat.sweep.rows import REFUTED
    from pipesat.workflows.solve import solve

    problem = parse_problem(job["problem"])
    result = solve(problem, **job["solve"])
    why = result.explanation if result.status in ("infeasible", "unknown") else None
    if result.contradictions:
        why = REFUTED + "; ".join(result.contradictions)
    found = answer(result.status, why, result.document())
    if job["schedule"] and result.schedule is not None:
        found["schedule"] = schedule_bytes(problem, result.schedule).decode()
    return found
