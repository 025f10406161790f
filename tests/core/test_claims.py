"""Claims: none that contradicts itself can be built, and words have the sign of their figures."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesat.core.claims import (
    Bound,
    Standing,
    Tried,
    change,
    excess,
    percent,
    ratio,
    ratio_to_least,
    require_best,
    tenable,
)
from pipesat.core.errors import Contradiction

TIMES = st.integers(0, 20) | st.integers(0, 4 * 10**18)  # 4 million ops of 10^12
MAYBE = st.none() | TIMES
SHARES = st.floats(-10, 10, allow_nan=False)


# A value and its bound


@given(MAYBE, MAYBE, st.booleans())
def test_a_standing_agrees_with_itself_or_does_not_exist(
    value: int | None, bound: int | None, infeasible: bool
) -> None:
    wrong = value is not None and (infeasible or (bound is not None and bound > value))
    if wrong:
        with pytest.raises(Contradiction):
            Standing(value, bound, infeasible)
        return
    found = Standing(value, bound, infeasible)
    expected = {
        (False, False): "optimal" if value == bound else "feasible",
        (True, False): "unknown",
        (True, True): "infeasible",
    }[value is None, infeasible]
    assert found.status == expected
    assert found.proven == (expected == "optimal")
    for status in ("optimal", "feasible", "infeasible", "unknown"):
        if status == expected:
            found.require_status(status)
        else:
            with pytest.raises(Contradiction, match=f"said to be {status}"):
                found.require_status(status)  # type: ignore[arg-type]


@given(TIMES, TIMES)
def test_the_gap_is_zero_if_and_only_if_it_is_proven(value: int, less: int) -> None:
    found = Standing(value, bound := max(0, value - less))
    assert found.gap is not None
    assert 0 <= found.gap <= 1
    assert (found.gap == 0) == found.proven == (value == bound)
    assert ("proven optimal" in found.verdict) == found.proven
    assert found.gap == pytest.approx(float(Fraction(value - bound, value)) if value else 0.0)


def test_the_best_is_called_so_with_how_many_were_tried() -> None:
    every = "10.0 % shorter than the best of all 12 settings of 1F1B"
    assert Tried("1F1B", 12, 12).gain(90, 100) == every
    some = Tried("1F1B", 5, 12)
    assert some.best == "the best 1F1B so far, with 5 of 12 settings tried"
    assert some.left == "7 of 12 settings of 1F1B"
    for tried, total in ((13, 12), (-1, 12), (0, 0)):
        with pytest.raises(Contradiction):
            Tried("1F1B", tried, total)


def test_verdicts() -> None:
    assert Standing(8, 8).verdict == "proven optimal"
    assert Standing(8, 6).verdict == "gap 25.00 %"
    assert Standing(8, None).verdict == "no bound known"
    assert Standing(None, 6).verdict == "no schedule found"
    assert Standing(None, None, infeasible=True).verdict == "proven infeasible"


@given(MAYBE, st.none() | st.builds(Bound, TIMES, st.just("an argument")))
def test_a_bound_that_a_checked_value_refutes_is_dropped(
    value: int | None, bound: Bound | None
) -> None:
    kept, wrong = tenable(value, bound)
    Standing(value, None if kept is None else kept.value)
    assert kept in (bound, None)
    assert bool(wrong) == (kept != bound)
    if wrong and bound is not None:
        assert str(bound.value) in wrong[0]
        assert str(value) in wrong[0]


# The best of several


@given(MAYBE, st.lists(MAYBE))
def test_nothing_beats_what_is_called_the_best(value: int | None, others: list[int | None]) -> None:
    named = [(f"schedule {number}", other) for number, other in enumerate(others)]
    known = [other for other in others if other is not None]
    if known and (value is None or min(known) < value):
        with pytest.raises(Contradiction, match=r"the answer is called the best .* schedule \d+"):
            require_best("the answer", value, named)
    else:
        require_best("the answer", value, named)


# Differences


@given(TIMES, TIMES)
def test_a_change_has_the_sign_of_its_word(value: int, reference: int) -> None:
    text = change(value, reference)
    assert (text == "equal") == (value == reference)
    assert text.endswith("shorter") == (value < reference)
    assert text.endswith("longer") == (value > reference)
    assert "-" not in text
    if found := re.match(r"([0-9.]+) %", text):
        share = Fraction(abs(value - reference), reference)
        assert float(found[1]) == pytest.approx(float(100 * share), rel=1e-9, abs=0.010000001)
        assert float(found[1]) > 0


def test_changes() -> None:
    assert change(90, 100) == "10.00 % shorter"
    assert change(110, 100, 1) == "10.0 % longer"
    assert change(36, 34) == "5.88 % longer"  # 2/34 is 5.882... %
    assert change(2, 3) == "33.33 % shorter"
    assert change(1, 3) == "66.67 % shorter"
    assert change(100, 100) == "equal"
    assert change(999_999, 1_000_000) == "<0.01 % shorter"
    assert change(5, 0) == "longer"


@given(MAYBE, MAYBE)
def test_a_ratio_is_on_the_side_of_one_that_it_should_be(
    value: int | None, base: int | None
) -> None:
    found = ratio(value, base)
    if value is None or not base:
        assert found is None
        return
    assert found is not None
    assert (found > 1) == (value > base)
    assert (found == 1) == (value == base)


@given(TIMES, TIMES)
def test_nothing_is_below_the_least(value: int, least: int) -> None:
    if value < least:
        for claim in (ratio_to_least, excess):
            with pytest.raises(Contradiction, match="a row has"):
                claim(value, least, "a row")
    else:
        over = excess(value, least, "a row")
        assert over is None if not least else (over is not None and over >= 0)


@given(SHARES, st.integers(0, 3), st.booleans())
def test_a_percentage_is_zero_only_if_it_is(share: float, digits: int, sign: bool) -> None:
    text = percent(share, digits, sign=sign)
    assert (text == "0 %") == (share == 0)
    assert text.startswith("-") == (share < 0)
    assert text.startswith("+") == (sign and share > 0)
    number = text.lstrip("+-").removesuffix(" %")
    if not number.startswith("<"):
        assert share == 0 or float(number) > 0
        apart = 1.0 if round(abs(100 * share), digits) == 100 else 0.5  # 100 % only if it is
        assert float(number) == pytest.approx(abs(100 * share), abs=apart * 10.0**-digits + 1e-9)


def test_percentages() -> None:
    assert percent(0.125) == "12.50 %"
    assert percent(0.00001) == "<0.01 %"
    assert percent(-0.00001, sign=True) == "-<0.01 %"
    assert percent(0.5, 0, sign=True) == "+50 %"
    assert percent(None) == "-"
    assert percent(None, unknown="unknown") == "unknown"
