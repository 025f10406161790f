"""How ranks run their step lists under the rule of a communicator, and where that stops.

Every rule is the same machine with other queues:

- A rank goes through its list in order. It computes when it has received what the op needs. It
  posts a send or a receive when it comes to it and goes on.
- What a rank has posted runs in queues, each in the order posted. The rule says which share one.
- Messages have no tag: the k-th send from one rank to another meets the k-th receive there. They
  run once both are posted and first in their queues, without a buffer in between.

Nothing in it is a choice: a step that can run can still run after others did. So the lists finish
in every timing or in none, and where they do not, some stopped queues and ranks wait in a cycle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple, get_args

from pipesat.core.settings import OnTorch, RuleName
from pipesat.problem.ops import Event, Op, Phase, members
from pipesat.problem.problem import Problem
from pipesat.problem.rules import inputs_of
from pipesat.runtimes.steps import RankStep, StepKind, Steps
from pipesat.schedule.deadlock import Spot, circle, stops

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


def wait_for(step: RankStep) -> tuple[RankStep, ...]:
    """Return the wait for a send, in a tuple; of another step, nothing."""
    return (step._replace(kind=_WAITS[step.kind]),) if step.kind in _WAITS else ()


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
                    yield from wait_for(before[-buffers])
                before.append(sends[op.event])
        yield step


def crossing(problem: Problem, op: Op) -> Event | None:
    """Return what an op needs from another rank, if it needs anything."""
    need = next(iter(inputs_of(problem, op)), None)
    home = [problem.stages[stage].device for stage in (op.stage, need.event[0])] if need else [0]
    return need.event if need and len({*home}) == 2 else None


def message(problem: Problem, step: RankStep) -> Event | None:
    """Return what a send or a receive carries; a receive names the op that needs it."""
    (op,) = members(step.item)
    return crossing(problem, op) if step.kind.startswith("Recv") else op.event


class Rule(NamedTuple):
    """Steps of one rank for which ``queue`` is equal run in order; ``text`` says so in words."""

    text: str
    queue: Callable[[RankStep], Hashable]
    waits: bool = False


_EDGE: Final = lambda step: (step.peer, step.kind.startswith("Send"))  # noqa: E731
RULES: Final[dict[str, Rule]] = {
    "pair-fifo": Rule("one queue per pair of ranks, both directions", lambda step: step.peer),
    "edge-fifo": Rule("one queue per directed pair of ranks", _EDGE),
    "group": Rule("one queue per rank, with all its peers", lambda _: None),
    # a blocking call holds back what a queue of all transfers does: computing between waits for
    # earlier ones alone, so both stop at the same transfers
    "rendezvous": Rule("sends and receives return when the other end is posted", lambda _: None),
    "graph": Rule(
        "one queue per directed pair of ranks, a wait before a send's buffer is used again",
        _EDGE,
        waits=True,
    ),
}


RULE_OF: Final[dict[str, RuleName]] = {
    **{name: name for name in get_args(RuleName)},
    **dict.fromkeys(get_args(OnTorch), "pair-fifo"),
}
"""Rules by their names and those of runtimes, which send and receive as torch does over NCCL."""


class BlockedStep(NamedTuple):
    """A rank stops in a step, which waits for ``needs`` of rank ``peer``."""

    rank: int
    step: str
    peer: int
    needs: str


class Crossed(NamedTuple):
    """The ``number``-th message (from 1) from ``sender`` to ``receiver`` is taken for another."""

    sender: int
    receiver: int
    number: int
    sent: str
    received: str


def word(step: RankStep) -> str:
    """Write a step as torch does: ``SEND_F 0F3``, of a compute step the op."""
    return f"{WORDS[step.kind]} {step.item}" if step.kind in WORDS else str(step.item)


def cycle_of(problem: Problem, steps: Steps, rule: Rule) -> list[BlockedStep]:
    """Return who waits for whom, each for the next; empty if all lists finish. O(steps)."""
    machine = _Machine(problem, steps, rule)
    reached = stops([*map(len, machine.rows)], machine.waits)
    stopped = {
        row: [next(other for other, at in machine.waits(row, here) if at >= reached[other])]
        for row, here in enumerate(reached)
        if here < len(machine.rows[row])
    }
    heads = [machine.rows[row][reached[row]] for row in circle(stopped)[::-1]]
    last = [here for here, after in pairwise(heads) if here[0] != after[0]]
    if heads and not last:  # a rank waits for a send of its own that comes later
        own = max((word(steps[r][at]) for r, at in heads), key=lambda text: text[:4] == "WAIT")
        return [BlockedStep(heads[0][0], own, heads[0][0], own.removeprefix("WAIT_"))]
    start = min(range(len(last)), key=last.__getitem__, default=0)
    return [
        BlockedStep(rank, word(steps[rank][at]), peer, word(steps[peer][there]))
        for rank, at in last[start:] + last[:start]
        for peer, there in [machine.partner[rank, at]]
    ]


def crossed_of(problem: Problem, steps: Steps) -> list[Crossed]:
    """Return all messages that are received as others, because both ends number them otherwise."""
    found = []
    for (sender, receiver), (sends, receives) in _edges(steps).items():
        for number, (one, other) in enumerate(zip(sends, receives, strict=True), 1):
            sent, received = steps[sender][one], steps[receiver][other]
            if message(problem, sent) != message(problem, received):
                found.append(Crossed(sender, receiver, number, word(sent), word(received)))
    return found


def _edges(steps: Steps) -> dict[tuple[int, int], tuple[list[int], list[int]]]:
    """Per directed pair of ranks, the places of its sends and of its receives, in order."""
    edges: dict[tuple[int, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for rank, row in enumerate(steps):
        for at, step in enumerate(row):
            if step.peer is not None and step.kind.startswith("Send"):
                edges[rank, step.peer][0].append(at)
            elif step.peer is not None and step.kind.startswith("Recv"):
                edges[step.peer, rank][1].append(at)
    return edges


class _Machine:
    """Rows of spots (rank, place in its list): each rank's list, then each queue."""

    def __init__(self, problem: Problem, steps: Steps, rule: Rule) -> None:
        self.problem, self.steps = problem, steps
        self.rows: list[list[Spot]] = [
            [(rank, at) for at in range(len(row))] for rank, row in enumerate(steps)
        ]
        self.partner: dict[Spot, Spot] = {}
        for (sender, receiver), both in _edges(steps).items():
            for one, other in zip(*both, strict=True):
                self.partner[sender, one] = receiver, other
                self.partner[receiver, other] = sender, one
        self.place: dict[Spot, Spot] = {}  # of a send or receive: its queue and place there
        self.posted: dict[tuple[int, Event | None, bool], Spot] = {}
        queues: dict[Hashable, int] = {}
        for rank, at in sorted(self.partner):
            step = steps[rank][at]
            queue = queues.setdefault((rank, rule.queue(step)), len(self.rows))
            if queue == len(self.rows):
                self.rows.append([])
            self.place[rank, at] = queue, len(self.rows[queue])
            self.rows[queue].append((rank, at))
            sends = step.kind.startswith("Send")
            self.posted[rank, message(problem, step), sends] = self.place[rank, at]

    def waits(self, row: int, at: int) -> Iterator[Spot]:
        """Yield what has to be over before the entry of a row is."""
        rank, here = self.rows[row][at]
        step = self.steps[rank][here]
        if row >= len(self.steps):
            for end in ((rank, here), self.partner[rank, here]):
                yield end[0], end[1] - 1  # posted
                yield self.place[end][0], self.place[end][1] - 1  # first in its queue
        elif step.peer is None:
            for op in members(step.item):
                for need in inputs_of(self.problem, op):
                    if (rank, need.event, False) in self.posted:
                        yield self.posted[rank, need.event, False]
        elif step.kind.startswith("Wait"):
            yield self.posted[rank, message(self.problem, step), True]
