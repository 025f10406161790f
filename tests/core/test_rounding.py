"""Numbers as text: limits on their side, figures to the nearest, against exact fractions."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesat.core.amounts import (
    bytes_of,
    exact_text,
    memory_cell,
    memory_text,
    one_in_unit,
    readable,
    rounded,
    rounded_down,
    rounded_up,
    significant,
    time_text,
    unit_for,
)
from pipesat.core.claims import Standing, at_most, change, excess, percent, times
from pipesat.draw.figures import unit_of_memory

FRACTIONS = st.fractions(-(10**6), 10**6) | st.builds(
    Fraction, st.integers(0, 10**18), st.integers(1, 10**18)
)
DIGITS = st.integers(0, 4)
TIMES = st.integers(1, 30) | st.integers(1, 4 * 10**18)


@given(FRACTIONS, DIGITS)
def test_limits_are_the_nearest_numbers_on_their_side(number: Fraction, digits: int) -> None:
    step = Fraction(1, 10**digits)
    up, down = Fraction(rounded_up(number, digits)), Fraction(rounded_down(number, digits))
    assert number <= up < number + step
    assert number - step < down <= number
    assert abs(Fraction(rounded(number, digits)) - number) <= step / 2


@given(FRACTIONS, DIGITS, st.sampled_from([0, 1, 100]))
def test_a_number_that_means_something_is_shown_only_if_it_is_that(
    number: Fraction, digits: int, apart: int
) -> None:
    found = Fraction(rounded(number, digits, apart=apart))
    assert (found == apart) == (number == apart)
    assert abs(found - number) <= Fraction(1, 10**digits)


@given(st.integers(0, 10**9), st.integers(0, 6), DIGITS)
def test_a_double_is_the_decimal_that_it_was_written_as(
    steps: int, places: int, digits: int
) -> None:
    exact = Fraction(steps, 10**places)
    assert rounded_up(float(exact), digits) == rounded_up(exact, digits)
    assert rounded_down(float(exact), digits) == rounded_down(exact, digits)


@given(st.fractions(0, 10**9), st.integers(1, 5))
def test_significant_digits(number: Fraction, digits: int) -> None:
    up, down = (Fraction(significant(number, digits, way)) for way in (rounded_up, rounded_down))
    assert down <= number <= up
    assert up - down <= number * Fraction(10, 10**digits)


def test_amounts_of_memory() -> None:
    assert [readable(n) for n in (0, 999, 1536, 3 << 30)] == ["0 B", "999 B", "1.5 KiB", "3 GiB"]
    almost = (3 << 30) - 1  # a byte less than 3 GiB
    assert [readable(almost, way) for way in (rounded_up, rounded_down)] == ["3 GiB", "2.99 GiB"]
    assert readable(1024 * 1000 - 1) == "1000 KiB"


@given(st.integers(1, 10**6), st.integers(-3, 3), st.sampled_from(["MiB", "MB", "B"]))
def test_memory_beside_a_capacity_never_reads_as_the_opposite(
    capacity: int, more: int, unit: str
) -> None:
    """Three digits do not tell 76,293 MiB (74.504 GiB) from 76,292: "74.6 GiB of 74.5 GiB"."""

    def shown(text: str) -> Fraction:
        number, unit = text.split()
        return Fraction(number) * 1024 ** ["B", "KiB", "MiB", "GiB", "TiB"].index(unit)

    held = max(0, capacity + more)
    limit = memory_text(capacity, unit, rounded_down)
    text = memory_text(held, unit, within=capacity)
    assert (shown(text) <= shown(limit)) == (held <= capacity) or text == limit == "0 B"


def test_a_device_that_is_just_full_is_shown_so() -> None:
    assert memory_text(76292, "MiB", within=76293) == "74.5 GiB"
    assert memory_text(76293, "MiB", within=76292) == "74.6 GiB"


def test_units_may_have_a_number_in_front() -> None:
    """120 tenths of a GiB are 12 GiB, in any spelling."""
    for unit in ("0.1GiB", "0.1 GiB", "1e-1 GiB", "1e-1 gib"):
        assert memory_text(120, unit) == memory_cell(120, unit) == "12 GiB"
        assert unit_of_memory(unit, 120) == (Fraction(1, 10), "GiB")
    assert memory_cell(120, "1e-1 activation") == "12"
    assert [bytes_of(unit) for unit in ("KiB", "kb", "0 GiB", "GiBs", "", "3")] == [
        *(1024, 1000),
        *(None,) * 4,
    ]
    assert [time_text(5, unit) for unit in ("0.1ms", "100us", "100 \u00b5s")] == ["0.5 ms"] * 3


@pytest.mark.parametrize(
    ("amounts", "unit"),
    [
        (["12GiB", "2.4GiB"], "1e-1 GiB"),
        (["12GiB", "512 MiB"], "MiB"),
        (["12GiB", "2.4GiB", "1.1MiB"], "1e-1 MiB"),
        (["1GB", "1KiB"], "B"),
        (["12GiB", 3], ""),
        (["1e-1 GiB", "12GiB"], "1e-1 GiB"),
        (["much"], ""),
        ([], ""),
    ],
)
def test_the_unit_in_which_all_amounts_are_whole_numbers(amounts: list[object], unit: str) -> None:
    """2.4 GiB are 2,457.6 MiB, and 1 GB is 976,562.5 KiB."""
    assert unit_for(amounts) == unit


# 5/19 is 26.3157... %, 1/20 exactly 5 %


def test_what_is_said_of_shares() -> None:
    share = Fraction(5, 19)
    assert (at_most(share), percent(share)) == ("26.32 %", "26.32 %")
    assert (at_most(1 / 20), percent(1 / 20)) == ("5.00 %", "5.00 %")
    assert (at_most(Fraction(1, 10**9)), percent(Fraction(1, 10**9))) == ("0.01 %", "<0.01 %")
    assert (at_most(0), percent(0), at_most(None)) == ("0 %", "0 %", "-")
    assert [percent(Fraction(n, 1000), 0) for n in (994, 995, 1000, 1001)] == [
        "99 %",
        "99 %",
        "100 %",
        "101 %",
    ]
    assert times(1.00001) == "1.0001"
    assert times(0.99999) == "0.9999"
    assert (times(36 / 34), times(36 / 34, limit=True)) == ("1.0588", "1.0589")


@given(TIMES, TIMES)
def test_no_gap_is_understated_and_a_difference_is_the_nearest(one: int, other: int) -> None:
    value, bound = max(one, other), min(one, other)
    shown = Fraction(Standing(value, bound).gap_text().removesuffix(" %"))
    assert 0 <= shown / 100 - Fraction(value - bound, value) < Fraction(1, 10**4)
    over = Fraction(at_most(excess(value, bound, "a row")).removesuffix(" %"))
    assert 0 <= over / 100 - Fraction(value - bound, bound) < Fraction(1, 10**4)
    for now, before, word in ((bound, value, "shorter"), (value, bound, "longer")):
        number = change(now, before).removesuffix(f" % {word}")
        if now != before and "<" not in number:
            off = Fraction(abs(now - before), before) - Fraction(number) / 100
            assert abs(off) <= Fraction(1, 2 * 10**4) or number == "99.99"  # 100 % only if exact


@pytest.mark.parametrize("number", [10**18 + 1, Fraction(10**18 + 1, 3)])
def test_large_numbers_lose_no_digit(number: Fraction) -> None:
    assert Fraction(rounded_up(number, 2)) >= number > Fraction(rounded_down(number, 2)) - 1


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (6, "us", "6 us"),
        (12345, "100 us", "1234500 us"),
        (10**12 + 1, "1e-3 GiB", "1000000000.001 GiB"),
        (12345, "1e-4 stage activation", "1.2345 stage activations"),
        (12345, "", "12345"),
    ],
)
def test_every_digit_in_a_unit_with_a_number_in_front(value: int, unit: str, expected: str) -> None:
    assert exact_text(value, unit) == expected


def test_a_capacity_is_rounded_down_and_what_stays_free_up() -> None:
    assert one_in_unit("memory", "2.5GB", "MiB", limit=True) == 2384  # of 2384.19
    assert one_in_unit("reserve", "2.5GB", "MiB", free=True) == 2385
    assert one_in_unit("reserve", "3GiB", "MiB", free=True) == 3072
