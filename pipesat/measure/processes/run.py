"""Running an order in torch: parity, and measured timelines; also as a rank of torchrun."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pipesat.core.errors import BadInput, RunFailed, require
from pipesat.core.showing import Displayed, Facts
from pipesat.measure.processes.answers import Check, DevicePeak, device_peaks
from pipesat.measure.processes.forks import Call
from pipesat.measure.processes.job import Job
from pipesat.measure.processes.launch import (
    FOLDER_PREFIX,
    load_torch_api,
    run_processes,
    whereabouts,
)
from pipesat.problem.problem import Problem
from pipesat.runtimes.timeline import TOY_SOURCE, Timeline, assemble, equal_compute, us_per_unit
from pipesat.runtimes.torch.companions import OwnWords, modes_of

if TYPE_CHECKING:
    from pipesat.measure.processes.pipeline import Found

TIMEOUT = 120.0
"""Seconds for all processes together, their start included."""


@dataclass(frozen=True, repr=False, slots=True)
class ParityReport(Displayed):
    """What came out of running one order.

    Attributes
    ----------
    check
        What was compared, and what was farthest off.
    planned, executed
        Per rank, the actions of the order, and those that torch's runtime ran, in its order.
    """

    check: Check
    planned: tuple[tuple[str, ...], ...]
    executed: tuple[tuple[str, ...], ...]

    @property
    def executed_as_planned(self) -> bool:
        """Whether every rank ran exactly the actions of the order, in its order."""
        return self.executed == self.planned

    @property
    def passed(self) -> bool:
        """Whether the order was run as planned and everything agrees within the tolerance."""
        return self.executed_as_planned and self.check.passed

    @property
    def counts(self) -> list[dict[str, int]]:
        """Per rank, how many actions of each of torch's letters were executed."""
        letters = (Counter(action.strip("0123456789") for action in row) for row in self.executed)
        return [{letter: count[letter] for letter in "FIWB"} for count in letters]

    def facts(self) -> Facts:
        """Return the check, and whether the order was run as planned."""
        order = "as planned" if self.executed_as_planned else "NOT as planned"
        return [*self.check.facts(), ("order", order)]

    def records(self) -> list[dict[str, Any]]:
        """Return a row per rank: how many actions of each of torch's letters it ran."""
        return [{"rank": rank} | counts for rank, counts in enumerate(self.counts)]

    def document(self) -> dict[str, Any]:
        """Return the report for ``--json``; an infinite error is ``None``."""
        return self.check.document() | {
            "passed": self.passed,
            "losses": list(self.check.losses),
            "gradients": self.check.compared - len(self.check.losses),
            "numbers": self.check.numbers,
            "executed_as_planned": self.executed_as_planned,
            "executed": self.counts,
        }


def check_parity(
    orders: Sequence[str],
    *,
    modes: Sequence[str] = (),
    timeout: float = TIMEOUT,
    stop: threading.Event | None = None,
) -> list[ParityReport]:
    """Run orders in torch's pipeline runtime and compare each with a single process.

    They run one after the other in the same processes, whose start takes most of the time.
    ``orders`` are torch's ``compute_only`` CSV, ``modes`` the texts of the files of memory modes
    beside them, empty where everything is kept.
    """
    texts = modes or [""] * len(orders)
    jobs = [
        Job(csv, steps=1, warm_up=0, modes=text, check=True)
        for csv, text in zip(orders, texts, strict=True)
    ]
    ranks = {len(job.order.rows) for job in jobs}
    require(len(ranks) == 1, "expected orders for one number of ranks", value=sorted(ranks))
    found = _on_local_ranks(jobs, timeout, stop)
    reports = []
    for job, documents, check in zip(jobs, found.documents, found.checks, strict=True):
        assert check is not None  # noqa: S101  each was asked for
        planned = tuple(tuple(map(str, row)) for row in job.order.rows)
        ran = tuple(tuple(op[0] for op in one["steps"][0]["ops"]) for one in documents)
        reports.append(ParityReport(check, planned, ran))
    return reports


def _on_local_ranks(jobs: Sequence[Job], timeout: float, stop: threading.Event | None) -> Found:
    """Run jobs on local gloo ranks, one process and one thread each."""
    function = "pipesat.measure.processes.pipeline:run_local_rank"
    calls = {
        f"rank {rank}": Call(function, (rank, jobs, timeout))
        for rank in range(len(jobs[0].order.rows))
    }
    # before anything else of torch is imported
    load = "pipesat.measure.processes.launch:load_torch_api"
    found: Found = run_processes(calls, load=load, timeout=timeout, stop=stop)["rank 0"]
    return found


@dataclass(frozen=True, repr=False, slots=True)
class Measured(Displayed):
    """What came out of a run: its timeline, and the check if one was asked for.

    ``peaks`` are the most memory that each device held in a step, if asked for.
    """

    timeline: Timeline
    check: Check | None
    peaks: tuple[DevicePeak, ...] | None = None

    def facts(self) -> Facts:
        """Return how long steps took, and the check."""
        steps = self.timeline.makespans
        took = f"{min(steps) / 1000:.2f} to {max(steps) / 1000:.2f} ms"
        said = [("steps", f"{len(steps)}, each {took}")]
        return said if self.check is None else [*said, *self.check.facts()]

    def records(self) -> list[dict[str, Any]]:
        """Return a row per op of the typical step, in microseconds."""
        return [
            {"device": device, "op": str(ran.item), "start": ran.start, "end": ran.end}
            for device, ran in self.timeline.typical
        ]


def run_order(
    problem: Problem, job: Job, *, timeout: float = 600.0, stop: threading.Event | None = None
) -> Measured:
    """Run a job on local gloo ranks."""
    load = f"{os.getloadavg()[0]:.2f}"
    found = _on_local_ranks([job], timeout, stop)
    environment = {"ranks": f"{len(found.clocks)} local, gloo", "load before": load}
    return _measured(problem, job, found, environment)


def _measured(problem: Problem, job: Job, found: Found, environment: Mapping[str, str]) -> Measured:
    """Put together what the ranks found of a job."""
    (documents,), (check,) = found.documents, found.checks
    timeline = timeline_of(problem, job, documents, found.clocks, environment)
    return Measured(timeline, check, peaks_of(problem, job, documents))


_ENVIRONMENT = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
_LINGER = 2.0  # seconds


def under_torchrun(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is a rank that torchrun started."""
    return all(name in environment for name in _ENVIRONMENT)


def run_this_rank(problem: Problem, job: Job, *, timeout: float) -> Measured | None:
    """Run a job as the rank that torchrun made of this process; ``None`` on all but rank 0."""
    api = load_torch_api()
    import torch

    from pipesat.measure.processes.connection import connected
    from pipesat.measure.processes.pipeline import run_jobs

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    wanted = len(job.order.rows)
    require(wanted == ranks, f"torchrun started {ranks} ranks, expected {wanted}, one per device")
    require(
        job.device != "cuda" or torch.cuda.is_available(),
        "no GPU that torch can use is there",
        where="device",
        value=job.device,
    )
    backend = "nccl" if job.device == "cuda" else "gloo"
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as name:
        folder = Path(name)
        try:
            if job.device == "cuda":
                torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            with connected(timeout, backend):
                found = run_jobs(api, [job], rank, folder)
        except (BadInput, RunFailed):
            raise
        except Exception as error:
            where = whereabouts(folder, f"rank {rank}")
            raise RunFailed(f"rank {rank} failed ({where}): {error}") from error
    if found is None:
        return None
    return _measured(problem, job, found, {"ranks": f"{ranks} under torchrun, {backend}"})


def leave(code: int) -> NoReturn:
    """End this process without torch's own clean-up, which may wait for ranks that are gone.

    Not at once: torchrun reports the first that it sees ended as the cause, and a rank that lost
    another is not.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(_LINGER)
    os._exit(code)


def peaks_of(
    problem: Problem, job: Job, documents: Sequence[Mapping[str, Any]]
) -> tuple[DevicePeak, ...] | None:
    """Return the ranks' peaks against the predicted ones; ``None`` if they were not measured."""
    if not job.memory:
        return None
    measured = [document["peak"] for document in documents]
    return device_peaks(problem, job.predicted, measured, comparable=not job.toy)


def timeline_of(
    problem: Problem,
    job: Job,
    documents: Sequence[Mapping[str, Any]],
    clocks: Sequence[tuple[int, int]],
    environment: Mapping[str, str],
) -> Timeline:
    """Put together what the ranks wrote."""
    numbers = job.numbers or range(job.order.microbatches)
    own = OwnWords(problem, numbers, modes_of(problem, job.order.modes, numbers, "memory modes"))
    steps = [document["steps"] for document in documents]
    timeline = Timeline(
        problem.sha256,
        assemble(own, steps, [offset for offset, _ in clocks]),
        us_per_unit(problem),
        TOY_SOURCE if job.toy else "pipesat run",
        2 * max(error for _, error in clocks) / 1000,
        {
            "torch": documents[0]["torch"],
            "device": documents[0]["device"],
            "model": job.module or f"transformer {job.shape}",
            "warm-up steps": str(job.warm_up),
            **environment,
        },
        {key: problem.stages[key[0]].modes[mode - 1].name for key, mode in own.modes.items()},
    )
    return equal_compute(problem, timeline) if job.toy else timeline
