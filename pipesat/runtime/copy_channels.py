"""A rank's copy channels: threads that run its copies in turn, each when it may.

Events are texts: ``>2F3`` when an op starts, ``2F3`` when it has ended, ``2O3`` and ``2L3`` when a
copy has. All copies of a channel are known before a step, so that their sequence is the schedule's
whatever the times are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from pipesat.core.errors import RunFailed

_PATIENCE: Final = 300.0
"""Seconds that anything waits for one event before the run fails; a step of a test takes one."""


class ChannelCopy(NamedTuple):
    """One copy: its own event, what must have happened before it, and what it does."""

    event: str
    after: tuple[str, ...]
    run: Callable[[], object]


class CopyChannels:
    """The channels of one step; used up when all copies have run."""

    def __init__(self, channels: Sequence[Sequence[ChannelCopy]]) -> None:
        self.changed = threading.Condition()
        self.happened: set[str] = set()
        self.failure: BaseException | None = None
        self.threads = [
            threading.Thread(target=self._run, args=[copies], daemon=True)
            for copies in channels
            if copies
        ]
        for thread in self.threads:
            thread.start()

    def note(self, event: str) -> None:
        """Say that an event has happened."""
        with self.changed:
            self.happened.add(event)
            self.changed.notify_all()

    def await_all(self, events: Iterable[str], who: str) -> None:
        """Wait until all of these events have happened.

        Raises
        ------
        RunFailed
            If a copy fails, or one of them takes endlessly long.
        """
        wanted = set(events)
        with self.changed:
            done = self.changed.wait_for(
                lambda: self.failure is not None or wanted <= self.happened, _PATIENCE
            )
            if self.failure is not None:
                raise RunFailed(f"{who}: a copy failed: {self.failure}") from self.failure
            if not done:
                missing = ", ".join(sorted(wanted - self.happened))
                raise RunFailed(f"{who} waited {_PATIENCE:g} s for {missing}")

    def finish(self) -> None:
        """Wait for all copies; called when every backward has had its own."""
        for thread in self.threads:
            thread.join(_PATIENCE)

    def _run(self, copies: Sequence[ChannelCopy]) -> None:
        try:
            for copy in copies:
                self.await_all(copy.after, copy.event)
                copy.run()
                self.note(copy.event)
        except BaseException as error:
            with self.changed:
                self.failure = self.failure or error
                self.changed.notify_all()
