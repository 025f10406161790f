"""Schedules that torch runs: measured, compared with one process, or waiting instead."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pipesat.core.errors import BadInput, NotApplicable
from pipesat.core.ops import Pair
from pipesat.core.rules import kept
from pipesat.workflows.valid import valid_schedule

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.result import Result
    from pipesat.core.schedule import Schedule
    from pipesat.profile.file import Profile
    from pipesat.runtime.job import Job, Shape
    from pipesat.runtime.parity import ParityReport
    from pipesat.runtime.run import Measured


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
        ``timeline`` (write it with :func:`pipesat.write_timeline`), ``check`` and ``peaks`` if
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
    job = _job(
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
    job = _job(
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


def _job(
    problem: Problem,
    schedule: Schedule,
    *,
    steps: int,
    warm_up: int,
    check: bool,
    module: str,
    split: str,
    shape: Shape | None,
    device: str = "cpu",
    scale: float | None = None,
    memory: bool = False,
    without_modes: bool = False,
    note: Callable[[str], None] | None = None,
) -> Job:
    """Return what ranks are asked to run; say how the order was changed for torch.

    ``scale`` stretches the problem's times, for waits instead of compute; ``None``: compute.
    ``memory`` measures peaks, ``without_modes`` keeps every microbatch.

    Raises
    ------
    NotApplicable
        If torch cannot run it.
    BadInput
        If the shape does not do, or a profile cannot be read.
    """
    from pipesat.core.memory import peak_memory
    from pipesat.core.timing import time_order
    from pipesat.export.torch.adapt import adapt
    from pipesat.export.torch.in_turn import makespan_in_turn
    from pipesat.export.torch.modes import modes_csv
    from pipesat.export.torch.write import torch_csv
    from pipesat.profile.file import read_profile
    from pipesat.runtime.job import Job, Shape
    from pipesat.runtime.run import virtual_times

    if memory and scale is not None:
        raise BadInput("waits hold no memory: virtual runs have no peaks", where="memory")
    shape = shape or Shape()
    shape.require(len(problem.stages))
    if module.endswith(".json"):
        read_profile(module)  # every rank reads it again; what is wrong with it is known now
    adapted = adapt(problem, schedule)
    differ = problem.has_lists
    if differ and adapted.entering != tuple(range(len(adapted.entering))):
        raise NotApplicable(
            "torch numbers microbatches by the last stage's forwards, which here run in another "
            "order than the problem's: list its microbatches in that order (export to `order`)"
        )
    notes = [f"changed for torch: {change}" for change in adapted.changes]
    now = adapted.schedule
    if pairs := sum(isinstance(item, Pair) for row in now.order for item in row):
        stock = makespan_in_turn(problem, now.order)
        notes.append(
            f"stock torch runs the members of its overlapped pairs ({pairs}) in turn: makespan "
            f"{stock}, against which this run is held; {now.makespan} only where they overlap"
            if scale is None
            else f"overlapped pairs ({pairs}) wait for their time, through a function registered "
            f"for OVERLAP_F_B: makespan {now.makespan}; {stock} in stock torch, which runs their "
            "members in turn"
        )
    modes = modes_csv(adapted.problem, now)
    if modes and without_modes:
        order = tuple(tuple(map(kept, row)) for row in now.order)
        now, modes = time_order(adapted.problem, order), ""
        notes.append("memory modes are left out: every microbatch is kept")
    if device == "cuda" and any(now.copies):
        raise NotApplicable(
            "offloaded activations go to files of the host, on the CPU alone so far: --device cpu, "
            "or modes that recompute"
        )
    if note is not None:
        for text in notes:
            note(text)
    return Job(
        csv=torch_csv(problem, now),
        steps=steps,
        warm_up=warm_up,
        shape=shape,
        virtual=None if scale is None else virtual_times(problem, scale, now.order),
        module=module,
        folder=str(Path.cwd()),
        split=split,
        check=check,
        device=device,
        modes=modes,
        memory=memory,
        predicted=tuple(peak_memory(adapted.problem, now)) if memory else (),
    )


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


def profile(
    config: str = "tiny",
    *,
    model: str | None = None,
    sizes: dict[str, Any] | None = None,
    length: int | None = None,
    sequences: int = 1,
    dtype: str | None = None,
    links: bool = False,
    timeout: float = 600.0,
    stop: threading.Event | None = None,
    **options: Any,
) -> Profile:
    """Measure F, B, W, BW and memory of a model's layers, in a process of its own.

    Needs ``pipesat[torch]``. To measure layers that you have in hand, in this process, use
    :func:`pipesat.profile_model`.

    Parameters
    ----------
    config
        Built-in decoder of a published model's shape; ``pipesat profile --list-configs`` lists
        them.
    model
        Your own, ``package.module:function``: it returns layers, microbatch and loss in a dict.
    sizes
        Sizes of the built-in decoder that differ: ``style``, ``layers``, ``width``, ``heads``,
        ``kv_heads``, ``feed_forward``, ``vocabulary``.
    length
        Tokens per sequence of the built-in decoder.
    sequences
        Its sequences per microbatch.
    dtype
        torch's name of a type; ``None``: the model's own, or float32.
    links
        Measure delays between two local gloo ranks too.
    timeout
        Seconds for all processes.
    stop
        Ends everything when set.
    options
        Fields of :class:`pipesat.profile.options.MeasureOptions`: ``samples=20``,
        ``stages=[2, 4]``, ``device="cuda"``, ...

    Raises
    ------
    BadInput
        If torch, the device or the model is not there, or the model is unfit for a pipeline.
    RunFailed
        If a process fails, the time is over, or ``stop`` was set.
    """
    from pipesat.profile.options import MeasureOptions
    from pipesat.runtime.profile_model import Request, measure_profile

    given = {key: value for key, value in (sizes or {}).items() if value is not None}
    options = {"name": model or config} | options
    request = Request(
        model=_model(model, config, given, length, sequences, dtype or ""),
        options=MeasureOptions(**options),
        dtype=dtype or "",
        links=links,
    )
    return measure_profile(request, timeout=timeout, stop=stop)


def _model(
    path: str | None,
    config: str,
    given: dict[str, Any],
    length: int | None,
    sequences: int,
    dtype: str,
) -> dict[str, Any]:
    """What the profile file's ``model`` is to be."""
    from pipesat.profile.shapes import DecoderShape, named_shape, shape_document

    if path is not None:
        if given or length is not None:
            size = next(iter(given), "length")
            raise BadInput("sizes are for the built-in decoder, not for a model", where=size)
        return {"source": "import", "path": path, "dtype": dtype}
    base = named_shape(config)
    fields = shape_document(base.shape) | given
    if "heads" in given and "kv_heads" not in given:
        fields["kv_heads"] = fields["heads"]
    if "width" in given and "feed_forward" not in given:
        fields["feed_forward"] = base.shape.feed_forward * fields["width"] // base.shape.width or 1
    return {
        "source": "decoder",
        "shape": shape_document(DecoderShape(**fields)),
        "length": length or base.length,
        "sequences": sequences,
    }
