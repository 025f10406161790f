"""Which (stage, microbatch) runs in which memory mode: the file beside an order for torch."""

from __future__ import annotations

from bisect import bisect_right

from pipesat.core.ops import Copy
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule

SUFFIX = ".modes.csv"
HEAD = "stage,microbatch,mode,load_with"


def modes_csv(problem: Problem, schedule: Schedule) -> str:
    """Return a line per (stage, microbatch) that is not kept; ``""`` if all are.

    Stages are numbered along the route, as in the order itself. ``load_with`` is what the rank runs
    when the copy back of an offloaded microbatch starts: it must not start before that op does.
    """
    number = {stage: place for place, stage in enumerate(problem.routes[0].stages)}
    loads = {
        (copy.stage, copy.microbatch): (device, start)
        for device, row in enumerate(schedule.copies)
        for copy, start, _ in row
        if isinstance(copy, Copy) and copy.kind == "L"
    }
    lines = []
    for (stage, microbatch), mode in schedule.modes.items():
        beside = ""
        if (stage, microbatch) in loads:
            device, start = loads[stage, microbatch]
            row = schedule.devices[device]
            beside = str(row[bisect_right([timed.start for timed in row], start) - 1].item)
        name = problem.stages[stage].modes[mode - 1].name
        lines.append(f"{number[stage]},{microbatch},{name},{beside}")
    return "\n".join([HEAD, *lines]) + "\n" if lines else ""
