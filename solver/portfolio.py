"""The search after the warm starts: one half improves the schedule, the other raises the bound.

Every thread is a lane that runs one single-threaded CP-SAT model at a time. With one thread the
halves take turns. With more, every other lane searches windows, and shares its time with other ways
to a schedule and with proofs once windows stop helping; the rest proves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.solver.cpsat import Runner
from pipesat.solver.incumbent import Incumbent, failure_note
from pipesat.solver.neighbourhood.search import WindowSearch, windows_apply
from pipesat.solver.other_ways import other_starts
from pipesat.solver.proof import ProofSearch
from pipesat.solver.search_parts import Parts

_PATIENCE = 5.0  # seconds of window search without an improvement
_POLL = 0.05  # seconds between looks at the clock and the stop flag


class Report(NamedTuple):
    """What the parts of the search did, and which of them failed."""

    notes: list[str]
    failed: list[str]


def search(
    problem: Problem,
    incumbent: Incumbent,
    starts: Sequence[Schedule],
    *,
    workers: int,
    seed: int,
    parts: Parts,
    stop: threading.Event,
) -> Report:
    """Improve an incumbent and its bound until proven, out of time or stopped; say what happened.

    Needs an incumbent with a schedule and a bound. ``starts`` are other valid schedules to work on.
    """
    clock = incumbent.clock
    threads = 1 if clock.deterministic else workers
    proofs = ProofSearch(problem, incumbent, seed=seed, parts=parts)
    use_windows = parts.windows and windows_apply(problem, incumbent)
    windows: list[WindowSearch] = []
    runners: list[Runner] = []

    def over() -> bool:
        return stop.is_set() or incumbent.proven or not clock.left

    def runner() -> Runner:
        runners.append(Runner(clock))
        return runners[-1]

    def lane(number: int) -> Callable[[], None]:
        mine = parts
        if number % 2:
            mine = replace(parts, packing=False, steady=False, growth=False)
        others = other_starts(incumbent, starts, seed + number, mine, over)
        if (number % 2 and not proofs.finished) or not use_windows:
            return partial(_prove, proofs, runner(), over, others)
        windows.append(WindowSearch(problem, incumbent, runner=runner(), seed=seed + number))
        patience = 0.0 if threads == 1 else _PATIENCE
        return partial(_take_turns, windows[-1], proofs, runner(), over, others, patience)

    failed = run_lanes([lane(number) for number in range(threads)], runners, over)
    return Report([*(search.report for search in windows), proofs.report], failed)


Others = Iterator[Callable[[], None]]


def _prove(proofs: ProofSearch, runner: Runner, over: Callable[[], bool], others: Others) -> None:
    """Try relaxations, after all other ways to a schedule that this lane was given."""
    for other in others:
        if not over():
            other()
    while not (over() or proofs.finished):
        proofs.step(runner)


def _take_turns(
    windows: WindowSearch,
    proofs: ProofSearch,
    runner: Runner,
    over: Callable[[], bool],
    others: Others,
    patience: float,
) -> None:
    """Search windows as long as that helps, after the first of the other ways to a schedule.

    After ``patience`` without success, give proofs half of the time. After the usual patience, with
    one thread too, try the next of these ways.
    """
    next(others, _nothing)()
    behind = 0.0  # what windows have spent beyond proofs, since they have stopped helping
    while not over():
        helping = windows.idle < patience
        if windows.idle >= _PATIENCE and (other := next(others, None)) is not None:
            other()
            windows.refresh()
        elif helping or proofs.finished or behind <= 0:
            spent = windows.runner.spent
            windows.step()
            behind = 0.0 if helping else behind + windows.runner.spent - spent
        else:
            spent = runner.spent
            proofs.step(runner)
            behind -= runner.spent - spent


def _nothing() -> None:
    pass


def run_lanes(
    lanes: list[Callable[[], None]],
    runners: list[Runner],
    over: Callable[[], bool],
) -> list[str]:
    """Run lanes as threads, so that signals and the clock are heard meanwhile.

    A lane that fails ends; the others go on, and what has been found and proven stays. Returns what
    failed.
    """
    failed: list[str] = []

    def guarded(lane: Callable[[], None]) -> None:
        try:
            lane()
        except BaseException as error:
            failed.append(failure_note("a part of the search", error))

    threads = [
        threading.Thread(target=guarded, args=(lane,), name=f"lane {n}", daemon=True)
        for n, lane in enumerate(lanes)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for thread in threads:
            thread.join(_POLL)
        if over():
            for runner in runners:
                runner.interrupt()
    return failed
