"""Growth: parts between cuts of equal state, their repetition, and the search for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.bounds.feasibility import sure_order
from pipesat.check.checker import check
from pipesat.heuristics.list_scheduling import list_schedules, list_scheduling
from pipesat.problem.ops import Kind, Op, Pair
from pipesat.problem.problem import Link, Overlap, Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.schedule.metrics import peak_memory
from pipesat.schedule.schedule import Objective, Order, Schedule
from pipesat.schedule.timing import time_order
from pipesat.solver.growth import packing
from pipesat.solver.growth.assign import in_modes
from pipesat.solver.growth.few_microbatches import few_of, grown_orders
from pipesat.solver.growth.packing import justified
from pipesat.solver.growth.repetition import Repeat, grown, repeated, repeats, with_other_end
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.portfolio import OtherWays
from pipesat.solver.lanes.runner import Runner
from pipesat.solver.lanes.team import SearchReport
from pipesat.solver.model.left_out import first_microbatches
from pipesat.solver.model.left_out import with_microbatches as fewer
from pipesat.solver.narrower import search_all
from pipesat.solver.options import SearchParts
from tests.support.greedy import by_each_policy
from tests.support.lanes import by
from tests.support.problems import chain, document, problems, tessel, vee, with_microbatches


def in_proportion(problem: Problem, times: int) -> Problem:
    """``times`` the microbatches on every route."""
    routes = (replace(r, microbatches=times * r.microbatches) for r in problem.routes)
    return replace(problem, routes=tuple(routes))


def few_microbatches(problem: Problem) -> Problem | None:
    """The problem of few microbatches, without how they are repeated."""
    few = few_of(problem)
    return None if few is None else few.problem


def ops(text: str) -> tuple[Op, ...]:
    """``F0 B0 W0`` of stage 0."""
    kinds: dict[str, Kind] = {"F": "F", "B": "B", "W": "W", "X": "BW"}
    return tuple(Op(0, kinds[word[0]], int(word[1:])) for word in text.split())


def parts(problem: Problem, order: Order) -> list[Repeat]:
    return list(repeats(problem, time_order(problem, order)))


# By hand


ONE_BY_ONE = ops("F0 B0 W0 F1 B1 W1 F2 B2 W2")


def test_a_single_device_repeats_one_microbatch() -> None:
    problem = chain(1, 3, F=2, B=3, W=4)
    found = parts(problem, (ONE_BY_ONE,))
    # cuts at 0, 9 and 18, all of the same empty state: 0-9, 0-18 and 9-18
    assert {(p.begin.time, p.end.time, p.microbatches) for p in found} == {
        (0, 9, (1,)),
        (0, 18, (2,)),
        (9, 18, (1,)),
    }
    assert [p.rate for p in found] == [9.0, 9.0, 9.0]
    schedule = time_order(problem, (ONE_BY_ONE,))
    for part in found:
        many = with_microbatches(problem, 10)
        order = grown(problem, schedule, part, many)
        assert order == (ops(" ".join(f"F{i} B{i} W{i}" for i in range(10))),)
        assert time_order(many, order).makespan == 10 * 9


def test_1f1b_grows_by_the_work_of_a_microbatch() -> None:
    """Warm-up of p - s forwards on stage s, then one backward, one forward by turns; F = B + W."""
    p, m = 3, 8

    def one_f_one_b(m: int) -> Order:
        rows = []
        for s in range(p):
            row = [Op(s, "F", i) for i in range(p - s)]
            for i in range(m):
                row += [Op(s, "BW", i)]
                if i + p - s < m:
                    row.append(Op(s, "F", i + p - s))
            rows.append(tuple(row))
        return tuple(rows)

    problem = chain(p, m, F=2, B=1, W=1)
    schedule = time_order(problem, one_f_one_b(m))
    assert schedule.makespan == (m + p - 1) * 4  # the closed form of 1F1B
    found = [part for part in repeats(problem, schedule) if part.microbatches == (1,)]
    assert found
    assert {part.rate for part in found} == {4.0}
    many = with_microbatches(problem, 50)
    for part in found:
        order = grown(problem, schedule, part, many)
        assert order == one_f_one_b(50)
        assert time_order(many, order).makespan == (50 + p - 1) * 4


def test_weights_left_pending_come_first_in_the_next_repetition() -> None:
    """The state does not tell pending W's, and no W is lost or done twice."""
    problem = chain(1, 3, cap=2)
    order = (ops("F0 B0 F1 B1 W0 W1 F2 B2 W2"),)
    begin_to_second = next(p for p in parts(problem, order) if p.end.started == (1,))
    assert begin_to_second.begin.weights == frozenset()
    assert begin_to_second.end.weights == {(0, "W", 1, 0)}
    many = with_microbatches(problem, 4)
    again = repeated(problem, time_order(problem, order), begin_to_second, many, 2)
    assert again == (ops("F0 B0 W0 F1 B1 W1 F2 B2 F3 B3 W2 W3"),)
    assert check(many, time_order(many, again)) == []


def test_a_weight_that_is_overtaken_is_done_once() -> None:
    """W0 waits from the first cut to beyond the second one, where W1 is done before."""
    problem = chain(1, 4, cap=4)
    order = (ops("F0 B0 F1 B1 W1 F2 B2 W0 W2 F3 B3 W3"),)
    schedule = time_order(problem, order)
    part = next(
        p for p in repeats(problem, schedule) if (p.begin.started, p.end.started) == ((1,), (2,))
    )
    assert part.begin.weights == {(0, "W", 1, 0)}
    assert part.end.weights == {(0, "W", 2, 0)}
    for m in (4, 5, 9):
        many = with_microbatches(problem, m)
        assert check(many, time_order(many, grown(problem, schedule, part, many))) == []


def test_a_fused_backward_takes_the_place_of_a_pending_weight() -> None:
    """At the first cut W0 is pending; the microbatch in its place at the second one ran fused."""
    problem = chain(1, 4, cap=4, backward="either")
    order = (ops("F0 B0 F1 X1 W0 F2 X2 F3 B3 W3"),)
    schedule = time_order(problem, order)
    for part in repeats(problem, schedule):
        for m in (4, 5, 9):
            many = with_microbatches(problem, m)
            assert check(many, time_order(many, grown(problem, schedule, part, many))) == []
    assert any(p.begin.weights - p.end.weights for p in repeats(problem, schedule))


def test_the_last_microbatches_are_left_out() -> None:
    problem = chain(1, 3)
    schedule = time_order(problem, (ONE_BY_ONE,))
    two = next(p for p in repeats(problem, schedule) if p.microbatches == (2,))
    many = with_microbatches(problem, 4)  # 3 + 2 are one too many
    assert grown(problem, schedule, two, many) == (ops("F0 B0 W0 F1 B1 W1 F2 B2 W2 F3 B3 W3"),)
    with pytest.raises(ValueError, match="enough"):
        repeated(problem, schedule, two, many, 0)


def test_repetitions_replace_the_end() -> None:
    problem = chain(1, 4)
    order = (ops("F0 B0 W0 F1 B1 W1 F2 F3 B2 B3 W2 W3"),)
    schedule = time_order(problem, order)
    first = next(p for p in repeats(problem, schedule) if p.end.started == (1,))
    assert with_other_end(problem, schedule, first) == (ops("F0 B0 W0 F1 B1 W1 F2 B2 W2 F3 B3 W3"),)


def test_ops_that_share_a_moment_enter_before_they_start() -> None:
    """F's of no length: stage 1, on the first device, runs each at the moment of its entry."""
    problem = chain(2, 3, F=0, B=1, W=1)
    swapped = tuple(replace(s, device=1 - s.device) for s in problem.stages)
    links = {(0, 1): Link(0, 0)}
    problem = replace(problem, stages=swapped, links=links)
    rows = [[Op(s, kind, i) for i in range(3) for kind in ("F", "B", "W")] for s in (1, 0)]
    schedule = time_order(problem, tuple(map(tuple, rows)))
    # Every 3: both F0 and the B0 of stage 1 at 0, its W0 and the B0 of stage 0 at 1, W0 at 2.
    found = list(repeats(problem, schedule))
    assert {(p.begin.time, p.end.time) for p in found} == {(0, 3), (0, 6), (3, 6)}


# What has no parts


def test_no_parts_beyond_a_microbatch_out_of_its_turn() -> None:
    problem = chain(1, 3)
    assert parts(problem, (ops("F1 B1 W1 F0 B0 W0 F2 B2 W2"),)) == []
    found = parts(problem, (ops("F0 B0 W0 F2 B2 W2 F1 B1 W1"),))
    assert [(p.begin.started, p.end.started) for p in found] == [((0,), (1,))]


def test_pairs_are_repeated() -> None:
    """F0, then F with the backward before it, then a backward; every pair may be repeated."""
    few = replace(chain(1, 4, F=2, B=2, W=1, backward="fused"), overlap=Overlap((4, 5)))
    first, *_, last = ops("F0 F1 F2 X0 X1 X2 F3 X3")
    pairs = tuple(Pair(Op(0, "F", i + 1), Op(0, "BW", i)) for i in range(3))
    schedule = time_order(few, ((first, *pairs, last),))
    assert schedule.makespan == 2 + 3 * 4 + 3
    part, *_ = repeats(few, schedule)
    assert (part.microbatches, part.rate) == ((1,), 4)
    more = fewer(few, [9])
    longer = time_order(more, grown(few, schedule, part, more))
    assert check(more, longer) == []
    assert longer.makespan == 2 + 8 * 4 + 3


def test_of_a_pair_with_a_microbatch_too_many_the_other_runs_alone() -> None:
    few = replace(chain(1, 4, F=2, B=2, W=1, backward="fused"), overlap=Overlap((4, 5)))
    first, *_, last = ops("F0 F1 F2 X0 X1 X2 F3 X3")
    pairs = tuple(Pair(Op(0, "F", i + 1), Op(0, "BW", i)) for i in range(3))
    schedule = time_order(few, ((first, *pairs, last),))
    part = next(part for part in repeats(few, schedule) if part.microbatches == (2,))
    more = fewer(few, [7])
    longer = time_order(more, grown(few, schedule, part, more))
    assert check(more, longer) == []
    assert longer.makespan == 2 + 6 * 4 + 3


def test_routes_are_served_evenly() -> None:
    """Two routes of 2 and 4 microbatches: never one of each, which would be a part by its state."""
    two = tessel("X", 2)
    counts = zip(two.routes, (2, 4), strict=True)
    uneven = replace(two, routes=tuple(replace(r, microbatches=k) for r, k in counts))
    found = [part for s in by_each_policy(uneven) for part in repeats(uneven, s)]
    assert all(part.microbatches[1] == 2 * part.microbatches[0] for part in found)


# Every part of every schedule


def schedules(problem: Problem, draw: st.DataObject) -> Iterator[Schedule]:
    """Some list schedules, as they are and packed (what is packed may delay W's)."""
    which = draw.draw(st.integers(0, 12), label="policy")
    *_, schedule = islice(by_each_policy(problem), which + 1)
    yield schedule
    yield from justified(problem, schedule.order, seed=1, clock=Clock(600), passes=12)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(problems(max_microbatches=4, least_time=0), st.integers(1, 4), st.data())
def test_every_part_may_be_repeated(problem: Problem, least: int, data: st.DataObject) -> None:
    """On random placements and routes, fused or split, also where B takes more than its F."""
    few = in_proportion(problem, 2 * least)
    for schedule in schedules(few, data):
        for part in list(repeats(few, schedule))[:40]:
            many = in_proportion(problem, 2 * least + data.draw(st.integers(0, 7)))
            order = grown(few, schedule, part, many)
            assert check(many, time_order(many, order)) == []
            order = with_other_end(few, schedule, part)
            assert check(few, time_order(few, order)) == []


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.sampled_from([chain, vee]), st.integers(1, 3), st.integers(2, 6), st.data())
def test_w_at_any_time(make: object, p: int, cap: int, data: st.DataObject) -> None:
    """With W's where chance puts them, some fused, in any order, as far as memory allows."""
    m = 7
    build = chain if make is chain else vee
    problem = build(p, m, cap=None, held_after_B=cap, backward="either")
    schedule = next(list_schedules(problem))
    rows = []
    for row in schedule.order:
        kept = [op for op in row if isinstance(op, Op) and op.kind != "W"]
        for op in [op for op in kept if op.kind == "B"]:
            place = kept.index(op)
            if data.draw(st.booleans()):
                kept[place] = op._replace(kind="BW")
            else:
                at = data.draw(st.integers(place + 1, len(kept)))
                kept.insert(at, op._replace(kind="W"))
        rows.append(tuple(kept))
    loose = time_order(problem, tuple(rows))
    peaks = peak_memory(problem, loose)
    devices = zip(problem.devices, peaks, strict=True)
    tight = replace(problem, devices=tuple(replace(d, memory=peak) for d, peak in devices))
    assert check(tight, loose) == []
    for part in repeats(tight, loose):
        many = in_proportion(tight, 3)
        assert check(many, time_order(many, grown(tight, loose, part, many))) == []


# Packing


def test_packing_goes_back_to_its_best_after_twelve_passes_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = []

    class Longer(packing.Walk):
        """Every pass is longer than the one before."""

        def step(self) -> int:
            begun.append(self.row)
            super().step()
            return len(begun)

    monkeypatch.setattr(packing, "Walk", Longer)
    problem = chain(2, 3)
    for _ in justified(
        problem, sure_order(problem), seed=0, clock=Clock(60, deterministic=True), passes=16
    ):
        pass
    assert len(begun) == 16
    assert [number for number, row in enumerate(begun) if row is begun[1]] == [1, 14]


def test_passes_are_disturbed_after_the_first_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = chain(2, 3)
    jobs, items = packing.jobs_of(problem, sure_order(problem))
    walk, drawn = packing.Walk(jobs, items, Random(0), early=2), []
    monkeypatch.setattr(walk.chance, "choice", lambda those: drawn.append(walk.steps) or those[0])
    for _ in range(3):
        walk.step()
    assert drawn == [2, 2]  # how patient it is, and how far items seem from their places


# The search


def test_few_microbatches() -> None:
    assert few_microbatches(chain(8, 1)) is None
    assert few_microbatches(chain(1, 32)) is None  # no more than windows can do as a whole
    assert few_microbatches(chain(8, 127)) is None
    # one by one of 33 and of 34 microbatches are all of them, and a device takes 8 at most
    lists = [{"name": "a", "count": 33}, {"name": "b", "count": 34, "time": [2, 1]}]
    assert few_of(parse_problem(document(chain(1, 1), microbatches=lists))) is None
    # 8 per device; 64 microbatches have 64 x 24 = 1536 ops
    few = few_microbatches(chain(8, 128))
    assert few is not None
    assert few.microbatches == (64,) * 8
    # 1600 ops are 1600 / 96 = 16 microbatches of 32 stages, but there are 2 per device at least
    few = few_microbatches(chain(32, 128))
    assert few is not None
    assert few.microbatches == (64,) * 32
    assert few_microbatches(with_microbatches(tessel("X", 2), 16)) is None
    # 16 microbatches of both routes together
    few = few_microbatches(with_microbatches(tessel("X", 2), 20))
    assert few is not None
    assert [route.microbatches for route in few.routes] == [8, 8]


@pytest.mark.slow
@pytest.mark.parametrize("problem", [chain(2, 40, F=2, B=3, W=2, comm=1, cap=2), tessel("X", 2)])
@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_the_search_yields_valid_orders(problem: Problem, objective: Objective) -> None:
    problem = with_microbatches(problem, 40)
    starts = list(by_each_policy(problem))[:2]
    values = []
    clock = Clock(0.6, deterministic=True)
    for order in grown_orders(problem, starts, objective, runner=Runner(clock), clock=clock):
        timed = time_order(problem, order, objective)
        assert check(problem, timed) == []
        values.append(timed.value(objective))
    assert values
    assert min(values) <= min(s.value(objective) for s in starts)


def test_it_does_not_begin_without_time_for_a_schedule() -> None:
    problem = chain(4, 100)  # 1200 ops; some 100 000 of windows are worth a second
    starts = list(list_schedules(problem))[:1]
    clock = Clock(0.01)
    assert list(grown_orders(problem, starts, "makespan", runner=Runner(clock), clock=clock)) == []


@pytest.mark.slow
def test_stop_is_heard() -> None:
    problem = chain(4, 100, F=3, B=4, W=2, comm=1, cap=3)
    starts = list(list_schedules(problem))[:1]
    clock = Clock(600, stop=lambda: True)
    assert list(grown_orders(problem, starts, "makespan", runner=Runner(clock), clock=clock)) == []
    calls = 0

    def soon() -> bool:
        nonlocal calls
        calls += 1
        return calls > 20

    clock = Clock(600, stop=soon)
    for order in grown_orders(problem, starts, "makespan", runner=Runner(clock), clock=clock):
        assert check(problem, time_order(problem, order)) == []
    assert calls > 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "objective"),
    [(chain(2, 40, F=2, B=3, W=2, cap=2), "makespan"), (vee(2, 40, cap=6), "span")],
)
def test_its_place_in_the_solve(problem: Problem, objective: Objective) -> None:
    """It improves a poor start, whatever the load; switched off, it does nothing."""
    timed = [time_order(problem, s.order, objective, "start") for s in by_each_policy(problem)]
    start = max(timed, key=lambda schedule: schedule.value(objective))

    def outcome(parts: SearchParts) -> Incumbent:
        clock = Clock(1.0, deterministic=True)
        incumbent = Incumbent(problem, objective, clock)
        incumbent.offer_timed(start)
        next(OtherWays(incumbent, [start], Runner(clock), seed=0, parts=parts).all())()
        assert incumbent.schedule is not None
        assert check(problem, incumbent.schedule) == []
        return incumbent

    alone = SearchParts(packing=False)
    assert outcome(SearchParts(packing=False, growth=False)).schedule is start
    grown_best = outcome(alone)
    assert grown_best.value is not None
    assert grown_best.value < start.value(objective)
    assert "growth" in grown_best.history[-1].source


LIST: list[dict[str, Any]] = [
    {"name": "long", "count": 8, "time": [2, 1]},
    {"name": "short", "count": 32},
]
RECOMPUTE = {"name": "recompute", "backward": "fused", "BW": 3, "held_after_F": 0}
OFFLOAD = {"name": "offload", "offload": {"out": 1, "in": 2, "held": 0}}
LONG: dict[str, Any] = {
    "format": "pipesat.problem/1",
    "microbatches": 40,
    "devices": [{"memory": 2}, {"memory": 2}],
    "stages": [{"device": d, "F": 1, "B": 1, "W": 1, "held_after_F": 1} for d in range(2)],
}


def with_modes(*modes: object) -> Problem:
    stages = [{"modes": [*modes], **stage} for stage in LONG["stages"]]
    return parse_problem({**LONG, "stages": stages, "devices": [{"memory": 1}] * 2})


@pytest.mark.parametrize(
    ("problem", "classes"),
    [
        (with_modes(RECOMPUTE), None),
        (with_modes(OFFLOAD), None),
        (parse_problem({**LONG, "microbatches": LIST, "order": "same"}), (0, 1, 1, 1, 1) * 2),
    ],
)
def test_a_search_is_never_worse_than_a_shorter_one_repeated(
    problem: Problem, classes: tuple[int, ...] | None
) -> None:
    few = few_of(problem)
    assert few is not None
    assert few.problem.routes[0].classes == classes
    found: list[int] = []

    def search(own: Incumbent, starts: list[Schedule]) -> SearchReport:
        del starts
        if own.problem == few.problem and own.value is not None:
            found.append(own.value)
        return SearchReport([], [])

    mine = Incumbent(problem, "makespan", Clock(60, deterministic=True))
    report = search_all(by(search, list_schedules), [], mine, [])
    assert report.failed == []
    assert mine.schedule is not None
    assert check(problem, mine.schedule) == []
    turns = problem.microbatches[0] // few.problem.microbatches[0]
    assert mine.schedule.makespan <= turns * found[0]


@pytest.mark.parametrize(("found_after", "seconds"), [(None, 11), (4, 15)])
def test_the_shorter_search_ends_when_it_finds_nothing_better(
    found_after: int | None, seconds: int
) -> None:
    """A deterministic clock of 60 s, told of a second at a time: more than 10 are no patience."""
    problem = with_modes(RECOMPUTE)
    few = few_of(problem)
    assert few is not None
    spent: list[float] = []

    def search(own: Incumbent, starts: list[Schedule]) -> SearchReport:
        del starts
        begin = own.clock.elapsed
        while own.problem == few.problem and not own.clock.over:
            own.clock.count(1.0)
            if own.clock.elapsed - begin == found_after:
                own.found_at = own.clock.elapsed
        spent.append(own.clock.elapsed - begin)
        return SearchReport([], [])

    mine = Incumbent(problem, "makespan", Clock(60, deterministic=True))
    search_all(by(search, list_schedules), [], mine, [])
    assert round(spent[0]) == seconds


@given(seed=st.integers(0, 1000))
@settings(max_examples=10)
def test_modes_are_repeated_with_the_ops(seed: int) -> None:
    """Any modes, in any order that fits: parts have the same modes under way at both ends."""
    problem = with_microbatches(with_modes(RECOMPUTE, OFFLOAD), 8)
    chance = Random(seed)
    modes = {(s, m): chance.randrange(3) for s in range(2) for m in range(8)}
    guide = time_order(problem, sure_order(problem)).order
    order = in_modes(problem, guide, modes)
    timed = time_order(problem, order)
    assert check(problem, timed) == []
    many = with_microbatches(problem, 21)
    for part in islice(repeats(problem, timed), 5):
        again = time_order(many, grown(problem, timed, part, many))
        assert check(many, again) == []


def test_first_microbatches_are_a_valid_schedule() -> None:
    problem = chain(3, 7, F=2, B=3, W=2, cap=2)
    schedule = list_scheduling(problem)
    values = []
    for n in range(1, 8):
        few = fewer(problem, [n])
        order = first_microbatches(schedule, few)
        timed = time_order(few, order)
        assert not check(few, timed)
        values.append(timed.makespan)
        assert timed.makespan >= closed_form_bound(few, "makespan").value
    assert all(a < b for a, b in pairwise(values))
    assert values[-1] == schedule.makespan
