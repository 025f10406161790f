"""The one door to numba: loops are compiled at their first call and kept on disk for the next run.

Nothing here is loaded by `--help`, nor by what never calls a loop. Compiled code lies in a folder
of the user's cache that only the user may write, under a digest of all loops and of the versions
that compiled them: a loop compiled from other code is never found there. A process beside this one
compiles what is not there yet (:mod:`pipesat.kernels.compiler`). Where no folder may be written, or
no process can be started, a thread compiles. Without a folder code lasts as long as this process.
Where numba is not installed or does not load, as with a numpy that is newer than it knows, loops
run as the Python that they are: the same answers, later.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import platform
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, update_wrapper
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, cast

from pipesat.kernels.compiler import Compiler

P = ParamSpec("P")
R = TypeVar("R")

_lock = threading.RLock()  # of numba's settings
_starting = threading.Lock()
_turn = threading.Lock()  # one thread compiles
_beside = Compiler()

_WAIT: Final = 0.25  # seconds in which a loop is there if another run has compiled it
_LARGEST: Final = 20_000  # numbers in an array of which Python makes short work
_OTHERS: Final = 20.0  # seconds that another process may take to compile: it may be stopped
_TICK: Final = 0.02  # seconds between two looks at whether it has


def compiling() -> bool:
    """Whether a loop that was not kept is being compiled right now."""
    return _turn.locked()


class Compiled:
    """A function that is compiled when it is first called; others of its kind may call it.

    With ``meanwhile``, calls on small arrays run as Python until it is compiled: one order is timed
    sooner than that. Of several processes one compiles, and the others read what it has kept.
    ``within``: it becomes part of those that call it.
    """

    def __init__(
        self, function: Callable[..., Any], *, meanwhile: bool = False, within: bool = False
    ) -> None:
        update_wrapper(self, function)
        self.function, self.meanwhile, self.within = function, meanwhile, within
        self._dispatcher: Any = None
        self._ready: Any = None
        self._failure: Exception | None = None
        self._compiling: threading.Thread | None = None
        self._soon = 0.0  # until when all wait for it

    def __call__(self, *arguments: Any) -> Any:
        """Run it, compiled if it is by now."""
        if self._ready is None and not (_here.interprets or _process.interprets):
            self._compile(arguments)
        if self._ready is not None:
            return self._ready(*arguments)
        before, _here.interprets = _here.interprets, True
        try:
            return self.function(*arguments)
        finally:
            _here.interprets = before

    def _compile(self, arguments: tuple[Any, ...]) -> None:
        """Compile it for such arguments; come back before that, if they are of few numbers."""
        compiling = self._begun(arguments)
        small = self.meanwhile and _most(arguments) <= _LARGEST
        compiling.join(max(0.0, self._soon - time.monotonic()) if small else None)
        if self._failure is not None:
            raise self._failure

    def _begun(self, arguments: tuple[Any, ...]) -> threading.Thread:
        """Return the thread for all that may take long, numba's own import too."""
        with _starting:
            if self._compiling is None:
                self._soon = time.monotonic() + _WAIT
                self._compiling = threading.Thread(target=self._make, args=arguments, daemon=True)
                self._compiling.start()
                _end_before_python(self._compiling)
        return self._compiling

    def ready(self, *arguments: Any) -> bool:
        """Whether a call for such arguments runs at once; if not, it is being compiled from now."""
        here = self._ready is not None or _here.interprets or _process.interprets
        return here or not self._begun(arguments).is_alive()

    def _make(self, *arguments: Any) -> None:
        for _ in range(2):  # numba may go through what another thread changes: a RuntimeError
            self._failure = None
            try:
                if not why_interpreted():
                    self._load_or_compile(tuple(map(_numba().typeof, arguments)))
                    self._ready = self.dispatcher
            except Exception as error:
                self._failure = error
            if not isinstance(self._failure, RuntimeError):
                return

    def _load_or_compile(self, types: tuple[Any, ...]) -> None:
        """Load what is kept; else let another process compile it, and do it here if that fails."""
        module, name = self.function.__module__, self.function.__name__
        if self._loaded(types):
            return
        with _one_at_a_time(name):
            if self._loaded(types):
                return
            found_by_name = getattr(sys.modules.get(module), name, None) is self
            if found_by_name and _folder() is not None:
                _beside.compile(module, name, types)
                if _leaving.is_set():
                    raise SystemExit
            self.dispatcher.compile(types)

    def _loaded(self, types: tuple[Any, ...]) -> bool:
        """Whether it was in the cache, and is loaded now."""
        from numba.core.compiler_lock import global_compiler_lock

        with global_compiler_lock:  # no other thread compiles it as part of its own
            compiler = self.dispatcher._compiler
            compiler.compile = _not_here
            try:
                self.dispatcher.compile(types)
            except _NotKept:
                return False
            finally:
                del compiler.compile
            return True

    @property
    def dispatcher(self) -> Any:
        """What numba makes of it."""
        with _lock:
            if self._dispatcher is None:
                with _cached_in(_folder()) as kept:
                    njit = _numba().njit(nogil=True, cache=kept, forceinline=self.within)
                    self._dispatcher = njit(self.function)
                if kept:  # a disk may be full, or a folder gone
                    cache = self._dispatcher._cache
                    cache.save_overload = _or_not(cache.save_overload)
            return self._dispatcher


class _NotKept(Exception):
    """A loop is not in the cache."""


def _not_here(*_: Any) -> None:
    raise _NotKept


def _or_not(save: Callable[..., None]) -> Callable[..., None]:
    """Keep what is compiled, or go on without."""

    def saved(*what: Any) -> None:
        with suppress(OSError):
            save(*what)

    return saved


class _Here(threading.local):
    """Of one thread: whether it is within a loop that runs as Python."""

    interprets = False


_here = _Here()


@dataclass
class _Process:
    """Of this process: whether it was forked while a loop was compiling.

    Then the locks of that, numba's own too, are held by a thread that is not here, and what has not
    been compiled before runs as Python.
    """

    interprets: bool = False

    def begin(self) -> None:
        """Take up what a fork has left."""
        self.interprets = self.interprets or _turn.locked()
        _beside.forget()
        _lock.release()


_process = _Process()
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_process.begin
)


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function of module level that numba can compile; it lets other threads run."""
    return cast("Callable[P, R]", Compiled(function))


def compiled_within(function: Callable[P, R]) -> Callable[P, R]:
    """As :func:`compiled`, for one that others call often, with many arrays each time."""
    return cast("Callable[P, R]", Compiled(function, within=True))


def ready(loop: Callable[P, Any], *arguments: P.args, **_: P.kwargs) -> bool:
    """Whether a loop would run at once for such arguments; if not, it is compiled from now on."""
    return cast("Compiled", loop).ready(*arguments)


def compiled_meanwhile(function: Callable[P, R]) -> Callable[P, R]:
    """As :func:`compiled`, for one whose calls take moments: they do not wait for a compiler."""
    return cast("Callable[P, R]", Compiled(function, meanwhile=True))


def _most(arguments: Iterable[Any]) -> int:
    """Most numbers in an array among arguments, or among their members."""
    sizes = (_most(one) if isinstance(one, tuple) else getattr(one, "size", 0) for one in arguments)
    return max(sizes, default=0)


@contextmanager
def _one_at_a_time(name: str) -> Iterator[None]:
    """Wait until no other thread compiles anything, and no other process a loop of this name.

    While another process compiles this one, threads of this process may compile others.
    """
    until = time.monotonic() + _OTHERS
    with ExitStack() as stack:
        lock = _lock_of(name, stack)
        _turn.acquire()
        stack.callback(_turn.release)
        while time.monotonic() < until and not lock():
            _turn.release()
            leaving = _leaving.wait(_TICK)
            _turn.acquire()
            if leaving:
                raise SystemExit
        yield


def _lock_of(name: str, stack: ExitStack) -> Callable[[], bool]:
    """Return what tries to lock a loop against other processes; where nothing can, that it did."""
    import fcntl

    def tried() -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return not isinstance(error, BlockingIOError)
        return True

    try:
        kept = open(Path(_folder() or os.devnull) / f"{name}.lock", "w")  # noqa: SIM115
        file = stack.enter_context(kept)
    except OSError:
        return lambda: True
    return tried


_leaving = threading.Event()  # the interpreter goes


def _end_before_python(thread: threading.Thread) -> None:
    """End a thread that compiles before the interpreter ends, within one step of its work."""

    def end() -> None:
        _leaving.set()
        _beside.close()
        thread.join()

    atexit.register(end)


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
    from numba.core.event import Listener, register
    from numba.extending import typeof_impl

    class Leaving(Listener):
        """Ends a thread that compiles at its next step; none may be in LLVM once that is gone."""

        def on_start(self, event: Any) -> None:  # noqa: ARG002
            if _leaving.is_set():
                raise SystemExit

        def on_end(self, event: Any) -> None:
            pass

    register("numba:run_pass", Leaving())  # type: ignore[no-untyped-call]

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
