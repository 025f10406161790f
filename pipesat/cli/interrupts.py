"""SIGINT and SIGTERM ask a solve to end; the best schedule so far is then written."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupts:
    """While active, the first signal sets ``stop``; a second of the same kind kills as usual."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.received: int | None = None
        self.previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self.previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.received = number
        self.stop.set()
        signal.signal(number, signal.SIG_DFL)
        os.write(2, b"\npipesat: stopping; the best schedule so far will be kept\n")

    @property
    def exit_code(self) -> int:
        """128 + signal, or 0 if there was none."""
        return 0 if self.received is None else 128 + self.received
