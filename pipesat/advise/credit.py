"""Whose an order is: a published schedule has its name and source, ours is what only we find."""

from __future__ import annotations

from typing import Final

from pipesat.workflows.hand_written import baselines
from pipesat.workflows.plan_orders import SOME_SETTINGS

OURS: Final = "ours"
_OWN: Final = "pipesat"  # the source of hand-written schedules that nobody else has published


def credited(source: str) -> str:
    """Return the name of the published schedule that a schedule's source names, else ``ours``.

    What a search has changed names another source: ``v-auto, justified`` is nobody's but ours.
    """
    name = source.removesuffix(SOME_SETTINGS)
    return name if published_in(name) else OURS


def published_in(name: str) -> str:
    """Return the paper or program that a schedule was published in; empty for ours."""
    entry = baselines().get(name)
    return "" if entry is None or entry.source == _OWN else entry.source
