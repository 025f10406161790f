"""Where cases run: processes of this machine that end with the sweep, or a Ray cluster."""

from __future__ import annotations

import importlib.metadata
import os
import pickle
import platform
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple, TypeAlias

from pipesat import child
from pipesat.core.atomic import complaining
from pipesat.core.errors import BadInput, NotApplicable, RunFailed, require
from pipesat.problem.problem import Problem

_TICK: Final = 0.2  # seconds between two looks at whether the sweep ends
_LISTENS: Final = 10.0  # seconds for a head of a cluster to accept a connection
_RETRIES: Final = 3  # of a task whose machine was lost
REFUTED: Final = "proof refuted: "
"""Beginning of a row's ``why`` where a checked schedule refuted a proof, which was dropped."""


class SweepJob(NamedTuple):
    """A problem, the keyword arguments of its solve, and whether the schedule is wanted."""

    problem: Problem
    solve: Mapping[str, Any]
    schedule: bool = False


Answer: TypeAlias = dict[str, Any]
"""``status``, ``why``, ``result``, ``wall_s``, ``host`` of a row; ``schedule``, a file's text."""


class Place(NamedTuple):
    """``at_once`` cases run there at a time; ``run`` waits for one, or raises RunFailed."""

    at_once: int
    run: Callable[[SweepJob], Answer]


def answer(status: str, why: str | None, result: Mapping[str, Any] | None = None) -> Answer:
    """Return an answer of this machine, which took no time and has no schedule."""
    nothing = {"schedule": None, "wall_s": 0.0, "host": platform.node()}
    return {"status": status, "why": why or None, "result": result, **nothing}


def run_case(job: SweepJob) -> Answer:
    """Solve, in this process; what goes wrong is an answer, too."""
    from pipesat.compare.solve import solve
    from pipesat.schedule.schedule_file import schedule_bytes

    began = time.monotonic()
    try:
        result = solve(job.problem, **job.solve)
        why = result.explanation if result.status in ("infeasible", "unknown") else None
        if result.contradictions:
            why = REFUTED + "; ".join(result.contradictions)
        found = answer(result.status, why, result.document())
        if job.schedule and result.schedule is not None:
            found["schedule"] = schedule_bytes(job.problem, result.schedule).decode()
    except (BadInput, NotApplicable) as error:
        found = answer("refused", str(error))
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
        found = answer("error", f"{type(error).__name__}: {error} ({where})")
    return found | {"wall_s": round(time.monotonic() - began, 3)}


def this_machine(at_once: int, over: threading.Event) -> Place:
    """Return this machine; what still runs when ``over`` is set is ended."""

    def run(job: SweepJob) -> Answer:
        with child.Child(f"{__name__}:serve", child.ONE_THREAD, session=True) as one:
            with suppress(EOFError, OSError):
                one.connection.send(job)
                while not one.connection.poll(_TICK):
                    if over.is_set():
                        raise RunFailed("the sweep ends")
                found: Answer = one.connection.recv()
                return found
            killed = one.process.wait() == -signal.SIGKILL
            memory = "; perhaps the machine ran out of memory" if killed else ""
            return answer("killed", f"ended by {one.ended()}{memory}")

    return Place(at_once, run)


def serve() -> None:
    """Run the case that comes by a connection; end with it, in the middle of it if need be."""
    parent = child.parent()
    with suppress(EOFError, OSError):
        job = parent.recv()
        threading.Thread(target=lambda: parent.send(run_case(job)), daemon=True).start()
        parent.recv()
    os._exit(0)


@contextmanager
def ray_cluster(address: str, workers: int, over: threading.Event) -> Iterator[Place]:
    """Yield the cluster with its head at ``HOST:PORT``, or, with ``auto``, this machine's.

    A case is a task that takes as many CPUs as it has workers.
    """
    try:
        import ray
    except ModuleNotFoundError:
        raise BadInput("`ray` needs Ray: pip install 'ray>=2.40'") from None
    host, _, port = address.rpartition(":")
    if port.isdecimal() and "/" not in host:  # Ray itself looks long for what is not there
        with complaining(address, "no Ray cluster is there"):
            socket.create_connection((host, port), timeout=_LISTENS).close()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (OSError, RuntimeError, ValueError) as error:
        raise BadInput(_one_line(error), source=address) from None
    for number, handler in handlers.items():  # Ray's would end us in the middle of a row
        signal.signal(number, handler)
    task = ray.remote(num_cpus=workers, max_retries=_RETRIES)(run_task)
    version = importlib.metadata.version("pipesat")

    def run(job: SweepJob) -> Answer:
        reference = task.remote(pickle.dumps(job), version)
        while not ray.wait([reference], timeout=_TICK)[0]:
            if over.is_set():
                ray.cancel(reference, force=True)
                raise RunFailed("the sweep ends")
        try:
            found: Answer = ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            said = _one_line(error.cause)
            raise BadInput(said, source="a machine of the cluster") from None
        except ray.exceptions.RayError as error:
            return answer("killed", f"{type(error).__name__}: {_one_line(error)}") | {"host": None}
        return found

    try:
        nodes = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
        largest = int(max(nodes, default=0))
        require(
            largest >= workers,
            f"expected at most {largest}, the CPUs of the cluster's largest node",
            where="run.workers",
            value=workers,
        )
        yield Place(sum(int(cpus) // workers for cpus in nodes), run)
    finally:
        ray.shutdown()


def run_task(job: bytes, version: str) -> Answer:
    """Run a job in a worker of Ray."""
    here = importlib.metadata.version("pipesat")
    require(
        here == version,
        f"pipesat {here} on {platform.node()}, expected {version} as where the sweep started",
    )
    return run_case(pickle.loads(job))  # noqa: S301  it is ours


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:300]
