"""A process beside this one that compiles loops into the cache on disk, from which both read them.

A compiler in a thread shares the interpreter with the search: either waits for the other most of
the time. The process hears no signal that a terminal sends. It ends when it has had nothing to do
for a while, and when its parent closes the pipes or is gone.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from subprocess import DEVNULL, PIPE, Popen
from typing import IO, Any, Final, cast

from pipesat.child import start

_IDLE: Final = 10.0  # seconds without a loop to compile, after which the process ends
_DONE: Final = b"."


class Compiler:
    """Starts the process when it is needed, and talks to it."""

    def __init__(self) -> None:
        self._process: Popen[bytes] | None = None
        self._talking = threading.Lock()
        self._closed = False

    def compile(self, module: str, name: str, types: Iterable[Any]) -> None:
        """Return when a loop of a module is compiled and kept for such types, or cannot be.

        The caller looks whether it is: the process may be killed, and the disk may be full.
        """
        asked = pickle.dumps((module, name, tuple(types)))
        with self._talking:
            for _ in range(2):  # one that was idle may just have ended
                with suppress(OSError, ValueError):  # it has ended, or none can be started
                    if self._closed or self._answered(asked):
                        return
                self._part()

    def _answered(self, asked: bytes) -> bool:
        if self._process is None:
            self._process = start(
                f"from {__name__} import main; main()",
                bufsize=0,
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                start_new_session=True,
            )
            threading.Thread(target=self._process.wait, daemon=True).start()  # leaves no zombie
            if self._closed:
                self._process.kill()
        into, out = _pipes(self._process)
        while asked:
            asked = asked[into.write(asked) :]
        return bool(out.read(1))

    def _part(self) -> None:
        if self._process is not None:
            for pipe in _pipes(self._process):
                pipe.close()
            self._process = None

    def close(self) -> None:
        """End the process, from any thread; another is never started."""
        self._closed = True
        if self._process is not None:
            self._process.kill()
        with self._talking:
            self._part()

    def forget(self) -> None:
        """In a process that was forked: the other is the parent's, and ends with it alone."""
        if self._process is not None:
            self._process.returncode = 0  # not ours to wait for
        self._part()


def _pipes(process: Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    return cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)


def main() -> None:
    """Compile what is asked for on standard input, one loop after the other."""
    wanted: SimpleQueue[tuple[str, str, tuple[Any, ...]]] = SimpleQueue()

    def listen() -> None:
        with suppress(EOFError):
            while True:
                wanted.put(pickle.load(sys.stdin.buffer))  # noqa: S301  of who started us
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    with suppress(Empty, BrokenPipeError):
        while True:
            module, name, types = wanted.get(timeout=_IDLE)
            with suppress(Exception):  # the caller compiles it, and sees what is wrong
                getattr(importlib.import_module(module), name).dispatcher.compile(types)
            os.write(1, _DONE)
    os._exit(0)
