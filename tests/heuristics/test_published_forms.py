"""What docs/schedules.md has besides its table: delays, groups, W's memory, printed rates."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

from pipesat.core.errors import NotApplicable
from pipesat.heuristics import BASELINES
from pipesat.heuristics.interleaved import interleaved
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import read_problem
from pipesat.schedule.metrics import peak_memory
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.timing import time_order
from tests.support.paths import ROOT
from tests.support.problems import chain, loop
from tests.support.published_forms import zb_h1_span, zb_h2_span

BENCH = ROOT / "bench" / "plain"
REFERENCE = json.loads((BENCH / "reference.json").read_text())
TABLE_5 = sorted(name for name in REFERENCE if name.startswith("table5-") and "cap1" in name)
PIPELINES = [(p, m) for p in (1, 2, 3, 4, 7) for m in (1, 2, 3, 4, 8, 14)]


def bubble(schedule: Schedule, length: int) -> Fraction:
    """Idle part of ``length`` on the busiest device."""
    load = max(sum(t.end - t.start for t in row) for row in schedule.devices)
    return 1 - Fraction(load, length)


def by_span(name: str, problem: Problem) -> Schedule:
    return time_order(problem, BASELINES[name](problem).order, "span")


def gis_bubble(p: int, m: int, v: int, group: int) -> Fraction:
    """Idle share of GIS in groups of g microbatches (Wan et al., PipeOffload, 2025)."""
    idle = p - 1 + (p - group) * (v - 1)
    return Fraction(idle, m * v + idle)


@pytest.mark.parametrize(("F", "BW"), [(3, 3), (3, 4), (4, 6), (2, 1), (5, 1)])
@pytest.mark.parametrize(("p", "group"), [(3, 2), (4, 2), (4, 3), (5, 3), (5, 4), (4, 4), (6, 4)])
def test_where_the_bubble_of_gis_is_exact(p: int, group: int, F: int, BW: int) -> None:
    m = 4 * group
    schedule = interleaved(loop(p, 2, m, F=F, B=BW - 1, W=1), group=group, per_hop=1)
    exact = gis_bubble(p, m, 2, group) == bubble(schedule, schedule.makespan)
    assert exact is ((p - group) * max(F, BW) <= group * min(F, BW))


ZB_TIMES = [(1, 1, 1, 0), (3, 4, 2, 0), (8, 9, 6, 2), (5, 2, 3, 0), (8, 8, 8, 4), (4, 6, 0, 0)]


@pytest.mark.parametrize(("F", "B", "W", "delay"), ZB_TIMES)
@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
def test_span_of_the_zero_bubble_schedules(p: int, F: int, B: int, W: int, delay: int) -> None:
    for m in (2 * p - 1, 2 * p, 3 * p + 1):
        problem = chain(p, m, F=F, B=B, W=W, comm=delay)
        assert by_span("zb-h1", problem).span == zb_h1_span(p, m, F, B, W, delay)
        assert by_span("zb-h2", problem).span == zb_h2_span(p, m, F, B, W, delay)
    if not delay:
        few = by_span("zb-h1", chain(p, p, F=F, B=B, W=W))
        assert few.span == zb_h1_span(p, p, F, B, W)


@pytest.mark.parametrize("name", TABLE_5)
def test_zb_h1_gives_the_rates_printed_in_table_5(name: str) -> None:
    """Qi et al., ICLR 2024, Table 5, column ZB-1p, from the profiled times of its Table 9."""
    problem = read_problem(BENCH / "problems" / f"{name}.json")
    stage, m = problem.stages[0], problem.microbatches[0]
    delay = problem.links[0, 1].F
    times = stage.F, stage.B, stage.W
    rate = 1 - Fraction(m * sum(times), zb_h1_span(len(problem.devices), m, *times, delay))
    assert round(float(rate), 4) == REFERENCE[name]["printed_bubble_of_span"]["ZB-1p"]


@pytest.mark.parametrize("held", [(1, 1), (5, 2), (4, 7), (0, 3), (3, 0)])
@pytest.mark.parametrize(("p", "m"), PIPELINES)
def test_peak_memory_of_zb_h1(p: int, m: int, held: tuple[int, int]) -> None:
    """With a held after F and w after B: ``(p - d) a + d w``, from m = p on and for w <= a.

    In general the largest, over the microbatches j, of what rank d holds while B of j runs.
    """
    problem = chain(p, m, held=held, backward="split")
    a, w = held
    peaks = [
        max(min(p - d, m - j) * a + min(j, d) * w for j in range(m)) + max(0, w - a)
        for d in range(p)
    ]
    assert peaks == peak_memory(problem, BASELINES["zb-h1"](problem))
    if m >= p and w <= a:
        assert peaks == [(p - d) * a + d * w for d in range(p)]


@pytest.mark.parametrize("v", [2, 3])
@pytest.mark.parametrize(("p", "group"), [(1, 1), (2, 2), (3, 3), (4, 3), (4, 4), (4, 6), (5, 5)])
@pytest.mark.parametrize("m", [1, 4, 6, 12])
def test_peaks_of_loops_in_groups(p: int, group: int, v: int, m: int) -> None:
    """The warm-up's forwards and the one that starts the steady state; m for the group if less.

    One chunk per hop to the last rank (Wan et al., PipeOffload, 2025), or two (Megatron-LM).
    """
    problem = loop(p, v, m, held_after_B=0)
    for per_hop in (1, 2):
        try:
            schedule = interleaved(problem, group=group, per_hop=per_hop)
        except NotApplicable:
            continue
        ahead = [per_hop * (p - 1 - d) + (v - 1) * min(group, m) + 1 for d in range(p)]
        assert peak_memory(problem, schedule) == [min(chunks, m * v) for chunks in ahead]


@pytest.mark.parametrize("p", [2, 3, 4, 8])
def test_eager_1f1b_hides_delays_up_to_half_a_period(p: int) -> None:
    """The round trip to the last rank, (p - 1 - d)(F + BW + 2 c), fits 2 (p - 1 - d) periods."""
    for m in (1, p, 2 * p, 3 * p + 1):
        for c in (0, 1, 5, 15):
            problem = chain(p, m, F=10, B=12, W=8, comm=c)
            expected = m * 30 + (p - 1) * (30 + 2 * c)
            assert BASELINES["eager-1f1b"](problem).makespan == expected
            if c and m > p:  # 1F1B has no microbatch to spare for the round trip
                assert BASELINES["1f1b"](problem).makespan > expected
    late = chain(p, 3 * p, F=10, B=12, W=8, comm=16)
    assert BASELINES["eager-1f1b"](late).makespan > 3 * p * 30 + (p - 1) * (30 + 2 * 16)
