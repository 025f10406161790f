"""Bounds of long runs from stretches: by hand, against an independent model, against schedules."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipesat.core.claims import Bound
from pipesat.heuristics.list_scheduling import list_scheduling
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Objective
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import PROOFS, Runner
from pipesat.solver.proof.known_stretches import KnownStretches, StepBounds
from pipesat.solver.proof.stretch_search import SOURCE, Stretches, is_long, measured
from pipesat.solver.proof.stretches import Debt, Part, stretch_model
from tests.support.optimum import decided, solved
from tests.support.problems import chain, problems, vee

PARTS: tuple[Part, ...] = ("pace", "step", "last", "first")
FAR = 400


def search_of(problem: Problem, objective: Objective = "makespan") -> Stretches:
    incumbent = Incumbent(problem, objective, Clock(600))
    incumbent.raise_bound(Bound(0, "nothing"))
    incumbent.offer(list_scheduling(problem).order, "list scheduling")
    return Stretches(problem, incumbent, seed=0)


def least(
    problem: Problem,
    part: Part,
    n: int,
    debt: Debt,
    objective: Objective = "makespan",
    devices: frozenset[int] | None = None,
) -> int:
    kept = frozenset(range(len(problem.devices))) if devices is None else devices
    model = stretch_model(problem, debt, part, n, objective, -FAR, FAR, kept)
    assert model is not None
    model.variables.cp.minimize(model.value)
    solver = solved(model.variables.cp)
    return model.variables.times.unit * round(solver.objective_value)


def test_one_device_by_hand() -> None:
    # one microbatch fits: F 2, B 3, W 5 and then the next one, which finds no debt
    problem = chain(1, 4, F=2, B=3, W=5, cap=1, backward="split")
    assert [least(problem, part, 1, Debt(0, 2)) for part in PARTS] == [10] * 4
    # without a limit all W's may wait, but then they are owed: debts take what a device saves
    free = chain(1, 4, F=2, B=3, W=5, backward="split")
    for n in (1, 2):
        assert least(free, "step", n, Debt(0, 0)) == 2 * n
        assert least(free, "first", n, Debt(0, 4)) == 10 * n
        assert least(free, "last", n, Debt(0, 4)) == 10 * n
    # the debt is of the last microbatch alone: the step leaves the W of the one before for ever
    assert least(free, "step", 1, Debt(0, 1)) < 10


def test_idling_counts_where_steps_see_none() -> None:
    # 4 stages of time 1, half of a microbatch's memory kept until its W: 4 loads of 3 are no bound
    # from empty devices, and with three microbatches in memory some device must idle meanwhile
    problem = chain(4, 32, cap=6, held=(2, 1), backward="split")
    assert least(problem, "step", 4, Debt(0, 0)) <= 4 * 3 < least(problem, "step", 4, Debt(0, 3))


def test_steps_add_up() -> None:
    known = StepBounds()
    known.learn(1, 3)
    known.learn(3, 11)
    known.learn(4, 14)
    assert [known.of(n) for n in range(8)] == [0, 3, 6, 11, 14, 17, 22, 25]
    assert [known.of(n) for n in (3000, 3001, 3002)] == [11_000, 11_003, 11_006]
    known.learn(3, 10)  # worse: nothing is unlearnt
    assert known.of(3) == 11


def test_which_runs_are_long() -> None:
    assert is_long(chain(2, 5, cap=1))
    assert not is_long(chain(2, 4, cap=1))
    assert not is_long(chain(2, 5))  # no memory limit


def test_what_follows_from_what_is_known() -> None:
    known = KnownStretches(-FAR)
    known.learn("step", 1, 3)
    known.learn("step", 3, 11)
    known.learn("last", 1, 0)
    assert known.whole(4) == 11  # of the end, only that it takes no less than its own debt
    known.learn("last", 1, 5)
    assert [known.whole(n) for n in (1, 2, 4, 5)] == [5, 3 + 5, 11 + 5, 11 + 3 + 5]
    known.learn("first", 2, 9)
    assert [known.whole(n) for n in (2, 3, 6)] == [8, 9 + 5, 9 + 11 + 5]
    known.learn("step", 1, 2)  # worse: nothing is unlearnt
    assert [known.of("step", n) for n in (1, 2, 4)] == [3, 6, 14]
    assert known.of("first", 3) == 9 + 3
    assert known.of("last", 4) == 11 + 5


def test_what_follows_from_a_pace() -> None:
    """From 2 a step, and 4 a microbatch of every third one or sooner: 4 each, but for the rest."""
    known = KnownStretches(-FAR)
    known.learn("step", 1, 2)
    known.learn("pace", 3, 12)
    assert [known.of("step", n) for n in (1, 2, 3, 4, 10)] == [2, 4, 8, 12, 36]
    assert [known.of("pace", n) for n in (2, 3, 4)] == [4, 12, 16]
    known.learn("pace", 3, 11)  # worse: nothing is unlearnt
    known.learn("last", 1, 5)
    assert known.whole(11) == 36 + 5
    assert known.steps.rate == 4


def test_a_stretch_that_is_fast_all_along_takes_longer_than_one_that_is_fast_in_sum() -> None:
    problem = chain(3, 32, F=2, B=3, W=2, cap=5, held=(2, 1), backward="split")
    assert [least(problem, part, 3, Debt(0, 2)) for part in ("step", "pace")] == [24, 25]


def test_least_ends_by_hand() -> None:
    """Two fit, 10 pass between F and backward: 6 idle, and a B and a W may be owed."""
    problem = chain(3, 12, F=2, B=3, W=2, cap=2, backward="split")
    assert Debt(0, 2).least_ends(problem) == (2, 2 * 7 + 2 + 10 - 2 * 2, 7 + 10 - (3 + 2))
    assert Debt(0, 1).least_ends(problem) == (0, 0, 7 + 10 - (3 + 2))
    assert Debt(1, 2).least_ends(problem) == (0, 0, 0)
    for debt in (Debt(0, 1), Debt(0, 2)):
        begun, start, end = debt.least_ends(problem)
        assert start <= least(problem, "first", begun, debt)
        assert end <= least(problem, "last", 1, debt)


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(problems(), st.data())
def test_no_sum_of_pieces_is_above_the_optimum(problem: Problem, data: st.DataObject) -> None:
    assume(len(problem.routes) == 1 and problem.routes[0].microbatches > 1)
    used = [d for d, stages in enumerate(problem.stages_on) if stages]
    debt = Debt(data.draw(st.sampled_from(used)), data.draw(st.integers(0, 2)))
    first = problem.stages[problem.routes[0].stages[0]].device
    kept = frozenset({first, debt.device}) | data.draw(st.frozensets(st.sampled_from(used)))
    objective: Objective = data.draw(st.sampled_from(["makespan", "span"]))
    known = KnownStretches(-debt.most(problem))
    begun, start, end = debt.least_ends(problem)
    known.learn("first", begun, start)
    known.learn("last", 1, end)
    for part in PARTS:
        for n in range(1, data.draw(st.integers(2, problem.routes[0].microbatches + 1))):
            known.learn(part, n, least(problem, part, n, debt, objective, kept))
    known.learn("step", 2, debt.least_step(problem, 2))
    known.learn("step", 1, debt.least_step(problem))
    best = decided(problem, objective)
    assert known.whole(problem.routes[0].microbatches) <= best


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize(
    "problem",
    [
        chain(3, 5, F=2, B=3, W=2, cap=2),
        chain(3, 5, F=2, B=3, W=2, BW=4, held=(1, 2), cap=5),
        chain(2, 6, F=2, B=3, W=2, BW=4, cap=2),
        vee(2, 5, cap=3),
        chain(3, 51, F=20, B=30, W=20, cap=2),
    ],
)
def test_what_is_proven_holds_for_every_schedule(problem: Problem, objective: Objective) -> None:
    search = search_of(problem, objective)
    runner = Runner(search.incumbent.clock)
    before = measured(problem, list_scheduling(problem), search.debt, objective)
    for _ in range(12):
        search.step(runner)
    assert search.tried
    assert search.incumbent.trusts(PROOFS)
    after = measured(problem, list_scheduling(problem), search.debt, objective)
    for starts, debts, end in (before, after):
        at = [start + debt for start, debt in zip(starts, debts, strict=True)]
        for n in range(1, len(at)):
            steps = [later - earlier for earlier, later in zip(at, at[n:], strict=False)]
            assert search.known.of("step", n) <= min(steps)
            assert search.known.of("first", n) <= at[n] - at[0]
            assert search.known.of("last", n) <= end - at[-n]
            for k in range(len(at) - n):
                shares = (n * (at[k + j] - at[k]) // j for j in range(1, n + 1))
                assert search.known.of("pace", n) <= max(shares)


def test_only_what_may_raise_the_bound_is_asked() -> None:
    """Under a load of 3 a microbatch, two in a row that enter at once say nothing of the rate."""
    problem = chain(4, 64, cap=6, held=(2, 1), backward="split")
    search = search_of(problem)
    search.incumbent.raise_bound(Bound(3 * 64, "load"))
    starts, debts, end = measured(
        problem, list_scheduling(problem), search.debt, search.incumbent.objective
    )
    at = [start + debt for start, debt in zip(starts, debts, strict=True)]
    steps = {n: min(b - a for a, b in zip(at, at[n:], strict=False)) for n in search.lengths}
    asked = {n for n in search.lengths if search._pays("step", n)}
    assert asked
    assert asked != steps.keys()
    # of the others, nothing follows even with both ends as long as they are in the schedule
    for n in (n for n in steps.keys() - asked if n <= 64 // 4):
        ends = [k for k in search.lengths if k <= max(n, search.debt.before)]
        for i, j in product([0, *ends], ends):
            times, rest = divmod(64 - i - j, n)
            if not rest and times >= 0:
                assert at[i] - at[0] + times * steps[n] + end - at[64 - j] <= 3 * 64
    search.incumbent.raise_bound(Bound(end, "all of it"))
    assert not any(search._pays(part, n) for part in PARTS for n in search.lengths)


def test_the_ends_of_a_very_long_run_wait_for_steps_of_their_length() -> None:
    for microbatches, waits in ((8, False), (64, True)):
        stretches = search_of(chain(2, microbatches, F=2, B=3, W=2, cap=1, backward="split"))
        assert stretches.steps_first == waits
        for part in ("first", "last"):
            assert not (waits and stretches._pays(part, 2))
        stretches.rounds.settled.add(("step", 2))
        asked = [stretches._hope(part, 2, stretches._most(part, 2)) for part in PARTS]
        known = stretches.incumbent.bound.value
        assert [stretches._pays(part, 2) for part in PARTS] == [hope > known for hope in asked]


def test_a_wrong_bound_is_dropped_and_ends_the_search() -> None:
    problem = chain(1, 3, F=2, B=3, W=5, cap=1, backward="split")
    search = search_of(problem)
    search.known.learn("step", 1, 11)  # it is 10: see above
    search.step(Runner(search.incumbent.clock))
    assert search.finished
    assert not search.incumbent.trusts(PROOFS)
    (fault,) = search.incumbent.faults
    assert f"{SOURCE} says at least 11 for a stretch of 1 microbatches" in fault
