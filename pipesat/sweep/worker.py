"""One case: solved in a process of its own, under limits; whatever goes wrong is an answer too."""

from __future__ import annotations

import math
import signal
import traceback
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from pipesat.core.errors import BadInput, NotApplicable, RunFailed
from pipesat.runtime.forks import Batch, Call, Host

Job: TypeAlias = Mapping[str, Any]
"""``problem`` (a document), ``solve`` (keyword arguments), ``kill_after`` in seconds,
``memory_limit`` in bytes, and whether the schedule is wanted: ``schedule``. Ready for JSON."""

Answer: TypeAlias = dict[str, Any]
"""``status``, ``why`` and ``result`` of a row, ``schedule``: a file's text or ``None``, and
``wall_s`` and ``peak_mib`` of the process, ``None`` where they are not known."""

_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""A fork would lose threads, so its host may have none."""


def run_job(hosts: list[Host], job: Job, idle: Callable[[], None] = lambda: None) -> Answer:
    """Run a job in one of the hosts that wait, or in a new one in its place.

    ``idle`` is called while it runs, and may raise to end it.
    """
    host = hosts.pop()
    if host.ended:
        host.close()
        host = new_host()
    limit = job["memory_limit"] or math.inf
    call = Call("pipesat.sweep.worker:run_case", (job,))
    load = Call("pipesat.sweep.worker:import_everything")
    try:
        (found,) = host.run(Batch({"": call}, load, "", job["kill_after"], limit), idle).values()
    finally:
        hosts.append(host)
    last = "".join(f": {line}" for line in found.log[-1:])
    if found.exceeded == "seconds":
        said = answer("out of time", f"killed after {job['kill_after']:g} s")
    elif found.exceeded == "memory":
        said = answer("out of memory", f"killed at more than {limit / (1 << 20):.0f} MiB")
    elif found.error is not None or (host.ended and found.code >= 0):
        raise RunFailed(f"a process for cases failed: {found.error or found.code}", found.log)
    elif found.code < 0:
        said = answer("killed", _killed_by(-found.code) + last)
    elif found.code:
        said = answer("error", f"ended with exit code {found.code}{last}")
    else:
        said = found.answer
    known = {"wall_s": round(found.seconds, 3), "peak_mib": round(found.peak / (1 << 20), 1)}
    return said | {name: figure or None for name, figure in known.items()}


def new_host() -> Host:
    """Start a host."""
    return Host(_ONE_THREAD)


def _killed_by(number: int) -> str:
    text = f"killed by signal {number} ({signal.strsignal(number)})"
    killed = number == signal.SIGKILL
    return f"{text}; perhaps the machine ran out of memory" if killed else text


def answer(status: str, why: str | None = None, result: Mapping[str, Any] | None = None) -> Answer:
    """Return an answer without a schedule."""
    nothing = dict.fromkeys(("schedule", "wall_s", "peak_mib"))
    return {"status": status, "why": why, "result": result, **nothing}


def run_case(job: Job) -> Answer:
    """Solve, in this process."""
    from pipesat.files.problem_file import parse_problem
    from pipesat.files.schedule_file import schedule_bytes
    from pipesat.sweep.rows import REFUTED
    from pipesat.workflows.solve import solve

    try:
        problem = parse_problem(job["problem"])
        result = solve(problem, **job["solve"])
        why = result.explanation if result.status in ("infeasible", "unknown") else None
        if result.contradictions:
            why = REFUTED + "; ".join(result.contradictions)
        found = answer(result.status, why, result.document())
        if job["schedule"] and result.schedule is not None:
            found["schedule"] = schedule_bytes(problem, result.schedule).decode()
    except (BadInput, NotApplicable) as error:
        return answer("refused", str(error))
    except MemoryError:
        return answer("out of memory", "Python could get no more memory")
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
        return answer("error", f"{type(error).__name__}: {error} ({where})")
    return found


@cache
def import_everything() -> None:
    """Load what every case needs."""
    from pipesat.files.strict_json import FORMAT as PROBLEM

    stage = {"device": 0, "F": 1, "B": 1, "W": 1}
    problem = {"format": PROBLEM, "microbatches": 1, "devices": [{}], "stages": [stage]}
    for target in (None, "torch"):
        solve = {"target": target, "time_limit": 1.0, "workers": 1}
        run_case({"problem": problem, "solve": solve, "schedule": True})
