"""Interpreters of our own, started beside this one: a function of ours, and a connection to it.

Not ``multiprocessing``: nothing of the caller's ``__main__`` is imported again, and it works in a
notebook, in a daemonic worker of a pool, and whatever start method the caller uses. It imports
nothing of pipesat.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Final, Self

ONE_THREAD: Final = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)
"""An environment in which libraries start no threads of their own."""


class Child:
    """An interpreter that calls ``module:function``, and our end of its connection.

    Parameters
    ----------
    more
        Is added to our environment.
    session
        Make it the leader of a session of its own.
    without
        Modules that a library loads for types which are not used there.

    Attributes
    ----------
    words
        The file that has its standard output and error.

    Raises
    ------
    OSError, ValueError
        If no process can be started here.
    """

    def __init__(
        self,
        function: str,
        more: Mapping[str, str],
        *,
        session: bool = False,
        without: Sequence[str] = (),
    ) -> None:
        module, _, name = function.partition(":")
        self.words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        try:
            self.connection, theirs = multiprocessing.Pipe()
            with theirs:
                self.process = start(
                    f"from {__name__} import do_without; do_without(*{tuple(without)}); "
                    f"from {module} import {name}; {name}()",
                    str(theirs.fileno()),
                    more=more,
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=self.words,
                    stderr=self.words,
                    start_new_session=session,
                )
        except BaseException:
            self.words.close()
            raise

    def last_lines(self, most: int = 12) -> tuple[str, ...]:
        """Return the last lines of what it has written."""
        return last_lines(self.words, most)

    def ended(self) -> str:
        """Wait for its end; say how it ended, and its last line."""
        code = self.process.wait()
        return how_ended(code) + "".join(f": {line}" for line in self.last_lines(1))

    def close(self) -> None:
        """Close what we have of it."""
        self.connection.close()
        self.words.close()

    def end(self) -> None:
        """End the whole session that it leads, and close what we have of it."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def start(
    code: str, *arguments: str, more: Mapping[str, str] | None = None, **popen: Any
) -> subprocess.Popen[bytes]:
    """Start an interpreter that runs a line of code and finds the modules that we find."""
    known = (os.path.abspath(path) for path in sys.path if path)
    path = os.pathsep.join([*known, str(Path(__file__).resolve().parents[1])])
    return subprocess.Popen(  # noqa: S603  our own interpreter and module
        [sys.executable or "python is not known", "-P", "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": path, **(more or {})},
        **popen,
    )


def do_without(*modules: str) -> None:
    """Let imports of some modules find one whose every name is an empty class."""
    for name in modules:
        sys.modules[name] = _Nothing(name)


class _Nothing(ModuleType):
    def __getattr__(self, name: str) -> type:
        return type(name, (), {})


def parent() -> Connection:
    """Return the other end of the connection, in the interpreter that was started."""
    return Connection(int(sys.argv[1]))


def how_ended(code: int) -> str:
    """Say how a process ended, by its exit code: minus the signal that ended it."""
    return f"signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"exit code {code}"


def last_lines(words: IO[bytes], most: int = 12) -> tuple[str, ...]:
    """Return the last lines of what was written."""
    words.seek(0)
    lines = words.read().decode(errors="replace").splitlines()
    return tuple([line for line in lines if line.strip()][-most:])
