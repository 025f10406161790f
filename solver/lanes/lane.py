"""A lane in a process of its own, and what it and the main process tell each other.

A lane has replicas of the main process's incumbents (:mod:`pipesat.solver.lanes.incumbent`). What
it finds or proves it tells the main process, which checks every schedule and tells the other lanes
what is better. It does one job after another: to search one problem, the one asked for or a
narrower one. Proofs stay in its replica of the problem asked for, from job to job.

A lane writes no file and decides nothing: it ends at once when the main process closes its
connection, or is gone. SIGINT and SIGTERM, which a terminal or a batch system sends to the whole
group, are the main process's to answer; they are blocked here from before the start.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeAlias

from pipesat import child
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Objective, Schedule
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.incumbent import Incumbent, News, Refuted
from pipesat.solver.lanes.runner import Runner, Watched

_LOOK = 1.0  # seconds between two looks at whether the parent is still there


@dataclass
class Spent:
    """What a part of the search has taken in one lane, and brought.

    ``seconds`` by the clock, ``steps`` (windows, models, greedy passes), how often they made the
    schedule better, and the bound.
    """

    seconds: float = 0.0
    steps: int = 0
    better: int = 0
    bounds: int = 0

    def add(self, other: Spent) -> None:
        """Count what another has counted."""
        self.seconds += other.seconds
        self.steps += other.steps
        self.better += other.better
        self.bounds += other.bounds

    def __str__(self) -> str:
        brought = ((self.better, "better"), (self.bounds, "bounds"))
        counted = ", ".join(f"{count} {what}" for count, what in ((self.steps, "steps"), *brought))
        return f"{self.seconds:.1f} s ({counted})"


Account: TypeAlias = dict[str, Spent]
"""By the name of a part of the search."""


@dataclass
class Seat:
    """A lane's place in one job: its number of so many, its runners, and what it has spent.

    ``others`` says how many other lanes there are by now.
    """

    number: int
    runner: Callable[[], Runner]
    others: Callable[[], int] = lambda: 0
    account: Account = field(default_factory=dict)
    count: int = 1

    @property
    def alone(self) -> bool:
        """Whether no other lane searches, at this moment."""
        return not self.others()


Work: TypeAlias = Callable[[Seat, Incumbent], list[str]]
"""What a lane does for an incumbent until its clock is over; returns notes. It has to travel."""


class KnownIncumbent(NamedTuple):
    """An incumbent as it is sent to a lane; ``limit`` and ``elapsed`` are its clock's."""

    number: int
    problem: Problem
    objective: Objective
    limit: float
    elapsed: float
    news: Sequence[News]


class Begin(NamedTuple):
    """A job: the incumbents from the problem asked for to the one to be searched, and the work.

    For the lane of that number ``of`` so many, in one solve: numbers of jobs and incumbents are
    never used again, and a lane forgets the incumbents of other solves.
    """

    job: int
    incumbents: Sequence[KnownIncumbent]
    work: Work
    number: int
    of: int
    solve: int


class Stop(NamedTuple):
    """The job is over."""

    job: int


class ToldNews(NamedTuple):
    """News of an incumbent."""

    number: int
    news: News


class Ended(NamedTuple):
    """What came of a job; ``cpu`` is the processor time since the last one ended."""

    job: int
    notes: list[str]
    failed: list[str]
    account: Account
    cpu: float


class Ready(NamedTuple):
    """The lane has been loaded."""


class LaneLink:
    """A connection on which sending never waits: a thread of its own does."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.hearing: int | None = None  # the incumbent whose news are being taken in
        self.listener: threading.Thread | None = None
        self._waiting: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(target=self._send, name="sender to a lane", daemon=True).start()

    def send(self, message: Any) -> None:
        """Send a message soon."""
        self._waiting.put(message)

    def tell(self, number: int, news: News) -> None:
        """Send news, but for what has just come from there."""
        if (
            self.hearing == number
            and threading.current_thread() is self.listener
            and not isinstance(news, Refuted)
        ):
            return
        self.send(ToldNews(number, news.bare() if isinstance(news, Schedule) else news))

    def hear(self, told: ToldNews, incumbent: Incumbent, *, checked: bool) -> None:
        """Take in news, from the thread that listens."""
        self.hearing, self.listener = told.number, threading.current_thread()
        try:
            incumbent.hear(told.news, checked=checked)
        finally:
            self.hearing = None

    def close(self) -> None:
        """Send nothing any more."""
        self._waiting.put(None)

    def _send(self) -> None:
        try:
            while (message := self._waiting.get()) is not None:
                self.connection.send(message)
        except (OSError, ValueError):
            pass  # no one is there any more
        except TypeError:
            if not self.connection.closed:  # else closed within a send, where its handle is None
                raise


class _Lane:
    """The process of a lane."""

    def __init__(self, connection: Connection) -> None:
        self.link, self.parent = LaneLink(connection), os.getppid()
        self.incumbents: dict[int, Incumbent] = {}
        self.jobs: SimpleQueue[tuple[Begin, list[tuple[Incumbent, Clock]]]] = SimpleQueue()
        self.over = self.solve = 0  # the last job that is over, the present solve
        self.cpu = 0.0

    def listen(self) -> None:
        """Take what the main process says, and end when it is gone."""
        try:
            while True:
                while not self.link.connection.poll(_LOOK):
                    if os.getppid() != self.parent:
                        os._exit(0)
                self._take(self.link.connection.recv())
        except (EOFError, OSError):
            os._exit(0)
        except BaseException:  # the main process tells its last line
            traceback.print_exc()
            os._exit(1)

    def _take(self, message: Begin | Stop | ToldNews) -> None:
        if isinstance(message, Begin):
            wider, chain = None, []
            if self.solve != message.solve:
                self.solve, self.incumbents = message.solve, {}
            for known in message.incumbents:
                wider = self._incumbent(known, wider)
                over, began = partial(self._is_over, message.job), time.monotonic() - known.elapsed
                chain.append((wider, Clock(known.limit, stop=over, began=began)))
            self.jobs.put((message, chain))
        elif isinstance(message, Stop):
            self.over = message.job
        elif (incumbent := self.incumbents.get(message.number)) is not None:
            self.link.hear(message, incumbent, checked=True)

    def _is_over(self, job: int) -> bool:
        return job <= self.over

    def _incumbent(self, known: KnownIncumbent, wider: Incumbent | None) -> Incumbent:
        """The replica of an incumbent, with all that is known of it."""
        found = self.incumbents.get(known.number)
        if found is None:
            found = Incumbent(known.problem, known.objective, Clock(known.limit), wider=wider)
            self.incumbents[known.number] = found
        for news in known.news:
            self.link.hear(ToldNews(known.number, news), found, checked=True)
        found.tell = partial(self.link.tell, known.number)
        return found

    def run(self) -> None:
        """Do one job after the other."""
        threading.Thread(target=self.listen, name="listener", daemon=True).start()
        self.link.send(Ready())
        while True:
            self._do(*self.jobs.get())

    def _do(self, begin: Begin, chain: list[tuple[Incumbent, Clock]]) -> None:
        for mine, clock in chain:  # not when the job came: the one before it may have gone on
            mine.clock = clock
        lane = Watched(mine.part())
        seat = Seat(begin.number, lane.runner, lambda: 1, count=begin.of)
        notes: list[str] = []
        failed = lane.run(lambda: notes.extend(begin.work(seat, mine)))
        before, self.cpu = self.cpu, time.process_time()
        self.link.send(Ended(begin.job, notes, failed, seat.account, self.cpu - before))


def main() -> None:
    """Be a lane, until the main process is gone."""
    _Lane(child.parent()).run()
