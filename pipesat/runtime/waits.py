"""Virtual devices: every action takes exactly the problem's time, and so do links.

An action's own small computation is part of its time, torch's bookkeeping between actions is not.
The ranks share one machine, so the end of every action stands in a file that all of them map; a
rank that needs a result waits until its delay has passed since.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pipesat.export.torch.tokens import Action, Cell, parse_cell
from pipesat.runtime.job import Virtual
from pipesat.runtime.orders import TorchOrder


class VirtualDevice:
    """The waits of one rank."""

    def __init__(self, virtual: Virtual, wanted: TorchOrder, rank: int, ends: Path) -> None:
        self.durations, self.delays = virtual.durations, virtual.delays
        self.last = wanted.stages - 1
        self.local = set(wanted.stages_on[rank])
        shape = (2, wanted.stages, wanted.microbatches)  # ends of forwards, of input gradients
        with ends.open("ab") as file:
            file.truncate(8 * 2 * wanted.stages * wanted.microbatches)
        self.ends = np.memmap(ends, dtype=np.float64, mode="r+", shape=shape)

    def await_input(self, action: str) -> None:
        """Wait until the inputs of an action, or of all in an overlapped cell, have arrived."""
        for stage, letter, microbatch in _cell(action):
            if letter == "W":
                continue
            forward = letter == "F"
            source = stage - 1 if forward else stage + 1
            if 0 <= source <= self.last and source not in self.local:
                sent = float(self.ends[0 if forward else 1, source, microbatch])
                link = f"{source}{'F' if forward else 'B'}"
                _sleep_until(sent + _own(self.delays, link, microbatch))

    def compute(self, action: str, begin: float) -> None:
        """Wait until the action or overlapped cell, begun at ``begin``, would end."""
        cell = _cell(action)
        _sleep_until(begin + self._duration(action, cell))
        for stage, letter, microbatch in cell:
            if letter != "W":
                self.ends[0 if letter == "F" else 1, stage, microbatch] = time.monotonic()

    def _duration(self, text: str, cell: Cell) -> float:
        if len(cell) > 1:
            return self.durations[text]
        stage, letter, microbatch = cell[0]
        return _own(self.durations, f"{stage}{letter}", microbatch)


def _own(times: Mapping[str, float], name: str, microbatch: int) -> float:
    """Time of one microbatch; where they are alike, of all."""
    time = times.get(f"{name}{microbatch}")
    return times[name] if time is None else time


def _cell(text: str) -> tuple[Action, ...]:
    cell = parse_cell(text)
    if cell is None:
        raise ValueError(f"{text!r} computes nothing")
    return cell


def _sleep_until(moment: float) -> None:
    left = moment - time.monotonic()
    if left > 0:
        time.sleep(left)
