"""Signals and streams: a command ends without a traceback, and goes on when no one reads it.

SIGINT and SIGTERM end every command with 128 + their number. :func:`end_quietly` comes before the
slow imports: until a command runs, a signal ends the process at once. From then on it raises
:class:`Stopped`, so that temporary files are removed on the way out. Within :class:`Interrupts`, it
asks a solve to end instead; the best schedule so far is then written.

Standard output and error never end a command. A reader leaves (``| head``, ``| tee`` after Ctrl-C),
a disk is full, or there is no stream at all (``>&-``). The work goes on and files are written; at
the end :func:`unwritten` says what is wrong.

What a solve has left behind (:mod:`pipesat.solver.lanes.aside`) may still run in threads when a
command has ended: then the process ends at once (:func:`end_with`).
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import select
import signal
import sys

TYPE_CHECKING = False  # this module is ready before any slow import, that of typing too
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType
    from typing import Any, Self


SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """A signal has come in; no one but the end of the program catches it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


def end_quietly() -> Callable[[], None]:
    """Let signals end this process without a word; call what is returned when a command begins."""
    running = False

    def handle(number: int, _: FrameType | None) -> None:
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


ending: dict[str, int] = {}
"""The exit code, once it is known; a caller of :func:`pipesat.cli.main` that goes on clears it."""


def end_with(code: int) -> None:
    """Let the process end with this code, even where threads still run.

    The interpreter takes apart what they use: compilers and CP-SAT would crash.
    """
    if not ending:
        atexit.register(_end)
    ending["code"] = code


def _end() -> None:
    import threading

    if ending and threading.active_count() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ending["code"])


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

    def _handle(self, number: int, _: FrameType | None) -> None:
        self.received = number
        self.stop.set()
        signal.signal(number, signal.SIG_DFL)
        with contextlib.suppress(OSError):  # its reader may have got the same signal: `| tee`
            os.write(2, f"\npipesat: stopping; {self.promise}\n".encode())

    @property
    def exit_code(self) -> int:
        """128 + signal, or 0 if there was none."""
        return 0 if self.received is None else 128 + self.received


class _Kept(io.FileIO):
    """A descriptor that keeps its first error; from then on, what is written goes nowhere."""

    failed: OSError | None = None

    def write(self, data: Any) -> int:
        """Write bytes, or drop them; return how many were taken."""
        try:
            while self.failed is None:
                written = super().write(data)
                if written is not None:
                    return written
                select.select([], [self], [])  # full, and set not to block
        except OSError as error:
            self.failed = error
        return memoryview(data).nbytes


def keep_streams() -> None:
    """Let standard output and error outlive their readers; call this before any command."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:  # closed: else the next file opened has its number, and our text in it
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = _kept(sys.stdout, 1)
    sys.stderr = _kept(sys.stderr, 2)


def _kept(stream: Any, number: int) -> Any:
    """Return a stream of text on a descriptor; one that goes elsewhere, as in tests, stays."""
    if stream is None:
        stream = open(number, "w", closefd=False)  # noqa: SIM115  for good
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    if isinstance(getattr(stream.buffer, "raw", stream.buffer), io.FileIO):
        stream = io.TextIOWrapper(
            io.BufferedWriter(_Kept(number, "w", closefd=False)),
            encoding=stream.encoding,
            line_buffering=stream.line_buffering or stream.write_through or number == 2,
        )
    stream.reconfigure(errors="backslashreplace")  # names from files may not fit the encoding
    return stream


def unwritten() -> str:
    """Why standard output has not taken everything; nothing where its reader has left."""
    if not isinstance(sys.stdout, io.TextIOWrapper):
        return ""
    sys.stdout.flush()
    error = getattr(getattr(sys.stdout.buffer, "raw", None), "failed", None)
    if error is None or isinstance(error, BrokenPipeError):
        return ""
    return f"standard output: cannot write: {error.strerror or error}"
