"""DualPipe and Chimera: two routes through the same devices in opposite directions."""

from __future__ import annotations

import pytest

from pipesat.check.checker import check
from pipesat.core.errors import NotApplicable
from pipesat.heuristics import BASELINES
from pipesat.problem.ops import Op, Pair
from pipesat.schedule.metrics import peak_memory
from pipesat.schedule.schedule import Schedule
from tests.support.baselines import has_counts_of_the_picture
from tests.support.problems import chain, two_routes


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
