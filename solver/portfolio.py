"""The search after the warm starts: one half improves the schedule, the other raises the bound.

With one thread the two take turns. With more, window search has one, which it shares with proofs
once it stops helping, and proofs have the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from pipesat.problem import Problem
from pipesat.solver.cpsat import Runner
from pipesat.solver.incumbent import Incumbent
from pipesat.solver.neighbourhood.search import WindowSearch
from pipesat.solver.parts import Parts
from pipesat.solver.proof import ProofSearch

_PATIENCE = 5.0  # seconds of window search without an improvement
_POLL = 0.05  # seconds between looks at the clock and the stop flag


def search(
    problem: Problem,
    incumbent: Incumbent,
    *,
    workers: int,
    seed: int,
    parts: Parts,
    stop: threading.Event,
) -> list[str]:
    """Improve an incumbent and its bound until proven, out of time or stopped; say what happened.

    Needs an incumbent with a schedule and a bound.
    """
    clock = incumbent.clock
    threads = 1 if clock.deterministic else workers
    windows_threads = 1 if parts.windows else 0
    runners = [Runner(clock, 1), Runner(clock, 1), Runner(clock, max(1, threads - windows_threads))]
    windows = WindowSearch(problem, incumbent, runner=runners[0], seed=seed)
    proofs = ProofSearch(problem, incumbent, seed=seed, parts=parts)

    def over() -> bool:
        return stop.is_set() or incumbent.proven or not clock.left

    lanes = []
    if parts.windows:
        patience = 0.0 if threads == 1 else _PATIENCE
        lanes.append(_turns(windows, proofs, runners[1], over, patience=patience))
    if threads > 1 or not parts.windows:
        lanes.append(_repeat(lambda: proofs.step(runners[2]), lambda: over() or proofs.finished))
    failures = _run(lanes, runners, over)
    if failures:
        raise failures[0]
    return [windows.report, proofs.report]


def _repeat(step: Callable[[], None], over: Callable[[], bool]) -> Callable[[], None]:
    def lane() -> None:
        while not over():
            step()

    return lane


def _turns(
    windows: WindowSearch,
    proofs: ProofSearch,
    runner: Runner,
    over: Callable[[], bool],
    *,
    patience: float,
) -> Callable[[], None]:
    """Search windows as long as that helps; after ``patience`` without success, half the time."""

    def lane() -> None:
        behind = (
            0.0  # time that proofs have had less than windows, since these have stopped helping
        )
        while not over():
            if proofs.finished or windows.idle < patience or behind <= 0:
                spent = windows.runner.spent
                windows.step()
                behind = 0.0 if windows.idle < patience else behind + windows.runner.spent - spent
            else:
                spent = runner.spent
                proofs.step(runner)
                behind -= runner.spent - spent

    return lane


def _run(
    lanes: list[Callable[[], None]], runners: list[Runner], over: Callable[[], bool]
) -> list[BaseException]:
    """Run lanes as threads, so that signals and the clock are heard meanwhile."""
    failures: list[BaseException] = []

    def guarded(lane: Callable[[], None]) -> None:
        try:
            lane()
        except BaseException as error:
            failures.append(error)

    threads = [
        threading.Thread(target=guarded, args=(lane,), name=f"lane {n}", daemon=True)
        for n, lane in enumerate(lanes)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for thread in threads:
            thread.join(_POLL)
        if over() or failures:
            for runner in runners:
                runner.interrupt()
        if failures:
            break
    return failures
