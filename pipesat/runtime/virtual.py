"""Virtual devices: every action takes exactly the problem's time, and so do links.

An action's own small computation is part of its time, torch's bookkeeping between actions is not.
The ranks share one machine, so the end of every action stands in a file that all of them map; a
rank that needs a result waits until its delay has passed since.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Final

import numpy as np

from pipesat.core.errors import BadInput
from pipesat.core.ops import Op, Pair, members
from pipesat.core.problem import Problem
from pipesat.core.rules import duration
from pipesat.core.schedule import Order
from pipesat.export.torch.csv_file import cells_of
from pipesat.export.torch.lint import LETTER_OF, Action, cell_text, parse_cell
from pipesat.runtime.job import TorchOrder, Virtual
from pipesat.timeline.timeline import us_per_unit


def virtual_times(problem: Problem, scale: float, order: Order = ()) -> Virtual:
    """Return the problem's times as waits, in seconds, ``scale`` times as long.

    With those of the pairs of ``order``, which is fit for torch.
    """
    second = us_per_unit(problem) * scale / 1e6
    route, microbatches = problem.routes[0].stages, range(problem.routes[0].microbatches)
    modes = {op[::2]: op.mode for row in order for item in row for op in members(item)}
    durations = {
        f"{position}{letter}{m}": second
        * duration(problem, Op(stage, kind, m, modes.get((stage, m), 0)))
        for position, stage in enumerate(route)
        for kind, letter in LETTER_OF.items()
        for m in microbatches
    }
    for row, cells in zip(order, cells_of(problem, order), strict=True):
        for item, cell in zip(row, cells, strict=True):
            if isinstance(item, Pair):
                durations[cell_text(cell)] = second * duration(problem, item)
    if not any(durations.values()):
        raise BadInput("all costs are 0: there is nothing to wait for", where="stages")
    delays: dict[str, float] = {}
    for position, stage in enumerate(route[:-1]):
        for m in microbatches:
            link = problem.link(stage, m)
            delays[f"{position}F{m}"] = second * link.F if link else 0.0
            delays[f"{position + 1}B{m}"] = second * link.B if link else 0.0
    return Virtual(durations, delays)


_TICK: Final = 2e-4  # seconds


class VirtualDevice:
    """The waits of one rank."""

    def __init__(self, virtual: Virtual, wanted: TorchOrder, rank: int, ends: Path) -> None:
        self.durations, self.delays = virtual.durations, virtual.delays
        self.last = wanted.stages - 1
        self.local = set(wanted.stages_on[rank])
        self.cells = {
            str(member): (cell_text(cell), member == cell[0], member == cell[-1])
            for cell in wanted.overlapped
            for member in cell
        }
        shape = (2, 2, wanted.stages, wanted.microbatches)  # by parity of the step; F or gradient
        with ends.open("ab") as file:
            file.truncate(8 * math.prod(shape))
        self.both = np.memmap(ends, dtype=np.float64, mode="r+", shape=shape)
        self.parity = 0

    def begin(self) -> None:
        """Forget when our actions ended two steps ago, which nobody waits for any more."""
        self.parity ^= 1
        self.ends = self.both[self.parity]
        self.ends[:, sorted(self.local)] = 0.0

    def await_input(self, action: str) -> None:
        """Wait until the inputs of an action, or of all in an overlapped cell, have arrived."""
        for stage, letter, microbatch in _cell(action):
            forward = letter == "F"
            source = stage - 1 if forward else stage + 1
            if letter != "W" and 0 <= source <= self.last and source not in self.local:
                while not (sent := float(self.ends[0 if forward else 1, source, microbatch])):
                    time.sleep(_TICK)  # torch has waited for the input of a cell's first alone
                _sleep_until(sent + self.delays[f"{source}{'F' if forward else 'B'}{microbatch}"])

    def compute(self, action: str, begin: float) -> None:
        """Wait until the action or overlapped cell, begun at ``begin``, would end."""
        _sleep_until(begin + self.durations[action])
        for stage, letter, microbatch in _cell(action):
            if letter != "W":
                self.ends[0 if letter == "F" else 1, stage, microbatch] = time.monotonic()


def _cell(text: str) -> tuple[Action, ...]:
    cell = parse_cell(text)
    if cell is None:
        raise ValueError(f"{text!r} computes nothing")
    return cell


def _sleep_until(moment: float) -> None:
    left = moment - time.monotonic()
    if left > 0:
        time.sleep(left)
