"""DualPipe and Chimera: two routes through the same devices in opposite directions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from pipesat.core.checker import check
from pipesat.core.errors import NotApplicable
from pipesat.core.metrics import peak_memory
from pipesat.core.ops import Op, Pair
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.heuristics import BASELINES
from tests.support.baselines import has_counts_of_the_picture
from tests.support.placed_problems import opposite_routes, two_routes
from tests.support.problems import chain


def row(problem: Problem, name: str, device: int) -> str:
    return " ".join(str(t.item) for t in BASELINES[name](problem).devices[device])


def bubbles_within(schedule: Schedule) -> set[int]:
    """Makespan less each device's load."""
    return {schedule.makespan - sum(t.end - t.start for t in r) for r in schedule.devices}


# DualPipe


def test_dualpipe_on_the_published_picture() -> None:
    """8 ranks, 20 microbatches: bubble (p/2 - 1)(FB + BW - 3W) = 3 (3 + 2 - 3); p + 1 held."""
    problem = two_routes(8, (10, 10), overlap=(1, 1))
    schedule = BASELINES["dualpipe"](problem)
    assert bubbles_within(schedule) == {3 * (3 + 2 - 3)}
    assert peak_memory(problem, schedule) == [9] * 8
    for rank, items in enumerate(schedule.order):
        has_counts_of_the_picture(items, min(rank, 7 - rank))


@pytest.mark.parametrize(("p", "n"), [(2, 2), (2, 7), (4, 4), (6, 9), (12, 12)])
def test_dualpipe_bubble_and_memory(p: int, n: int) -> None:
    """The same formula; two ranks never idle."""
    problem = two_routes(p, (n, n), overlap=(1, 1))
    schedule = BASELINES["dualpipe"](problem)
    assert bubbles_within(schedule) == {(p // 2 - 1) * (3 + 2 - 3)}
    assert peak_memory(problem, schedule) == [p + 1] * p


def test_dualpipe_is_the_same_from_both_ends() -> None:
    """Turning the devices round swaps the routes."""
    order = BASELINES["dualpipe"](two_routes(6, (8, 8), overlap=(4, 5))).order
    swap = {stage: (stage + 6) % 12 for stage in range(12)}

    def turned(op: Op) -> Op:
        return op._replace(stage=swap[op.stage])

    for near, far in zip(order[:3], order[:2:-1], strict=True):
        assert far == tuple(
            Pair(turned(x.first), turned(x.second)) if isinstance(x, Pair) else turned(x)
            for x in near
        )


def test_dualpipe_order_of_two_ranks() -> None:
    # h = 1, r = 0, two microbatches per route: steps 2, 4 (once: 2 - 2 + 0 + 1), 6 and 8
    problem = two_routes(2, (2, 2), overlap=(1, 1))
    assert row(problem, "dualpipe", 0) == "0F0 3F0 0F1 3BW0 (3F1+0BW0) 3BW1 0B1 0W1"
    assert row(problem, "dualpipe", 1) == "2F0 1F0 2F1 1BW0 (1F1+2BW0) 1BW1 2B1 2W1"


@pytest.mark.parametrize(
    ("p", "microbatches", "reason"),
    [
        (3, (6, 6), "even number of devices"),
        (4, (6, 5), "same number of microbatches"),
        (4, (3, 3), "at least 4 microbatches on each route"),
    ],
)
def test_why_dualpipe_does_not_apply(p: int, microbatches: tuple[int, int], reason: str) -> None:
    with pytest.raises(NotApplicable, match=reason):
        BASELINES["dualpipe"](two_routes(p, microbatches))


# Chimera


def test_chimera_order_of_one_unit() -> None:
    # slots s + 2j and 2p - 1 - s + 2j of p = 4, written out; SC 2021, figure 3's merged pipelines
    problem = two_routes(4, (2, 2))
    assert row(problem, "chimera", 0) == "0F0 0F1 7F0 7BW0 7F1 7BW1 0BW0 0BW1"
    assert row(problem, "chimera", 1) == "1F0 6F0 1F1 6F1 6BW0 1BW0 6BW1 1BW1"
    assert row(problem, "chimera", 3) == "4F0 4F1 3F0 3BW0 3F1 3BW1 4BW0 4BW1"


@pytest.mark.parametrize("p", [2, 4, 6, 8, 12])
def test_chimera_bubble(p: int) -> None:
    """SC 2021, table 2: (p - 2)/(2m + p - 2) of the time for BW = F, m microbatches, any units.

    For BW = 2F, of one unit: (p - 2)/(3m/2 + p - 2).
    """
    for units in (1, 2, 5):
        n = units * p // 2
        equal = BASELINES["chimera"](two_routes(p, (n, n), F=1, B=1, W=0))
        assert equal.makespan == 2 * 2 * n + p - 2
    double = BASELINES["chimera"](two_routes(p, (p // 2, p // 2), F=1, B=1, W=1))
    assert double.makespan * 3 * p // 2 == 3 * p * (3 * p // 2 + p - 2)


@pytest.mark.parametrize("p", [2, 4, 8])
def test_chimera_memory(p: int) -> None:
    """Table 2: from p/2 + 1 activations on the outer ranks to p on the middle ones."""
    problem = two_routes(p, (2 * p, 2 * p), F=1, B=1, W=0)
    peaks = peak_memory(problem, BASELINES["chimera"](problem))
    assert (min(peaks), max(peaks)) == (p // 2 + 1, p)
    assert (peaks[0], peaks[p // 2]) == (min(peaks), max(peaks))


def test_chimera_takes_any_number_of_microbatches() -> None:
    problem = two_routes(4, (5, 1))
    assert check(problem, BASELINES["chimera"](problem)) == []
    with pytest.raises(NotApplicable, match="even number of devices"):
        BASELINES["chimera"](two_routes(3, (4, 4)))


# Both


@pytest.mark.parametrize("name", ["dualpipe", "chimera"])
def test_a_single_route_is_refused(name: str) -> None:
    with pytest.raises(NotApplicable, match="needs a bidirectional placement"):
        BASELINES[name](chain(4, 8))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dualpipe", "chimera"])
@settings(max_examples=80)
@given(problem=opposite_routes())
def test_nothing_but_memory_is_broken(name: str, problem: Problem) -> None:
    p = len(problem.devices)
    first, second = (route.microbatches for route in problem.routes)
    try:
        schedule = BASELINES[name](problem)
    except NotApplicable:
        assert p % 2 or (name == "dualpipe" and (first != second or first < p))
        return
    assert {violation.rule for violation in check(problem, schedule)} <= {"memory"}
