"""Cases on a Ray cluster: the same processes as on one machine, started by Ray's workers.

A case is a Ray task that takes as many CPUs as it has workers. The task hands it to a slot of its
own, so that its limits are watched on its machine, and returns its answer. Only texts travel.
"""

from __future__ import annotations

import atexit
import importlib.metadata
import json
import os
import platform
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pipesat.core.errors import BadInput
from pipesat.sweep.pool import Answers, Jobs, Pool, share_of_memory
from pipesat.sweep.run_case import Answer, answer
from pipesat.sweep.worker_process import WorkerProcess, environment

TIMEOUT: Final = 30.0  # seconds for the cluster to answer
_LISTENS: Final = 10.0  # seconds for a host to accept a connection
_TICK: Final = 0.2
_RETRIES: Final = 3  # of a task whose machine was lost
_AHEAD: Final = 2  # tasks in Ray's hands, times those that can run
_PROBE: Final = "import sys; from pipesat.sweep.ray_pool import probe; probe(sys.argv[1])"
_QUIET: Final = {"log_to_driver": False, "logging_level": "ERROR"}

_slot: WorkerProcess | None = None


@contextmanager
def ray_pool(address: str, workers: int, timeout: float = TIMEOUT) -> Iterator[tuple[Pool, int]]:
    """Yield the pool, and how many cases the cluster runs at a time.

    Parameters
    ----------
    address
        ``HOST:PORT`` of the head, or ``auto`` for the cluster that this machine is part of.

    Raises
    ------
    BadInput
        If there is no Ray, no answer within ``timeout`` seconds, or no node with enough CPUs.
    """
    ray = _load_ray()
    nodes = _nodes(address, timeout)
    room = sum(int(cpus) // workers for cpus in nodes)
    if room < 1:
        largest = int(max(nodes, default=0))
        raise BadInput(
            f"expected at most {largest}, the CPUs of the cluster's largest node",
            where="run.workers",
            value=workers,
        )
    try:
        ray.init(address=address, **_QUIET)
    except (OSError, RuntimeError, ValueError) as error:  # it answered a moment ago
        raise BadInput(_one_line(str(error)), source=address) from None
    try:
        yield _pool(ray, workers, room), room
    finally:
        ray.shutdown()


def probe(address: str) -> None:
    """Print the CPUs of every node. In a process of its own: Ray tries to connect for minutes."""
    ray = _load_ray()
    ray.init(address=address, **_QUIET)
    nodes = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
    print(json.dumps({"cpus": nodes}))  # noqa: T201  for _nodes
    ray.shutdown()


def run_task(text: str, version: str) -> str:
    """Run a job on this machine, in a slot that waits for the next one. Called by Ray's workers."""
    global _slot  # noqa: PLW0603  Ray gives a worker's tasks nothing else in common
    here = importlib.metadata.version("pipesat")
    if here != version:
        raise BadInput(
            f"pipesat {here} on {platform.node()}, expected {version} as where the sweep started"
        )
    job = json.loads(text)
    if job["memory_limit"] is None:
        cores = os.cpu_count() or 1
        job["memory_limit"] = share_of_memory(max(1, cores // job["solve"]["workers"]))
    if _slot is None:
        _slot = WorkerProcess()
        atexit.register(_slot.close)
    _slot.send(job)
    while (found := _slot.receive()) is None:
        pass
    return json.dumps(found | {"host": platform.node()})


def _load_ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise BadInput("--ray needs Ray: pip install 'ray>=2.40'") from None
    return ray


def _nodes(address: str, timeout: float) -> list[float]:
    """CPUs of every node, from a process that can be ended when there is no answer."""
    _check_that_something_listens(address)
    no_answer = f"no Ray cluster answered within {timeout:g} s, expected HOST:PORT of its head"
    try:
        done = subprocess.run(  # noqa: S603  our own interpreter and module
            [sys.executable, "-P", "-c", _PROBE, address],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=environment(),
        )
    except subprocess.TimeoutExpired:
        raise BadInput(no_answer, source=address) from None
    for line in done.stdout.splitlines():
        if line.startswith('{"cpus"'):
            return list(json.loads(line)["cpus"])
    words = [line for line in done.stderr.splitlines() if line.strip()]
    raise BadInput(_one_line(words[-1]) if words else no_answer, source=address)


def _check_that_something_listens(address: str) -> None:
    """Spare users the wait where it is clear at once; other forms of address are Ray's to judge."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), timeout=_LISTENS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"no Ray cluster is there: {reason}", source=address) from None


def _pool(ray: Any, workers: int, room: int) -> Pool:
    task = ray.remote(num_cpus=workers, max_retries=_RETRIES)(run_task)
    version = importlib.metadata.version("pipesat")

    def run(jobs: Jobs, stop: threading.Event) -> Answers:
        left = iter(jobs)
        pending: dict[Any, str] = {}
        try:
            while not stop.is_set():
                while len(pending) < _AHEAD * room and (job := next(left, None)) is not None:
                    pending[task.remote(json.dumps(job[1]), version)] = job[0]
                if not pending:
                    return
                ended, _ = ray.wait(list(pending), timeout=_TICK)
                for reference in ended:
                    yield pending.pop(reference), _answer(ray, reference)
        finally:
            for reference in pending:
                ray.cancel(reference, force=True)

    return run


def _answer(ray: Any, reference: Any) -> Answer:
    """Return a task's answer; what went wrong with its machine is one too.

    Raises
    ------
    BadInput
        If the machine cannot run cases at all.
    """
    nothing = {"wall_s": None, "peak_mib": None, "host": None}
    try:
        found: Answer = json.loads(ray.get(reference))
    except ray.exceptions.OutOfMemoryError as error:
        return answer("out of memory", _one_line(str(error))) | nothing
    except ray.exceptions.RayTaskError as error:
        raise BadInput(_one_line(str(error.cause)), source="a machine of the cluster") from None
    except ray.exceptions.RayError as error:
        return answer("killed", f"{type(error).__name__}: {_one_line(str(error))}") | nothing
    return found


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
