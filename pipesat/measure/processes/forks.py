"""Processes that start and end together: a fresh interpreter, the host, forks one for every call.

The host imports once what all need, so that forks start in milliseconds, with memory that no
earlier call has touched. All are in one session of their own: a Ctrl-C reaches the parent alone,
and one signal ends them all. The host ends them when its parent is gone, however that ended.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pkgutil import resolve_name
from typing import IO, Any, Final, NamedTuple

from pipesat import child
from pipesat.core.errors import BadInput, PipesatError

_TICK: Final = 0.05  # seconds between two looks at who stops us, and at who still speaks
_LAST_WORDS: Final = 0.5  # seconds for the others to say how they failed: the first may be another
_LOG_LINES: Final = 12
_FORK: Final = multiprocessing.get_context("fork")


class Call(NamedTuple):
    """``module:function`` and its arguments; these and the answer have to be picklable."""

    function: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Batch:
    """Calls by name that run at once; when one fails, all are ended.

    ``load`` is called first, in the host. ``folder`` is removed if the parent ends first.
    """

    calls: Mapping[str, Call]
    load: Call
    folder: str = ""


@dataclass(frozen=True)
class Outcome:
    """How a call ended.

    Attributes
    ----------
    code
        Its process's exit code; of a process that a signal ended, minus the signal.
    error
        What failed: the error itself, or a sentence about another exception.
    log
        The last lines of the error's traceback, or else of what the process wrote.
    moment
        When it failed by its own account, on the monotonic clock; 0 if it said nothing.
    """

    code: int
    answer: Any = None
    error: PipesatError | None = None
    log: tuple[str, ...] = ()
    moment: float = 0.0


class Host(child.Child):
    """A host, seen from its parent; ``more`` is added to our environment."""

    def __init__(self, more: Mapping[str, str]) -> None:
        super().__init__("pipesat.measure.processes.forks:main", more, session=True)

    def run(self, batch: Batch, idle: Callable[[], None] = lambda: None) -> dict[str, Outcome]:
        """Run calls and wait for all; ``idle`` is called meanwhile, and what it raises ends it."""
        try:
            self.connection.send(batch)
            while not self.connection.poll(_TICK):
                if self.process.poll() is not None:
                    raise EOFError
                idle()
            outcomes: dict[str, Outcome] = self.connection.recv()
        except (EOFError, OSError):
            lost = Outcome(self.process.wait(), log=self.last_lines())
            return dict.fromkeys(batch.calls, lost)
        return outcomes

    def close(self) -> None:
        """Close what we have of it, when the last process that has the connection is gone."""
        with suppress(EOFError, OSError):
            while True:
                self.connection.recv_bytes()
        super().close()


def main() -> None:
    """Be the host: run batches until the parent is gone."""
    parent = child.parent()
    with suppress(EOFError):
        while True:
            parent.send(_run_together(parent.recv(), parent))


def _run_together(batch: Batch, parent: Connection) -> dict[str, Outcome]:
    """Fork for every call; wait for all, or shortly for the others once one has failed."""
    try:
        resolve_name(batch.load.function)(*batch.load.arguments)
        functions = {name: resolve_name(call.function) for name, call in batch.calls.items()}
    except BaseException as error:
        return dict.fromkeys(batch.calls, _failed(error))
    running = {name: _Fork(functions[name], *call.arguments) for name, call in batch.calls.items()}
    ended: dict[str, Outcome] = {}
    until = math.inf
    while running and time.monotonic() < until:
        tick = _TICK if until < math.inf else None
        ready = wait([parent, *(fork.pipe for fork in running.values())], tick)
        if parent in ready:  # it says nothing before it is answered: that is its end
            if batch.folder:
                shutil.rmtree(batch.folder, ignore_errors=True)
            os.killpg(0, signal.SIGKILL)
        for name, fork in [*running.items()]:
            if fork.pipe in ready:
                ended[name] = running.pop(name).end()
                if ended[name].code:
                    until = min(until, time.monotonic() + _LAST_WORDS)
    for fork in running.values():
        fork.process.kill()
        fork.end()
    return ended


class _Fork:
    """The process of a call, seen from the host."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.words = tempfile.TemporaryFile()  # noqa: SIM115  closed by end()
        self.pipe, theirs = _FORK.Pipe(duplex=False)
        with theirs:
            of_child = [theirs, self.words, function, *arguments]
            self.process = _FORK.Process(target=_answer, args=of_child)
            self.process.start()

    def end(self) -> Outcome:
        """Wait for its end; return its answer, and how it ended."""
        found = Outcome(0)
        with suppress(EOFError):
            found = self.pipe.recv()
        self.process.join()
        self.pipe.close()
        with self.words:
            log = found.log or child.last_lines(self.words)
            return replace(found, code=self.process.exitcode or 0, log=log)


def _answer(
    result: Connection, words: IO[bytes], function: Callable[..., Any], *arguments: Any
) -> None:
    """Be the process of a call: say what came out and end, without the host's clean-up."""
    for stream in (1, 2):
        os.dup2(words.fileno(), stream)
    try:
        found = Outcome(0, function(*arguments))
    except BaseException as error:
        found = _failed(error)
    sys.stdout.flush()
    result.send(found)
    os._exit(found.code)  # torch's own clean-up may wait for ranks that are gone


def _failed(error: BaseException) -> Outcome:
    first = str(error).strip().partition("\n")[0].strip()
    said = PipesatError(f"{type(error).__name__}: {first}" if first else type(error).__name__)
    if isinstance(error, BadInput):  # its value may be anything
        where = "" if error.source else error.where
        said = BadInput(str(error).removeprefix(f"{where}: "), where=where)
    elif isinstance(error, PipesatError):
        said = PipesatError(str(error))
    log = [line for line in traceback.format_exc().splitlines() if line.strip()]
    return Outcome(1, error=said, log=tuple(log[-_LOG_LINES:]), moment=time.monotonic())


def first_failed(outcomes: Mapping[str, Outcome]) -> str | None:
    """Return the name of the call that failed first and made the others fail; ``None``: none.

    The time is the one that the process itself noted. One that was killed, or that left without a
    word, could note none, but others failing do not do that to it (unlike an abort, to which a lost
    connection can lead). Bad input comes before everything: it may show in other ways too.
    """

    def order(name: str) -> tuple[bool, bool, float]:
        found = outcomes[name]
        silent = found.error is None and found.code != -signal.SIGABRT
        return not isinstance(found.error, BadInput), not silent, found.moment or math.inf

    return min((name for name in outcomes if outcomes[name].code), key=order, default=None)
