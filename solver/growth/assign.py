"""Modes along an order: put into its ops, and as few as memory asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from pipesat.problem.ops import Item, Op, Pair, members
from pipesat.problem.problem import Problem
from pipesat.problem.rules import memory_in_order, pair_time
from pipesat.problem.variants import Key, variants
from pipesat.schedule.schedule import Order

Modes: TypeAlias = Mapping[Key, int]
"""Mode of each (stage, microbatch) that is not kept."""

Row: TypeAlias = tuple[Item, ...]


def in_modes(problem: Problem, order: Order, modes: Modes) -> Order:
    """Return an order with its ops in these modes.

    A backward that the mode does not split becomes one op, at the place of its B; one that it does
    not fuse becomes two in a row. Pairs stay where both members do, and the two may pair in their
    modes.
    """
    return tuple(tuple(_row_in_modes(problem, row, modes)) for row in order)


def in_modes_of_stages(problem: Problem, order: Order, modes: Sequence[int]) -> Order:
    """Return an order in which all microbatches of a stage run in its mode."""
    counts = enumerate(problem.microbatches)
    chosen = {(s, m): modes[s] for s, count in counts for m in range(count) if modes[s]}
    return in_modes(problem, order, chosen)


def _row_in_modes(problem: Problem, row: Sequence[Item], modes: Modes) -> Iterator[Item]:
    for item in row:
        if isinstance(item, Pair):
            one, other = ([*_op_in_mode(problem, op, modes)] for op in item)
            kinds = [op.kind for ops in (one, other) for op in ops]
            together = kinds == [op.kind for op in item] and pair_time(problem, *one, *other)
            yield from [Pair(*one, *other)] if together else [*one, *other]
        else:
            yield from _op_in_mode(problem, item, modes)


def _op_in_mode(problem: Problem, op: Op, modes: Modes) -> Iterator[Op]:
    mode = modes.get((op.stage, op.microbatch), 0)
    op = op._replace(mode=mode)
    amounts = problem.amounts(op.stage, op.microbatch, mode)
    if op.kind in ("B", "W") and not amounts.may_split:
        if op.kind == "B":
            yield op._replace(kind="BW")
    elif op.kind == "BW" and not amounts.may_fuse:
        yield op._replace(kind="B")
        yield op._replace(kind="W")
    else:
        yield op


def fewest(
    problem: Problem,
    order: Order,
    choice: Sequence[int] = (),
    spare: Sequence[int] = (),
    *,
    weights_first: bool = False,
    fixed: Modes | None = None,
) -> Order | None:
    """Return an order in modes that fits into memory, few of its (stage, microbatch) not kept.

    ``choice`` is by stage the mode for those that cannot stay (0, and without it: none).
    Each row is followed from left to right. Where memory does not suffice, the microbatch in flight
    whose backward comes last gives way, as the page that is needed last is the one to evict (Belady
    1966), and where none can, the next pending W runs first; or, with ``weights_first``, the other
    way round. Copies are taken as if they were done at once: they cost time, not memory
    (:mod:`pipesat.schedule.copies`). ``spare`` is what should be left per device for those under
    way, where that is possible. ``None`` if some row does not fit. ``fixed`` are modes that have
    been chosen before.
    """
    rows = []
    for device, row in enumerate(order):
        fitted: Row | None = row
        if (slack := problem.devices[device].slack) is not None:
            left = spare[device] if spare else 0
            fitted = _Row(problem, row, choice, weights_first, fixed or {}).fitted(slack, left)
        if fitted is None:
            return None
        rows.append(fitted)
    return tuple(rows)


class _Row:
    """One device's row, followed from left to right; ``chosen`` are the modes so far."""

    def __init__(
        self,
        problem: Problem,
        row: Sequence[Item],
        choice: Sequence[int],
        weights_first: bool,
        fixed: Modes,
    ) -> None:
        self.problem, self.row, self.choice = problem, list(row), choice
        self.weights_first = weights_first
        self.chosen: dict[Key, int] = dict(fixed)
        self.backwards = [op[::2] for item in row for op in members(item) if op.kind in ("B", "BW")]
        self.stored: set[Key] = set()  # between F and backward

    def fitted(self, slack: int, spare: int) -> Row | None:
        """Return the row in modes that fits, or ``None``."""
        held, place = 0, 0
        while place < len(self.row):
            item = self.row[place]
            here = {op[::2] for op in members(item) if op.kind == "F"}
            taken, net = self._change(item)
            short = held + taken > slack - spare
            if short and self.weights_first and self._pull_weight(place):
                continue
            while held + taken > slack - spare and (gain := self._evict(item, here)) is not None:
                held -= gain
                taken, net = self._change(item)
            if held + taken > slack:
                if not self._pull_weight(place):
                    return None
                continue
            held += net
            self.stored |= here
            self.stored -= {op[::2] for op in members(item) if op.kind in ("B", "BW")}
            place += 1
        return tuple(_row_in_modes(self.problem, self.row, self.chosen))

    def _evict(self, item: Item, here: set[Key]) -> int | None:
        """Put the one that is needed last into a mode; return by how much less is held now."""
        before = self._change(item)[0]
        for key in reversed(self.backwards):
            if key in self.chosen or not (key in self.stored or key in here):
                continue
            mode = self.choice[key[0]] if self.choice else 0
            if not mode:
                continue
            gain = self._rest(key, 0) - self._rest(key, mode) if key in self.stored else 0
            self.chosen[key] = mode
            if gain + before - self._change(item)[0] > 0:
                return gain
            del self.chosen[key]
        return None

    def _rest(self, key: Key, mode: int) -> int:
        """What is held between F and backward."""
        of_class = self.problem.class_of(*key)
        own = variants(self.problem, key[0], of_class)
        return next(variant.rest for variant in own if variant.mode == mode)

    def _pull_weight(self, place: int) -> bool:
        """Let the next W whose backward is over run at a place, if there is one."""
        pending = {op[::2] for item in self.row[:place] for op in members(item) if op.kind == "B"}
        for later in range(place + 1, len(self.row)):
            item = self.row[later]
            if isinstance(item, Op) and item.kind == "W" and item[::2] in pending:
                if item[::2] in self.chosen and not self._change(item)[1]:
                    continue  # it is part of BW now
                self.row.insert(place, self.row.pop(later))
                return True
        return False

    def _change(self, item: Item) -> tuple[int, int]:
        """What an item takes, and what is held more after it, with copies done at once."""
        taken = net = 0
        for own in _row_in_modes(self.problem, (item,), self.chosen):
            change = memory_in_order(self.problem, own)
            taken, net = taken + change.at_start, net + change.net
        return taken, net
