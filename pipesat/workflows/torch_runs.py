"""Schedules that torch runs: measured, compared with one process, or waiting instead."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pipesat.core.arguments import public
from pipesat.core.errors import BadInput
from pipesat.workflows.torch_job import torch_job
from pipesat.workflows.valid import valid_schedule

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.result import Result
    from pipesat.core.schedule import Schedule
    from pipesat.runtime.job import Shape
    from pipesat.runtime.parity import ParityReport
    from pipesat.runtime.run import Measured


@public
def run(
    problem: Problem,
    schedule: Schedule | Result | str | Path,
    *,
    model: str | None = None,
    shape: Shape | None = None,
    virtual: bool = False,
    scale: float = 1.0,
    steps: int = 5,
    warm_up: int = 2,
    check: bool = False,
    split: Literal["even", "balanced"] = "even",
    memory: bool = False,
    without_modes: bool = False,
    timeout: float = 600.0,
    note: Callable[[str], None] | None = None,
    stop: threading.Event | None = None,
) -> Measured:
    """Run a schedule in torch's pipeline runtime, and return when every op really ran.

    Starts one local gloo process per rank, on the CPU; needs ``pipesat[torch]``. In a script, call
    it under ``if __name__ == "__main__":``. Under torchrun, :func:`run_rank` runs this process's
    rank.

    Parameters
    ----------
    problem
        The problem that it is a schedule of.
    schedule
        A schedule, the result that has it, or the path of a schedule file.
    model
        A profile (.json), ``package.module:function``, or a module or .py file with
        ``build_stage``, ``whole_batch`` and ``loss_of``; a transformer if not given.
    shape
        Sizes of that transformer, a :class:`pipesat.runtime.job.Shape`.
    virtual
        Waits of the problem's times instead of compute.
    scale
        Stretches these times.
    steps, warm_up
        Training steps that are measured, and that are run before them.
    check
        Compare losses and gradients with one process.
    split
        How a profile's layers are cut into stages.
    memory
        Run one more step and measure the most memory that each device holds in it.
    without_modes
        Keep every microbatch, whatever memory mode the schedule has for it.
    timeout
        Seconds for everything; then all processes are ended.
    note
        Called with what was changed for torch, and with how it runs pairs.
    stop
        Ends everything when set.

    Returns
    -------
    Measured
        ``timeline`` (``timeline.write(path)``), ``check`` and ``peaks`` if
        asked for.

    Raises
    ------
    NotValid
        If the checker refuses the schedule.
    NotApplicable
        If torch cannot run it.
    RunFailed
        If a rank fails, dies or hangs, a loss is not finite, or ``stop`` was set.
    """
    from pipesat.runtime.run import run_order

    if virtual and model is not None:
        raise BadInput("expected virtual or a model, not both", where="model", value=model)
    job = torch_job(
        problem,
        valid_schedule(problem, schedule),
        steps=steps,
        warm_up=warm_up,
        check=check,
        module=model or "",
        split=split,
        shape=shape,
        scale=scale if virtual else None,
        memory=memory,
        without_modes=without_modes,
        note=note,
    )
    return run_order(problem, job, scale=scale if virtual else 1.0, timeout=timeout, stop=stop)


@public
def run_rank(
    problem: Problem,
    schedule: Schedule | Result | str | Path,
    *,
    model: str | None = None,
    shape: Shape | None = None,
    steps: int = 5,
    warm_up: int = 2,
    check: bool = False,
    memory: bool = False,
    without_modes: bool = False,
    split: Literal["even", "balanced"] = "even",
    device: Literal["cpu", "cuda"] = "cpu",
    timeout: float = 600.0,
    note: Callable[[str], None] | None = None,
) -> Measured | None:
    """Run this process's rank of a schedule under torchrun, which starts one process per rank.

    Parameters
    ----------
    problem, schedule, model, shape, steps, warm_up, check, split, timeout, note
        As of :func:`run`.
    memory, without_modes
        As of :func:`run`.
    device
        ``cuda``: one GPU per rank, with NCCL.

    Returns
    -------
    Measured | None
        What all ranks measured; ``None`` on ranks other than 0.

    Raises
    ------
    NotValid, NotApplicable
        As :func:`run`.
    BadInput
        If torchrun did not start this process, or started another number of ranks.
    RunFailed
        If this rank fails or loses another; the message says in which action.
    """
    from pipesat.runtime.torchrun import run_this_rank, under_torchrun

    if not under_torchrun():
        raise BadInput("this process is no rank of torchrun's: use run, which starts local ranks")
    job = torch_job(
        problem,
        valid_schedule(problem, schedule),
        steps=steps,
        warm_up=warm_up,
        check=check,
        module=model or "",
        split=split,
        shape=shape,
        device=device,
        note=note,
        memory=memory,
        without_modes=without_modes,
    )
    return run_this_rank(problem, job, timeout=timeout)


@public
def parity(
    problem: Problem,
    schedule: Schedule | Result | str | Path,
    *,
    timeout: float = 120.0,
    note: Callable[[str], None] | None = None,
    stop: threading.Event | None = None,
) -> ParityReport:
    """Run a schedule in torch and compare with one process: losses and every gradient.

    Starts one local process per rank on the CPU, with a small transformer cut into the problem's
    stages; needs ``pipesat[torch]``. In a script, call it under ``if __name__ == "__main__":``.

    Parameters
    ----------
    problem
        The problem that it is a schedule of.
    schedule
        A schedule, the result that has it, or the path of a schedule file.
    timeout
        Seconds for everything; then all processes are ended.
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
    from pipesat.export.torch.adapt import adapt
    from pipesat.export.torch.modes import modes_csv
    from pipesat.export.torch.write import torch_csv
    from pipesat.runtime.parity import check_parity

    adapted = adapt(problem, valid_schedule(problem, schedule))
    if note is not None:
        for change in adapted.changes:
            note(f"changed for torch: {change}")
    order = torch_csv(problem, adapted.schedule)
    modes = modes_csv(adapted.problem, adapted.schedule)
    (report,) = check_parity([order], modes=[modes], timeout=timeout, stop=stop)
    return report
