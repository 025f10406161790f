"""The one door to numba: loops are compiled at their first call and kept on disk for the next run.

Nothing here is loaded by `--help`, nor by what never calls a loop. Compiled code lies in a folder
of the user's cache that only the user may write, under a digest of all loops and of the versions
that compiled them: a loop compiled from other code is never found there. Where no folder may be
written, code lasts as long as the process. Where numba is not installed or does not load, as with a
numpy that is newer than it knows, loops run as the Python that they are: the same answers, later.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import platform
import stat
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, update_wrapper
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

_lock = threading.RLock()  # of numba's settings
_starting = threading.Lock()

_WAIT: Final = 0.25  # seconds in which a loop is there if another run has compiled it
_LARGEST: Final = 20_000  # numbers in an array of which Python makes short work
_AT_EXIT: Final = 0.5  # seconds that what is being compiled has, when the interpreter goes


class Compiled:
    """A function that is compiled when it is first called; others of its kind may call it.

    With ``meanwhile``, calls on small arrays run as Python until it is compiled: one order is timed
    sooner than that. Of several processes one compiles, and the others read what it has kept.
    """

    def __init__(self, function: Callable[..., Any], *, meanwhile: bool) -> None:
        update_wrapper(self, function)
        self.function, self.meanwhile = function, meanwhile
        self._dispatcher: Any = None
        self._ready: Any = None
        self._failure: Exception | None = None
        self._compiling: threading.Thread | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Run it, compiled if it is by now."""
        if self._ready is None and not _here.interprets:
            self._compile(arguments)
        if self._ready is not None:
            return self._ready(*arguments)
        before, _here.interprets = _here.interprets, True
        try:
            return self.function(*arguments)
        finally:
            _here.interprets = before

    def _compile(self, arguments: tuple[Any, ...]) -> None:
        """Compile it for such arguments; come back before that, if they are of few numbers.

        All that may take long, numba's own import too, is done in a thread.
        """
        with _starting:
            if self._compiling is None:
                self._compiling = threading.Thread(target=self._make, args=arguments, daemon=True)
                self._compiling.start()
                atexit.register(self._compiling.join, _AT_EXIT)
        small = self.meanwhile and _most(arguments) <= _LARGEST
        self._compiling.join(_WAIT if small else None)
        if self._failure is not None:
            raise self._failure

    def _make(self, *arguments: Any) -> None:
        try:
            if not why_interpreted():
                types = tuple(map(_numba().typeof, arguments))
                with _one_process_at_a_time(self.function.__name__):
                    self.dispatcher.compile(types)
                self._ready = self.dispatcher
        except Exception as error:
            self._failure = error

    @property
    def dispatcher(self) -> Any:
        """What numba makes of it."""
        with _lock:
            if self._dispatcher is None:
                with _cached_in(_folder()) as kept:
                    self._dispatcher = _numba().njit(nogil=True, cache=kept)(self.function)
            return self._dispatcher


class _Here(threading.local):
    """Of one thread: whether it is within a loop that runs as Python."""

    interprets = False


_here = _Here()


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function of module level that numba can compile; it lets other threads run."""
    return cast("Callable[P, R]", Compiled(function, meanwhile=False))


def compiled_meanwhile(function: Callable[P, R]) -> Callable[P, R]:
    """As :func:`compiled`, for one whose calls take moments: they do not wait for a compiler."""
    return cast("Callable[P, R]", Compiled(function, meanwhile=True))


def _most(arguments: Iterable[Any]) -> int:
    """Most numbers in an array among arguments, or among their members."""
    sizes = (_most(one) if isinstance(one, tuple) else getattr(one, "size", 0) for one in arguments)
    return max(sizes, default=0)


@contextmanager
def _one_process_at_a_time(name: str) -> Iterator[None]:
    """Wait until no other process compiles a loop of this name; where none can be kept, do not."""
    folder = _folder()
    if folder is None:
        yield
        return
    import fcntl

    with open(Path(folder) / f"{name}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@cache
def why_interpreted() -> str:
    """Return why loops are not compiled here; empty where they are."""
    try:
        _numba()
    except ImportError as error:
        return f"numba does not load: {error}"
    return ""


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
