"""The table of docs/schedules.md: its formulas are read, and held against the replay."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest

from pipesat.core.errors import NotApplicable
from pipesat.heuristics import BASELINES
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.schedule.metrics import peak_memory
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.timing import time_order
from tests.support.paths import ROOT
from tests.support.problems import chain, document, loop, two_routes, vee

PAGE = ROOT / "docs" / "schedules.md"
SMALL_W = "1,1,1 3,3,2 4,3,1 20,22,13 2,1,1 5,2,2 3,2,1"  # F, B, W; W at most as long as either
LARGE_W = "3,4,4 2,5,1 4,1,3 5,1,4 1,2,4 2,1,3 1,1,3 3,3,4 2,5,3"
TIMES = [tuple(map(int, text.split(","))) for text in f"{SMALL_W} {LARGE_W}".split()]
OVERLAPS = ((1, 1), (3, 4), (1, 2))


class Row(NamedTuple):
    """A row of the table; ``where`` are its conditions."""

    name: str
    placement: str
    peak: str
    bubble: str
    where: tuple[str, ...]


class Point(NamedTuple):
    """A uniform problem."""

    p: int
    m: int
    v: int
    F: int
    B: int
    W: int
    overlap: tuple[int, int]


def rows() -> Iterator[Row]:
    for line in PAGE.read_text().splitlines():
        if line.startswith("| `"):
            names, placement, _, peak, bubble, where = map(str.strip, line.strip("|").split("|"))
            for name in re.findall(r"`([^`]+)`", names):
                conditions = tuple(re.split(r", (?![^(]*\))", where)) if where else ()
                yield Row(name, placement, peak, bubble, conditions)


ROWS = {row.name: row for row in rows()}
UNREAD = ("", "the capacity", "as 1F1B at that depth")
WITH_BUBBLE = [name for name, row in ROWS.items() if row.bubble]
WITH_PEAK = [name for name, row in ROWS.items() if row.peak not in UNREAD]


def value(text: str, point: Point, d: int = 0) -> Any:
    """What a formula or condition of the table says, its products written as Python's."""
    F, B, W, p = point.F, point.B, point.W, point.p
    num, den = point.overlap
    names = point._asdict() | {"BW": B + W, "d": d, "h": p // 2, "n": point.v, "g": (p + 1) // 2}
    names |= {"P": max(F, B + W, -(-(F + B + W) * num // den)), "max": max, "min": min}
    text = text.removesuffix(", h = p/2").replace(", and ", "+").replace("that wait for W", "")
    if divides := re.fullmatch(r"(\S+) divides (\w)", text):
        return point.m % (p // 2 if divides[1] == "p/2" else names[divides[1]]) == 0
    text = re.sub(r"\b(mv|pv)\b", lambda match: "*".join(match[1]), text).replace("p/2", "p//2")
    text = re.sub(r"(?<![<>/=])=(?!=)", "==", text)
    text = re.sub(r"(\d)(?=[A-Za-z(])|\)(?=[(\w])|\b([a-z]) ?(?=\(|min)", r"\g<0>*", text)
    return eval(text, {}, names)


def problem_of(placement: str, point: Point) -> Problem:
    p, m, v, F, B, W, overlap = point
    if placement == "bidirectional":
        return two_routes(p, (m, m), overlap=overlap, F=F, B=B, W=W)
    if placement == "sliced":
        return Problem.chain(p, m, F=F, B=B, W=W, backward="fused", held_after_F=1, slices=v)
    if placement == "loop":
        return loop(p, v, m, F=F, B=B, W=W, overlap=overlap)
    build = {"chain": chain, "V": vee}[placement]
    return parse_problem(document(build(p, m, F=F, B=B, W=W), overlap={"FB": list(overlap)}))


def points(placement: str) -> Iterator[Point]:
    ranks = (2, 4, 6) if placement == "bidirectional" else (1, 2, 3, 4, 5)
    for p in ranks:
        some = (1, 2, p - 1, p, p + 1, 2 * p - 2, 2 * p - 1, 2 * p, 2 * p + 1, 3 * p)
        for number, m in enumerate(sorted({m for m in some if m > 0})):
            for v in {"loop": (2, 3), "sliced": (2, 3)}.get(placement, (1,)):
                if placement == "sliced" and m % v:
                    continue
                # all numbers of ranks and microbatches, each with some of the times, in turn; of
                # chains and two routes more: few times break one of their conditions alone
                costs = itertools.product(TIMES, OVERLAPS)
                step = 5 if placement in ("chain", "bidirectional") else 11
                for (F, B, W), overlap in itertools.islice(costs, (number + p) % 3, None, step):
                    yield Point(p, m, v, F, B, W, overlap)


@cache
def outcomes(name: str) -> tuple[tuple[Point, bool], ...]:
    """Whether the bubble's formula holds, at every point where the schedule exists."""
    row = ROWS[name]
    found = []
    for point in points(row.placement):
        problem = problem_of(row.placement, point)
        try:
            schedule: Schedule = BASELINES[name](problem)
        except NotApplicable:
            continue
        text, length = row.bubble, schedule.makespan
        if text.endswith(" of the span"):
            text = text.removesuffix(" of the span")
            schedule = time_order(problem, schedule.order, "span")
            length = schedule.span
        busy = max(sum(t.end - t.start for t in row_) for row_ in schedule.devices)
        total = text.startswith("makespan ")
        formula = value(text.removeprefix("makespan "), point)
        found.append((point, formula == (length if total else length - busy)))
    return tuple(found)


def test_the_table_has_every_schedule() -> None:
    assert set(ROWS) == set(BASELINES)
    assert {"dualpipe", "zb-h1", "interleaved-zb"} <= set(WITH_BUBBLE)
    assert len(WITH_PEAK) == len(ROWS) - 10


def test_formulas_are_read_as_they_are_meant() -> None:
    point = Point(4, 10, 3, 5, 7, 2, (3, 4))
    assert value("(p-1 + (p-g)(v-1))(F+BW)", point) == (3 + 2 * 2) * 14
    assert value("makespan pv(F+BW) + (mv-(v-1)p-1)P".removeprefix("makespan "), point) == (
        12 * 14 + (30 - 8 - 1) * 11  # ceil(14 * 3 / 4) = 11
    )
    assert value("(p-g)max(F, BW) <= g min(F, BW)", point) is False  # 2 * 9 and 2 * 5
    assert value("(h-1)(P+F-2W) - (h-2)(F+BW-P), h = p/2", point) == 11 + 5 - 4
    assert value("2(p-d)-1, and 2d that wait for W", point, d=1) == 5 + 2
    assert value("2((p+4)//3)", point) == 4
    assert value("p/2 divides m", point) is True
    assert value("F = B", point) is False


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_BUBBLE)
def test_bubbles_hold_inside_their_conditions(name: str) -> None:
    inside = [
        (point, holds)
        for point, holds in outcomes(name)
        if all(value(condition, point) for condition in ROWS[name].where)
    ]
    assert len({point.p for point, _ in inside}) >= 2
    assert len(inside) >= 10
    assert [point for point, holds in inside if not holds] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "left_out"),
    [(name, condition) for name in WITH_BUBBLE for condition in ROWS[name].where],
)
def test_each_condition_is_needed(name: str, left_out: str) -> None:
    """Where it alone is broken, the formula fails somewhere."""
    alone_broken = [
        holds
        for point, holds in outcomes(name)
        if all(value(other, point) is (other != left_out) for other in ROWS[name].where)
    ]
    assert not all(alone_broken)


@pytest.mark.parametrize("name", ["zb-h1", "interleaved-zb"])
def test_the_makespan_wants_a_short_w_too(name: str) -> None:
    """What the table says of the span holds of the makespan where W <= B, too, and only there."""
    for F, B, W in TIMES:
        point = Point(4, 9, 2, F, B, W, (1, 1))
        problem = problem_of(ROWS[name].placement, point)
        idle = BASELINES[name](problem).makespan - sum(
            t.end - t.start for t in BASELINES[name](problem).devices[0]
        )
        assert (idle == 3 * (F + B - W)) is (min(F, B) >= W)


@pytest.mark.parametrize("name", WITH_PEAK)
def test_most_activations(name: str) -> None:
    row = ROWS[name]
    for p in (2, 4, 6) if row.placement == "bidirectional" else (1, 2, 3, 4, 7):
        few = (1, 2, p, p + 1) if re.search(r"\bm", row.peak) else ()
        for m in {*few, 2 * p, 3 * p}:
            for v in (2, 3) if row.placement == "loop" else (1,):
                point = Point(p, m, v, 3, 4, 2, (3, 4))
                try:
                    problem = problem_of(row.placement, point)
                    peaks = peak_memory(problem, BASELINES[name](problem))
                except NotApplicable:
                    continue
                if " to " in row.peak:
                    least, most = (value(text, point) for text in row.peak.split(" to "))
                    assert (min(peaks), max(peaks)) == (least, most)
                elif re.search(r"\bd\b|2d", row.peak):
                    assert peaks == [value(row.peak, point, d) for d in range(p)], point
                else:
                    assert max(peaks) == value(row.peak, point), point
