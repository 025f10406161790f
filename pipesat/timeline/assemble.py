"""From what every rank recorded to the steps of a timeline: one clock, one zero, our op names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipesat.core.ops import Item, Op
from pipesat.core.problem import Problem
from pipesat.export.torch.read import items_of
from pipesat.export.torch.tokens import Action, parse_cell
from pipesat.files.schedule_file import Modes
from pipesat.timeline.timeline import DeviceRun, Ran, TrainingStep, TransferCall


def assemble(
    problem: Problem,
    ranks: Sequence[Sequence[Mapping[str, Any]]],
    offsets: Sequence[int],
    modes: Modes | None = None,
    numbers: Sequence[int] = (),
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
    modes
        Modes of the (stage, microbatch) that are not kept.
    numbers
        The problem's own number of each of torch's microbatches; the same if not given.
    """
    words = _Words(problem, modes or {}, numbers)
    steps = []
    for recordings in zip(*ranks, strict=True):
        shifted = list(zip(recordings, offsets, strict=True))
        zero = min(ops[0][2] + by for recording, by in shifted if (ops := recording["ops"]))
        rows = (_row(words, recording, by - zero) for recording, by in shifted)
        steps.append(TrainingStep(tuple(rows)))
    return tuple(steps)


class _Words:
    """torch's words of a run in the problem's own."""

    def __init__(self, problem: Problem, modes: Modes, numbers: Sequence[int]) -> None:
        self.problem, self.modes = problem, modes
        self.stages = problem.routes[0].stages
        self.numbers = numbers or range(problem.routes[0].microbatches)

    def op(self, action: Action) -> Op:
        key = (self.stages[action.stage], self.numbers[action.microbatch])
        return Op(key[0], action.kind, key[1], self.modes.get(key, 0))

    def item(self, text: str) -> Item:
        """The op of one of torch's actions, or the pair of an overlapped cell of two."""
        cell = parse_cell(text)
        items = [] if cell is None else items_of(cell, self.problem, self.op)
        if len(items) != 1:
            raise ValueError(f"{text!r} is neither one compute action nor a pair of the problem's")
        return items[0]

    def transfer(self, name: str) -> str:
        """A send or receive, ``0SEND_F3``: its stage is torch's, its microbatch the problem's."""
        head = name.rstrip("0123456789")
        number = name[len(head) :]
        return f"{head}{self.numbers[int(number)]}" if number else name


def _row(words: _Words, recording: Mapping[str, Any], by: int) -> DeviceRun:
    def us(time: int) -> float:
        return (time + by) / 1000

    return DeviceRun(
        tuple(
            Ran(
                words.item(action),
                us(start),
                us(end),
                (start - since) / 1000,
                None if cpu is None else cpu / 1000,
            )
            for action, since, start, end, cpu in recording["ops"]
        ),
        tuple(
            TransferCall(words.transfer(name), us(start), us(end))
            for name, start, end in recording["transfers"]
        ),
    )
