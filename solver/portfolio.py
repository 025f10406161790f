"""The search after the warm starts: one half improves the schedule, the other raises the bound.

Every thread runs one single-threaded CP-SAT model at a time. With one thread the halves take turns.
With more, window search has every other one, which it shares with proofs once it stops helping.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from pipesat.problem import Problem
from pipesat.solver.cpsat import Runner
from pipesat.solver.incumbent import Incumbent
from pipesat.solver.neighbourhood.search import WindowSearch, windows_apply
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
    proofs = ProofSearch(problem, incumbent, seed=seed, parts=parts)
    use_windows = parts.windows and windows_apply(problem, incumbent)
    windows: list[WindowSearch] = []
    runners: list[Runner] = []
    failures: list[BaseException] = []

    def over() -> bool:
        return stop.is_set() or incumbent.proven or not clock.left or bool(failures)

    def runner() -> Runner:
        runners.append(Runner(clock))
        return runners[-1]

    def lane(number: int) -> Callable[[], None]:
        if number % 2 or not use_windows:
            return _repeat(partial(proofs.step, runner()), lambda: over() or proofs.finished)
        windows.append(WindowSearch(problem, incumbent, runner=runner(), seed=seed + number))
        patience = 0.0 if threads == 1 else _PATIENCE
        return _turns(windows[-1], proofs, runner(), over, patience=patience)

    lanes = [lane(number) for number in range(threads)]
    _run(lanes, runners, over, failures)
    if failures:
        raise failures[0]
    return [*(search.report for search in windows), proofs.report]


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
    lanes: list[Callable[[], None]],
    runners: list[Runner],
    over: Callable[[], bool],
    failures: list[BaseException],
) -> None:
    """Run lanes as threads, so that signals and the clock are heard meanwhile; keep what fails."""

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
        if over():
            for runner in runners:
                runner.interrupt()
