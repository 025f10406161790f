"""A freer order of microbatches costs nothing: the solve under the stricter rule is part of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pipesat.check.checker import check
from pipesat.compare.hand_written import baseline
from pipesat.core.claims import Bound
from pipesat.heuristics.microbatch_orders import RULES
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import FORMAT, parse_problem
from pipesat.schedule.schedule import Schedule
from pipesat.solver import SolveOptions, solve
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.team import SearchReport
from pipesat.solver.narrower import SHARES, Level
from pipesat.solver.options import ALL_PARTS
from pipesat.solver.proof.search import proofs_for


def drawn(seed: int, microbatches: int = 6) -> Problem:
    """Three devices, all microbatches different, memory for a few: not proven in a short search."""
    draw = random.Random(seed)
    times = ("F", "B", "W")
    return parse_problem(
        {
            "format": FORMAT,
            "devices": [{"memory": draw.randint(22, 40)} for _ in range(3)],
            "stages": [
                {key: draw.randint(5, 20) for key in times}
                | {"device": d, "held_after_F": 4, "held_after_B": 2}
                for d in range(3)
            ],
            "microbatches": [
                {"name": str(m), "count": 1}
                | {key: [draw.randint(5, 40), 10] for key in ("time", "held")}
                for m in range(microbatches)
            ],
            "comm": {"default": draw.randint(0, 3)},
        }
    )


def value(problem: Problem, seconds: float) -> int:
    """Of a deterministic solve from two schedules under every rule of thumb."""
    starts = [baseline(name, problem, rule) for name in ("1f1b", "zb-h1") for rule in RULES]
    options = SolveOptions(time_limit=seconds, deterministic=True, starts="none", schedules=starts)
    found = solve(problem, options).value
    assert found is not None
    return found


@pytest.mark.parametrize("seed", [3, 8])
def test_a_freer_order_is_never_longer_than_a_stricter_one_within_its_share(seed: int) -> None:
    free, seconds = drawn(seed), 0.32  # a last window, which may overrun, decides nothing
    same, given = replace(free, order="same"), replace(free, order="given")
    for_same = seconds * SHARES["free"]
    for_given = for_same * SHARES["same"]
    assert value(free, seconds) <= value(same, for_same) <= value(given, for_given)


def test_lanes_prove_the_rule_that_was_asked_for_whichever_is_searched() -> None:
    whole = Level(Incumbent(drawn(1), "makespan", Clock(1.0, deterministic=True)))
    assert whole.take(baseline("1f1b", whole.incumbent.problem, "given"), written=True)
    same = whole.inner
    assert same is not None
    assert same.inner is not None
    given = proofs_for(same.inner.incumbent, seed=0, parts=ALL_PARTS)
    assert given.incumbent is whole.incumbent
    assert proofs_for(same.incumbent, seed=0, parts=ALL_PARTS) is given
    assert proofs_for(whole.incumbent, seed=0, parts=ALL_PARTS) is given


def test_each_rule_is_searched_at_its_share_of_the_time_and_what_it_finds_is_kept() -> None:
    free = drawn(1)
    clock = Clock(16.0, deterministic=True)
    whole = Level(Incumbent(free, "makespan", clock))
    whole.begin()
    written = {rule: baseline("1f1b", free, rule) for rule in ("given", "ascending")}
    for start in written.values():
        assert whole.take(start, written=True)
    seen: list[tuple[str, float, list[str]]] = []

    def search(mine: Incumbent, starts: list[Schedule]) -> SearchReport:
        seen.append((mine.problem.order, mine.clock.left, [start.source for start in starts]))
        if mine.problem.order == "given":  # nothing shorter than one after another is offered
            assert whole.incumbent.value == min(start.makespan for start in written.values())
        clock.count(mine.clock.left)
        return SearchReport([f"looked under {mine.problem.order}"], [])

    report = whole.improve(search)
    by_value = sorted(written.values(), key=lambda start: start.makespan)
    sources = [start.source for start in by_value]
    # a half of 16 s for one order in all stages, an eighth of it for the given one
    assert seen == [("given", 1.0, ["1f1b"]), ("same", 7.0, sources), ("free", 8.0, sources)]
    assert report.notes[:2] == [
        "with order same: with order given: looked under given",
        "with order same: looked under same",
    ]


def test_what_is_found_under_a_stricter_rule_is_offered_at_once() -> None:
    free = drawn(1)
    whole = Level(Incumbent(free, "makespan", Clock(1.0, deterministic=True)))
    assert whole.inner is not None
    assert whole.inner.inner is not None
    given = baseline("1f1b", free)
    assert not check(replace(free, order="given"), given)
    whole.inner.inner.incumbent.offer_timed(given)
    assert whole.inner.incumbent.schedule is whole.incumbent.schedule is given


def test_where_microbatches_are_alike_there_is_no_stricter_rule() -> None:
    free = drawn(1)
    (route,) = free.routes
    one = route.definitions[:1]
    alike = replace(route, classes=(0,) * route.microbatches, definitions=one)
    for problem in (replace(free, order="given"), replace(free, routes=(alike,))):
        assert Level(Incumbent(problem, "makespan", Clock(1.0))).inner is None


def test_closed_forms_end_with_their_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of 20 s; each form after the first takes 1 s here. The last to be begun is kept."""
    clock = Clock(20.0, deterministic=True)

    def forms(*_: object) -> Iterator[Bound]:
        for number in range(10):
            clock.count(float(number > 0))
            yield Bound(number, f"form {number}")

    monkeypatch.setattr("pipesat.solver.narrower.closed_forms", forms)
    whole = Level(Incumbent(replace(drawn(1), order="given"), "makespan", clock))
    whole.begin()
    assert clock.elapsed == 2.0
    assert whole.incumbent.bound.source == "form 2"


def test_no_start_counts_that_comes_after_the_answer() -> None:
    """What a solve has left behind goes on making hand-written schedules, maybe better ones."""
    problem = replace(drawn(1), order="given")
    whole = Level(Incumbent(problem, "makespan", Clock(1.0, deterministic=True)))
    whole.offer_sure()
    found, written = whole.incumbent.schedule, baseline("1f1b", problem)
    assert found is not None
    assert written.makespan < found.makespan
    whole.incumbent.close()
    assert whole.take(written, written=True) is None
    assert whole.baseline is None
    assert whole.incumbent.schedule is found
