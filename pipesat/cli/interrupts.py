"""SIGINT and SIGTERM end every command without a traceback, with 128 + their number.

:func:`end_quietly` comes before the slow imports: until a command runs, a signal ends the process
at once. From then on it raises :class:`Stopped`, so that temporary files are removed on the way
out. Within :class:`Interrupts`, it asks a solve to end instead; the best schedule so far is then
written.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

TYPE_CHECKING = False  # this module is ready before any slow import, that of typing too
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType
    from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """A signal has come in; nobody but the end of the program catches it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


def end_quietly() -> Callable[[], None]:
    """Let signals end this process without a word; call what is returned when a command begins."""
    running = False

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        if not running:
            os._exit(128 + number)
        signal.signal(number, signal.SIG_DFL)  # a second one kills as usual
        raise Stopped(number)

    def begin() -> None:
        nonlocal running
        running = True

    try:
        for number in SIGNALS:
            signal.signal(number, handle)
    except ValueError:  # not the main thread: signals are not ours
        return begin
    _keep_quiet()
    return begin


def _keep_quiet() -> None:
    """End at once where Python would only print that it cannot raise :class:`Stopped`."""
    before, unraisable = sys.excepthook, sys.unraisablehook

    def uncaught(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Stopped):
            os._exit(error.exit_code)
        before(kind, error, trace)

    def ignored(what: Any) -> None:
        if isinstance(what.exc_value, Stopped):
            os._exit(what.exc_value.exit_code)
        unraisable(what)

    sys.excepthook, sys.unraisablehook = uncaught, ignored


class Interrupts:
    """While active, the first signal sets ``stop``; a second of the same kind kills as usual.

    ``promise``: what is said of all there is by then.
    """

    def __init__(self, promise: str = "the best schedule so far will be kept") -> None:
        import threading

        self.promise = promise
        self.stop = threading.Event()
        self.received: int | None = None
        self.previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            self.previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.received = number
        self.stop.set()
        signal.signal(number, signal.SIG_DFL)
        with contextlib.suppress(OSError):  # its reader may have got the same signal: `| tee`
            os.write(2, f"\npipesat: stopping; {self.promise}\n".encode())

    @property
    def exit_code(self) -> int:
        """128 + signal, or 0 if there was none."""
        return 0 if self.received is None else 128 + self.received
