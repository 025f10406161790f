"""What ran when: the ops of every device in every measured step, in microseconds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap
from pathlib import Path
from typing import Any, Final, NamedTuple

from pipesat.check.checker import check
from pipesat.core.arguments import public
from pipesat.core.atomic import write_file
from pipesat.core.errors import BadInput, Deadlock, require
from pipesat.problem.ops import Copy, Item, Op, with_ops
from pipesat.problem.problem import Problem
from pipesat.problem.rules import duration, offload_of
from pipesat.runtimes.torch.companions import OwnWords
from pipesat.runtimes.torch.csv_file import items_of
from pipesat.runtimes.torch.lint import parse_cell
from pipesat.runtimes.trace import microseconds_of
from pipesat.schedule.schedule import Order, Schedule, Timed, TimedCopy
from pipesat.schedule.timing import linearize

FORMAT: Final = "pipesat.timeline/1"
TOY_SOURCE: Final = "pipesat run, toy model"
"""Source of a timeline of the built-in transformer, whose unit makes both compute equally long."""

FITTED: Final = "fitted link delay, us"
"""In the environment: the delay of every link that makes the prediction of these steps right."""


class Ran(NamedTuple):
    """One op or pair: computed from ``start`` to ``end``, ``waited`` before for input; in us.

    ``cpu`` of that its thread was on a core (the rest of it, others had the cores); ``None`` where
    that is not known or says nothing.
    """

    item: Item
    start: float
    end: float
    waited: float
    cpu: float | None = None

    @property
    def turned_to(self) -> float:
        """When the runtime turned to the op and began to wait for its input."""
        return self.start - self.waited


class TransferCall(NamedTuple):
    """One call that starts a send or a receive (``0SEND_F0``), from ``start`` to ``end`` in us."""

    name: str
    start: float
    end: float


class RanCopy(NamedTuple):
    """One copy of offloaded activations, out or back, from ``start`` to ``end`` in us."""

    copy: Copy
    start: float
    end: float


@dataclass(frozen=True)
class DeviceRun:
    """One device in one step, in execution order; copies by their end."""

    ops: tuple[Ran, ...]
    transfers: tuple[TransferCall, ...] = ()
    copies: tuple[RanCopy, ...] = ()


@dataclass(frozen=True)
class TrainingStep:
    """One training step; time 0 is the start of its first op."""

    devices: tuple[DeviceRun, ...]

    @property
    def makespan(self) -> float:
        """Largest end of any op, in us."""
        return max((ran.end for row in self.devices for ran in row.ops), default=0.0)

    @property
    def order(self) -> Order:
        """The ops that ran."""
        return tuple(tuple(ran.item for ran in row.ops) for row in self.devices)

    def schedule(self, scale: float) -> Schedule:
        """Return what ran in whole times, so many to a us."""

        def whole(row: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, int, int]]:
            for what, start, end, *_ in row:
                yield what, max(0, round(start * scale)), max(0, round(end * scale))

        return Schedule(
            tuple(tuple(starmap(Timed, whole(row.ops))) for row in self.devices),
            copies=tuple(tuple(starmap(TimedCopy, whole(row.copies))) for row in self.devices),
        )

    def __iter__(self) -> Iterator[tuple[int, Ran]]:
        """Yield ``(device, op)`` device after device."""
        for device, row in enumerate(self.devices):
            for ran in row.ops:
                yield device, ran


def _row_text(row: DeviceRun) -> str:
    document = {
        "ops": [[str(op), *map(_tenths, times)] for op, *times in row.ops],
        "transfers": [[name, *map(_tenths, times)] for name, *times in row.transfers],
    }
    if row.copies:
        document["copies"] = [[str(copy), *map(_tenths, times)] for copy, *times in row.copies]
    return json.dumps(document, separators=(",", ":"))


def _tenths(time: float | None) -> float | None:
    return None if time is None else round(time, 1)


@dataclass(frozen=True)
class Timeline:
    """The measured steps of one order.

    Attributes
    ----------
    problem_sha256
        Digest of the problem that the order is of.
    us_per_unit
        Microseconds of the run that one time unit of the problem stands for.
    clock_error
        By how much clocks of two devices may differ, in us; ``None`` if that is not known.
    environment
        Where it was measured, for the reader.
    modes
        Name of the memory mode of every (stage, microbatch) that was not kept; ops say which.
    """

    problem_sha256: str
    steps: tuple[TrainingStep, ...]
    us_per_unit: float
    source: str = ""
    clock_error: float | None = 0.0
    environment: Mapping[str, str] = field(default_factory=dict)
    modes: Mapping[tuple[int, int], str] = field(default_factory=dict)

    def file(self) -> bytes:
        """Return the file's content: one line per device and step."""
        modes = [[*key, name] for key, name in self.modes.items()]
        head = {
            "format": FORMAT,
            "problem_sha256": self.problem_sha256,
            "source": self.source,
            "us_per_time_unit": self.us_per_unit,
            "clock_error": self.clock_error,
            "environment": dict(self.environment),
        } | ({"modes": modes} if modes else {})
        steps = ",\n".join(
            '{"devices": [\n' + ",\n".join(map(_row_text, step.devices)) + "]}"
            for step in self.steps
        )
        return f'{json.dumps(head)[:-1]}, "steps": [\n{steps}\n]}}\n'.encode()

    @public
    def write(self, path: str | Path) -> None:
        """Write the file that says this, whole or not at all.

        Raises
        ------
        BadInput
            If it cannot be written.
        """
        write_file(Path(path), self.file())

    @property
    def typical(self) -> TrainingStep:
        """The step of median makespan (the shorter of two)."""
        return sorted(self.steps, key=lambda step: step.makespan)[(len(self.steps) - 1) // 2]

    @property
    def shortest(self) -> Timeline:
        """The timeline of the shortest step alone: the one that others disturbed least."""
        return replace(self, steps=(min(self.steps, key=lambda step: step.makespan),))

    @property
    def makespans(self) -> tuple[float, ...]:
        """Of all steps in the order in which they ran, in us."""
        return tuple(step.makespan for step in self.steps)


def equal_compute(problem: Problem, timeline: Timeline) -> Timeline:
    """Return the timeline in a unit that makes the problem's compute as long as its typical step's.

    Only shapes can then differ: of a model that is not the one whose costs the problem has.
    """
    ran = [ran for _, ran in timeline.typical]
    predicted = sum(duration(problem, one.item) for one in ran)
    measured = sum(one.end - one.start for one in ran)
    if not predicted or not measured:
        return timeline
    return replace(timeline, us_per_unit=measured / predicted)


def us_per_unit(problem: Problem) -> float:
    """Microseconds per time unit of a problem; a unit that is no time counts as 1 us."""
    return float(microseconds_of(problem.time_unit))


_OF_AN_ORDER: Final = frozenset({"device", "name", "doubled", "missing", "kind"})
"""Rules that do not depend on times."""


def require_order_of(problem: Problem, timeline: Timeline) -> None:
    """Pass if the timeline's steps are all of one order that the problem allows."""
    first = timeline.steps[0]
    for number, step in enumerate(timeline.steps):
        require(
            step.order == first.order,
            "another order than step 0, expected the same in all",
            where=f"steps[{number}]",
        )

    def on_device(op: Op) -> Op:  # a run need not have measured copies
        return op._replace(mode=0) if offload_of(problem, op) else op

    rows = (
        DeviceRun(tuple(ran._replace(item=with_ops(ran.item, on_device)) for ran in row.ops))
        for row in first.devices
    )
    judged = TrainingStep(tuple(rows)).schedule(1.0)
    for violation in check(problem, judged):
        require(violation.rule not in _OF_AN_ORDER, violation.message, where="steps[0]")
    try:
        linearize(problem, first.order)
    except Deadlock as error:
        raise BadInput(f"not an order that can run: {error}") from None


def assemble(
    own: OwnWords, ranks: Sequence[Sequence[Mapping[str, Any]]], offsets: Sequence[int]
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

    def item(text: str) -> Item:
        items = items_of(parse_cell(text) or (), own)
        if len(items) != 1:
            raise ValueError(f"{text!r} is neither one compute action nor a pair of the problem's")
        return items[0]

    def transfer(name: str) -> str:  # its stage is torch's, its microbatch the problem's
        head = name.rstrip("0123456789")
        number = name[len(head) :]
        return f"{head}{own.numbers[int(number)]}" if number else name

    def row(recording: Mapping[str, Any], by: int) -> DeviceRun:
        ops = tuple(
            Ran(
                item(action),
                (start + by) / 1000,
                (end + by) / 1000,
                (start - since) / 1000,
                None if cpu is None else cpu / 1000,
            )
            for action, since, start, end, cpu in recording["ops"]
        )
        calls = (
            TransferCall(transfer(name), (start + by) / 1000, (end + by) / 1000)
            for name, start, end in recording["transfers"]
        )
        return DeviceRun(ops, tuple(calls))

    steps = []
    for recordings in zip(*ranks, strict=True):
        shifted = list(zip(recordings, offsets, strict=True))
        zero = min(ops[0][2] + by for recording, by in shifted if (ops := recording["ops"]))
        steps.append(TrainingStep(tuple(row(one, by - zero) for one, by in shifted)))
    return tuple(steps)
