"""Orders written in a line per device."""

from __future__ import annotations

from pipesat.core.ops import parse_item
from pipesat.core.schedule import Order


def order_of(*rows: str) -> Order:
    return tuple(tuple(parse_item(text) for text in row.split()) for row in rows)
