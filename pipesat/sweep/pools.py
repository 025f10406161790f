"""Where cases run: so many at a time in processes of this machine, or as tasks of a Ray cluster.

A Ray task takes as many CPUs as its case has workers. It hands the case to a process of its own, as
this machine does, so that its limits are watched there, and returns its answer. Only texts travel.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
import signal
import socket
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

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
    call = Call("pipesat.sweep.pools:run_case", (job,))
    load = Call("pipesat.sweep.pools:import_everything")
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
    from pipesat.core.problem import FORMAT as PROBLEM

    stage = {"device": 0, "F": 1, "B": 1, "W": 1}
    problem = {"format": PROBLEM, "microbatches": 1, "devices": [{}], "stages": [stage]}
    for target in (None, "torch"):
        solve = {"target": target, "time_limit": 1.0, "workers": 1}
        run_case({"problem": problem, "solve": solve, "schedule": True})


TIMEOUT: Final = 30.0  # seconds for the cluster to answer
_LISTENS: Final = 10.0  # seconds for a host to accept a connection
_TICK: Final = 0.2  # seconds between two looks at ``stop``
_RETRIES: Final = 3  # of a task whose machine was lost
_AHEAD: Final = 2  # tasks in Ray's hands, times those that can run
_QUIET: Final = {"log_to_driver": False, "logging_level": "ERROR"}
_SHARE_OF_MEMORY: Final = 0.8
_CGROUP: Final = Path("/sys/fs/cgroup/memory.max")


class Pool(NamedTuple):
    """``room`` cases run at a time, ``ahead`` are handed over; ``read`` takes what came of one."""

    room: int
    ahead: int
    submit: Callable[[Job], Future[Any]]
    read: Callable[[Future[Any]], Answer]

    def run(
        self, jobs: Iterable[tuple[str, Job]], stop: threading.Event
    ) -> Iterator[tuple[str, Answer]]:
        """Take (key, job) one by one as there is room, yield (key, answer) as they end."""
        left = iter(jobs)
        pending: dict[Future[Any], str] = {}
        while not stop.is_set():
            for key, job in islice(left, self.ahead - len(pending)):
                pending[self.submit(job)] = key
            if not pending:
                return
            for future in wait(pending, _TICK, FIRST_COMPLETED).done:
                yield pending.pop(future), self.read(future)


def processes_for(workers: int, cores: int, processes: int | None, source: str = "") -> int:
    """How many cases run at a time: workers x processes is never more than ``cores``.

    ``source`` is the file that says how many workers.
    """
    most = cores // workers
    if most < 1:
        raise BadInput(
            f"expected at most the {cores} cores that may be used",
            source=source,
            where="run.workers",
            value=workers,
        )
    if processes is not None and processes > most:
        raise BadInput(
            f"expected at most {most}: {cores} cores may be used, and a case has {workers} workers",
            where="processes",
            value=processes,
        )
    return processes or most


def share_of_memory(parts: int) -> int:
    """Bytes for one of so many processes: together they leave a fifth of the machine's memory."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # "max", or no such file
        total = min(total, int(_CGROUP.read_text()))
    return int(total * _SHARE_OF_MEMORY / parts)


@contextmanager
def local_pool(processes: int) -> Iterator[Pool]:
    """Yield a pool of so many processes on this machine; what still runs at the end is ended."""
    hosts = [new_host() for _ in range(processes)]
    over = threading.Event()

    def idle() -> None:
        if over.is_set():
            raise RunFailed("the sweep ends")

    with ThreadPoolExecutor(processes) as threads:

        def submit(job: Job) -> Future[Any]:
            return threads.submit(run_job, hosts, job, idle)

        try:
            yield Pool(processes, processes, submit, Future.result)
        finally:
            over.set()
            threads.shutdown()
            for host in hosts:
                host.close()


@contextmanager
def ray_pool(address: str, workers: int, timeout: float = TIMEOUT) -> Iterator[Pool]:
    """Yield a pool of the cluster at ``HOST:PORT``, or, with ``auto``, this machine's."""
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
    task = ray.remote(num_cpus=workers, max_retries=_RETRIES)(run_task)
    version = importlib.metadata.version("pipesat")
    running: dict[Future[Any], Any] = {}

    def submit(job: Job) -> Future[Any]:
        reference = task.remote(json.dumps(job), version)
        future: Future[Any] = reference.future()
        running[future] = reference
        return future

    def read(future: Future[Any]) -> Answer:
        del running[future]
        return _answer(ray, future)

    try:
        yield Pool(room, _AHEAD * room, submit, read)
    finally:
        for reference in running.values():
            ray.cancel(reference, force=True)
        ray.shutdown()


def cluster_cpus(address: str) -> list[float]:
    """Return the CPUs of every node. In a process of its own: Ray tries to connect for minutes."""
    ray = _load_ray()
    ray.init(address=address, **_QUIET)
    nodes = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
    ray.shutdown()
    return nodes


def run_task(text: str, version: str) -> str:
    """Run a job in this machine's process for jobs. Called by Ray's workers."""
    here = importlib.metadata.version("pipesat")
    if here != version:
        raise BadInput(
            f"pipesat {here} on {platform.node()}, expected {version} as where the sweep started"
        )
    job = json.loads(text)
    if job["memory_limit"] is None:
        cores = os.cpu_count() or 1
        job["memory_limit"] = share_of_memory(max(1, cores // job["solve"]["workers"]))
    return json.dumps(run_job(_hosts(), job) | {"host": platform.node()})


@cache
def _hosts() -> list[Host]:
    return [new_host()]  # which ends with this process


def _load_ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise BadInput("`ray` needs Ray: pip install 'ray>=2.40'") from None
    return ray


def _nodes(address: str, timeout: float) -> list[float]:
    """CPUs of every node, from a process that can be ended when there is no answer."""
    _check_that_something_listens(address)
    call = Call("pipesat.sweep.pools:cluster_cpus", (address,))
    with new_host() as host:
        (found,) = host.run(Batch({"": call}, Call("os:getpid"), seconds=timeout)).values()
    if found.exceeded:
        expected = "expected HOST:PORT of its head"
        raise BadInput(f"no Ray cluster answered within {timeout:g} s, {expected}", source=address)
    if found.answer is None:
        raise BadInput(_one_line(str(found.error or found.log)), source=address)
    nodes: list[float] = found.answer
    return nodes


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


def _answer(ray: Any, future: Future[Any]) -> Answer:
    """Return a task's answer; what went wrong with its machine is one too."""
    try:
        found: Answer = json.loads(future.result())
    except ray.exceptions.OutOfMemoryError as error:
        return answer("out of memory", _one_line(str(error))) | {"host": None}
    except ray.exceptions.RayTaskError as error:
        raise BadInput(_one_line(str(error.cause)), source="a machine of the cluster") from None
    except ray.exceptions.RayError as error:
        lost = f"{type(error).__name__}: {_one_line(str(error))}"
        return answer("killed", lost) | {"host": None}
    return found


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
