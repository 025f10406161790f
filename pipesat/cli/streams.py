"""Standard output and error that never end a command: what nobody can read is dropped.

A reader leaves (``| head``, ``| tee`` after Ctrl-C), a disk is full, or there is no stream at all
(``>&-``). The work goes on and files are written; at the end :func:`unwritten` says what is wrong.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import Any


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
    """Let standard output and error outlive whoever reads them; call this before any command."""
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
