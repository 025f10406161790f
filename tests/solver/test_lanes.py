"""Several lanes at once: what they share never breaks, and one that fails loses nothing."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from pipesat.bounds.feasibility import sure_order
from pipesat.core.checker import check
from pipesat.core.claims import Bound
from pipesat.core.problem import Problem
from pipesat.core.timing import time_order
from pipesat.heuristics.list_scheduling import list_schedules
from pipesat.solver import portfolio
from pipesat.solver.driver import solve
from pipesat.solver.neighbourhood.search import WindowSearch
from pipesat.solver.proof.attempts import Attempts
from pipesat.solver.proof.search import ProofSearch
from pipesat.solver.run.clock import Clock
from pipesat.solver.run.incumbent import Incumbent
from pipesat.solver.run.runner import Lanes
from pipesat.solver.search_parts import ALL_PARTS, SearchParts
from tests.support.problems import chain, vee

LANES = 8


@pytest.fixture
def _switching() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def started(problem: Problem) -> Incumbent:
    """An incumbent with the worst list schedule and no bound to speak of."""
    incumbent = Incumbent(problem, "makespan", Clock(600))
    incumbent.offer_timed(max(list_schedules(problem), key=lambda schedule: schedule.makespan))
    return incumbent


@pytest.mark.slow
@pytest.mark.usefixtures("_switching")
@pytest.mark.parametrize(
    "problem",
    [
        chain(3, 4, F=2, B=3, W=2, cap=2),
        chain(4, 9, F=2, B=3, W=2, comm=1, cap=2),
        vee(2, 3, F=2, B=3, W=1, cap=4),
    ],
)
def test_many_lanes_share_one_search(problem: Problem) -> None:
    for seed in range(3):
        incumbent = started(problem)
        done = portfolio.search(
            problem,
            incumbent,
            [],
            threads=LANES,
            seed=seed,
            parts=ALL_PARTS,
        )
        assert done.failed == []
        assert incumbent.faults == []
        assert incumbent.proven
        assert incumbent.schedule is not None
        assert check(problem, incumbent.schedule) == []


@pytest.mark.usefixtures("_switching")
def test_attempts_are_taken_and_learnt_from_many_threads() -> None:
    """Each attempt goes to one thread, and none is lost while others write what they have found."""
    devices = frozenset(range(6))
    attempts = Attempts(devices, range(6), 100, seed=0, fits=lambda _: True)
    taken: list[frozenset[int]] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for turn in range(150):
                attempt = attempts.take(bound=turn)
                if attempt is not None:
                    taken.append(attempt.devices)
                    attempts.learn(
                        attempt,
                        reach=turn + 7,
                        infeasible=False,
                        raised=turn % 5 == 0,
                        proven=False,
                    )
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(LANES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert attempts.tried == len(taken)
    assert {frozenset({d}) for d in devices} <= set(taken)


class Planted(Exception):
    """An error that nobody expects."""


def fail(*_: object) -> None:
    raise Planted("this lane is broken")


PLANTED = "Planted: this lane is broken"


def test_a_lane_that_fails_leaves_the_others() -> None:
    problem = chain(3, 4, F=2, B=3, W=2, cap=2)
    incumbent = started(problem)
    better = min(list_schedules(problem), key=lambda schedule: schedule.makespan)
    ended = threading.Event()

    def breaks() -> None:
        try:
            fail()
        finally:
            ended.set()

    def goes_on() -> None:
        assert ended.wait(60)
        incumbent.offer_timed(better)

    failed = Lanes(incumbent.clock).run([breaks, goes_on, fail])
    assert failed == ["a part of the search failed, please report it: " + PLANTED] * 2
    assert incumbent.value == better.makespan


def test_if_all_lanes_fail_the_result_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (WindowSearch, ProofSearch):
        monkeypatch.setattr(kind, "step", fail)
    problem = chain(3, 4, F=2, B=3, W=2, cap=2)
    (start, *_) = list_schedules(problem)
    known = Bound(10, "known from elsewhere")
    parts = SearchParts(closed_forms=False, packing=False, growth=False)
    result = solve(
        problem, warm_starts=[start], known_bound=known, workers=4, time_limit=600, parts=parts
    )
    assert (result.status, result.value, result.bound) == ("feasible", start.makespan, known)
    assert [PLANTED in warning for warning in result.warnings] == [True] * 4
    assert result.explanation.count(PLANTED) == 4


@pytest.mark.slow
def test_a_hand_written_schedule_that_fails_leaves_those_before_it() -> None:
    problem = chain(3, 4, cap=2)
    good = time_order(problem, sure_order(problem))

    def starts() -> Iterator[object]:
        yield good
        raise Planted("no more")

    result = solve(problem, warm_starts=starts(), time_limit=600, workers=1)  # type: ignore[arg-type]
    assert result.value is not None
    assert result.value <= good.makespan
    assert any("Planted: no more" in warning for warning in result.warnings)
