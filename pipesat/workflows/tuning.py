"""The closed loop: run orders, take their costs, solve, run what comes, till it gets no better."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Literal

from pipesat.core.arguments import public
from pipesat.core.errors import BadInput, NotApplicable, NotValid
from pipesat.core.ops import members
from pipesat.core.progress import doing
from pipesat.core.settings import RunSteps, Seconds, Stretch
from pipesat.core.timing import time_order
from pipesat.workflows.schedules import valid_schedule
from pipesat.workflows.solve import solve
from pipesat.workflows.torch_runs import torch_job

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.result import Result
    from pipesat.core.schedule import Schedule
    from pipesat.runtime.job import Job
    from pipesat.runtime.tuned import Tuned, TunedRow
    from pipesat.timeline.timeline import Timeline

ROUNDS: Final = 5
_BETTER = 0.002
"""By how much shorter a prediction has to be to be worth another round."""
_ROUND_STEPS = 5


@public
def tune(
    problem: Problem,
    schedule: Schedule | Result | str | Path,
    *,
    steps: RunSteps = 20,
    warm_up: RunSteps = 2,
    model: str | None = None,
    split: Literal["even", "balanced"] = "even",
    shape: str | Mapping[str, Any] | None = None,
    virtual: bool = False,
    scale: Stretch = 1.0,
    time_limit: Seconds = 10.0,
    timeout: Seconds = 600.0,
    note: Callable[[str], None] | None = None,
    stop: threading.Event | None = None,
) -> Tuned:
    """Find the best order of a pipeline where it runs: run, take its costs, solve, run again.

    The first round runs the schedule, 1F1B, the best that torch has built in, and one that splits
    backwards, in turns on all ranks, so that costs are those of a busy machine. Then it solves with
    these costs, runs what it finds, and takes the costs again, until the prediction is within 5 %
    of the run and nothing better comes, in five rounds at most. In the end it runs the orders in
    turns once more, and says what ours gains and whether that is more than noise.

    Parameters
    ----------
    problem
        Where stages are, what they hold, and a first guess of their times.
    schedule
        The order that you run today, as of :func:`pipesat.run`.
    steps
        Measured steps of each order in the last run; rounds before it have five.
    warm_up, model, split, shape, virtual, scale, note, stop
        As of :func:`pipesat.run`; one of ``model``, ``shape`` and ``virtual`` is needed.
    time_limit
        Seconds for each search.
    timeout
        Seconds for each run.

    Raises
    ------
    NotApplicable
        If torch cannot run the schedule, or there are memory modes.
    BadInput, NotValid, RunFailed
        As :func:`pipesat.run`.
    """
    from pipesat.core.plain_problems import require_no_modes
    from pipesat.runtime.job import measured_shape
    from pipesat.runtime.run import under_torchrun
    from pipesat.workflows.torch_runs import require_together

    require_no_modes(problem, "tune")
    require_together(model, split, shape, virtual, scale)
    if model is None and shape is None and not virtual:
        raise BadInput("expected `model`, `shape` or `virtual`: what is to be run?", where="model")
    if under_torchrun():
        raise BadInput("tuning starts local ranks so far: run it without torchrun", where="tune")
    options: dict[str, Any] = {
        "warm_up": warm_up,
        "check": False,
        "module": model or "",
        "split": split,
        "shape": measured_shape(shape),
        "scale": scale if virtual else None,
    }
    bench = _Bench(problem, options, timeout, note or (lambda _: None), stop)
    return _tuned(bench, valid_schedule(problem, schedule), time_limit, steps)


@dataclass(frozen=True)
class _Bench:
    """Runs orders of a problem in turns."""

    problem: Problem
    options: dict[str, Any]
    timeout: float
    tell: Callable[[str], None]
    stop: threading.Event | None

    def run(self, orders: Mapping[str, Schedule], steps: int) -> dict[str, Timeline]:
        """Return the timeline of each; of equal orders under the first one's name alone."""
        from pipesat.runtime.run import run_orders

        jobs: dict[str, Job] = {}  # by their order
        place = {}
        for name, schedule in orders.items():
            timed = time_order(self.problem, schedule.order)
            job = torch_job(self.problem, timed, steps=steps, **self.options)
            place[name] = job.csv
            jobs.setdefault(job.csv, replace(job, own=job.toy))
        scale = self.options["scale"] or 1.0
        with doing(f"running {steps} steps of {len(jobs)} orders in turns"):
            found = run_orders(
                self.problem, [*jobs.values()], scale=scale, timeout=self.timeout, stop=self.stop
            )
        timelines = {csv: one.timeline for csv, one in zip(jobs, found, strict=True)}
        return {name: timelines[csv] for name, csv in place.items()}


def _tuned(bench: _Bench, today: Schedule, time_limit: float, steps: int) -> Tuned:
    """Go round, and measure what came of it."""
    from pipesat.runtime.tuned import HOLDS, OURS, Round, Tuned
    from pipesat.timeline.timeline import us_per_unit

    named, _ = _references(bench.problem, today)
    first = named | _splitting(bench.problem, named)
    problem = _refitted(bench.problem, bench.run(first, _ROUND_STEPS))
    named, absent = _references(problem, today)  # torch's best with these costs
    ours, rounds, stopped = today, list[Round](), ""
    while not stopped:
        with doing("solving with the costs of this run"):
            result = solve(problem, target="torch", time_limit=time_limit, stop=bench.stop)
        best = _soonest(problem, [*named.values(), ours])
        found = result.schedule or best
        better = found.makespan < (1 - (_BETTER if rounds else 0)) * best.makespan
        if rounds and not better and abs(rounds[-1].error) <= HOLDS:
            stopped = "the prediction holds, and nothing better comes"
        elif len(rounds) == ROUNDS:
            stopped = "more are not made"
        else:
            ours = found if better else best
            timelines = bench.run({**named, OURS: ours}, _ROUND_STEPS)
            rounds.append(Round(*_both(problem, timelines[OURS])))
            bench.tell(f"round {len(rounds)}: {rounds[-1]}")
            problem = _refitted(problem, timelines)
    timelines = bench.run({**named, OURS: best}, steps)
    return Tuned(
        problem,
        best,
        _rows(problem, timelines),
        tuple(rounds),
        stopped,
        result.bound,
        us_per_unit(bench.problem) * (bench.options["scale"] or 1.0),
        absent,
    )


def _references(problem: Problem, today: Schedule) -> tuple[dict[str, Schedule], str]:
    """Return what ours is held against, and why 1F1B is not among it."""
    from pipesat.export import RUNTIMES

    found, why = {}, {}
    for name in RUNTIMES["torch"].built_in:
        try:
            found[name] = valid_schedule(problem, name)
        except (NotApplicable, NotValid) as error:
            why[name] = str(error)
    named = {name: found[name] for name in ("1f1b",) if name in found}
    if found:
        best = min(found, key=lambda name: found[name].makespan)
        named["torch's best" if best in named else f"torch's {best}"] = found[best]
    return named | {"yours": today}, why.get("1f1b", "")


def _splitting(problem: Problem, named: Mapping[str, Schedule]) -> dict[str, Schedule]:
    """Return a schedule that splits backwards where no other does, so that B and W are measured."""
    from pipesat.heuristics import BASELINES

    if any(
        op.kind == "B"
        for one in named.values()
        for row in one.order
        for item in row
        for op in members(item)
    ):
        return {}
    for name, entry in BASELINES.items():
        if entry.splits:
            with suppress(NotApplicable, NotValid):
                return {"split": valid_schedule(problem, name)}
    return {}


def _soonest(problem: Problem, schedules: Iterable[Schedule]) -> Schedule:
    """Return the shortest of some orders with a problem's costs."""
    timed = (replace(time_order(problem, one.order), source=one.source) for one in schedules)
    return min(timed, key=lambda one: one.makespan)


def _both(problem: Problem, timeline: Timeline) -> tuple[float, float]:
    """Return the predicted step of the order that ran, and the median of its steps, in us."""
    predicted = time_order(problem, timeline.steps[0].order).makespan
    return predicted * timeline.us_per_unit, median(timeline.makespans)


def _refitted(problem: Problem, timelines: Mapping[str, Timeline]) -> Problem:
    """Return the problem with the costs of all steps of a run, of whatever order."""
    from pipesat.timeline.refit import refit

    first = next(iter(timelines.values()))
    merged = replace(first, steps=tuple(step for one in timelines.values() for step in one.steps))
    found = refit(problem, merged)
    return found.problem


def _rows(problem: Problem, timelines: Mapping[str, Timeline]) -> tuple[TunedRow, ...]:
    """Return a row per order, ours last; orders that are the same have one."""
    from pipesat.runtime.tuned import OURS, TunedRow, gain_over
    from pipesat.timeline.compare import compare

    names: dict[int, list[str]] = {}
    for name, timeline in timelines.items():
        names.setdefault(id(timeline), []).append(name)
    ours = timelines[OURS]
    others = {id(one): one for one in timelines.values() if one is not ours}
    rows = []
    for key, timeline in [*others.items(), (id(ours), ours)]:
        gain = None if timeline is ours else gain_over(timeline.makespans, ours.makespans)
        predicted, _ = _both(problem, timeline)
        failed = compare(problem, timeline).largest.assumption
        rows.append(TunedRow(", ".join(names[key]), timeline, predicted, gain, failed))
    return tuple(rows)


def tuned_files(found: Tuned) -> dict[str, bytes]:
    """Return the files of a folder: problem and order, torch's CSV, the answer, what ran."""
    import json

    from pipesat.export import EXPORTERS
    from pipesat.files.schedule_file import schedule_bytes
    from pipesat.timeline.file import timeline_bytes

    def text(document: Any) -> bytes:
        return f"{json.dumps(document, indent=1, ensure_ascii=False)}\n".encode()

    order = EXPORTERS["torch"](found.problem, found.schedule)
    beside = {f"schedule{suffix}": data for suffix, data in order.beside.items()}
    return beside | {
        "problem.json": text(found.problem.document),
        "schedule.json": schedule_bytes(found.problem, found.schedule),
        "schedule.csv": order.data,
        "tuned.json": text(found.document()),
        **{
            f"timelines/{number}.json": timeline_bytes(row.timeline)
            for number, row in enumerate(found.rows)
        },
    }
