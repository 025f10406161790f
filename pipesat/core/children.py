"""Interpreters of our own, started beside this one: a function of ours, and a connection to it.

Not ``multiprocessing``: nothing of the caller's ``__main__`` is imported again, and it works in a
notebook, in a daemonic worker of a pool, and whatever start method the caller uses.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import IO

_ROOT = Path(__file__).resolve().parents[2]


def start(
    function: str,
    words: IO[bytes],
    more: Mapping[str, str],
    *,
    session: bool = False,
    without: Sequence[str] = (),
) -> tuple[subprocess.Popen[bytes], Connection]:
    """Start an interpreter that calls ``module:function``; return it and our end of its connection.

    Parameters
    ----------
    words
        Where its standard output and error go.
    more
        Is added to our environment.
    session
        Make it the leader of a session of its own.
    without
        Modules that a library loads for types which are not used there.

    Raises
    ------
    OSError, ValueError
        If no process can be started here.
    """
    module, _, name = function.partition(":")
    known = (os.path.abspath(path) for path in sys.path if path)
    ours, theirs = multiprocessing.Pipe()
    with theirs:
        try:
            process = subprocess.Popen(  # noqa: S603  our own interpreter and module
                [
                    sys.executable or "python is not known",
                    "-P",
                    "-c",
                    f"from {__name__} import do_without; do_without(*{tuple(without)}); "
                    f"from {module} import {name}; {name}()",
                    str(theirs.fileno()),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([*known, str(_ROOT)]), **more},
                start_new_session=session,
            )
        except BaseException:
            ours.close()
            raise
    return process, ours


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


def last_lines(words: IO[bytes], most: int = 12) -> tuple[str, ...]:
    """Return the last lines of what was written."""
    words.seek(0)
    lines = words.read().decode(errors="replace").splitlines()
    return tuple([line for line in lines if line.strip()][-most:])
