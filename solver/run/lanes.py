"""The threads of a search, each a lane of its own that runs one CP-SAT model at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from pipesat.solver.run.clock import Clock
from pipesat.solver.run.incumbent import failure_note
from pipesat.solver.run.runner import Runner

_POLL = 0.05  # seconds between looks at the clock and its stop


class Lanes:
    """Runs lanes as threads, so that signals and the clock are heard meanwhile."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._runners: list[Runner] = []

    def runner(self) -> Runner:
        """Return a new runner for one lane, which is interrupted when the clock is over."""
        self._runners.append(Runner(self.clock))
        return self._runners[-1]

    def run(self, lanes: Sequence[Callable[[], None]]) -> list[str]:
        """Run lanes to their end.

        A lane that fails ends; the others go on, and what has been found and proven stays. Returns
        what failed.
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
            if self.clock.over:
                for runner in self._runners:
                    runner.interrupt()
        return failed
