"""Schedules that torch runs: measured, or compared with one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pipesat.compare.schedules import valid_schedule
from pipesat.core.amounts import time_text
from pipesat.core.arguments import public
from pipesat.core.errors import require
from pipesat.core.progress import doing
from pipesat.core.settings import RunSteps, Seconds
from pipesat.problem.rules import kept

if TYPE_CHECKING:
    from pipesat.compare.result import Result
    from pipesat.measure.processes.job import Job, Shape
    from pipesat.measure.processes.run import Measured, ParityReport
    from pipesat.problem.problem import Problem
    from pipesat.schedule.schedule import Schedule


@public
def run(
    problem: Problem,
    schedule: Schedule | Result | str | Path,
    *,
    steps: RunSteps = 5,
    warm_up: RunSteps = 2,
    verify: bool = False,
    model: str | None = None,
    split: Literal["even", "balanced"] = "even",
    shape: str | Mapping[str, Any] | None = None,
    measure_memory: bool = False,
    without_modes: bool = False,
    device: Literal["cpu", "cuda"] = "cpu",
    timeout: Seconds = 600.0,
    note: Callable[[str], None] | None = None,
    stop: threading.Event | None = None,
) -> Measured | None:
    """Run a schedule in torch's pipeline runtime, and return when every op really ran.

    Starts one local gloo process per rank, on the CPU; needs torch. In a script, call
    it under ``if __name__ == "__main__":``. Under torchrun, which starts one process per rank, it
    is this process's rank.

    Parameters
    ----------
    steps
        Training steps that are measured.
    warm_up
        Training steps before them, which do not count.
    verify
        Compare losses and gradients with one process.
    model
        A profile (.json), package.module:function as for pipesat profile, or a module or .py file
        with build_stage, whole_batch and loss_of; ``None``: a small transformer.
    split
        How a profile's layers are cut into stages.
    shape
        Sizes of that transformer, as width=64,blocks=2,3: vocabulary, width, heads, length, batch,
        blocks per stage, dtype.
    measure_memory
        Measure each device's peak memory, in one more step.
    without_modes
        Keep every microbatch, whatever memory mode the schedule has for it.
    device
        ``cuda``: one GPU per rank, with NCCL, under torchrun alone.
    note
        Called with what was changed for torch, and with how it runs pairs.
    stop
        Ends everything when set; not under torchrun, which ends its ranks itself.

    Returns
    -------
    Measured | None
        ``timeline`` (``timeline.write(path)``), ``check`` and ``peaks`` if asked for; ``None``
        under torchrun on ranks other than 0.

    Raises
    ------
    NotValid
        If the checker refuses the schedule.
    NotApplicable
        If torch cannot run it.
    BadInput
        If settings do not go together, or torchrun started another number of ranks.
    RunFailed
        If a rank fails, dies or hangs, a loss is not finite, or ``stop`` was set.
    """
    from pipesat.measure.processes.job import measured_shape
    from pipesat.measure.processes.run import run_order, run_this_rank, under_torchrun

    _require_together(model, split, shape)
    require(
        device != "cuda" or under_torchrun(),
        "local ranks run on the CPU: start it with torchrun, one GPU per rank",
        where="device",
        value=device,
    )
    job = torch_job(
        problem,
        valid_schedule(problem, schedule),
        steps=steps,
        warm_up=warm_up,
        check=verify,
        module=model or "",
        split=split,
        shape=measured_shape(shape),
        device=device,
        memory=measure_memory,
        without_modes=without_modes,
        note=note,
    )
    if under_torchrun():
        return run_this_rank(problem, job, timeout=timeout)
    with doing(f"running in torch: {warm_up} + {steps} steps"):
        return run_order(problem, job, timeout=timeout, stop=stop)


def _require_together(model: str | None, split: str, shape: object) -> None:
    """Refuse what would say nothing beside the rest."""
    require(
        shape is None or model is None,
        "this is of the built-in transformer: not of another model",
        where="shape",
        value=shape,
    )
    require(
        split == "even" or (model or "").endswith(".json"),
        "only a profile is cut here: `model` FILE.json",
        where="split",
        value=split,
    )


@public
def parity(
    problem: Problem,
    schedule: Schedule | Result | str | Path,
    *,
    timeout: Seconds = 120.0,
    note: Callable[[str], None] | None = None,
    stop: threading.Event | None = None,
) -> ParityReport:
    """Run a schedule in torch and compare with one process: losses and every gradient.

    Starts one local process per rank on the CPU, with a small transformer cut into the problem's
    stages; needs torch. In a script, call it under ``if __name__ == "__main__":``.

    Parameters
    ----------
    note
        Called with what was changed for torch.
    stop
        Ends everything when set.

    Raises
    ------
    NotValid
        If the checker refuses the schedule.
    NotApplicable
        If torch cannot run it.
    RunFailed
        If a process fails, dies or hangs, or ``stop`` was set.
    """
    from pipesat.measure.processes.job import Shape
    from pipesat.measure.processes.run import check_parity

    found = valid_schedule(problem, schedule)
    job = torch_job(problem, found, steps=1, warm_up=0, check=True, shape=Shape(), note=note)
    with doing("comparing a step in torch with one process"):
        (report,) = check_parity([job.csv], modes=[job.modes], timeout=timeout, stop=stop)
    return report


def torch_job(
    problem: Problem,
    schedule: Schedule,
    *,
    steps: int,
    warm_up: int,
    check: bool,
    shape: Shape,
    module: str = "",
    split: str = "even",
    device: str = "cpu",
    memory: bool = False,
    without_modes: bool = False,
    note: Callable[[str], None] | None = None,
) -> Job:
    """Return what ranks are asked to run; say how the order was changed for torch.

    ``memory`` measures peaks, ``without_modes`` keeps every microbatch.
    """
    from pipesat.layers.profile.profile_file import read_profile
    from pipesat.measure.processes.job import Job
    from pipesat.runtimes.torch.adapt import adapt
    from pipesat.runtimes.torch.companions import modes_text
    from pipesat.runtimes.torch.csv_file import torch_csv
    from pipesat.runtimes.torch.hazards import makespan_in_turn
    from pipesat.schedule.metrics import peak_memory
    from pipesat.schedule.schedule import pairs_in
    from pipesat.schedule.timing import time_order

    shape.require(len(problem.stages))
    if module.endswith(".json"):
        read_profile(module)  # every rank reads it again; what is wrong with it is known now
    adapted = adapt(problem, schedule)
    notes = [f"changed for torch: {change}" for change in adapted.changes]
    now, entering = adapted.schedule, adapted.entering
    if problem.has_lists:
        notes.append("microbatches differ in the problem: the model has one shape")
    if pairs := pairs_in(now.order):
        said = partial(time_text, unit=problem.time_unit)
        stock = said(makespan_in_turn(adapted.problem, now.order))
        notes.append(
            f"overlapped pairs ({pairs}): stock torch runs their members in turn; "
            f"makespan {said(now.makespan)}, in stock torch {stock}"
        )
    modes = modes_text(adapted.problem, now)
    if modes and without_modes:
        order = tuple(tuple(map(kept, row)) for row in now.order)
        now, modes = time_order(adapted.problem, order), ""
        notes.append("memory modes are left out: every microbatch is kept")
    if copied := sum(map(len, now.copies)) // 2:
        notes.append(
            f"offloaded microbatches ({copied}): torch's save_on_cpu copies within ops, which take "
            "longer than scheduled; on CPU ranks nothing is copied"
        )
    if note is not None:
        for text in notes:
            note(text)
    return Job(
        csv=torch_csv(adapted.problem, now),
        steps=steps,
        warm_up=warm_up,
        shape=shape,
        module=module,
        folder=str(Path.cwd()),
        split=split,
        check=check,
        device=device,
        modes=modes,
        memory=memory,
        predicted=tuple(peak_memory(adapted.problem, now)) if memory else (),
        numbers=() if entering == tuple(range(len(entering))) else entering,
    )
