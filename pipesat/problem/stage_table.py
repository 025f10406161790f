"""What tables say of a problem's stages."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from pipesat.core.showing import table_of
from pipesat.problem.stage import COSTS

if TYPE_CHECKING:
    from pipesat.problem.problem import Problem


def records_of_stages(problem: Problem) -> list[dict[str, Any]]:
    """Return a row per stage: where it lies, what it takes, and its device's memory."""
    return [
        {
            "stage": number,
            "device": problem.device_name(stage.device),
            **{key: getattr(stage, key) for key in COSTS},
            "modes": ", ".join(mode.name for mode in stage.modes) or None,
            "memory": problem.devices[stage.device].memory,
            "static": problem.devices[stage.device].static,
        }
        for number, stage in enumerate(problem.stages)
    ]


def html_of_problem(problem: Problem) -> str:
    """Return a problem as HTML: what it is, and a table of its stages."""
    heading = f"<p>{html.escape(repr(problem).strip('<>'))}</p>"
    return heading + table_of(records_of_stages(problem)).html()
