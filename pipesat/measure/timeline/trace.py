"""The steps of a trace as a timeline: of the problem that it tells, or of one that is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipesat.core.arguments import public
from pipesat.core.errors import BadInput, require, said_of
from pipesat.core.settings import Steps as Skip
from pipesat.measure.timeline.readers import read_trace
from pipesat.measure.timeline.readers.rows import TraceStatement
from pipesat.measure.timeline.steps import ReplicaStep, WholeSteps, steps_of
from pipesat.problem.ops import Op, Pair
from pipesat.problem.problem import Problem
from pipesat.problem.rules import in_order, pair_time
from pipesat.runtimes.timeline import (
    DeviceRun,
    Ran,
    Timeline,
    TrainingStep,
    require_order_of,
    us_per_unit,
)
from pipesat.runtimes.timeline_file import MOST_US
from pipesat.runtimes.torch.adapt import require_torch_pipeline


@dataclass(frozen=True)
class ImportedTrace:
    """A timeline, and what the reader should know of it."""

    timeline: Timeline
    notes: tuple[str, ...]


@public
def import_traces(
    problem: Problem, paths: Sequence[str | Path], *, skip: Skip = 0
) -> ImportedTrace:
    """Read the traces of a run of a problem's order, in any format that is recognised.

    Parameters
    ----------
    problem
        The problem whose order ran: its stage k is the k-th along the route.
    paths
        Traces of one run: files, or folders of them.
    skip
        Steps to leave out first, after those of warm-up.

    Raises
    ------
    BadInput
        If the files are no traces of one run of this problem, or hold no whole step.
    NotApplicable
        If the problem has several routes, or a device without stages.
    """
    require_torch_pipeline(problem, "a trace's run")
    found = skipped(steps_of(read_trace(paths, TraceStatement())), skip)
    with said_of(found.trace.source):
        require(found.trace.measured, "it has no times of a run: import it without a problem")
        homes = tuple(problem.stages[stage].device for stage in problem.routes[0].stages)
        require(
            found.homes == homes,
            f"its stages are on ranks {[*found.homes]}, the problem's on {[*homes]}",
        )
        timeline = timeline_of(problem, found, found.steps[typical(found)], found.steps)
        if (longest := max(timeline.makespans)) > MOST_US:
            raise BadInput(
                f"a step of {longest:g} us, expected at most {MOST_US:g}: are these the traces of "
                "one run?"
            )
        require_order_of(problem, timeline)
    return ImportedTrace(timeline, tuple(_notes(problem, found)))


def _notes(problem: Problem, found: WholeSteps) -> Iterator[str]:
    yield from found.notes
    if found.waiting:
        yield "no receive is in the trace: link delays count as time of the op that waited"
    if problem.has_lists:
        yield (
            "microbatches differ, and their numbers here are taken for the problem's own: those of "
            "an exported order are places in the .order.json beside it"
        )


def skipped(found: WholeSteps, skip: int) -> WholeSteps:
    """Return the steps without the first ones."""
    numbers = sorted({step.iteration for step in found.steps})
    require(
        skip < len(numbers),
        f"the trace has {len(numbers)} whole steps after its warm-up",
        where="skip",
        value=skip,
    )
    kept = set(numbers[skip:])
    return replace(found, steps=tuple(step for step in found.steps if step.iteration in kept))


def typical(found: WholeSteps, replica: int | None = None) -> int:
    """Return which step is of median length, among those of the replica asked for."""
    chosen = [n for n, s in enumerate(found.steps) if replica is None or s.replica == replica]
    require(
        chosen, f"expected one of the replicas {found.replicas}", where="replica", value=replica
    )
    return sorted(chosen, key=lambda n: found.steps[n].length)[(len(chosen) - 1) // 2]


def timeline_of(
    problem: Problem, found: WholeSteps, like: ReplicaStep, steps: Sequence[ReplicaStep]
) -> Timeline:
    """Return those of some steps that are of one step's replica and order.

    Where nothing tells waiting from other idle time, an op is taken to have waited since the one
    before.
    """
    same = [s for s in steps if (s.replica, s.order) == (like.replica, like.order)]
    runs = [
        TrainingStep(tuple(DeviceRun(tuple(_ran(problem, step, row))) for row in step.order))
        for step in same
    ]
    about = {"replica": str(like.replica)}
    unit = us_per_unit(problem)
    return Timeline(problem.sha256, tuple(runs), unit, found.trace.name, None, about)


def _ran(problem: Problem, step: ReplicaStep, row: Sequence[Op]) -> Iterator[Ran]:
    """Yield a rank's items; two ops of one range are a pair where the problem has one."""
    stages, before, done = problem.routes[0].stages, 0.0, set[Op]()
    for op in row:
        if op in done:
            continue
        alone = op._replace(stage=stages[op.stage])
        both = [o._replace(stage=stages[o.stage]) for o in step.joint.get(op, ())]
        paired = len(both) == 2 and pair_time(problem, *both) is not None
        done |= {*step.joint[op]} if paired else {op}
        start = step.times[op][0]
        end = max(step.times[o][1] for o in (step.joint[op] if paired else (op,)))
        item = in_order(problem, Pair(*both)) if paired else alone
        yield Ran(item, start, end, max(0.0, start - step.turned_to.get(op, before)))
        before = end
