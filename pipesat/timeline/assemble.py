"""From what every rank recorded to the steps of a timeline: one clock, one zero, our op names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipesat.core.ops import Copy, Item, parse_copy
from pipesat.core.problem import Problem
from pipesat.export.torch.read import items_of
from pipesat.export.torch.tokens import parse_cell
from pipesat.files.schedule_file import Modes, in_mode
from pipesat.timeline.timeline import DeviceRun, Ran, RanCopy, TrainingStep, TransferCall


def assemble(
    problem: Problem,
    ranks: Sequence[Sequence[Mapping[str, Any]]],
    offsets: Sequence[int],
    modes: Modes | None = None,
) -> tuple[TrainingStep, ...]:
    """Put the recordings of all ranks together.

    Parameters
    ----------
    ranks
        Per rank and step, ``ops`` as ``[action, waiting since, start, end, on a core]`` and
        ``transfers`` as ``[name, start, end]``; actions in torch's letters, times in ns of the
        rank's clock (``on a core`` is a length, or ``None``). ``copies`` as ``[copy, start, end]``
        where something is offloaded.
    offsets
        What to add to each rank's clock to get that of rank 0, in ns.
    modes
        Modes of the (stage, microbatch) that are not kept.
    """
    steps = []
    for recordings in zip(*ranks, strict=True):
        shifted = list(zip(recordings, offsets, strict=True))
        zero = min(ops[0][2] + by for recording, by in shifted if (ops := recording["ops"]))
        rows = (_row(problem, recording, by - zero, modes or {}) for recording, by in shifted)
        steps.append(TrainingStep(tuple(rows)))
    return tuple(steps)


def _row(problem: Problem, recording: Mapping[str, Any], by: int, modes: Modes) -> DeviceRun:
    def us(time: int) -> float:
        return (time + by) / 1000

    return DeviceRun(
        tuple(
            Ran(
                in_mode(item_of(problem, action), modes),
                us(start),
                us(end),
                (start - since) / 1000,
                None if cpu is None else cpu / 1000,
            )
            for action, since, start, end, cpu in recording["ops"]
        ),
        tuple(
            TransferCall(name, us(start), us(end)) for name, start, end in recording["transfers"]
        ),
        tuple(
            RanCopy(_copy_of(problem, name), us(start), us(end))
            for name, start, end in recording.get("copies", ())
        ),
    )


def _copy_of(problem: Problem, text: str) -> Copy:
    """Return the copy that torch's stage numbers name."""
    copy = parse_copy(text)
    return copy._replace(stage=problem.routes[0].stages[copy.stage])


def item_of(problem: Problem, text: str) -> Item:
    """Return the op of one of torch's actions, or the pair of an overlapped cell of two."""
    cell = parse_cell(text)
    items = [] if cell is None else items_of(cell, problem)
    if len(items) != 1:
        raise ValueError(f"{text!r} is neither one compute action nor a pair of the problem's")
    return items[0]
