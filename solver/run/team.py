"""The lanes of one solve: the first in this process, the others in processes of their own.

What was decided, and why (what a lane says and hears is in :mod:`pipesat.solver.run.lane`):

- *One hub.* The incumbents of the main process are the truth. It checks every schedule, keeps the
  history, and tells all lanes what is better; bounds keep their origin, and a refuted one is told.
- *Lane 0 is here*, in a thread, and starts at once. The others are started beside it when a solve
  has not ended after a moment (``HEAD_START``): many are proven by then. Until they have loaded,
  lane 0 does the work of all (:attr:`pipesat.solver.run.lane.Seat.alone`).
- *Jobs.* Lanes live as long as the solve. For every narrower problem they are given a job, and an
  end of it: not of the process, in which proofs of the problem asked for go on.
- *Nothing waits for a lane.* Messages are sent by threads of their own. At the end lanes are asked
  for what they have spent, then killed: they have nothing to save.
- *A lane that dies* costs what it was doing. It is noted, and started again once. Where no process
  can be started, or memory does not admit another, fewer lanes search, and a note says so.
- *Deterministic or short* solves have lane 0 alone.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from subprocess import Popen
from typing import IO, Any, Final, NamedTuple

from pipesat.core import children
from pipesat.core.usable_cores import memory_left
from pipesat.solver.run.incumbent import Incumbent, failure_note
from pipesat.solver.run.lane import (
    Account,
    Begin,
    Ended,
    Known,
    Link,
    Ready,
    Seat,
    Spent,
    Stop,
    Told,
    Work,
)
from pipesat.solver.run.runner import Lanes

HEAD_START: Final = 0.5
"""Seconds that lane 0 has alone, before others are started."""
_SHORTEST: Final = 2.0  # seconds of a solve that is worth the start of others
_LANE_MEMORY: Final = 400 << 20  # bytes that a lane may take
_PER_OP: Final = 4_000  # bytes more per op of the problem
_SHARE_OF_MEMORY: Final = 0.8
_LAST_WORDS: Final = 0.3  # seconds for lanes to end a job
_LOOK: Final = 0.02
_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class SearchReport(NamedTuple):
    """What the parts of the search did, and which of them failed."""

    notes: list[str]
    failed: list[str]


@dataclass
class _Member:
    """A lane's process as the main process has it; ``jobs`` are those that it has not ended."""

    number: int
    process: Popen[bytes]
    link: Link
    words: IO[bytes]
    again: bool
    ready: bool = False
    jobs: set[int] = field(default_factory=set)
    listener: threading.Thread | None = None


class Team:
    """Lanes for an incumbent and all narrower ones; ``most`` at a time, lane 0 included.

    ``notes`` say which of them there could not be, ``lost`` which died or failed. ``accounts`` has
    what each has spent, ``cpu`` the seconds of processor time of those that have ended.
    """

    def __init__(self, asked: Incumbent, most: int) -> None:
        clock = asked.clock
        self.asked = asked
        self.most = 1 if clock.deterministic or clock.limit < _SHORTEST else most
        self.notes: list[str] = []
        self.lost: list[str] = []
        self.accounts: dict[int, Account] = {}
        self.cpu = 0.0
        self.searched = 0  # lanes that have searched
        self.members: dict[int, _Member] = {}
        self._incumbents: list[Incumbent] = []
        self._job = 0
        self._current: tuple[Incumbent, Work] | None = None
        self._reports: dict[int, SearchReport] = {}
        self._lock = threading.RLock()
        self._begun = self._closed = False

    def begin(self) -> None:
        """Start the other lanes, once; each takes up what is being searched."""
        if self._begun or self._closed or self.most == 1:
            return
        self._begun = True
        each = _LANE_MEMORY + _PER_OP * self.asked.problem.op_count
        left = memory_left()
        fit = self.most - 1 if left is None else int(_SHARE_OF_MEMORY * left / each)
        if fit < self.most - 1:
            self.notes.append(
                f"{1 + fit} of {self.most} lanes: there are {(left or 0) >> 20} MiB of memory, and "
                f"a lane may take {each >> 20} MiB"
            )
        for number in range(1, min(self.most, 1 + fit)):
            if not self._start(number, again=True):
                break

    def _start(self, number: int, *, again: bool) -> bool:
        words = tempfile.TemporaryFile()  # noqa: SIM115  closed where the lane ends
        try:
            with _signals_blocked():
                process, connection = children.start(
                    "pipesat.solver.run.lane:main", words, _ONE_THREAD
                )
        except (OSError, ValueError) as error:
            self.notes.append(f"lane {number} could not be started: {error}")
            words.close()
            return False
        member = _Member(number, process, Link(connection), words, again)
        member.listener = threading.Thread(
            target=self._listen, args=(member,), name=f"hub of lane {number}", daemon=True
        )
        with self._lock:
            self.members[number] = member
            if self._current is not None:
                self._hand(member, *self._current)
        member.listener.start()
        return True

    def run(self, mine: Incumbent, work: Work, ours: Work | None = None) -> SearchReport:
        """Search an incumbent's problem in all lanes until it is proven or its clock is over.

        ``ours`` is what lane 0 does instead, if that cannot travel.
        """
        clock = mine.clock.part(mine.clock.left, stop=lambda: mine.proven)
        job = self.hand(mine, work)
        lanes = Lanes(clock)
        seat = Seat(0, lanes.runner, self._others, count=self.most)
        notes: list[str] = []
        failed = lanes.run([lambda: notes.extend((ours or work)(seat, mine))])
        while self._at_work(job) and not clock.over:  # lane 0 has nothing left to do
            time.sleep(_LOOK)
        self._end()
        until = time.monotonic() + _LAST_WORDS
        while self._at_work(job) and time.monotonic() < until:
            time.sleep(_LOOK)
        with self._lock:
            report = self._reports.pop(job)
            self._count(0, seat.account)
        return SearchReport([*notes, *report.notes], [*failed, *report.failed])

    def hand(self, mine: Incumbent, work: Work) -> int:
        """Let the other lanes search an incumbent's problem from now on; return the job's number.

        They end it with the next job, if not before.
        """
        with self._lock:
            self._end()
            self._job += 1
            self._current = mine, work
            self._reports[self._job] = SearchReport([], [])
            for member in self.members.values():
                self._hand(member, mine, work)
            return self._job

    def _end(self) -> None:
        """End the present job, if there is one."""
        with self._lock:
            if self._current is not None:
                for member in self.members.values():
                    member.link.send(Stop(self._job))
            self._current = None

    def _others(self) -> int:
        return sum(member.ready for member in self.members.values())

    def _at_work(self, job: int) -> bool:
        with self._lock:
            return any(member.ready and job in member.jobs for member in self.members.values())

    def _hand(self, member: _Member, mine: Incumbent, work: Work) -> None:
        """Give a lane the job, with all that is known by now; later news follow it."""
        chain = [mine]
        while (wider := chain[-1].wider) is not None:
            chain.append(wider)
        for one in chain:  # from the narrowest: that is how one offers to the next
            one.lock.acquire()
        try:
            known = [self._known(one) for one in reversed(chain)]
            begin = Begin(self._job, known, work, member.number, self.most)
            member.jobs.add(self._job)
            member.link.send(begin)
        finally:
            for one in chain:
                one.lock.release()

    def _known(self, one: Incumbent) -> Known:
        number = next((n for n, own in enumerate(self._incumbents) if own is one), None)
        if number is None:
            number = len(self._incumbents)
            self._incumbents.append(one)
            one.tell = partial(self._tell, number)
        clock = one.clock
        return Known(number, one.problem, one.objective, clock.limit, clock.elapsed, one.news())

    def _tell(self, number: int, news: Any) -> None:
        for member in list(self.members.values()):
            member.link.tell(number, news)

    def _listen(self, member: _Member) -> None:
        """Take what a lane says until it ends."""
        connection = member.link.connection
        with suppress(EOFError, OSError):
            while True:
                message = connection.recv()
                try:
                    self._take(member, message)
                except Exception as error:  # what it has found is at fault, not the lane
                    self.lost.append(failure_note("what a lane has found", error))
        member.link.close()
        self._ended(member)
        connection.close()

    def _take(self, member: _Member, message: Told | Ended | Ready) -> None:
        if isinstance(message, Told):
            member.link.hear(message, self._incumbents[message.number], checked=False)
        elif isinstance(message, Ended):
            with self._lock:
                member.jobs.discard(message.job)
                self._count(member.number, message.account)
                if (report := self._reports.get(message.job)) is not None:
                    report.notes.extend(message.notes)
                    report.failed.extend(message.failed)
        else:
            member.ready = True
            self.searched += 1

    def _ended(self, member: _Member) -> None:
        """Take note of the end of a lane; start it again if it was not asked for, once."""
        code = member.process.returncode = 0
        with suppress(ChildProcessError):  # somebody else has waited for it
            _, status, used = os.wait4(member.process.pid, 0)
            code = member.process.returncode = os.waitstatus_to_exitcode(status)
            self.cpu += used.ru_utime + used.ru_stime
        with self._lock:
            asked_for = self._closed
            if not asked_for:
                self.members.pop(member.number)
        last = "".join(f": {line}" for line in children.last_lines(member.words)[-1:])
        member.words.close()
        if not (asked_for or self.asked.clock.over or self.asked.proven):
            how = f"signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"exit code {code}"
            then = "it was started again" if member.again else "the others went on"
            self.lost.append(f"lane {member.number} ended by {how}, {then}{last}")
            if member.again:
                self._start(member.number, again=False)

    def _count(self, number: int, account: Account) -> None:
        own = self.accounts.setdefault(number, {})
        for name, spent in account.items():
            own.setdefault(name, Spent()).add(spent)

    def accounted(self) -> list[str]:
        """Say what the time of each lane went into, and what it brought."""
        with self._lock:
            return [
                f"lane {number}: {', '.join(f'{name} {spent}' for name, spent in own.items())}"
                for number, own in sorted(self.accounts.items())
                if own
            ]

    def close(self) -> None:
        """End all lanes; none is left."""
        with self._lock:
            self._closed = True
            members = list(self.members.values())
        for member in members:
            member.process.kill()
        for member in members:
            if member.listener is not None and member.listener.ident:
                member.listener.join(_LAST_WORDS)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Let a process that is started meanwhile never hear of SIGINT and SIGTERM."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
