"""Cases on this machine: so many at a time, each in a process of its own."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Final, TypeAlias

from pipesat.core.errors import BadInput
from pipesat.sweep.run_case import Answer, Job
from pipesat.sweep.worker_process import WorkerProcess

Jobs: TypeAlias = Iterable[tuple[str, Job]]
Answers: TypeAlias = Generator[tuple[str, Answer], None, None]
Pool: TypeAlias = Callable[[Jobs, threading.Event], Answers]
"""Takes (key, job) one by one as there is room, yields (key, answer) as they end; ends all that
runs, without an answer, when it is closed or the event is set."""

_TICK: Final = 0.2  # seconds between two looks at ``stop``
_SHARE_OF_MEMORY: Final = 0.8
_CGROUP: Final = Path("/sys/fs/cgroup/memory.max")


def processes_for(workers: int, cores: int, processes: int | None) -> int:
    """How many cases run at a time: workers x processes is never more than ``cores``.

    Raises
    ------
    BadInput
        If not even one does, or as many as were asked for.
    """
    most = cores // workers
    if most < 1:
        raise BadInput(
            f"expected at most the {cores} cores that may be used",
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
    with contextlib.suppress(OSError, ValueError):  # "max", or no such file
        total = min(total, int(_CGROUP.read_text()))
    return int(total * _SHARE_OF_MEMORY / parts)


def local_pool(processes: int) -> Pool:
    """Return a pool of so many processes on this machine."""

    def run(jobs: Jobs, stop: threading.Event) -> Answers:
        left = iter(jobs)
        busy: dict[WorkerProcess, str] = {}
        with contextlib.ExitStack() as slots:
            idle: list[WorkerProcess] = []
            for key, job in left:
                slot = WorkerProcess()
                slots.callback(slot.close)
                slot.send(job)
                busy[slot] = key
                if len(busy) == processes:
                    break
            while busy and not stop.is_set():
                ready, _, _ = select.select(list(busy), [], [], _TICK)
                for slot in ready:
                    answer = slot.receive()
                    if answer is not None:
                        yield busy.pop(slot), answer
                        idle.append(slot)
                while idle and (following := next(left, None)) is not None:
                    slot = idle.pop()
                    slot.send(following[1])
                    busy[slot] = following[0]

    return run
