"""Timelines of our own, as ``pipesat.record`` writes them: ops by name, times in us."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipesat.core.ops import members, parse_item
from pipesat.timeline.readers.rows import Document, Row, Told, Trace, number


def is_recorded(content: Any) -> bool:
    """Whether this is a timeline file."""
    return isinstance(content, dict) and content.get("format") == "pipesat.timeline/1"


def read_recorded(documents: Sequence[Document], _told: Told) -> Trace:
    """Read timelines: each file is a replica."""
    rows = []
    for replica, document in enumerate(documents):
        for step, ran in enumerate(document.content.get("steps", ())):
            for rank, device in enumerate(ran.get("devices", ())):
                for place, (text, *times) in enumerate(device.get("ops", ())):
                    where = f"steps[{step}].devices[{rank}].ops[{place}]"
                    start, end = (number(document, where, time) for time in times[:2])
                    rows += [
                        Row(rank, op.stage, op.microbatch, op.kind, start, end, step, replica)
                        for op in members(parse_item(text))
                    ]
    return Trace("pipesat timeline", documents[0].source, rows)
