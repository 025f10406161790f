"""The text form of ops and pairs: contract, section 1."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesat.problem.ops import Copy, Op, Pair, members, parse_copy, parse_item
from pipesat.problem.rules import inputs_of, waits_for
from tests.oracle.generator import GRAPHS
from tests.support.problems import of

numbers = st.integers(0, 999_999_999)  # more than the 4 million ops that a problem may have
ops = st.builds(Op, numbers, st.sampled_from(["F", "B", "W", "BW"]), numbers, st.just(0))
pairs = st.builds(Pair, ops, ops)


@pytest.mark.parametrize(
    ("text", "item"),
    [
        ("0F3", Op(0, "F", 3)),
        ("7B0", Op(7, "B", 0)),
        ("7W0", Op(7, "W", 0)),
        ("2BW5", Op(2, "BW", 5)),
        ("16383F1000000", Op(16383, "F", 1_000_000)),
        ("(0F2+7BW0)", Pair(Op(0, "F", 2), Op(7, "BW", 0))),
        ("(7BW0+0F2)", Pair(Op(7, "BW", 0), Op(0, "F", 2))),
        ("(0F2+7F0)", Pair(Op(0, "F", 2), Op(7, "F", 0))),
        ("(0B2+0W1)", Pair(Op(0, "B", 2), Op(0, "W", 1))),
    ],
)
def test_texts_of_the_contract(text: str, item: Op | Pair) -> None:
    assert parse_item(text) == item
    assert str(item) == repr(item) == text


@given(ops | pairs)
def test_text_and_parse_are_inverse(item: Op | Pair) -> None:
    assert parse_item(str(item)) == item


@given(st.text("01٣²FBWI+-() \n", max_size=12))
def test_an_item_has_only_one_text(text: str) -> None:
    try:
        item = parse_item(text)
    except ValueError:
        return
    assert str(item) == text


@pytest.mark.parametrize(
    "text",
    [
        "", "F", "0F", "F0", "0", "00", "0F0F", "0F0 1F0",  # incomplete, too much
        "00F0", "01F0", "0F00", "0F01",  # leading zeros
        "+0F0", "-0F0", "-1F0", "0F-1", "0F+1", "0_0F0", "0F1_0",  # signs, Python's underscores
        "٣F0", "0F٣", "１F0", "²F0", "0F₀",  # digits that are not ASCII
        "0F0\n", "\n0F0", "0F0 ", " 0F0", "0 F0", "0F 0", "0F0\0", "0F0x", "0F0,",  # junk
        "0f0", "0b0", "0bw0", "0Bw0", "0WB0", "0X0", "0FB0", "0FF0", "0BB0",  # no such kind
        "0I0", "0FULL_BACKWARD0",  # torch's names
        "0.0F0", "1e1F0", "0x1F0", "0F1.",  # other ways to write numbers
        "1" * 5000 + "F0", "0F" + "1" * 5000,  # more digits than int() takes
        "0F2+7BW0", "(0F2+7BW0", "0F2+7BW0)", "((0F2+7BW0))", "(0F2)", "(0F2+7BW0+1F0)",
        "(0F2 + 7BW0)", "(0F2+7BW0)\n", "(0F02+7BW0)", "(0F2-7BW0)", "()", "(+)",
    ],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an op"):
        parse_item(text)


def test_members() -> None:
    forward, backward = Op(0, "F", 2), Op(7, "BW", 0)
    assert members(Pair(forward, backward)) == (forward, backward)
    assert members(forward) == (forward,)


def test_the_mode_of_an_op_is_part_of_it_and_not_of_its_text() -> None:
    kept, recomputed = Op(0, "F", 3), Op(0, "F", 3, 1)
    assert kept.mode == 0
    assert kept != recomputed
    assert str(recomputed) == str(kept) == "0F3"


def test_copies_have_texts_of_their_own() -> None:
    assert parse_copy("12O3") == Copy(12, "O", 3)
    assert str(Copy(0, "L", 7)) == "0L7"
    for text in ("0F3", "0O03", "O3", "0o3", "0O3 ", "(0O3+0L3)"):
        with pytest.raises(ValueError, match="is not a copy"):
            parse_copy(text)
    with pytest.raises(ValueError, match="is not an op"):
        parse_item("0O3")


@pytest.mark.parametrize("family", ["plain", *GRAPHS])
@pytest.mark.parametrize("seed", range(3))
def test_an_op_waits_for_all_from_which_inputs_lead_to_it(family: str, seed: int) -> None:
    problem = of(family, seed)
    every = [
        Op(stage, kind, microbatch)
        for stage, data in enumerate(problem.stages)
        for kind in (("F", "B", "W") if data.has_backward else ("F",))
        for microbatch in range(problem.microbatches[stage])
    ]
    ahead = {op.event: {need.event for need in inputs_of(problem, op)} for op in every}
    for _ in every:
        ahead = {event: own.union(*(ahead[one] for one in own)) for event, own in ahead.items()}
    for op, other in product(every, every):
        assert waits_for(problem, op, other) == (other.event in ahead[op.event])
