"""Several lanes at once: what they tell each other, and that one which ends loses nothing."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from pipesat.bounds.feasibility import sure_order
from pipesat.check.checker import check
from pipesat.child import Child
from pipesat.core.claims import Bound
from pipesat.heuristics.list_scheduling import list_schedules
from pipesat.problem.problem import Problem
from pipesat.schedule.result import Improvement
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.solving import study
from pipesat.schedule.timing import time_order
from pipesat.solver.lanes import portfolio
from pipesat.solver.lanes.aside import aside
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.lane import LaneLink, Seat
from pipesat.solver.lanes.runner import Watched
from pipesat.solver.lanes.team import Team
from pipesat.solver.options import SearchParts, SolveOptions
from pipesat.solver.proof.search import ProofSearch
from pipesat.solver.search import solve
from pipesat.solver.windows.window_search import WindowSearch
from tests.support.greedy import by_each_policy
from tests.support.lanes import (
    PROBLEM,
    answers,
    begun,
    offers_and_ends,
    offers_and_stays,
    schedules,
    team_of,
    until,
    waits_for_the_best,
)
from tests.support.loaded import loaded_by
from tests.support.paths import ROOT
from tests.support.problems import chain, vee

LANES = 3


class Planted(Exception):
    """An error that nobody expects."""


def fail(*_: object, **__: object) -> None:
    raise Planted("this lane is broken")


PLANTED = "Planted: this lane is broken"


def started(problem: Problem) -> Incumbent:
    """An incumbent with the worst list schedule and no bound to speak of."""
    incumbent = Incumbent(problem, "makespan", Clock(600))
    incumbent.offer_timed(max(by_each_policy(problem), key=lambda schedule: schedule.makespan))
    return incumbent


@pytest.mark.slow
@pytest.mark.parametrize(
    "problem",
    [
        chain(4, 9, F=2, B=3, W=2, comm=1, cap=2),
        vee(2, 3, F=2, B=3, W=1, cap=4),
    ],
)
def test_many_lanes_share_one_search(problem: Problem) -> None:
    incumbent = started(problem)
    team = Team(incumbent, LANES)
    team.fill()
    try:
        done = portfolio.Lanes(team, SolveOptions()).search(incumbent, [])
    finally:
        team.close()
    assert (done.failed, team.lost, incumbent.faults) == ([], [], [])
    assert incumbent.proven
    assert incumbent.schedule is not None
    assert check(problem, incumbent.schedule) == []


def alive(pid: int) -> bool:
    """Whether there is such a process, a zombie too."""
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_two_lanes_run_at_the_same_time() -> None:
    """Each acts between two acts of the other, and a terminal's signals are not theirs to hear."""
    team, incumbent = team_of()
    best = schedules()[-1].makespan
    seen: list[int | None] = []

    def ours(seat: Seat, mine: Incumbent) -> list[str]:
        until(lambda: not seat.alone)
        for number in (signal.SIGINT, signal.SIGTERM):
            team.members[1].child.process.send_signal(number)
        mine.raise_bound(Bound(2, "this lane"))
        until(lambda: mine.value == best)
        mine.raise_bound(Bound(3, "this lane"))
        until(lambda: mine.bound.value == 4)
        seen.append(mine.value)
        return []

    team.fill()
    pids = [member.child.process.pid for member in team.members.values()]
    try:
        report = team.run(incumbent, answers, ours)
    finally:
        team.close()
    assert (report.notes, report.failed, seen) == (["answered"], [], [best])
    assert (incumbent.bound.source, team.searched, team.lost) == ("the other lane", 1, [])
    assert team.cpu > 0
    assert not any(map(alive, pids))


@pytest.mark.slow
def test_a_lane_that_is_killed_loses_nothing_and_is_started_again_once() -> None:
    team = begun(report=lambda _: None)
    try:
        team.members[1].child.process.kill()
        until(lambda: team.lost and any(one.ready for one in team.members.values()))
        assert team.asked.value == schedules()[-1].makespan
        team.members[1].child.process.kill()
        until(lambda: len(team.lost) == 2)
    finally:
        team.close()
    assert team.lost == [
        f"lane 1 ended by signal 9 (Killed), {then}"
        for then in ("it was started again", "the others went on")
    ]
    assert team.members == {}


@pytest.mark.slow
def test_lanes_end_with_a_main_process_that_is_killed() -> None:
    code = "import time; from tests.support.lanes import begun; begun(); time.sleep(600)"
    path = os.pathsep.join([str(ROOT), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-u", "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as main:
        assert main.stdout is not None
        (pid,) = json.loads(main.stdout.readline())
        assert alive(pid)
        main.kill()
    until(lambda: not alive(pid))


def _solve_in_worker(queue: Any) -> None:
    team = begun(report=queue.put)
    team.close()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_lanes_work_within_daemonic_workers(method: str) -> None:
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    worker = context.Process(target=_solve_in_worker, args=(queue,), daemon=True)
    worker.start()
    (pid,) = queue.get(timeout=60)
    worker.join(60)
    assert worker.exitcode == 0
    assert not alive(pid)


def test_where_no_process_can_be_started_one_lane_searches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr("pipesat.child.start", refuse)
    team, incumbent = team_of(lanes=3)
    team.fill()
    report = team.run(incumbent, offers_and_stays, lambda *_: ["lane 0 did it all"])
    team.close()
    assert report.notes == ["lane 0 did it all"]
    assert team.notes == ["lane 1 could not be started: no more processes"]
    assert team.searched == 0


def test_there_are_as_many_lanes_as_memory_admits(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []

    def start(*told: object, **_: object) -> None:
        started.append(told)
        raise OSError("not in this test")

    monkeypatch.setattr("pipesat.child.start", start)
    monkeypatch.setattr("pipesat.solver.lanes.team.memory_left", lambda: 300 << 20)
    team, _ = team_of(lanes=4)
    team.fill()
    assert started == []
    assert team.notes == ["1 of 4 lanes: there are 300 MiB of memory, and a lane may take 400 MiB"]


def test_lanes_do_without_pandas() -> None:
    """OR-Tools loads it: 28 MiB and 0.15 s a lane."""
    child = Child("pandas:any_name", {}, without=["pandas"])
    assert child.ended() == "exit code 0"
    child.close()
    first = "from pipesat.child import do_without; do_without('pandas')"
    then = "import sys, pipesat.solver.lanes.lane; del sys.modules['pandas']"
    assert not loaded_by(f"{first}; {then}") & {"pandas", "dateutil"}


@pytest.mark.parametrize(("seconds", "deterministic"), [(1.9, False), (600.0, True)])
def test_short_and_deterministic_solves_have_one_lane(
    seconds: float, deterministic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipesat.child.start", fail)
    incumbent = Incumbent(PROBLEM, "makespan", Clock(seconds, deterministic))
    team = Team(incumbent, 4)
    team.fill()
    assert team.members == {}


def alone(**more: Any) -> SolveOptions:
    return SolveOptions(time_limit=600, workers=1, starts="none", **more)


def test_a_solve_ends_in_time_whatever_is_being_done() -> None:
    """A hand-written schedule that never asks whether to give up is left behind."""
    stop, released, ended = threading.Event(), threading.Event(), threading.Event()

    def starts() -> Iterator[Schedule]:
        yield schedules()[0]
        stop.set()
        released.wait(60)
        ended.set()
        yield schedules()[-1]

    heard: list[Improvement] = []
    result = solve(PROBLEM, alone(schedules=starts(), listener=heard.append, stop=stop))
    assert not ended.is_set()
    known = len(heard)
    released.set()
    assert ended.wait(60)
    assert result.schedule is not None
    assert result.value == schedules()[0].makespan
    assert len(heard) == known


def test_a_solve_ends_in_time_without_any_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first hand-written schedule waits for a compiler: one microbatch after the other is."""
    monkeypatch.setattr("pipesat.solver.lanes.aside._FIRST", 0.0)
    stop, released = threading.Event(), threading.Event()

    def starts() -> Iterator[Schedule]:
        stop.set()
        released.wait(60)
        yield schedules()[0]

    result = solve(PROBLEM, alone(schedules=starts(), stop=stop))
    assert not released.is_set()
    released.set()
    assert result.schedule is not None
    assert result.schedule.source == "one microbatch after the other"


def test_a_proven_solve_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be interrupted, as a wait for a compiler, is left behind."""
    monkeypatch.setattr("pipesat.solver.lanes.aside._PROVEN", 0.0)
    released = threading.Event()

    incumbent = started(PROBLEM)

    def search() -> None:
        incumbent.raise_bound(Bound(incumbent.value or 0, "known"))
        released.wait(60)

    aside(search, incumbent, lambda: None, lambda: None)
    assert not released.is_set()
    assert incumbent.closed
    released.set()


def test_what_a_search_raises_is_raised_to_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipesat.solver.search.preflight", fail)
    with pytest.raises(Planted):
        solve(PROBLEM, SolveOptions(starts="none"))


def test_a_part_that_fails_loses_nothing_of_what_it_has_found() -> None:
    incumbent = started(PROBLEM)
    better = min(list_schedules(PROBLEM), key=lambda schedule: schedule.makespan)

    def breaks() -> None:
        incumbent.offer_timed(better)
        fail()

    failed = Watched(incumbent.clock).run(breaks)
    assert failed == ["a part of the search failed, please report it: " + PLANTED]
    assert incumbent.value == better.makespan


def test_if_all_lanes_fail_the_result_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (WindowSearch, ProofSearch):
        monkeypatch.setattr(kind, "step", fail)
    problem = chain(3, 4, F=2, B=3, W=2, cap=2)
    (start, *_) = list_schedules(problem)
    known = Bound(10, "known from elsewhere")
    parts = SearchParts(closed_forms=False, packing=False, growth=False)
    result = solve(problem, alone(schedules=[start], known_bound=known, parts=parts))
    assert (result.status, result.value, result.bound) == ("feasible", start.makespan, known)
    assert [PLANTED in warning for warning in result.warnings] == [True]
    assert result.explanation.count(PLANTED) == 1


@pytest.mark.slow
def test_a_hand_written_schedule_that_fails_leaves_those_before_it() -> None:
    problem = chain(3, 4, cap=2)
    good = time_order(problem, sure_order(problem))

    def starts() -> Iterator[object]:
        yield good
        raise Planted("no more")

    result = solve(problem, alone(schedules=starts()))
    assert result.value is not None
    assert result.value <= good.makespan
    assert any("Planted: no more" in warning for warning in result.warnings)


def test_lanes_serve_the_next_solve_of_a_study() -> None:
    pids = []
    with study():
        for _ in range(2):
            team, incumbent = team_of()
            team.fill()
            until(lambda: team.members[1].ready)  # noqa: B023
            report = team.run(incumbent, offers_and_ends, waits_for_the_best)
            assert report.notes == ["waited", "offered"]
            pids += [member.child.process.pid for member in team.members.values()]
            team.close()
    assert pids[0] == pids[1]
    assert not alive(pids[0])


def test_a_connection_closed_within_a_send_ends_its_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long message is sent in two parts; an error in a thread would fail this test."""
    ours, theirs = multiprocessing.Pipe()
    part, closed = ours._send, threading.Event()

    def then_closed(data: Any) -> None:
        part(data)
        ours.close()
        closed.set()

    monkeypatch.setattr(ours, "_send", then_closed)
    before = {*threading.enumerate()}
    link = LaneLink(ours)
    (sender,) = {*threading.enumerate()} - before
    link.send(b"0" * 100_000)
    assert closed.wait(10)
    sender.join(10)
    assert not sender.is_alive()
    theirs.close()
