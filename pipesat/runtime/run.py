"""Running an order in torch, on local ranks that are started here, and collecting its timeline."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipesat.core.errors import BadInput
from pipesat.core.ops import Op, Pair, members
from pipesat.core.problem import Problem
from pipesat.core.rules import duration
from pipesat.core.schedule import Order
from pipesat.core.showing import Displayed, Facts
from pipesat.export.torch.tokens import LETTER_OF, cell_text
from pipesat.export.torch.write import cells_of
from pipesat.runtime.answers import Answer, Check, compare_answers
from pipesat.runtime.job import Job, Virtual, write_jobs
from pipesat.runtime.launch import run_children
from pipesat.runtime.orders import (
    FOLDER_PREFIX,
    REFERENCE,
    TorchOrder,
    answer_file,
    measured_file,
    rank_name,
)
from pipesat.runtime.peaks import DevicePeak, device_peaks
from pipesat.runtime.torch_api import require_torch
from pipesat.timeline.assemble import assemble
from pipesat.timeline.timeline import TOY_SOURCE, Timeline, equal_compute, us_per_unit


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


def run_order(
    problem: Problem,
    job: Job,
    *,
    scale: float = 1.0,
    timeout: float = 600.0,
    stop: threading.Event | None = None,
) -> Measured:
    """Run a job on local gloo ranks; see :func:`run_orders`."""
    return run_orders(problem, [job], scale=scale, timeout=timeout, stop=stop)[0]


def run_orders(
    problem: Problem,
    jobs: Sequence[Job],
    *,
    scale: float = 1.0,
    timeout: float = 600.0,
    stop: threading.Event | None = None,
) -> list[Measured]:
    """Run jobs in turns, a step of each, on local gloo ranks, one process and one thread each.

    Parameters
    ----------
    problem
        Whose orders the jobs' CSVs are.
    jobs
        Orders of one model on the same ranks, with as many steps; the first alone can be checked.
    scale
        Seconds of the run per second of the problem (virtual devices only).
    timeout
        Seconds for everything. Then all processes are ended.
    stop
        Ends everything when set.

    Raises
    ------
    BadInput
        If torch is missing or lacks the pipeline runtime, or the order or model cannot be run.
    RunFailed
        If a rank fails, dies or hangs, a loss is not finite, or ``stop`` was set.
    """
    require_torch()
    wanted, job = [job.order for job in jobs], jobs[0]
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as name:
        folder = Path(name)
        write_jobs(folder, jobs)
        names = [rank_name(rank) for rank in range(len(wanted[0].rows))]
        load = os.getloadavg()[0]
        run_children(names, folder, timeout=timeout, stop=stop)
        documents = [json.loads(measured_file(folder, name).read_text()) for name in names]
        check = None
        if job.check:
            run_children([REFERENCE], folder, timeout=timeout, stop=stop)
            got = Answer.all_of(Answer.read(answer_file(folder, rank, 0)) for rank in names)
            check = compare_answers(Answer.read(answer_file(folder, REFERENCE, 0)), got)
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


def virtual_times(problem: Problem, scale: float, order: Order = ()) -> Virtual:
    """Return the problem's times as waits, in seconds, ``scale`` times as long.

    With those of the pairs of ``order``, which is fit for torch.

    Raises
    ------
    BadInput
        If time stands still.
    """
    second = us_per_unit(problem) * scale / 1e6
    route = problem.routes[0].stages
    # one wait for all microbatches, named without a number, or one each
    numbers = (
        {"": 0} if problem.plain else {str(m): m for m in range(problem.microbatches[route[0]])}
    )
    modes = {op[::2]: op.mode for row in order for item in row for op in members(item)}
    durations = {
        f"{position}{letter}{text}": second * duration(problem, op)
        for position, stage in enumerate(route)
        for kind, letter in LETTER_OF.items()
        for text, microbatch in numbers.items()
        for op in [Op(stage, kind, microbatch, modes.get((stage, microbatch), 0))]
    }
    for row, cells in zip(order, cells_of(problem, order), strict=True):
        for item, cell in zip(row, cells, strict=True):
            if isinstance(item, Pair):
                durations[cell_text(cell)] = second * duration(problem, item)
    if not any(durations.values()):
        raise BadInput("all costs are 0: there is nothing to wait for", where="stages")
    delays: dict[str, float] = {}
    for position, stage in enumerate(route[:-1]):
        for text, microbatch in numbers.items():
            link = problem.link(stage, microbatch)
            delays[f"{position}F{text}"] = second * link.F if link else 0.0
            delays[f"{position + 1}B{text}"] = second * link.B if link else 0.0
    return Virtual(durations, delays)
