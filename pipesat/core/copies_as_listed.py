"""An order with copies whose places and waits are given, as a runtime keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pipesat.core.copy_graph import CopyGraph
from pipesat.core.linear_order import LinearOrder
from pipesat.core.ops import Copy, Op

if TYPE_CHECKING:
    from pipesat.core.problem import Problem


class ListedTrip(NamedTuple):
    """Both copies of one (stage, microbatch): their turns on its device's channels, and waits.

    Where out and back share a channel their turns count together. ``before`` starts no earlier than
    the copy out ends; the copy back starts no earlier than ``started`` starts and ``ended`` end.
    """

    stage: int
    microbatch: int
    out_turn: int
    back_turn: int
    before: Op | None
    started: Op | None
    ended: tuple[Op | Copy, ...]

    @property
    def out(self) -> Copy:
        """The copy out."""
        return Copy(self.stage, "O", self.microbatch)

    @property
    def back(self) -> Copy:
        """The copy back."""
        return Copy(self.stage, "L", self.microbatch)


def as_listed(
    problem: Problem, sequence: LinearOrder, trips: Sequence[ListedTrip]
) -> LinearOrder | None:
    """Return a sequence of items with these copies; ``None`` if they wait for each other.

    Each offloaded (stage, microbatch) has one trip.
    """
    graph = CopyGraph(problem, sequence)
    for copy in _in_turn(problem, trips):
        graph.add(copy)
    for trip in trips:
        out, back = graph.number[trip.out], graph.number[trip.back]
        if trip.before is not None:
            graph.inputs[graph.item_of[trip.before.event]].append((out, 0))
        if trip.started is not None:
            item = graph.item_of[trip.started.event]
            graph.inputs[back].append((item, -graph.all.duration[item]))
        for after in trip.ended:
            done = graph.number[after] if isinstance(after, Copy) else graph.item_of[after.event]
            graph.inputs[back].append((done, 0))
    return graph.sequence()


def _in_turn(problem: Problem, trips: Sequence[ListedTrip]) -> list[Copy]:
    """Copies by turn on their channels; every O before every L where these have two."""
    keyed = []
    for trip in trips:
        shared = problem.devices[problem.stages[trip.stage].device].copy_channels == 1
        keyed += [((0, trip.out_turn), trip.out), ((not shared, trip.back_turn), trip.back)]
    return [copy for _, copy in sorted(keyed)]
