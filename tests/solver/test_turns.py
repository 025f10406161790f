"""Which turn a lane takes next: what has had the least time for what it pays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from pipesat.core.claims import Bound
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.lane import Account
from pipesat.solver.lanes.turns import Turn, take_turns
from tests.support.lanes import PROBLEM, schedules

Step = Callable[[], bool]


def searched(*turns: Turn, seconds: float = 400.0) -> tuple[list[str], Account, Incumbent]:
    """The names of the turns in their sequence, what each took, and the incumbent; 1 s a step."""
    taken: list[str] = []
    clock = Clock(seconds, deterministic=True)
    incumbent = Incumbent(PROBLEM, "makespan", clock)
    incumbent.offer_timed(schedules()[0])

    def counted(turn: Turn) -> Step:
        step = turn.step

        def one() -> bool:
            taken.append(turn.name)
            clock.count(1.0)
            return step()

        return one

    for turn in turns:
        turn.step = counted(turn)
    account: Account = {}
    take_turns(incumbent, list(turns), account)
    return taken, account, incumbent


def vain() -> bool:
    return True


def test_where_nothing_pays_each_has_time_by_its_weight() -> None:
    taken, account, _ = searched(Turn("a", vain, 3.0), Turn("b", vain), seconds=400)
    assert Counter(taken) == {"a": 300, "b": 100}
    assert account["a"].steps == account["a"].seconds == 300


def test_what_pays_has_four_times_as_much() -> None:
    """Weights 1 + 1/3 and 1/3, as long as it pays in every step."""
    bound = [0]
    turns: list[Turn] = []

    def pays() -> bool:
        bound[0] += 1
        found.raise_bound(Bound(bound[0], "proof"), "proof")
        return bound[0] < 20

    found = Incumbent(PROBLEM, "makespan", Clock(25.0, deterministic=True))
    found.offer_timed(schedules()[0])
    taken: list[str] = []

    def step(name: str, what: Step) -> Step:
        def one() -> bool:
            taken.append(name)
            found.clock.count(1.0)
            return what()

        return one

    turns = [Turn("pays", step("pays", pays)), Turn("vain", step("vain", vain))]
    account: Account = {}
    take_turns(found, turns, account)
    assert Counter(taken[:24]) == {"pays": 19, "vain": 5}
    assert account["pays"].bounds == account["pays"].steps
    assert account["vain"].bounds == 0


def test_first_comes_before_all_others_once_and_what_has_ended_does_not_come_again() -> None:
    ended = Turn("once", lambda: False, first=True)
    taken, *_ = searched(Turn("a", vain), ended, seconds=5)
    assert taken == ["once", "a", "a", "a", "a"]


def test_who_has_waited_catches_nothing_up() -> None:
    waits = Turn("waits", vain)
    other = Turn("a", vain)
    waits.ready = lambda: other.passed >= 50 * 3  # a weight of a third where nothing pays
    taken, *_ = searched(other, waits, seconds=100)
    assert Counter(taken) == {"a": 75, "waits": 25}


def test_without_anything_to_do_a_lane_ends() -> None:
    taken, *_ = searched(Turn("a", lambda: False), seconds=100)
    assert taken == ["a"]
