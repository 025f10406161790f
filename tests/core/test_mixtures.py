"""Pairs by factor with microbatches that differ and with memory modes: by hand."""

from __future__ import annotations

from typing import Any

import pytest

from pipesat.bounds.paired import least_times_of_each_class
from pipesat.check.checker import check
from pipesat.problem.ops import Item, Op, Pair, parse_item
from pipesat.problem.plain_problems import least_problem
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.problem.rules import duration, pair_time
from pipesat.schedule.metrics import bubbles
from pipesat.schedule.microbatch_order import microbatch_order
from pipesat.schedule.schedule import Schedule, Timed
from pipesat.schedule.schedule_file import in_mode
from pipesat.solver.growth.assign import in_modes

# One device, one stage: F 4, BW 6; microbatch 0 is half as long again, 1 and 2 are as stated.
LISTED = [{"name": "long", "count": 1, "time": [3, 2]}, {"name": "short", "count": 2}]
AGAIN = {"name": "again", "backward": "fused", "BW": 9}
HOST = {"name": "host", "offload": {"out": 1, "in": 1, "held": 0}}
STAGE = {"device": 0, "F": 4, "B": 4, "W": 2, "held_after_F": 1, "backward": "fused"}


def problem(microbatches: Any = 3, modes: Any = (), **rest: Any) -> Problem:
    entry = {"ops": ["0BW", "0F"], "factor": [2, 3]}
    stages = [STAGE | ({"modes": [*modes]} if modes else {})]
    return parse_problem(
        {"format": "pipesat.problem/1", "microbatches": microbatches, "devices": [{}]}
        | {"stages": stages, "overlap": {"FB": [1, 2], "pairs": [entry]}}
        | rest
    )


def timed(*rows: list[tuple[str, int, int]], modes: dict[int, int] | None = None) -> Schedule:
    chosen = {(0, m): mode for m, mode in (modes or {}).items()}
    return Schedule(
        tuple(
            tuple(Timed(in_mode(parse_item(text), chosen), a, b) for text, a, b in row)  # type: ignore[arg-type]
            for row in rows
        )
    )


def test_a_factor_is_of_what_the_members_take_in_their_class() -> None:
    """F of the long one takes 6, its BW 9; with a short BW of 6 and F of 4, 2/3 of 12 and of 13."""
    one = problem(LISTED, order="free")
    assert pair_time(one, Op(0, "F", 0), Op(0, "BW", 1)) == 8
    assert pair_time(one, Op(0, "F", 1), Op(0, "BW", 0)) == 9  # 26/3, rounded up
    assert pair_time(one, Op(0, "F", 1), Op(0, "BW", 2)) == 7  # 20/3: FB's half does not apply
    assert pair_time(one, Op(0, "F", 1), Op(0, "F", 2)) is None
    rows = [("0F1", 0, 4), ("(0BW1+0F0)", 4, 12), ("(0F2+0BW0)", 12, 21), ("0BW2", 21, 27)]
    assert check(one, timed(rows)) == []
    short = [*rows[:1], ("(0BW1+0F0)", 4, 11), ("(0F2+0BW0)", 11, 20), ("0BW2", 20, 26)]
    wanted = "length: (0BW1+0F0) on device 0 lasts 7 (4 to 11), expected 8"
    assert [str(one_wrong) for one_wrong in check(one, timed(short))] == [wanted]


def test_a_factor_is_of_what_the_members_take_in_their_mode() -> None:
    """BW takes 9 in `again`: beside an F of 4, 2/3 of 13; in both bubbles 7, as if kept."""
    one = problem(2, modes=[AGAIN, HOST])
    pair = Pair(Op(0, "BW", 0, 1), Op(0, "F", 1))
    assert duration(one, pair) == 9
    made = timed([("0F0", 0, 4), ("(0BW0+0F1)", 4, 13), ("0BW1", 13, 19)], modes={0: 1})
    assert check(one, made) == []
    assert bubbles(one, made)[0] == pytest.approx(1 - (4 + 7 + 6) / 19)


def test_a_pair_by_time_is_of_kept_and_offloaded_microbatches() -> None:
    by_time = {"pairs": [{"ops": ["0F", "0BW"], "time": 7}], "FB": [2, 3]}
    one = problem(2, modes=[AGAIN, HOST], overlap=by_time)
    assert pair_time(one, Op(0, "F", 1), Op(0, "BW", 0)) == 7
    assert pair_time(one, Op(0, "F", 1), Op(0, "BW", 0, 2)) == 7
    assert pair_time(one, Op(0, "F", 1), Op(0, "BW", 0, 1)) is None  # listed: FB does not apply
    with pytest.raises(ValueError, match="by `time`, for keep and offload modes alone"):
        duration(one, Pair(Op(0, "F", 1), Op(0, "BW", 0, 1)))


def test_a_factor_of_nothing_takes_one() -> None:
    none = [{"device": 0, "F": 0, "B": 0, "W": 0}]
    pairs = {"pairs": [{"ops": ["0F", "0F"], "factor": [1, 2]}]}
    one = problem(2, stages=none, overlap=pairs)
    assert pair_time(one, Op(0, "F", 0), Op(0, "F", 1)) == 1


def test_the_least_problem_has_pairs_no_longer_than_any() -> None:
    """The least F is 4, the least BW 6 in `keep`; a long F beside a short BW lasts 8, not 9."""
    one = problem(LISTED, modes=[AGAIN], order="free")
    assert pair_time(least_problem(one), Op(0, "F", 0), Op(0, "BW", 1)) == 7
    cheap = {"pairs": [{"ops": ["0F", "0BW"], "factor": [1, 4]}]}
    long, short = least_times_of_each_class(problem(LISTED, order="free", overlap=cheap))
    # the long F, 6, beside a short BW, 6: 3; the long BW, 9, beside a short F, 4: ceil(13 / 4)
    assert (long.stages[0].F, long.stages[0].BW) == (3, 4)
    assert (short.stages[0].F, short.stages[0].BW) == (3, 3)


def test_the_least_problem_has_the_least_delay_of_any_class() -> None:
    near, far = {"name": "near", "comm": [1, 2]}, {"name": "far", "comm": [3, 1]}
    stages = [{"device": device, "F": 1, "B": 1, "W": 1} for device in (0, 1)]
    listed = parse_problem(
        {
            "format": "pipesat.problem/1",
            "microbatches": [entry | {"count": 1} for entry in (near, far)],
            "devices": [{}, {}],
            "stages": stages,
            "comm": {"default": 4},
        }
    )
    (link,) = least_problem(listed).links.values()  # 2 and 12
    assert (link.F, link.B) == (2, 2)


def two_stages(order: str) -> Problem:
    """F's of a stage may pair; F 2, BW 2 on two devices, three microbatches of two classes."""
    listed = [{"name": "a", "count": 1}, {"name": "b", "count": 2, "held": [2, 1]}]
    stage = {"F": 2, "B": 1, "W": 1, "backward": "fused"}
    return parse_problem(
        {
            "format": "pipesat.problem/1",
            "microbatches": listed,
            "order": order,
            "devices": [{}, {}],
            "stages": [stage | {"device": device} for device in (0, 1)],
            "overlap": {"pairs": [{"ops": ["0F", "0F"], "factor": [3, 4]}]},
        }
    )


# F0 and F1 run as one on the first stage, 3 instead of 4; then in turn on the second
FORWARDS = [("(0F0+0F1)", 0, 3), ("0F2", 3, 5)]
FIRST_0 = [("1F0", 3, 5), ("1F1", 5, 7), ("1F2", 7, 9)]
FIRST_1 = [("1F1", 3, 5), ("1F0", 5, 7), ("1F2", 7, 9)]


def backwards(stage: int, numbers: tuple[int, ...], begin: int) -> list[tuple[str, int, int]]:
    return [(f"{stage}BW{m}", begin + 2 * k, begin + 2 * k + 2) for k, m in enumerate(numbers)]


@pytest.mark.parametrize(
    ("order", "forwards", "numbers", "wrong"),
    [
        ("given", FIRST_0, (0, 1, 2), ""),
        ("given", FIRST_1, (0, 1, 2), "stage 1 runs the forward of microbatch 1 before that of 0"),
        ("same", FIRST_0, (0, 1, 2), ""),
        ("same", FIRST_1, (1, 0, 2), ""),
        ("same", FIRST_1, (0, 1, 2), "before that of"),
        ("free", FIRST_1, (0, 1, 2), ""),
    ],
)
def test_members_of_a_pair_count_as_in_either_order(
    order: str, forwards: list[tuple[str, int, int]], numbers: tuple[int, ...], wrong: str
) -> None:
    one = two_stages(order)
    rows = (
        [*FORWARDS, *backwards(0, numbers, 11)],
        [*forwards, *backwards(1, numbers, 9)],
    )
    found = [str(violation) for violation in check(one, timed(*rows))]
    assert bool(found) == bool(wrong)
    assert all(wrong in text for text in found)
    if not wrong:
        first = [1, 0, 2] if order == "same" and numbers[0] == 1 else [0, 1, 2]
        assert microbatch_order(one, timed(*rows)) == [first]


def test_an_order_keeps_its_pairs_in_modes() -> None:
    one = problem(2, modes=[AGAIN, HOST])
    order: tuple[tuple[Item, ...], ...] = (
        (Op(0, "F", 0), Pair(Op(0, "BW", 0), Op(0, "F", 1)), Op(0, "BW", 1)),
    )
    (row,) = in_modes(one, order, {(0, 0): 1})
    assert row[1] == Pair(Op(0, "BW", 0, 1), Op(0, "F", 1))
    by_time = problem(
        2, modes=[AGAIN, HOST], overlap={"pairs": [{"ops": ["0F", "0BW"], "time": 7}]}
    )
    (row,) = in_modes(by_time, order, {(0, 0): 1})
    assert [str(item) for item in row] == ["0F0", "0BW0", "0F1", "0BW1"]
