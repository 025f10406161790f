"""What the ranks of a run in torch are asked to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipesat.core.errors import BadInput
from pipesat.core.ops import Pair
from pipesat.core.rules import kept

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Schedule
    from pipesat.runtime.job import Job, Shape


def torch_job(
    problem: Problem,
    schedule: Schedule,
    *,
    steps: int,
    warm_up: int,
    check: bool,
    module: str,
    split: str,
    shape: Shape,
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
    from pipesat.core.metrics import peak_memory
    from pipesat.core.timing import time_order
    from pipesat.export.torch.adapt import adapt
    from pipesat.export.torch.csv_file import torch_csv
    from pipesat.export.torch.modes import modes_csv
    from pipesat.profile.file import read_profile
    from pipesat.runtime.job import Job
    from pipesat.runtime.virtual import virtual_times

    if memory and scale is not None:
        raise BadInput("waits hold no memory: no peaks to measure", where="measure_memory")
    shape.require(len(problem.stages))
    if module.endswith(".json"):
        read_profile(module)  # every rank reads it again; what is wrong with it is known now
    adapted = adapt(problem, schedule)
    notes = [f"changed for torch: {change}" for change in adapted.changes]
    notes += _of_lists(problem, virtual=scale is not None)
    now, entering = adapted.schedule, adapted.entering
    notes += _of_pairs(adapted.problem, now, virtual=scale is not None)
    modes = modes_csv(adapted.problem, now)
    if modes and without_modes:
        order = tuple(tuple(map(kept, row)) for row in now.order)
        now, modes = time_order(adapted.problem, order), ""
        notes.append("memory modes are left out: every microbatch is kept")
    if copied := sum(map(len, now.copies)) // 2:
        notes.append(
            f"offloaded microbatches ({copied}): torch's save_on_cpu copies within ops, which take "
            "longer than scheduled; on CPU ranks nothing is copied, and virtual ones wait for none"
        )
    if note is not None:
        for text in notes:
            note(text)
    return Job(
        csv=torch_csv(adapted.problem, now),
        steps=steps,
        warm_up=warm_up,
        shape=shape,
        virtual=None if scale is None else virtual_times(adapted.problem, scale, now.order),
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


def _of_lists(problem: Problem, *, virtual: bool) -> Iterator[str]:
    """What becomes of microbatches that differ."""
    if not problem.has_lists:
        return
    if virtual:
        yield "microbatches differ: the waits are each one's own, and the timeline has its number"
    else:
        yield "microbatches differ in the problem, the model gives them all one shape"


def _of_pairs(problem: Problem, schedule: Schedule, *, virtual: bool) -> Iterator[str]:
    """What becomes of a schedule's overlapped pairs."""
    from pipesat.export.torch.hazards import makespan_in_turn

    pairs = sum(isinstance(item, Pair) for row in schedule.order for item in row)
    if not pairs:
        return
    stock = makespan_in_turn(problem, schedule.order)
    if virtual:
        yield (
            f"overlapped pairs ({pairs}) wait for their time, through a function registered "
            f"for OVERLAP_F_B: makespan {schedule.makespan}; {stock} in stock torch, which runs "
            "their members in turn"
        )
    else:
        yield (
            f"stock torch runs the members of its overlapped pairs ({pairs}) in turn: makespan "
            f"{stock}, against which this run is held; {schedule.makespan} only where they overlap"
        )
