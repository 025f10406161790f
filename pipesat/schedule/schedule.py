"""Schedules (items with times), orders (items without), and what a schedule is exported as."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from pipesat.problem.ops import Copy, Item, Op, Pair, Unreadable, members, with_ops


@dataclass(frozen=True, repr=False)
class Exported:
    """A file's content, what belongs beside it (by suffix), and what its user has to know.

    ``changed`` says if the runtime's order takes another time than the schedule; ``path`` is the
    file that was written, ``None`` if none was. ``means`` is what its writer meant: the file is
    read back, and both are compared (:mod:`pipesat.runtimes.reading`). ``knobs`` are rows of
    :class:`pipesat.runtimes.knobs.Knob`: numbers that the runtime asks for besides.
    """

    data: bytes
    beside: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    changed: str = ""
    path: Path | None = None
    means: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    knobs: Sequence[Mapping[str, Any]] = ()

    def _repr_png_(self) -> bytes | None:
        return self.data if self.data.startswith(b"\x89PNG") else None

    def __repr__(self) -> str:
        name = "not written" if self.path is None else str(self.path)
        lines = [f"  file    {name}, {len(self.data)} bytes"]
        for suffix in self.beside:
            what = ": read it before you run this" if suffix.endswith(".txt") else ""
            beside = suffix if self.path is None else self.path.with_suffix(suffix)
            lines.append(f"  beside  {beside}{what}")
        lines += [f"  note    {note}" for note in self.notes]
        return "\n".join(["Exported", *lines])


Objective: TypeAlias = Literal["makespan", "span"]

Order: TypeAlias = tuple[tuple[Item, ...], ...]
"""Per device, the items in execution order."""


def pairs_in(order: Order) -> int:
    """How many items are pairs."""
    return sum(isinstance(item, Pair) for row in order for item in row)


def ops_in(order: Order) -> Iterator[Op]:
    """Yield the ops of all devices, those of a pair one after the other."""
    return (op for row in order for item in row for op in members(item))


class Timed(NamedTuple):
    """An item with its start and end, in time units."""

    item: Item | Unreadable
    start: int
    end: int


class TimedCopy(NamedTuple):
    """A copy with its start and end, in time units."""

    copy: Copy | Unreadable
    start: int
    end: int


@dataclass(frozen=True, repr=False, eq=False)
class Schedule:
    """Per device, the timed items in execution order. ``source`` says who made it.

    ``copies`` has each device's copies in order of (start, end), both directions in one list; it is
    empty where nothing is offloaded. One that users get also knows its problem
    (``pipesat.Schedule``).
    """

    devices: tuple[tuple[Timed, ...], ...]
    source: str = ""
    copies: tuple[tuple[TimedCopy, ...], ...] = ()

    def bare(self) -> Schedule:
        """Return its times alone, without what was worked out of them, to be sent elsewhere."""
        return Schedule(self.devices, self.source, self.copies)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        return self._said == other._said

    def __hash__(self) -> int:
        return hash(self._said)

    @property
    def _said(self) -> tuple[object, ...]:
        return self.devices, self.source, self.copies

    def copies_of(self, device: int) -> tuple[TimedCopy, ...]:
        """Copies of one device."""
        return self.copies[device] if self.copies else ()

    def __repr__(self) -> str:
        by = f" by {self.source!r}" if self.source else ""
        return (
            f"<Schedule{by}: {len(self.devices)} devices, {len(self)} items, makespan "
            f"{self.makespan}, span {self.span}>"
        )

    @cached_property
    def order(self) -> Order:
        """The items without their times.

        Raises
        ------
        ValueError
            If an item is unreadable (only possible in a schedule read for the checker).
        """
        return tuple(tuple(_readable(timed.item) for timed in row) for row in self.devices)

    @cached_property
    def makespan(self) -> int:
        """Largest end of any op; 0 without ops. Copies do not count."""
        return max((timed.end for row in self.devices for timed in row), default=0)

    @cached_property
    def span(self) -> int:
        """Largest time from the start of a device's first op to the end of its last."""
        return max(
            (max(t.end for t in row) - min(t.start for t in row) for row in self.devices if row),
            default=0,
        )

    @property
    def modes(self) -> dict[tuple[int, int], int]:
        """Mode of every (stage, microbatch) that is not kept, sorted.

        Raises
        ------
        ValueError
            If its ops run in several modes, or an item is unreadable.
        """
        found: dict[tuple[int, int], int] = {}
        for op in ops_in(self.order):
            if found.setdefault((op.stage, op.microbatch), op.mode) != op.mode:
                raise ValueError(
                    f"microbatch {op.microbatch} runs in several modes on stage {op.stage}"
                )
        return {key: mode for key, mode in sorted(found.items()) if mode}

    def value(self, objective: Objective) -> int:
        """Makespan or span."""
        return self.makespan if objective == "makespan" else self.span

    def __iter__(self) -> Iterator[tuple[int, Timed]]:
        """Yield ``(device, timed item)`` device after device."""
        for device, row in enumerate(self.devices):
            for timed in row:
                yield device, timed

    def __len__(self) -> int:
        return sum(map(len, self.devices))


def with_each_op(schedule: Schedule, change: Callable[[Op], Op]) -> Schedule:
    """Return a schedule with what a change makes of every op, at its time."""
    rows = (
        tuple(timed._replace(item=with_ops(timed.item, change)) for timed in row)  # type: ignore[arg-type]
        for row in schedule.devices
    )
    return Schedule(tuple(rows), schedule.source, schedule.copies)


def _readable(item: Item | Unreadable) -> Item:
    if isinstance(item, Unreadable):
        raise ValueError(f"{item.text!r} is not an op")
    return item
