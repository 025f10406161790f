"""The one door to numba: loops are compiled at their first call and kept on disk for the next run.

Nothing here is loaded by `--help`, nor by what never calls a loop. Compiled code lies in a folder
of the user's cache that only the user may write, under a digest of all loops and of the versions
that compiled them: a loop compiled from other code is never found there. Where no folder may be
written, code lasts as long as the process. Where numba is not installed or does not load, as with a
numpy that is newer than it knows, loops run as the Python that they are: the same answers, later.
"""

from __future__ import annotations

import hashlib
import os
import platform
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, update_wrapper
from importlib.metadata import version
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

_lock = threading.RLock()


class Compiled:
    """A function that is compiled when it is first called; others of its kind may call it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)
        self.function = function
        self._dispatcher: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Run it, compiled."""
        return (self._dispatcher or self.dispatcher)(*arguments)

    @property
    def dispatcher(self) -> Any:
        """What numba makes of it."""
        with _lock:
            if self._dispatcher is None:
                self._dispatcher = _dispatcher(self.function)
            return self._dispatcher


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function of module level that numba can compile; it lets other threads run."""
    return cast("Callable[P, R]", Compiled(function))


@cache
def why_interpreted() -> str:
    """Return why loops are not compiled here; empty where they are."""
    try:
        _numba()
    except ImportError as error:
        return f"numba does not load: {error}"
    return ""


def _dispatcher(function: Callable[..., Any]) -> Any:
    if why_interpreted():
        return function
    numba = _numba()
    with _cached_in(_folder()) as kept:
        return numba.njit(nogil=True, cache=kept)(function)


@cache
def _numba() -> Any:
    """Return numba, told what a loop is that another loop calls."""
    import numba  # takes a quarter of a second
    from numba.extending import typeof_impl

    @typeof_impl.register(Compiled)
    def _(loop: Compiled, context: Any) -> Any:
        return typeof_impl(loop.dispatcher, context)

    return numba


@contextmanager
def _cached_in(folder: str | None) -> Iterator[bool]:
    """Let numba keep what is decorated meanwhile in a folder; whether there is one."""
    config = _numba().config
    before, config.CACHE_DIR = config.CACHE_DIR, folder or ""
    try:
        yield folder is not None
    finally:
        config.CACHE_DIR = before


@cache
def _folder() -> str | None:
    """Return a folder for compiled code that only this user may write; ``None``: there is none."""
    for home in _homes():
        folder = home / "pipesat" / f"kernels-{_digest()}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = folder.stat()
            own = found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if own and os.access(folder, os.W_OK):
                return str(folder)
        except OSError:
            continue
    return None


def _homes() -> Iterator[Path]:
    """Yield where a user's cache may lie, the usual place first."""
    if stated := os.environ.get("XDG_CACHE_HOME"):
        yield Path(stated)
    with_home = os.path.expanduser("~")
    if with_home != "~":
        yield Path(with_home) / ".cache"
    yield Path(tempfile.gettempdir()) / f"pipesat-{os.getuid()}"


def _digest() -> str:
    """Return a digest of all loops and of what compiles them."""
    versions = f"{version('numba')} {version('llvmlite')} {platform.python_version()}"
    state = hashlib.sha256(versions.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        state.update(path.read_bytes())
    return state.hexdigest()[:16]
