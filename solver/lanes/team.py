"""The lanes of one solve: the first in this process, the others in processes of their own.

What was decided, and why (what a lane says and hears is in :mod:`pipesat.solver.lanes.lane`):

- *One hub.* The incumbents of the main process are the truth. It checks every schedule, keeps the
  history, and tells all lanes what is better; bounds keep their origin, and a refuted one is told.
- *Lane 0 is here*, in a thread, and starts at once. The others are started beside it when a solve
  has not ended after a moment (``HEAD_START``): many are proven by then. Until they have loaded,
  lane 0 does the work of all (:attr:`pipesat.solver.lanes.lane.Seat.alone`).
- *Jobs.* Lanes live as long as the solve, or the study of many solves. For every narrower problem
  they are given a job, and an end of it: not of the process, in which proofs of the problem asked
  for go on.
- *Nothing waits for a lane.* Messages are sent by threads of their own. At the end lanes are asked
  for what they have spent, then killed: they have nothing to save.
- *A lane that dies* costs what it was doing. It is noted, and started again once. Where no process
  can be started, or memory does not admit another, fewer lanes search, and a note says so.
- *Deterministic or short* solves have lane 0 alone, the latter unless they are part of a study.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from pipesat.child import ONE_THREAD, Child, how_ended
from pipesat.core.usable_cores import memory_left
from pipesat.schedule.solving import studying
from pipesat.solver.lanes.incumbent import Incumbent, failure_note
from pipesat.solver.lanes.lane import (
    Account,
    Begin,
    Ended,
    KnownIncumbent,
    LaneLink,
    Ready,
    Seat,
    Spent,
    Stop,
    ToldNews,
    Work,
)
from pipesat.solver.lanes.runner import Watched

HEAD_START: Final = 0.5
"""Seconds that lane 0 has alone, before others are started."""
_SHORTEST: Final = 2.0  # seconds of a solve that is worth the start of others
_LANE_MEMORY: Final = 400 << 20  # bytes that a lane may take
_PER_OP: Final = 4_000  # bytes more per op of the problem
_SHARE_OF_MEMORY: Final = 0.8
_LAST_WORDS: Final = 0.3  # seconds for lanes to end a job
_LOOK: Final = 0.02
_ENVIRONMENT: Final = {
    **ONE_THREAD,
    "MALLOC_ARENA_MAX": "1",  # else each thread keeps what its models have freed
    "MALLOC_TRIM_THRESHOLD_": "1000000",
}
_NEEDLESS: Final = ("pandas",)  # ortools loads it for types of series: 28 MiB and 0.15 s a lane


class SearchReport(NamedTuple):
    """What the parts of the search did, and which of them failed."""

    notes: list[str]
    failed: list[str]

    def add(self, other: SearchReport, under: str = "") -> None:
        """Take over what another says, its notes after some words."""
        self.notes.extend(under + note for note in other.notes)
        self.failed.extend(other.failed)


@dataclass
class _Member:
    """A lane's process as the main process has it; ``jobs`` are those that it has not ended."""

    number: int
    child: Child
    link: LaneLink
    again: bool
    ready: bool = False
    jobs: set[int] = field(default_factory=set)
    listener: threading.Thread | None = None
    team: Team | None = None
    cpu: float = 0.0  # seconds that it has told


_NUMBERS = itertools.count(1)
_SPARE: Final[list[_Member]] = []
"""Lanes that wait for the next solve of a study."""
os.register_at_fork(after_in_child=_SPARE.clear)  # they are not the child's


class Team:
    """Lanes for an incumbent and all narrower ones; ``most`` at a time, lane 0 included.

    ``notes`` say which of them there could not be, ``lost`` which died or failed. ``accounts`` has
    what each has spent, ``cpu`` the seconds of processor time of those that have ended.
    """

    def __init__(self, asked: Incumbent, most: int) -> None:
        clock = asked.clock
        self.asked = asked
        short = clock.limit < _SHORTEST and not studying(_end_spare)
        self.most = 1 if clock.deterministic or short else most
        self.notes: list[str] = []
        self.lost: list[str] = []
        self.accounts: dict[int, Account] = {}
        self.cpu = 0.0
        self.searched = 0  # lanes that have searched
        self.members: dict[int, _Member] = {}
        self._incumbents: dict[int, Incumbent] = {}
        self._number = self._job = next(_NUMBERS)
        self._current: tuple[Incumbent, Work] | None = None
        self._report = SearchReport([], [])  # of the other lanes, on the job of that number
        self._lock = threading.RLock()
        self._begun = self._closed = False

    def begin(self) -> None:
        """Take or start the other lanes, once; each takes up what is being searched.

        Starts none before ``HEAD_START``.
        """
        if self._begun or self._closed or self.most == 1:
            return
        if _SPARE or self.asked.clock.seconds > HEAD_START:
            self._begun = True
            # no one who looks at the clock waits for the start of a process
            threading.Thread(target=self.fill, name="start of lanes", daemon=True).start()

    def fill(self) -> None:
        """Take lanes of the study, or start some, as many as fit into memory."""
        each = _LANE_MEMORY + _PER_OP * self.asked.problem.op_count
        left = memory_left()
        fit = self.most - 1 if left is None else int(_SHARE_OF_MEMORY * left / each)
        if fit < self.most - 1:
            self.notes.append(
                f"{1 + fit} of {self.most} lanes: there are {(left or 0) >> 20} MiB of memory, and "
                f"a lane may take {each >> 20} MiB"
            )
        for number in range(1, min(self.most, 1 + fit)):
            if self._closed:
                break
            if _SPARE:
                self._take_up(number, _SPARE.pop())
            elif not self._start(number, again=True):
                break

    def _start(self, number: int, *, again: bool) -> bool:
        try:
            with _signals_blocked():
                child = Child("pipesat.solver.lanes.lane:main", _ENVIRONMENT, without=_NEEDLESS)
        except (OSError, ValueError, RuntimeError) as error:
            self.notes.append(f"lane {number} could not be started: {error}")
            return False
        member = _Member(number, child, LaneLink(child.connection), again)
        member.listener = threading.Thread(
            target=_listen, args=(member,), name=f"hub of lane {number}", daemon=True
        )
        self._take_up(number, member)
        try:
            member.listener.start()
        except RuntimeError:  # the interpreter ends
            child.process.kill()
            return False
        return True

    def _take_up(self, number: int, member: _Member) -> None:
        with self._lock:
            member.number, member.team = number, self
            if self._closed:
                member.child.process.kill()
                return
            self.members[number] = member
            self.searched += member.ready
            if self._current is not None:
                self._hand(member, *self._current)

    def run(self, mine: Incumbent, work: Work, ours: Work | None = None) -> SearchReport:
        """Search an incumbent's problem in all lanes until it is proven or its clock is over.

        ``ours`` is what lane 0 does instead, if that cannot travel.
        """
        clock = mine.part()
        job = self.hand(mine, work)
        lane = Watched(clock)
        seat = Seat(0, lane.runner, self._others, count=self.most)
        notes: list[str] = []
        report = SearchReport(notes, lane.run(lambda: notes.extend((ours or work)(seat, mine))))
        while self._at_work(job) and not clock.over:  # lane 0 has nothing left to do
            time.sleep(_LOOK)
        self._end()
        until = time.monotonic() + _LAST_WORDS
        while self._at_work(job) and time.monotonic() < until:
            time.sleep(_LOOK)
        with self._lock:
            report.add(self._report)
            self._count(0, seat.account)
        return report

    def hand(self, mine: Incumbent, work: Work) -> int:
        """Let the other lanes search an incumbent's problem from now on; return the job's number.

        They end it with the next job, if not before.
        """
        with self._lock:
            self._end()
            self._job = next(_NUMBERS)
            self._current = mine, work
            self._report = SearchReport([], [])
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
        return sum(member.ready for member in list(self.members.values()))  # some may just start

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
            begin = Begin(self._job, known, work, member.number, self.most, self._number)
            member.jobs.add(self._job)
            member.link.send(begin)
        finally:
            for one in chain:
                one.lock.release()

    def _known(self, one: Incumbent) -> KnownIncumbent:
        number = next((n for n, own in self._incumbents.items() if own is one), 0)
        if not number:
            number = next(_NUMBERS)
            self._incumbents[number] = one
            one.tell = partial(self._tell, number)
        clock = one.clock
        return KnownIncumbent(
            number, one.problem, one.objective, clock.limit, clock.elapsed, one.news()
        )

    def _tell(self, number: int, news: Any) -> None:
        for member in list(self.members.values()):
            member.link.tell(number, news)

    def take(self, member: _Member, message: ToldNews | Ended) -> None:
        """Take in what a lane says; what it says of an earlier solve counts no more."""
        if isinstance(message, ToldNews):
            incumbent = self._incumbents.get(message.number)
            if incumbent is not None:
                member.link.hear(message, incumbent, checked=False)
        else:
            with self._lock:
                self.cpu += message.cpu
                member.cpu += message.cpu
                member.jobs.discard(message.job)
                self._count(member.number, message.account)
                if message.job == self._job:
                    self._report.add(SearchReport(message.notes, message.failed))

    def lose(self, member: _Member, code: int, cpu: float, last: str) -> None:
        """Take note of the end of a lane; start it again if it was not asked for, once."""
        with self._lock:
            self.cpu += cpu
            asked_for = self._closed
            if not asked_for:
                self.members.pop(member.number)
        if not (asked_for or self.asked.clock.over or self.asked.proven):
            then = "it was started again" if member.again else "the others went on"
            self.lost.append(f"lane {member.number} ended by {how_ended(code)}, {then}{last}")
            if member.again:
                self._start(member.number, again=False)

    def _count(self, number: int, account: Account) -> None:
        own = self.accounts.setdefault(number, {})
        for name, spent in account.items():
            own.setdefault(name, Spent()).add(spent)

    def accounted(self) -> list[str]:
        """Say what the time of each lane went into, and what it brought."""
        return [
            f"lane {number}: {', '.join(f'{name} {spent}' for name, spent in own.items())}"
            for number, own in sorted(self.accounts.items())
            if own
        ]

    def close(self) -> None:
        """End all lanes; none is left."""
        held = self._lock.acquire(timeout=_LAST_WORDS)  # its holder may be left behind
        self._closed = True
        members, self.members = list(self.members.values()), {}
        if held:
            self._lock.release()
        if studying(_end_spare):
            _SPARE.extend(members)
        else:
            _end(members)


def _end_spare() -> None:
    """End the lanes that have waited for another solve."""
    _end(_SPARE)
    _SPARE.clear()


def _end(members: Sequence[_Member]) -> None:
    for member in members:
        member.child.process.kill()
    for member in members:
        if member.listener is not None and member.listener.ident:
            member.listener.join(_LAST_WORDS)


def _listen(member: _Member) -> None:
    """Take what a lane says, for the team that it is in, until it ends."""
    child = member.child
    with suppress(EOFError, OSError):
        while True:
            message = child.connection.recv()
            team = member.team
            if isinstance(message, Ready):
                member.ready = True
            if team is None:
                continue
            if isinstance(message, Ready):
                team.searched += 1
                continue
            try:
                team.take(member, message)
            except Exception as error:  # what it has found is at fault, not the lane
                team.lost.append(failure_note("what a lane has found", error))
    member.link.close()
    code, cpu = 0, 0.0
    with suppress(ChildProcessError):  # somebody else has waited for it
        _, status, used = os.wait4(child.process.pid, 0)
        code, cpu = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime - member.cpu
    child.process.returncode = code
    last = "".join(f": {line}" for line in child.last_lines(1))
    child.close()
    if member in _SPARE:
        _SPARE.remove(member)
    elif member.team is not None:
        member.team.lose(member, code, cpu, last)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Let a process that is started meanwhile never hear of SIGINT and SIGTERM."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
