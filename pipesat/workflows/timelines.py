"""What really ran against what was predicted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipesat.core.arguments import public

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.timeline.compare import AgainstPrediction
    from pipesat.timeline.timeline import Timeline


@public
def compare_timeline(
    problem: Problem, timeline: Timeline | str | Path, *, shortest: bool = False
) -> AgainstPrediction:
    """Compare predicted and measured times, and say which assumption the difference comes from.

    The order that ran is timed again with one measured quantity after the other: op costs, their
    spread, calls that block, overhead, link delays.

    Parameters
    ----------
    problem
        The problem whose order ran.
    timeline
        What :func:`pipesat.run` measured, or the path of a timeline file.
    shortest
        Take the shortest step alone: for a machine in use.
    """
    from pipesat.timeline.compare import compare
    from pipesat.timeline.file import read_timeline

    if isinstance(timeline, str | Path):
        timeline = read_timeline(Path(timeline), problem)
    return compare(problem, timeline.shortest if shortest else timeline)
