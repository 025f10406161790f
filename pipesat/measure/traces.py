"""A trace of a real run: its problem, what it says, and what a better order gains."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipesat.check.checker import check
from pipesat.core.arguments import public
from pipesat.core.errors import BadInput, NotApplicable, require
from pipesat.core.settings import Chunks, Microbatches, Part, Seconds, Steps, Workers

if TYPE_CHECKING:
    from pipesat.compare.result import Result
    from pipesat.measure.timeline.against_prediction import AgainstPrediction
    from pipesat.measure.trace_answer import TraceAnswer
    from pipesat.problem.ops import Op
    from pipesat.problem.problem import Problem
    from pipesat.runtimes.timeline import Timeline
    from pipesat.schedule.schedule import Schedule
    from pipesat.schedule.solving import Listener


_MICROSECONDS = {"us": 1.0, "ms": 1e3, "s": 1e6}


@public
def import_trace(
    paths: Sequence[str | Path],
    *,
    skip: Steps = 0,
    replica: Steps | None = None,
    chunks: Chunks | None = None,
    microbatches: Microbatches | None = None,
    link_delay: str | None = None,
    memory: str | None = None,
    static: str | None = None,
    held: str | None = None,
    split: Part | None = None,
    time_limit: Seconds = 10.0,
    workers: Workers | None = None,
    listener: Listener | None = None,
    stop: threading.Event | None = None,
) -> TraceAnswer:
    """Read the traces of a run without a problem file, and say what they tell.

    The format is recognised; ranks, stages, placement, microbatches, whether backwards are split,
    and costs are found. First steps that took longer are left out.

    Parameters
    ----------
    paths
        Traces of one run: files, or folders of them.
    skip
        Further steps to leave out first.
    replica
        The data-parallel replica whose problem is written; ``None``: the one of median step.
    chunks
        Chunks (virtual stages) of each rank, where the trace does not say it; ``None``: 1.
    microbatches
        Microbatches of a step, for a log of timers that does not say it; ``None``: as it says.
    link_delay
        Delay of every link, as 1.5ms; ``None``: what explains the measured step.
    memory
        Capacity of each device, as 80GiB, one for all or one each; ``None``: as many activations
        as the order that ran held, and, in a second search, any number.
    static
        Memory that is always taken on each device, as 20GiB; ``None``: 0.
    held
        What a stage holds after F, as 1.5GiB, one for all or one each; ``None``: unknown.
    split
        Let backwards that ran whole be split, and assume that B takes this part of one, W the rest;
        ``None``: they stay whole.
    time_limit
        Seconds for the search, for both together.

    Raises
    ------
    BadInput
        If the files are no traces of one run, or hold no whole step; if ``split`` is given and all
        backwards ran split.
    """
    from pipesat.measure.timeline.readers import read_trace
    from pipesat.measure.timeline.readers.rows import TraceStatement
    from pipesat.measure.timeline.steps import steps_of
    from pipesat.measure.timeline.trace import skipped, timeline_of, typical
    from pipesat.measure.timeline.trace_costs import TraceCosts
    from pipesat.measure.timeline.trace_problem import Memory, laid_out, predict, problem_of
    from pipesat.measure.trace_answer import TraceAnswer
    from pipesat.runtimes.timeline import FITTED
    from pipesat.schedule.timing import time_order

    told = TraceStatement(chunks, microbatches)
    given = None if link_delay is None else _microseconds(link_delay)
    trace = read_trace(paths, told)
    try:
        found = skipped(steps_of(trace), skip)
        found = found if found.trace.timed else laid_out(found)
        costs = TraceCosts(found)
        number = typical(found, replica)
        prediction = predict(costs, given)
    except BadInput as error:
        if chunks is None or error.where:  # skip and replica are to blame themselves
            raise
        raise BadInput(
            f"expected what fits the trace. With so many: {error.expected}",
            where="chunks",
            value=chunks,
        ) from None
    delay = prediction.delay if given is None else given
    limits, title = Memory(memory, static, held), f"{found.trace.name}, {found.devices} ranks"
    title += ", link delay fitted" * (given is None and delay > 0)
    problem = problem_of(costs, number, delay, limits, prediction.classes, title, split)
    require(
        split is None or any(kind == "BW" for _, kind in costs.parts),
        "expected a trace with whole backwards",
        where="split",
        value=split,
    )
    order = found.steps[number].order
    name = _recognised(problem, order)
    schedule = time_order(problem, order, source=name or "trace")
    if violations := check(problem, schedule):
        raise BadInput(
            f"the order that ran does not fit, in {problem.memory_unit} and us: {violations[0]}",
            where="memory",
            value=memory,
        )
    search = {"workers": workers, "listener": listener, "stop": stop}
    result, more = _best_orders(problem, schedule, time_limit, search)
    like, alike = found.steps[number], found.steps
    ran = timeline_of(problem, found, like, [like] if prediction.classes is not None else alike)
    if given is None and delay > 0:
        ran = replace(ran, environment={**ran.environment, FITTED: str(round(delay))})
    seen = None if given is not None else prediction.seen_alone
    return TraceAnswer(
        found,
        problem,
        schedule,
        ran if found.trace.measured else None,
        result,
        more,
        name,
        prediction,
        given,
        number,
        split,
        () if seen is None else tuple(_gain(one, schedule, seen) for one in (result, more)),
    )


def _gain(found: Result | None, ran: Schedule, delay: float) -> float:
    """Return what an order found saves, as a part of the step that ran, with that link delay."""
    from pipesat.schedule.timing import time_order

    if found is None or found.schedule is None:
        return 0.0
    problem = found.problem.with_comm(round(delay))
    best, own = (time_order(problem, one.order).makespan for one in (found.schedule, ran))
    return 1 - (best or 0) / (own or 1)


def _best_orders(
    problem: Problem, ran: Schedule, time_limit: float, search: Mapping[str, Any]
) -> tuple[Result, Result | None]:
    """Return the best order within the problem's memory; where that is counted, with any, too.

    If several hand-written orders are as good as that one, it is the one that needs least more.
    """
    from pipesat.compare.solve import solve
    from pipesat.heuristics import BASELINES
    from pipesat.measure.timeline.trace_problem import COUNTED
    from pipesat.schedule.metrics import peak_memory

    if problem.memory_unit != COUNTED:
        return solve(problem, schedules=[ran], time_limit=time_limit, **search), None
    within = solve(problem, schedules=[ran], time_limit=time_limit / 2, **search)
    left = max(time_limit / 2, time_limit - within.wall_s)
    starts = [one for one in (ran, within.schedule) if one is not None]
    free = problem.with_memory(None)
    more = solve(free, schedules=starts, time_limit=left, **search)
    if more.schedule is None or more.value == within.value:
        return within, more
    before = peak_memory(free, ran)
    orders: list[Schedule] = [more.schedule]
    for entry in BASELINES.values():
        with suppress(NotApplicable):
            orders += [] if entry.slow else [entry(free)]
    alike = [one for one in orders if one.makespan == more.value and not check(free, one)]

    def added(schedule: Schedule) -> list[int]:
        held = peak_memory(free, schedule)
        return sorted((a - b for a, b in zip(held, before, strict=True)), reverse=True)

    return within, replace(more, schedule=more.schedule.of_problem(min(alike, key=added), free))


def _microseconds(text: str) -> float:
    said = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?(us|ms|s)?", text.strip())
    if said is None:
        raise BadInput("expected a time, as 1.5ms or 200us", where="link_delay", value=text)
    return float(said[1]) * _MICROSECONDS[said[2] or "us"]


def _recognised(problem: Problem, order: Sequence[Sequence[Op]]) -> str | None:
    """Return the name of the hand-written schedule of this order; ``None``: it is none of them."""
    from pipesat.heuristics import BASELINES, USUAL

    split = any(op.kind == "W" for row in order for op in row)
    usual = sorted(BASELINES.items(), key=lambda one: one[0] not in USUAL)
    for name, entry in usual:  # where few microbatches make several alike
        if not entry.slow and entry.splits == split:
            with suppress(NotApplicable):
                if entry(problem).order == order:
                    return name
    return None


@public
def compare_timeline(
    problem: Problem, timeline: Timeline | str | Path, *, shortest: bool = False
) -> AgainstPrediction:
    """Compare predicted and measured times: of the step, and of every op, device and link.

    Parameters
    ----------
    problem
        The problem whose order ran.
    timeline
        What :func:`pipesat.run` measured, or the path of a timeline file.
    shortest
        Take the shortest step alone: for a machine in use.
    """
    from pipesat.measure.timeline.against_prediction import compare
    from pipesat.runtimes.timeline_file import read_timeline

    if isinstance(timeline, str | Path):
        timeline = read_timeline(Path(timeline), problem)
    return compare(problem, timeline.shortest if shortest else timeline)
