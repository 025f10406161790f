"""From what every rank recorded to the steps of a timeline: one clock, one zero, our op names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipesat.core.ops import Op
from pipesat.core.problem import Problem
from pipesat.export.torch.tokens import KIND_OF, Action, parse_cell
from pipesat.timeline.timeline import DeviceRun, Ran, TrainingStep, TransferCall


def assemble(
    problem: Problem, ranks: Sequence[Sequence[Mapping[str, Any]]], offsets: Sequence[int]
) -> tuple[TrainingStep, ...]:
    """Put the recordings of all ranks together.

    Parameters
    ----------
    ranks
        Per rank and step, ``ops`` as ``[action, waiting since, start, end, on a core]`` and
        ``transfers`` as ``[name, start, end]``; actions in torch's letters, times in ns of the
        rank's clock (``on a core`` is a length, or ``None``).
    offsets
        What to add to each rank's clock to get that of rank 0, in ns.
    """
    steps = []
    for recordings in zip(*ranks, strict=True):
        shifted = list(zip(recordings, offsets, strict=True))
        zero = min(ops[0][2] + by for recording, by in shifted if (ops := recording["ops"]))
        rows = (_row(problem, recording, by - zero) for recording, by in shifted)
        steps.append(TrainingStep(tuple(rows)))
    return tuple(steps)


def _row(problem: Problem, recording: Mapping[str, Any], by: int) -> DeviceRun:
    def us(time: int) -> float:
        return (time + by) / 1000

    return DeviceRun(
        tuple(
            Ran(
                op_of(problem, action),
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
    )


def op_of(problem: Problem, action: str | Action) -> Op:
    """Return the op of one of torch's actions: torch's stage k is the k-th of the route."""
    if isinstance(action, str):
        cell = parse_cell(action)
        if cell is None or len(cell) != 1:
            raise ValueError(f"{action!r} is not one compute action")
        action = cell[0]
    return Op(problem.routes[0].stages[action.stage], KIND_OF[action.letter], action.microbatch)
