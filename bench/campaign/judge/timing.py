"""An order timed by us: as early as possible, or by its minimum span. For small problems."""

from __future__ import annotations

from typing import Any

from campaign.judge import rules
from campaign.judge.reading import Pipe
from campaign.judge.timed import read_timed


class _Order:
    """A schedule document's order as arcs ``start[to] >= start[from] + length``."""

    def __init__(self, pipe: Pipe, document: dict[str, Any]) -> None:
        self.document = document
        timed, wrong = read_timed(document, pipe.devices)
        assert not wrong, wrong
        self.node: dict[tuple[int, int], int] = {}
        self.length: list[int] = []
        self.first_last: list[tuple[int, int]] = []
        for device, row in enumerate(timed.rows):
            for position, slot in enumerate(row):
                self.node[device, position] = len(self.length)
                length = rules.length_of(pipe, timed, slot)
                assert isinstance(length, int), length
                self.length.append(length)
            if row:
                self.first_last.append((self.node[device, 0], len(self.length) - 1))
        self.arcs = [
            (node - 1, node, self.length[node - 1])
            for (_, position), node in self.node.items()
            if position
        ]
        for before, after, delay in rules.inputs(pipe, timed):
            one, other = (self.node[timed.where[op][0][:2]] for op in (before, after))
            self.arcs.append((one, other, self.length[one] + delay))

    def starts(self, span: int | None = None) -> list[int] | None:
        """Return the least starts, within a span if one is given; ``None`` if there are none."""
        arcs = list(self.arcs)
        if span is not None:
            for first, last in self.first_last:
                arcs.append((last, first, self.length[last] - span))
        found = [0] * len(self.length)
        for _ in range(len(found) + 1):
            changed = False
            for one, other, length in arcs:
                if found[one] + length > found[other]:
                    found[other], changed = found[one] + length, True
            if not changed:
                return found
        return None

    def timed(self, starts: list[int]) -> dict[str, Any]:
        def entry(text: str, node: int) -> list[Any]:
            return [text, starts[node], starts[node] + self.length[node]]

        rows = [
            [entry(slot[0], self.node[device, position]) for position, slot in enumerate(row)]
            for device, row in enumerate(self.document["devices"])
        ]
        return self.document | {"devices": rows}


def retimed(pipe: Pipe, document: dict[str, Any], objective: str) -> dict[str, Any] | None:
    """Return a document's order with the best times.

    ``None`` if its lists wait for each other, or if it has copies: their memory depends on times.
    """
    if any(document.get("copies", [])):
        return None
    order = _Order(pipe, document)
    earliest = order.starts()
    if earliest is None:
        return None
    if objective == "makespan":
        return order.timed(earliest)
    high = max(
        (earliest[b] + order.length[b] - earliest[a] for a, b in order.first_last), default=0
    )
    low, best = -1, earliest
    while high - low > 1:  # least span with which starts exist
        middle = (low + high) // 2
        starts = order.starts(middle)
        if starts is None:
            low = middle
        else:
            high, best = middle, starts
    return order.timed(best)
