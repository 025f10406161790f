"""Running an order in torch, on local ranks started here: parity, and measured timelines."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipesat.core.errors import BadInput
from pipesat.core.problem import Problem
from pipesat.core.showing import Displayed, Facts
from pipesat.runtime.answers import (
    Answer,
    Check,
    DevicePeak,
    compare_answers,
    device_peaks,
    loss_name,
)
from pipesat.runtime.job import (
    FOLDER_PREFIX,
    REFERENCE,
    Job,
    TorchOrder,
    answer_file,
    measured_file,
    progress_file,
    rank_name,
    write_jobs,
)
from pipesat.runtime.launch import run_processes
from pipesat.runtime.torch_api import require_torch
from pipesat.timeline.timeline import TOY_SOURCE, Timeline, assemble, equal_compute, us_per_unit

TIMEOUT = 120.0
"""Seconds for all processes together, their start included."""


@dataclass(frozen=True, repr=False, slots=True)
class ParityReport(Displayed):
    """What came out of running one order.

    Attributes
    ----------
    losses
        The reference's loss of every microbatch.
    check
        What was compared, and what was farthest off.
    gradients, numbers
        How many parameters' gradients were compared, and how many numbers these have together.
    planned, executed
        Per rank, the actions of the order, and those that torch's runtime ran, in its order.
    """

    losses: tuple[float, ...]
    check: Check
    gradients: int
    numbers: int
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
        """Return whether it passed, the largest error, and what was compared."""
        worst, limit = self.check.worst, self.check.tolerance
        error = f"{worst.relative_error:.1e} ({worst.name}), limit {limit:.0e}"
        compared = (
            f"{len(self.losses)} losses and the gradients of {self.gradients} parameters "
            f"({self.numbers} numbers)"
        )
        order = "as planned" if self.executed_as_planned else "NOT as planned"
        passed = "passed" if self.passed else "failed"
        facts = [("parity", passed), ("largest relative error", error)]
        facts += [("not trained", text) for text in self.check.complaints]
        return [*facts, ("compared", compared), ("order", order)]

    def records(self) -> list[dict[str, Any]]:
        """Return a row per rank: how many actions of each of torch's letters it ran."""
        return [{"rank": rank} | counts for rank, counts in enumerate(self.counts)]

    def document(self) -> dict[str, Any]:
        """Return the report for ``--json``; an infinite error is ``None``."""
        return self.check.document() | {
            "passed": self.passed,
            "losses": list(self.losses),
            "gradients": self.gradients,
            "numbers": self.numbers,
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
    require_torch()
    texts = modes or [""] * len(orders)
    jobs = [
        Job(csv, steps=1, warm_up=0, modes=text, check=True)
        for csv, text in zip(orders, texts, strict=True)
    ]
    wanted = [job.order for job in jobs]
    ranks = {len(one.rows) for one in wanted}
    if len(ranks) != 1:
        raise BadInput("expected orders for one number of ranks", value=sorted(ranks))
    with _ran(jobs, timeout, stop) as (folder, names):
        return [_report(folder, names, number, one) for number, one in enumerate(wanted)]


@contextmanager
def _ran(
    jobs: Sequence[Job], timeout: float, stop: threading.Event | None
) -> Iterator[tuple[Path, list[str]]]:
    """Run jobs, and the reference if one is checked; yield where the ranks of these names wrote."""
    names = [rank_name(rank) for rank in range(len(jobs[0].order.rows))]
    checked = any(job.check for job in jobs)
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as name:
        write_jobs(Path(name), jobs)
        run_processes([*names, *[REFERENCE] * checked], Path(name), timeout=timeout, stop=stop)
        yield Path(name), names


def _answers(folder: Path, names: Sequence[str], number: int) -> tuple[Answer, Answer]:
    """Return what the reference and what the ranks have of a job."""
    got = Answer.all_of(Answer.read(answer_file(folder, name, number)) for name in names)
    return Answer.read(answer_file(folder, REFERENCE, number)), got


def _report(folder: Path, names: Sequence[str], number: int, wanted: TorchOrder) -> ParityReport:
    expected, got = _answers(folder, names, number)
    losses = tuple(float(expected.values[loss_name(i)]) for i in range(wanted.microbatches))
    return ParityReport(
        losses,
        compare_answers(expected, got),
        len(expected.values) - len(losses),
        sum(value.size for value in expected.values.values()) - len(losses),
        wanted.rows,
        tuple(tuple(progress_file(folder, name, number, 0).read_text().split()) for name in names),
    )


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
        steps, check = self.timeline.makespans, self.check
        took = f"{min(steps) / 1000:.2f} to {max(steps) / 1000:.2f} ms"
        facts = [("steps", f"{len(steps)}, each {took}")]
        if check is not None:
            error = f"{check.worst.relative_error:.1e} ({check.worst.name})"
            passed = "passed" if check.passed else "failed"
            facts += [("check", f"{passed}: largest relative error {error}")]
            facts += [("not trained", text) for text in check.complaints]
        return facts

    def records(self) -> list[dict[str, Any]]:
        """Return a row per op of the typical step, in microseconds."""
        return [
            {"device": device, "op": str(ran.item), "start": ran.start, "end": ran.end}
            for device, ran in self.timeline.typical
        ]


def run_orders(
    problem: Problem,
    jobs: Sequence[Job],
    *,
    scale: float = 1.0,
    timeout: float = 600.0,
    stop: threading.Event | None = None,
) -> list[Measured]:
    """Run jobs in turns, a step of each, on local gloo ranks, one process and one thread each.

    They are orders of one model on the same ranks, with as many steps; the first alone can be
    checked. ``scale``: seconds of the run per second of the problem (virtual devices only).
    """
    require_torch()
    load = os.getloadavg()[0]
    with _ran(jobs, timeout, stop) as (folder, names):
        documents = [json.loads(measured_file(folder, name).read_text()) for name in names]
        check = compare_answers(*_answers(folder, names, 0)) if jobs[0].check else None
    environment = {"ranks": f"{len(names)} local, gloo", "load before": f"{load:.2f}"}
    return [
        Measured(
            timeline_of(problem, job, found, scale=scale, environment=environment),
            None if number else check,
            peaks_of(problem, job, found),
        )
        for number, (job, found) in enumerate(zip(jobs, zip(*documents, strict=True), strict=True))
    ]


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
    *,
    scale: float = 1.0,
    offsets: Sequence[int] = (),
    clock_error: float = 0.0,
    environment: Mapping[str, str],
) -> Timeline:
    """Put together what the ranks wrote; ``offsets`` of their clocks in ns."""
    modes = modes_of(problem, job.order, job.numbers)
    steps = assemble(
        problem,
        [document["steps"] for document in documents],
        offsets or [0] * len(documents),
        modes,
        job.numbers,
    )
    what = "timed waits" if job.virtual else job.module or f"transformer {job.shape}"
    source = "pipesat run --virtual" if job.virtual else TOY_SOURCE if job.toy else "pipesat run"
    timeline = Timeline(
        problem.sha256,
        steps,
        us_per_unit(problem) * scale,
        source,
        clock_error,
        {
            "torch": documents[0]["torch"],
            "device": documents[0]["device"],
            "model": what,
            "warm-up steps": str(job.warm_up),
            **environment,
        },
        {
            (stage, microbatch): problem.stages[stage].modes[mode - 1].name
            for (stage, microbatch), mode in modes.items()
        },
    )
    return equal_compute(problem, timeline) if job.toy else timeline


def modes_of(
    problem: Problem, wanted: TorchOrder, numbers: Sequence[int] = ()
) -> dict[tuple[int, int], int]:
    """Return the modes of an order's (stage, microbatch) that are not kept, by the problem's.

    ``numbers`` are the problem's own numbers of torch's microbatches, if they are others.
    """
    found = {}
    for row in wanted.modes:
        stage = problem.routes[0].stages[row.stage]
        names = [mode.name for mode in problem.stages[stage].modes]
        microbatch = numbers[row.microbatch] if numbers else row.microbatch
        found[stage, microbatch] = 1 + names.index(row.mode)
    return found
