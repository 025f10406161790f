"""Closed forms against the replay of the schedules that they describe, and against print."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from fractions import Fraction

import pytest

from pipesat.bounds import published as forms
from pipesat.core.errors import BadInput, NotApplicable
from pipesat.core.memory import peak_memory
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.core.timing import time_order
from pipesat.files.problem_file import FORMAT, parse_problem, read_problem
from pipesat.heuristics import BASELINES
from pipesat.heuristics.interleaved import interleaved
from tests.support.loops import loop
from tests.support.paths import ROOT
from tests.support.problems import chain, vee

BENCH = ROOT / "experiments" / "bench"
REFERENCE = json.loads((BENCH / "reference.json").read_text())
TABLE_5 = sorted(name for name in REFERENCE if name.startswith("table5-") and "cap1" in name)
PIPELINES = [(p, m) for p in (1, 2, 3, 4, 7) for m in (1, 2, 3, 4, 8, 14)]


def bubble(schedule: Schedule, length: int) -> Fraction:
    """Idle part of ``length`` on the busiest device."""
    load = max(sum(t.end - t.start for t in row) for row in schedule.devices)
    return 1 - Fraction(load, length)


def by_span(name: str, problem: Problem) -> Schedule:
    return time_order(problem, BASELINES[name](problem).order, "span")


def two_routes(p: int, n: int) -> Problem:
    """Two replicas of p stages on p devices, one in each direction, n microbatches each."""
    costs = {"F": 3, "B": 4, "W": 2, "held_after_F": 1, "held_after_B": 0}
    return parse_problem(
        {
            "format": FORMAT,
            "devices": [{} for _ in range(p)],
            "stages": [{"device": s if s < p else 2 * p - 1 - s} | costs for s in range(2 * p)],
            "routes": [
                {"stages": list(range(p)), "microbatches": n},
                {"stages": list(range(p, 2 * p)), "microbatches": n},
            ],
        }
    )


# Bubbles


@pytest.mark.parametrize(("p", "m"), PIPELINES)
def test_bubbles_of_gpipe_and_1f1b(p: int, m: int) -> None:
    problem = chain(p, m, F=3, B=4, W=2)
    for name, formula in (("gpipe", forms.gpipe_bubble), ("1f1b", forms.one_f_one_b_bubble)):
        schedule = BASELINES[name](problem)
        assert formula(p, m) == bubble(schedule, schedule.makespan)


def test_bubble_of_1f1b_by_hand() -> None:
    # 4 ranks, 8 microbatches: 3 slots of 11 idle
    assert forms.one_f_one_b_bubble(4, 8) == Fraction(3, 11)


@pytest.mark.parametrize("v", [2, 3, 4])
@pytest.mark.parametrize("p", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_bubble_and_gain_of_interleaved(p: int, v: int, groups: int) -> None:
    m = groups * p
    schedule = BASELINES["interleaved-1f1b"](loop(p, v, m, F=3, B=4, W=2))
    assert forms.interleaved_bubble(p, m, v) == bubble(schedule, schedule.makespan)
    plain = BASELINES["1f1b"](chain(p, m, F=3 * v, B=4 * v, W=2 * v))
    assert forms.interleaved_gain(p, m, v) == Fraction(plain.makespan, schedule.makespan)
    assert forms.interleaved_bubble(p, m + 1, 1) == forms.one_f_one_b_bubble(p, m + 1)


@pytest.mark.parametrize("v", [2, 3])
@pytest.mark.parametrize(("p", "group"), [(2, 1), (2, 2), (3, 2), (4, 2), (4, 3), (6, 4), (5, 3)])
@pytest.mark.parametrize("groups", [2, 4])
def test_bubble_of_gis(p: int, group: int, v: int, groups: int) -> None:
    """F = BW, since at g = p / 2 the formula needs it."""
    m = groups * group
    if m < p:
        pytest.skip("too few microbatches to fill the pipeline")
    schedule = interleaved(loop(p, v, m, F=3, B=2, W=1), group=group, per_hop=1)
    assert forms.gis_bubble(p, m, v, group) == bubble(schedule, schedule.makespan)


@pytest.mark.parametrize(("F", "BW"), [(3, 3), (3, 4), (4, 6), (2, 1), (5, 1)])
@pytest.mark.parametrize(("p", "group"), [(3, 2), (4, 2), (4, 3), (5, 3), (5, 4), (4, 4), (6, 4)])
def test_where_the_bubble_of_gis_is_exact(p: int, group: int, F: int, BW: int) -> None:
    m = 4 * group
    schedule = interleaved(loop(p, 2, m, F=F, B=BW - 1, W=1), group=group, per_hop=1)
    exact = forms.gis_bubble(p, m, 2, group) == bubble(schedule, schedule.makespan)
    assert exact is ((p - group) * max(F, BW) <= group * min(F, BW))


ZB_TIMES = [(1, 1, 1, 0), (3, 4, 2, 0), (8, 9, 6, 2), (5, 2, 3, 0), (8, 8, 8, 4), (4, 6, 0, 0)]


@pytest.mark.parametrize(("F", "B", "W", "delay"), ZB_TIMES)
@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
def test_span_and_bubble_of_the_zero_bubble_schedules(
    p: int, F: int, B: int, W: int, delay: int
) -> None:
    for m in (2 * p - 1, 2 * p, 3 * p + 1):
        problem = chain(p, m, F=F, B=B, W=W, comm=delay)
        h1, h2 = by_span("zb-h1", problem), by_span("zb-h2", problem)
        assert forms.zb_h1_span(p, m, F, B, W, delay) == h1.span
        assert forms.zb_h1_bubble(p, m, F, B, W, delay) == bubble(h1, h1.span)
        assert forms.zb_h2_span(p, m, F, B, W, delay) == h2.span
        assert forms.zb_h2_bubble(p, m, F, B, W, delay) == bubble(h2, h2.span)
    if not delay:
        few = by_span("zb-h1", chain(p, p, F=F, B=B, W=W))
        assert forms.zb_h1_span(p, p, F, B, W) == few.span


def test_zb_h2_has_no_bubble_where_all_times_are_equal() -> None:
    assert forms.zb_h2_bubble(8, 16, 5, 5, 5) == 0


@pytest.mark.parametrize("name", TABLE_5)
def test_zb_h1_gives_the_rates_printed_in_table_5(name: str) -> None:
    """Qi et al., ICLR 2024, Table 5, column ZB-1p, from the profiled times of its Table 9."""
    problem = read_problem(BENCH / "problems" / f"{name}.json")
    stage, m = problem.stages[0], problem.microbatches[0]
    delay = problem.links[0, 1].F
    rate = forms.zb_h1_bubble(len(problem.devices), m, stage.F, stage.B, stage.W, delay)
    assert round(float(rate), 4) == REFERENCE[name]["printed_bubble_of_span"]["ZB-1p"]


@pytest.mark.parametrize("percent", [1, 5, 10, 25, 50, 99])
@pytest.mark.parametrize("p", [1, 2, 5, 8])
def test_microbatches_for_a_bubble_are_the_fewest(p: int, percent: int) -> None:
    wanted = Fraction(percent, 100)
    m = forms.microbatches_for_bubble(p, wanted)
    assert forms.one_f_one_b_bubble(p, m) <= wanted
    assert m == 1 or forms.one_f_one_b_bubble(p, m - 1) > wanted
    for v in (2, 4):
        m = forms.microbatches_for_bubble(p, wanted, v)
        assert forms.interleaved_bubble(p, m, v) <= wanted
        assert m == p or forms.interleaved_bubble(p, m - p, v) > wanted


def test_microbatches_for_a_bubble_by_hand() -> None:
    # 7 idle slots are a tenth of 70: 63 microbatches, or 32 of two chunks, which p = 8 divides
    assert forms.microbatches_for_bubble(8, Fraction(1, 10)) == 63
    assert forms.microbatches_for_bubble(8, Fraction(1, 10), 2) == 32


# Peaks

CHAIN_PEAKS: dict[str, Callable[[int, int, int], int]] = {
    "gpipe": forms.gpipe_peak,
    "1f1b": forms.one_f_one_b_peak,
    "eager-1f1b": forms.eager_1f1b_peak,
    "zb-h1": forms.zb_h1_peak,
    "zb-h2": forms.zb_h2_peak,
}


@pytest.mark.parametrize("name", CHAIN_PEAKS)
@pytest.mark.parametrize(("p", "m"), PIPELINES)
def test_peaks_of_chains(name: str, p: int, m: int) -> None:
    problem = chain(p, m, held=(1, 0))
    peaks = [CHAIN_PEAKS[name](p, rank, m) for rank in range(p)]
    assert peaks == peak_memory(problem, BASELINES[name](problem))


@pytest.mark.parametrize("held", [(1, 1), (5, 2), (4, 7), (0, 3), (3, 0)])
@pytest.mark.parametrize(("p", "m"), PIPELINES)
def test_peak_memory_of_zb_h1(p: int, m: int, held: tuple[int, int]) -> None:
    problem = chain(p, m, held=held, backward="split")
    peaks = [forms.zb_h1_peak_memory(p, rank, m, *held) for rank in range(p)]
    assert peaks == peak_memory(problem, BASELINES["zb-h1"](problem))
    a, w = held
    if m >= p and w <= a:
        assert peaks == [(p - rank) * a + rank * w for rank in range(p)]


@pytest.mark.parametrize("v", [2, 3])
@pytest.mark.parametrize(("p", "group"), [(1, 1), (2, 2), (3, 3), (4, 3), (4, 4), (4, 6), (5, 5)])
@pytest.mark.parametrize("m", [1, 4, 6, 12])
def test_peaks_of_loops(p: int, group: int, v: int, m: int) -> None:
    problem = loop(p, v, m, held_after_B=0)
    for per_hop, formula in ((2, forms.interleaved_peak), (1, forms.gis_peak)):
        try:
            schedule = interleaved(problem, group=group, per_hop=per_hop)
        except NotApplicable:
            continue
        peaks = [formula(p, rank, m, v, group) for rank in range(p)]
        assert peaks == peak_memory(problem, schedule)


@pytest.mark.parametrize(("p", "v"), [(1, 2), (2, 2), (4, 3), (8, 2)])
def test_peaks_of_interleaved_as_published(p: int, v: int) -> None:
    m = 3 * p
    problem = loop(p, v, m, held_after_B=0)
    peaks = [forms.interleaved_peak(p, rank, m, v) for rank in range(p)]
    assert peaks == peak_memory(problem, BASELINES["interleaved-1f1b"](problem))
    assert peaks[0] == (v + 1) * p - 1


@pytest.mark.parametrize(("p", "n"), [(2, 2), (4, 4), (4, 7), (6, 6), (8, 10)])
def test_peaks_of_dualpipe(p: int, n: int) -> None:
    problem = two_routes(p, n)
    assert peak_memory(problem, BASELINES["dualpipe"](problem)) == [forms.dualpipe_peak(p)] * p


@pytest.mark.parametrize(("p", "m"), [(1, 2), (2, 4), (3, 8), (4, 8), (6, 13)])
def test_peaks_of_dualpipev(p: int, m: int) -> None:
    problem = vee(p, m, held_after_B=0)
    assert peak_memory(problem, BASELINES["dualpipev"](problem)) == [forms.dualpipev_peak(p)] * p


# Errors and names

WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: forms.gpipe_bubble(0, 1), "p: got 0, expected a whole number of at least 1"),
    (lambda: forms.one_f_one_b_bubble(4, -3), "m: got -3, expected a whole number"),
    (lambda: forms.gpipe_bubble(2.5, 1), "p: got 2.5, expected a whole number"),  # type: ignore[arg-type]
    (lambda: forms.gpipe_bubble(True, 1), "p: got True, expected a whole number"),
    (lambda: forms.interleaved_bubble(4, 6, 2), "m: got 6, expected a multiple of p = 4"),
    (lambda: forms.interleaved_bubble(4, 8, 0), "v: got 0, expected"),
    (lambda: forms.gis_bubble(5, 6, 2, 2), "group: got 2, expected from 3 to p = 5"),
    (lambda: forms.gis_bubble(4, 8, 2, 3), "m: got 8, expected a multiple of group = 3"),
    (lambda: forms.zb_h1_span(4, 8, 3, 4, 5), "W: got 5, expected at most F = 3"),
    (lambda: forms.zb_h1_span(4, 3, 3, 4, 2), "m: got 3, expected at least 4"),
    (lambda: forms.zb_h1_span(4, 6, 3, 4, 2, 1), "m: got 6, expected at least 7"),
    (lambda: forms.zb_h1_span(4, 8, 3, 4, 2, 2), "delay: got 2, expected at most W / 2 = 1.0"),
    (lambda: forms.zb_h1_span(4, 8, 3, -4, 2), "B: got -4, expected a whole number of at least 0"),
    (lambda: forms.zb_h1_bubble(4, 8, 0, 0, 0), "F + B + W: got 0, expected a time above 0"),
    (lambda: forms.zb_h2_span(4, 8, 4, 2, 4), "W: got 4, expected at most F and (F + B) / 2, so 3"),
    (lambda: forms.zb_h2_span(4, 6, 3, 4, 2), "m: got 6, expected at least 7"),
    (lambda: forms.zb_h2_span(4, 8, 3, 4, 2, 4), "delay: got 4, expected at most"),
    (lambda: forms.one_f_one_b_peak(4, 4, 8), "rank: got 4, expected from 0 to p - 1 = 3"),
    (lambda: forms.one_f_one_b_peak(4, -1, 8), "rank: got -1, expected"),
    (lambda: forms.interleaved_peak(4, 0, 8, 2, 0), "group: got 0, expected"),
    (lambda: forms.dualpipe_peak(3), "p: got 3, expected an even number"),
    (lambda: forms.microbatches_for_bubble(4, Fraction(0)), "expected a Fraction above 0 and"),
    (lambda: forms.microbatches_for_bubble(4, Fraction(1)), "expected a Fraction above 0 and"),
    (lambda: forms.microbatches_for_bubble(4, 0.1), "bubble: got 0.1, expected a Fraction"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=[message for _, message in WRONG])
def test_values_out_of_range_are_bad_input(call: Callable[[], object], message: str) -> None:
    with pytest.raises(BadInput) as info:
        call()
    assert message in str(info.value)


def test_every_promise_of_a_schedule_is_a_closed_form() -> None:
    promised = {name for entry in BASELINES.values() for name in entry.promises}
    assert {"gpipe_bubble", "one_f_one_b_bubble", "zb_h1_span"} <= promised
    public = {
        name
        for name, value in inspect.getmembers(forms, inspect.isfunction)
        if value.__module__ == forms.__name__ and not name.startswith("_")
    }
    assert promised <= public
