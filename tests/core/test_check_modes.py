"""The checker knows memory modes and copies: contract, section 9."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipesat.check.checker import check
from pipesat.problem.ops import Unreadable, parse_copy, parse_item
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import FORMAT, parse_problem
from pipesat.schedule.schedule import Schedule, Timed, TimedCopy

Rows = list[tuple[str, int, int]]

KEEP, OFFLOAD, RECOMPUTE = 0, 1, 2
OUT, BACK = ("0O0", 2, 4), ("0L0", 8, 10)


def one_stage(**changes: Any) -> Problem:
    """One stage, two microbatches: F 2, BW 3, holds 4; offloaded it holds 1, recomputed 1 and 3."""
    stage = {"device": 0, "F": 2, "B": 2, "W": 1, "held_after_F": 4, "backward": "fused"}
    modes = [
        {"name": "offload", "offload": {"out": 2, "in": 2, "held": 1}},
        {"name": "recompute", "BW": 5, "held_after_F": 1, "held_in_backward": 3},
    ]
    document = {
        "format": FORMAT,
        "microbatches": 2,
        "devices": [{"memory": 5, "copy_channels": changes.pop("channels", 2)}],
        "stages": [stage | {"modes": modes}],
    }
    return parse_problem(document | changes)


def schedule_of(rows: Rows, copies: Rows = (), modes: dict[int, int] | None = None) -> Schedule:  # type: ignore[assignment]
    """A schedule of one device; ``modes`` by microbatch, or by place in the row where negative."""
    modes = modes or {}
    timed = []
    for text, start, end in rows:
        item = parse_item(text)
        timed.append(Timed(item._replace(mode=modes.get(item.microbatch, 0)), start, end))  # type: ignore[union-attr, call-arg]
    copied = tuple(TimedCopy(_copy(text), start, end) for text, start, end in copies)
    return Schedule((tuple(timed),), "", (copied,) if copied else ())


def _copy(text: str) -> Any:
    try:
        return parse_copy(text)
    except ValueError:
        return Unreadable(text)


# 0 is offloaded: 4 until 4, then 1 until 8, then 4; 1 takes 4 from 4 to 8 or later
ROWS = [("0F0", 0, 2), ("0F1", 4, 6), ("0BW1", 6, 9), ("0BW0", 12, 15)]
COPIES = [("0O0", 2, 4), ("0L0", 9, 11)]


def complaints(copies: Rows, rows: Rows = ROWS, **changes: Any) -> list[str]:
    return [str(v) for v in check(one_stage(**changes), schedule_of(rows, copies, {0: OFFLOAD}))]


def test_a_valid_schedule_with_copies_passes() -> None:
    assert complaints(COPIES) == []
    assert complaints(COPIES, channels=1) == []


@pytest.mark.parametrize(
    ("copies", "expected"),
    [
        ([COPIES[0]], ["missing: 0L0 on device 0 is missing"]),
        ([*COPIES, ("0O1", 20, 22)], ["mode: 0O1 on device 0, but stage 0 does not offload mic"]),
        ([*COPIES, ("1O0", 20, 22)], ["mode: 1O0 on device 0, but stage 1 does not offload mic"]),
        ([COPIES[0], ("0L0", 9, 10)], ["length: 0L0 on device 0 lasts 1 (9 to 10), expected 2"]),
        ([*COPIES, ("0L0", 20, 22)], ["doubled: 0L0 appears twice, at 9 and at 20"]),
        ([("0O0", 1, 3), COPIES[1]], ["input: 0O0 starts at 1, but it waits for 0F0, which ends"]),
        ([COPIES[0], ("0L0", 11, 13)], ["input: 0BW0 starts at 12, but it waits for 0L0, which"]),
        ([COPIES[0], ("0K0", 9, 11)], ["text: '0K0' on device 0 is no copy", "missing: 0L0"]),
        (COPIES[::-1], ["order: 0O0 (2 to 4) is listed after 0L0"]),
        # 0O0 ends at 5: from 4 to 5 both hold 4
        ([("0O0", 3, 5), COPIES[1]], ["memory: device 0 holds up to 8 from 4 to 5, 3 over its"]),
        # 0L0 starts at 8, while 1 holds 4 until 9
        ([COPIES[0], ("0L0", 8, 10)], ["memory: device 0 holds up to 8 from 8 to 9, 3 over"]),
    ],
)
def test_each_broken_rule_of_copies_is_named(copies: Rows, expected: list[str]) -> None:
    found = complaints(copies)
    if any(text.startswith("missing") for text in found):  # what does not come back never left
        expected = [*expected, "memory: device 0 holds up to 8 from 4 to 9"]
    assert len(found) == len(expected), found
    for text, start in zip(found, expected, strict=True):
        assert text.startswith(start)


def test_there_is_one_row_of_copies_per_device() -> None:
    valid = schedule_of(ROWS, COPIES, {0: OFFLOAD})
    longer = replace(valid, copies=valid.copies * 2)
    (found,) = check(one_stage(), longer)
    assert str(found) == "device: 2 lists of copies, expected 1, one per device"


@pytest.mark.parametrize(
    ("channels", "valid"), [(2, True), (1, False)], ids=["a channel each", "one for both"]
)
def test_copies_of_a_channel_do_not_overlap(channels: int, valid: bool) -> None:
    """0 goes out from 2 to 4, 1 from 6 to 8; 0 comes back from 7 to 9."""
    rows = [("0F0", 0, 2), ("0F1", 4, 6), ("0BW0", 9, 12), ("0BW1", 14, 17)]
    copies = [("0O0", 2, 4), ("0O1", 6, 8), ("0L0", 7, 9), ("0L1", 12, 14)]
    schedule = schedule_of(rows, copies, {0: OFFLOAD, 1: OFFLOAD})
    found = check(one_stage(channels=channels, devices=[{"copy_channels": channels}]), schedule)
    assert [v.message for v in found] == ([] if valid else [
        "0L0 (7 to 9) overlaps 0O1 (6 to 8) on a channel of device 0"
    ])  # fmt: skip


def test_lengths_and_kinds_are_those_of_the_mode() -> None:
    """Recomputed, BW lasts 5 and holds 3 while it runs: beside the 4 of a kept one too much."""
    rows = [("0F0", 0, 2), ("0BW0", 2, 7), ("0F1", 7, 9), ("0BW1", 9, 12)]
    assert check(one_stage(), schedule_of(rows, modes={0: RECOMPUTE})) == []
    found = check(one_stage(), schedule_of(rows, modes={1: RECOMPUTE}))
    assert [v.rule for v in found] == ["length", "length"]
    rows = [("0F0", 0, 2), ("0F1", 2, 4), ("0BW0", 4, 9), ("0BW1", 9, 12)]
    found = check(one_stage(), schedule_of(rows, modes={0: RECOMPUTE}))
    assert [v.message for v in found] == [
        "device 0 holds up to 7 from 4 to 9, 2 over its capacity of 5"
    ]


def test_one_microbatch_has_one_mode() -> None:
    rows = (Timed(parse_item("0F0"), 0, 2), Timed(parse_item("0BW0")._replace(mode=2), 2, 7))  # type: ignore[union-attr, call-arg]
    found = check(one_stage(microbatches=1), Schedule((rows,)))
    assert [str(v) for v in found if v.rule == "mode"] == [
        "mode: 0F0 runs in mode keep, 0BW0 in recompute; the ops of one microbatch run in one mode"
    ]


def test_a_stage_may_have_to_run_in_one_mode() -> None:
    rows = [("0F0", 0, 2), ("0BW0", 2, 7), ("0F1", 7, 9), ("0BW1", 9, 12)]
    found = check(one_stage(mode_choice="stage"), schedule_of(rows, modes={0: RECOMPUTE}))
    assert [str(v) for v in found] == [
        "mode: 0F0 runs in mode recompute, 0F1 in keep; with `mode_choice` stage, all microbatches "
        "of one run in one mode"
    ]


def test_a_mode_that_the_stage_has_not_is_refused() -> None:
    rows = [("0F0", 0, 2), ("0BW0", 2, 5)]
    found = check(one_stage(microbatches=1), schedule_of(rows, modes={0: 3}))
    assert [str(v) for v in found] == [
        "mode: 0F0 runs in mode 3, the last one of stage 0 is 2",
        "mode: 0BW0 runs in mode 3, the last one of stage 0 is 2",
    ]


@pytest.mark.parametrize("mode", [OFFLOAD, RECOMPUTE])
def test_members_of_listed_pairs_are_kept_or_offloaded(mode: int) -> None:
    """F1 and BW0 as a pair of 4: with 0 offloaded its L ends by 4, recomputed it may not pair."""
    problem = one_stage(
        devices=[{}], overlap={"pairs": [{"ops": ["0F", "0BW"], "time": 4}]}
    )  # fmt: skip
    pair = parse_item("(0F1+0BW0)")
    pair = type(pair)(pair[0], pair[1]._replace(mode=mode))  # type: ignore[union-attr, arg-type, call-arg]
    rows = (
        Timed(parse_item("0F0")._replace(mode=mode), 0, 2),  # type: ignore[union-attr, call-arg]
        Timed(pair, 6, 10),
        Timed(parse_item("0BW1"), 10, 13),
    )
    copies = (TimedCopy(parse_copy("0O0"), 2, 4), TimedCopy(parse_copy("0L0"), 4, 6))
    found = check(problem, Schedule((rows,), "", (copies,) if mode == OFFLOAD else ()))
    assert [str(v) for v in found] == ([] if mode == OFFLOAD else [
        "mode: (0F1+0BW0): 0BW0 runs in mode recompute; members of pairs that `overlap` lists "
        "by `time` run in keep or an offload mode"
    ])  # fmt: skip
