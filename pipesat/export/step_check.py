"""Whether step lists can run with blocking sends and receives: a graph without cycles.

A node is a compute step, or a transfer: its send and its receive are one node, because neither side
gets past it alone. An edge leads from each step of a rank to the rank's next one. All ranks finish,
whatever the timing, exactly if this graph has no cycle.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pipesat.core.graphs import Spot as Place
from pipesat.core.graphs import circle, stops
from pipesat.core.ops import Event, Op, members
from pipesat.core.rules import awaited

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Order
    from pipesat.export.steps import RankStep, Steps


def step_faults(problem: Problem, order: Order, steps: Steps) -> list[str]:
    """Return what is wrong with the steps of an order; empty if they run to their end. O(steps).

    In turn: every rank computes its items of the order, and no others; every send has its receive
    on the named rank and the reverse; data is there before it is used or sent; nothing waits in a
    circle.
    """
    if len(steps) != len(order):
        return [f"{len(steps)} step lists, expected {len(order)}, one per device"]
    faults = []
    for rank, (row, items) in enumerate(zip(steps, order, strict=True)):
        if [step.item for step in row if step.peer is None] != list(items):
            faults.append(f"{problem.device_name(rank)} does not compute the schedule's ops")
    ends: dict[Event, dict[str, Place]] = {}
    faults += _collect(problem, steps, ends)
    faults += _unmatched(problem, steps, ends)
    if not faults:
        faults += _data(problem, steps)
    return faults or list(_circle(problem, steps, ends))


def _collect(problem: Problem, steps: Steps, ends: dict[Event, dict[str, Place]]) -> Iterator[str]:
    """Note both ends of every transfer; complain about doubled ones."""
    for rank, row in enumerate(steps):
        for position, step in enumerate(row):
            if step.peer is None:
                continue
            event = _event(problem, step)
            side = "send" if step.kind.startswith("Send") else "receive"
            if event is None or side in ends.setdefault(event, {}):
                yield f"{_at(problem, rank, step)} has no place: doubled, or of no transfer"
            else:
                ends[event][side] = rank, position


def _event(problem: Problem, step: RankStep) -> Event | None:
    """What a send or receive carries: it names the transfer."""
    (op,) = members(step.item)
    if step.kind.startswith("Send"):
        return op.event
    need = awaited(problem, op)
    return None if need is None else need.event


def _unmatched(
    problem: Problem, steps: Steps, ends: dict[Event, dict[str, Place]]
) -> Iterator[str]:
    for sides in ends.values():
        for side, (rank, position) in sides.items():
            step = steps[rank][position]
            other = sides.get("receive" if side == "send" else "send")
            if other is None or other[0] != step.peer:
                yield f"{_at(problem, rank, step)} has no other end on its peer"


def _data(problem: Problem, steps: Steps) -> Iterator[str]:
    """Complain where a rank computes or sends what it does not have yet."""
    for rank, row in enumerate(steps):
        there: set[Event] = set()
        for step in row:
            event = None if step.peer is None else _event(problem, step)
            if event is not None and step.kind.startswith("Recv"):
                there.add(event)
                continue
            ops: tuple[Op, ...] = members(step.item)
            needs = [event] if event else [*_inputs(problem, ops)]
            if any(need not in there for need in needs):
                yield f"{_at(problem, rank, step)} comes before its data"
            there.update(op.event for op in ops)


def _inputs(problem: Problem, ops: tuple[Op, ...]) -> Iterator[Event]:
    for op in ops:
        need = awaited(problem, op)
        if need is not None:
            yield need.event


def _circle(problem: Problem, steps: Steps, ends: dict[Event, dict[str, Place]]) -> Iterator[str]:
    """Let the ranks run; if they stop, name a circle of what they wait for."""
    other: dict[Place, Place] = {}
    for sides in ends.values():
        other[sides["send"]], other[sides["receive"]] = sides["receive"], sides["send"]

    def waits(rank: int, position: int) -> Iterator[Place]:
        if (rank, position) in other:
            peer, place = other[rank, position]
            yield peer, place - 1

    reached = stops([*map(len, steps)], waits)
    stopped = {r: [other[r, p][0]] for r, p in enumerate(reached) if p < len(steps[r])}
    if members := circle(stopped)[:0:-1]:
        texts = [_at(problem, rank, steps[rank][reached[rank]]) for rank in members]
        yield "deadlock: " + ", which waits for ".join([*texts, problem.device_name(members[0])])


def _at(problem: Problem, rank: int, step: RankStep) -> str:
    return f"{step} on {problem.device_name(rank)}"
