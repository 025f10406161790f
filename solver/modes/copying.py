"""Copies and memory in a model with modes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ortools.sat.python import cp_model

from pipesat.solver.model.variants import Literal
from pipesat.solver.modes.cell import Cell
from pipesat.solver.modes.frame import Frame, Placed
from pipesat.solver.modes.ways import Holding, Part

_OPS: tuple[Part, ...] = ("F", "B", "W")


def add_channels(frame: Frame, device: int) -> None:
    """Copies of a channel do not overlap; those after or beside the window keep sequence.

    Copies in one direction go in the order of the F's, or backwards, that they belong to.
    """
    cp, window = frame.cp, frame.window
    inside = device in window.devices
    both: tuple[tuple[Part, ...], ...] = (("O",), ("L",))
    if frame.problem.devices[device].copy_channels == 1:
        both = (("O", "L"),)
    for parts in both:
        found = frame.parts(device, parts)
        begin = frame.ends_before(device, parts)
        for copy in found:
            cp.add(copy.cell.start[copy.part] >= begin)
        if inside:
            cp.add_no_overlap([i for copy in found for i in copy.cell.intervals(cp, copy.part)])
        later = [x for x in found if not inside or (x.start >= window.end and _is_there(frame, x))]
        for one, two in pairwise(later):
            cp.add(two.cell.start[two.part] >= one.cell.end(one.part))
        for part in parts:
            _add_sequence(frame, [copy.cell for copy in found if copy.part == part], part)


def _is_there(frame: Frame, placed: Placed) -> bool:
    """Whether a part is in the present schedule."""
    return placed.part in frame.state.starts[placed.cell.stage, placed.cell.microbatch]


def _add_sequence(frame: Frame, cells: list[Cell], part: Part) -> None:
    """Copies in one direction; one that is absent stands among them and takes no time."""
    by: Part = "F" if part == "O" else "B"
    starts = frame.state.starts
    cells = sorted(cells, key=lambda cell: starts[cell.stage, cell.microbatch][by])
    for one, two in pairwise(cells):
        frame.cp.add(two.start[part] >= one.start[part])
        frame.cp.add(two.start[part] >= one.end(part))


def add_what_copies_ask(frame: Frame, device: int) -> None:
    """After and beside the window, copies stay where they are among the ops (contract, 9).

    An O that had ended when an op or L that takes memory starts still ends by then. An L starts
    no earlier than the op that was the last to start, and the end of the one that was the last
    to end, at or before it.
    """
    cp, window = frame.cp, frame.window
    after = window.end if device in window.devices else window.begin
    ops, backs = frame.parts(device, _OPS), frame.parts(device, ("L",))
    outs = [x for x in frame.parts(device, ("O",)) if _is_there(frame, x)]
    fixed_outs, fixed_ops = frame.ends_before(device, ("O",)), frame.ends_before(device, _OPS)
    for at, _, cell, part in (*ops, *backs):
        if at < after or part == "W":
            continue
        if at >= fixed_outs:
            cp.add(cell.start[part] >= fixed_outs)
        ended = max((x for x in outs if x.end <= at), key=lambda x: x.end, default=None)
        if ended is not None:
            cp.add(cell.start[part] >= ended.cell.end("O"))
    for at, _, cell, part in backs:
        if at < after:
            continue
        if at >= fixed_ops:
            cp.add(cell.start[part] >= fixed_ops)
        begun = [x for x in ops if x.start <= at]
        if begun:
            cp.add(cell.start[part] >= begun[-1].cell.start[begun[-1].part])
        over = max((x for x in ops if x.end <= at), key=lambda x: x.end, default=None)
        if over is not None:
            cp.add(cell.start[part] >= over.cell.end(over.part))


def add_memory(frame: Frame, device: int) -> None:
    """Memory of a device with a window, over time; elsewhere the sequence keeps it what it was."""
    room = frame.problem.devices[device].room
    if room is None or device not in frame.window.devices:
        return
    intervals, amounts = [], []
    for stage in frame.problem.stages_on[device]:
        for microbatch in range(frame.problem.microbatches[stage]):
            for interval, amount in _held(frame, frame.cells[stage, microbatch]):
                intervals.append(interval)
                amounts.append(amount)
    frame.cp.add_cumulative(intervals, amounts, room)


def _held(frame: Frame, cell: Cell) -> Iterator[tuple[cp_model.IntervalVar, int]]:
    for way, literal in zip(cell.ways, cell.chosen, strict=True):
        for holding in way.holdings:
            interval = _interval(frame, cell, holding, literal)
            if interval is not None:
                yield interval, holding.amount


def _interval(
    frame: Frame, cell: Cell, holding: Holding, literal: Literal
) -> cp_model.IntervalVar | None:
    """When something is held, if its way is chosen; ``None`` where it is over by the window."""
    cp, known = frame.cp, frame.state.starts[cell.stage, cell.microbatch]
    begin, offset, end, length, _ = holding
    low, high = cell.start[begin], cell.start[end]
    if isinstance(high, int) and literal is True and high + length <= frame.window.begin:
        return None
    if begin == end or (isinstance(low, int) and isinstance(high, int)):
        size = length - offset
        if isinstance(low, int) and isinstance(high, int):
            size += high - low
        if literal is True:
            return cp.new_fixed_size_interval_var(low + offset, size, "")
        return cp.new_optional_fixed_size_interval_var(low + offset, size, literal, "")
    between = cp.new_int_var(0, frame.latest, "")
    if begin in known and end in known:
        cp.add_hint(between, max(0, known[end] + length - known[begin] - offset))
    if literal is True:
        return cp.new_interval_var(low + offset, between, high + length, "")
    return cp.new_optional_interval_var(low + offset, between, high + length, literal, "")
