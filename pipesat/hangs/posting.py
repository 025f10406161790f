"""Where a runtime posts its sends and receives, and what any list of them has to have.

An order says what each rank computes. A runtime adds, for all data that crosses ranks, a send on
one rank and a receive on the other: step lists, as :mod:`pipesat.export.steps` has them too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pipesat.core.graphs import Spot
from pipesat.core.ops import Event, Item, Op, Phase, members
from pipesat.core.rules import awaited
from pipesat.export.steps import RankStep, StepKind, Steps, compute_kind

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Order

WORDS: Final[dict[StepKind, str]] = {
    "SendActivations": "SEND_F",
    "RecvActivations": "RECV_F",
    "SendGradient": "SEND_B",
    "RecvGradient": "RECV_B",
    "WaitSendActivations": "WAIT_SEND_F",
    "WaitSendGradient": "WAIT_SEND_B",
}
"""What torch calls a step that communicates."""
_WAITS: Final[dict[StepKind, StepKind]] = {
    "SendActivations": "WaitSendActivations",
    "SendGradient": "WaitSendGradient",
}


def late(problem: Problem, order: Order) -> Steps:
    """Post each receive directly before the op that needs it, each send directly after its op.

    A pair has both receives before it and both sends after it, each time the forward's first.
    """
    home = [stage.device for stage in problem.stages]
    needs = {op: need for row in order for op in _ops(row) if (need := crossing(problem, op))}
    receiver = {event: home[op.stage] for op, event in needs.items()}
    lists = []
    for row in order:
        steps: list[RankStep] = []
        for item in row:
            ops = sorted(members(item), key=lambda op: op.kind != "F")
            for op in ops:
                if op in needs:
                    kind: StepKind = "RecvActivations" if op.kind == "F" else "RecvGradient"
                    steps.append(RankStep(kind, op, home[needs[op][0]]))
            steps.append(RankStep(compute_kind(item), item))
            for op in ops:
                if op.event in receiver and op.kind != "W":
                    kind = "SendActivations" if op.kind == "F" else "SendGradient"
                    steps.append(RankStep(kind, op, receiver[op.event]))
        lists.append(tuple(steps))
    return tuple(lists)


def with_waits(steps: Steps, buffers: int = 1) -> Steps:
    """Put a wait for a send before each op that uses the send's buffer again.

    A stage has so many buffers for what it sends on, and as many for what it sends back, and takes
    them in turn. A send that comes after that op is waited for in vain.
    """
    return tuple(tuple(_with_waits(row, buffers)) for row in steps)


def _with_waits(row: tuple[RankStep, ...], buffers: int) -> Iterator[RankStep]:
    sends = {members(step.item)[0].event: step for step in row if step.kind in _WAITS}
    written: dict[tuple[int, Phase], list[RankStep]] = defaultdict(list)  # what is sent from there
    for step in row:
        for op in members(step.item) if step.peer is None else ():
            if op.event in sends:
                before = written[op.event[:2]]
                if len(before) >= buffers:
                    yield before[-buffers]._replace(kind=_WAITS[before[-buffers].kind])
                before.append(sends[op.event])
        yield step


def crossing(problem: Problem, op: Op) -> Event | None:
    """Return what an op needs from another rank, if it needs anything."""
    need = awaited(problem, op)
    home = [problem.stages[stage].device for stage in (op.stage, need.event[0])] if need else [0]
    return need.event if need and len({*home}) == 2 else None


def message(problem: Problem, step: RankStep) -> Event | None:
    """Return what a send or a receive carries; a receive names the op that needs it."""
    (op,) = members(step.item)
    return crossing(problem, op) if step.kind.startswith("Recv") else op.event


def faults(problem: Problem, order: Order, steps: Steps) -> list[str]:
    """Return why step lists are not those of an order, whatever runs them; empty if they are.

    In turn: every rank computes its items of the order, and no others; every send has its receive
    on the named rank and the reverse, once; data is there before it is used or sent. O(steps).
    """
    if len(steps) != len(order):
        return [f"{len(steps)} step lists, expected {len(order)}, one per device"]
    found = [
        f"{problem.device_name(rank)} does not compute the schedule's ops"
        for rank, (row, items) in enumerate(zip(steps, order, strict=True))
        if [step.item for step in row if step.peer is None] != list(items)
    ]
    return found or [*_unmatched(problem, steps)] or [*_data(problem, steps)]


def _unmatched(problem: Problem, steps: Steps) -> Iterator[str]:
    ends: dict[tuple[Event | None, Spot, bool], list[str]] = defaultdict(list)
    for rank, row in enumerate(steps):
        for step in row:
            if step.peer is not None:
                sends = step.kind.startswith("Send")
                link = (rank, step.peer) if sends else (step.peer, rank)
                ends[message(problem, step), link, sends].append(_at(problem, rank, step))
    for (event, link, sends), texts in ends.items():
        if event is None or len(texts) > 1:
            yield f"{texts[-1]} has no place: doubled, or of no transfer"
        elif (event, link, not sends) not in ends:
            yield f"{texts[0]} has no other end on its peer"


def _data(problem: Problem, steps: Steps) -> Iterator[str]:
    """Complain where a rank computes or sends what it does not have yet."""
    for rank, row in enumerate(steps):
        there: set[Event | None] = set()
        for step in row:
            if step.kind.startswith("Recv"):
                there.add(message(problem, step))
                continue
            ops = members(step.item)
            awaits = [awaited(problem, op) for op in ops]
            needs = [need.event for need in awaits if need] if step.peer is None else [ops[0].event]
            if any(need not in there for need in needs):
                yield f"{_at(problem, rank, step)} comes before its data"
            there.update(op.event for op in ops)


def _ops(row: tuple[Item, ...]) -> Iterator[Op]:
    return (op for item in row for op in members(item))


def _at(problem: Problem, rank: int, step: RankStep) -> str:
    return f"{step} on {problem.device_name(rank)}"
