"""What tables say of a problem's stages."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Final

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
            **{
                key: getattr(stage, key) if stage.has_backward or key in _FORWARD else None
                for key in COSTS
            },
            "backward": None if stage.has_backward else stage.backward,
            "feeds": _feeds(problem, number),
            "modes": ", ".join(mode.name for mode in stage.modes) or None,
            "memory": problem.devices[stage.device].memory,
            "static": problem.devices[stage.device].static,
        }
        for number, stage in enumerate(problem.stages)
    ]


_FORWARD: Final = ("F", "held_after_F")


def _feeds(problem: Problem, stage: int) -> str | None:
    """Where the edges of a stage of a graph lead; ``None`` on a chain."""
    graph = problem.route(stage).graph
    return None if graph is None else ", ".join(map(str, problem.after[stage])) or "-"


def html_of_problem(problem: Problem) -> str:
    """Return a problem as HTML: what it is, and a table of its stages."""
    heading = f"<p>{html.escape(repr(problem).strip('<>'))}</p>"
    return heading + table_of(records_of_stages(problem)).html()
