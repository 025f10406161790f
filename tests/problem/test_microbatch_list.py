"""Lists of microbatches in problem files, the amounts that result, and every refusal."""

from typing import Any

import pytest

from pipesat.core.errors import BadInput
from pipesat.problem.problem import Link, Problem
from pipesat.problem.problem_file import parse_problem

STAGE = {"F": 10, "B": 20, "W": 5, "held_after_F": 7, "held_after_B": 3}


def document(microbatches: Any, stages: int = 2, **rest: Any) -> dict[str, Any]:
    """A chain of equal stages, delay 9."""
    return {
        "format": "pipesat.problem/1",
        "devices": [{}] * stages,
        "stages": [{"device": s} | STAGE for s in range(stages)],
        "microbatches": microbatches,
        "comm": {"default": 9},
    } | rest


def parsed(microbatches: Any, **rest: Any) -> Problem:
    return parse_problem(document(microbatches) | rest, "p.json")


def complaint(microbatches: Any, **rest: Any) -> str:
    with pytest.raises(BadInput) as caught:
        parsed(microbatches, **rest)
    return str(caught.value)


LONG = {"name": "long", "count": 1, "time": [3, 2], "held": [2, 3], "comm": [1, 2]}


def test_microbatches_are_numbered_in_list_order_and_entries_of_one_name_are_one_class() -> None:
    again = {"name": "long", "count": 2}
    problem = parsed([LONG, {"name": "short", "count": 3}, again], order="same")
    (route,) = problem.routes
    assert route.microbatches == 6
    assert route.classes == (0, 1, 1, 1, 0, 0)
    assert [problem.class_of(1, m) for m in range(6)] == [0, 1, 1, 1, 0, 0]
    assert (problem.order, problem.plain, problem.alike) == ("same", False, False)


def test_each_amount_is_scaled_and_rounded_up_and_BW_is_the_sum_of_what_results() -> None:
    problem = parsed([LONG, {"name": "short", "count": 1}])
    long, short = problem.amounts(0, 0), problem.amounts(0, 1)
    # 10 * 3/2, 20 * 3/2, ceil(7.5), 30 + 8 and not ceil(25 * 3/2) = 38 by chance: see below
    assert (long.F, long.B, long.W, long.BW) == (15, 30, 8, 38)
    assert (long.held_after_F, long.held_after_B) == (5, 2)  # ceil(14/3), 6/3
    assert problem.link(0, 0) == Link(5, 5)  # ceil(9/2)
    assert (short.F, short.BW, short.held_after_F) == (10, 25, 7)
    assert problem.link(0, 1) == Link(9, 9)
    odd = parse_problem(document([LONG]) | {"stages": [{"device": 0, "F": 1, "B": 1, "W": 1}] * 2})
    assert odd.amounts(0, 0).BW == 4  # 2 + 2, while ceil(2 * 3/2) = 3
    stated = parse_problem(
        document([LONG]) | {"stages": [{"device": 0, "F": 1, "B": 1, "W": 1, "BW": 2}] * 2}
    )
    assert stated.amounts(0, 0).BW == 3


def test_amounts_of_single_stages_are_not_scaled_and_the_rest_of_that_stage_is() -> None:
    own = LONG | {"stages": {"1": {"F": 100, "B": 1, "held_in_backward": 6}}}
    problem = parsed([own, {"name": "short", "count": 1}])
    assert problem.amounts(0, 0).F == 15
    there = problem.amounts(1, 0)
    assert (there.F, there.B, there.W, there.BW) == (100, 1, 8, 9)
    assert (there.held_after_F, there.held_in_backward) == (5, 6)


def test_a_stated_BW_of_the_stage_holds_though_the_class_states_B() -> None:
    stages = [{"device": 0, "BW": 24} | STAGE, {"device": 1} | STAGE]
    own = {"name": "a", "count": 1, "stages": {"0": {"B": 1}}}
    problem = parse_problem(document([own]) | {"stages": stages})
    assert problem.amounts(0, 0).BW == 24


def test_each_route_has_a_list_or_a_number() -> None:
    problem = parse_problem(
        {
            "format": "pipesat.problem/1",
            "devices": [{}],
            "stages": [{"device": 0, "F": 1, "B": 1, "W": 1}] * 2,
            "routes": [
                {"stages": [1], "microbatches": 2},
                {"stages": [0], "microbatches": [{"name": "a", "count": 2, "time": [2, 1]}]},
            ],
            "order": "given",
        }
    )
    assert problem.amounts(1, 1).F == 1
    assert problem.amounts(0, 1).F == 2
    assert problem.alike  # those of one stage have equal amounts


@pytest.mark.parametrize(
    "entries",
    [
        [{"name": "a", "count": 3}],
        [{"name": "a", "count": 1}, {"name": "a", "count": 2}],
        [{"name": "a", "count": 1}, {"name": "b", "count": 2, "time": [1, 1]}],
        [{"name": "a", "count": 1, "time": [3, 2]}, {"name": "b", "count": 2, "time": [150, 100]}],
        # ceil(10 x 1001/1000) and so on: other factors, equal amounts
        [{"name": "a", "count": 1, "held": [1, 8]}, {"name": "b", "count": 1, "held": [1, 9]}],
    ],
)
def test_classes_of_equal_amounts_are_alike(entries: list[dict[str, Any]]) -> None:
    problem = parsed(entries)
    assert problem.alike
    assert not problem.plain


@pytest.mark.parametrize(
    ("microbatches", "rest", "wanted"),
    [
        ([], {}, "p.json: microbatches: 0 entries, expected at least 1"),
        ([{"name": "a"}], {}, "microbatches[0].count: this key is required"),
        ([{"count": 1}], {}, "microbatches[0].name: this key is required"),
        ([{"name": "a", "count": 0}], {}, "[0].count: got 0, expected an integer from 1 to 10^12"),
        ([{"name": "a", "count": 1.0}], {}, "[0].count: got 1.0, expected an integer from 1"),
        (
            [{"name": "a", "count": 1, "time": [0, 1]}],
            {},
            "microbatches[0].time[0]: got 0, expected an integer from 1 to 10^6",
        ),
        (
            [{"name": "a", "count": 1, "comm": [1, 1000001]}],
            {},
            "microbatches[0].comm[1]: got 1000001, expected an integer from 1 to 10^6",
        ),
        ([{"name": "a", "count": 1, "held": [1]}], {}, "microbatches[0].held: 1 entries, expected"),
        (
            [{"name": "a", "count": 1, "factor": [1, 1]}],
            {},
            "microbatches[0].factor: unknown key; the nearest known key is",
        ),
        (
            [{"name": "a", "count": 1, "time": [1, 1]}, {"name": "a", "count": 1, "time": [1, 1]}],
            {},
            "microbatches[1]: got 'a', expected name and count alone, without time",
        ),
        (
            [{"name": "a", "count": 1, "stages": {"2": {"F": 1}}}],
            {},
            "microbatches[0].stages['2']: there is no stage 2 on this route, expected one of",
        ),
        (
            [{"name": "a", "count": 1, "stages": {"01": {"F": 1}}}],
            {},
            "microbatches[0].stages: got '01', expected stage numbers",
        ),
        (
            [{"name": "a", "count": 1, "stages": {"0": {"G": 1}}}],
            {},
            "unknown key; the nearest known key is W",
        ),
        (
            [{"name": "a", "count": 1, "stages": {"0": {"F": -1}}}],
            {},
            "got -1, expected an integer from 0 to 10^12",
        ),
        (3, {"order": "free"}, "p.json: order: expected a list of microbatches beside it"),
        (
            [{"name": "a", "count": 1}],
            {"order": "any"},
            "p.json: order: got 'any', expected one of",
        ),
        (
            [{"name": str(n), "count": 1} for n in range(4097)],
            {},
            "p.json: microbatches: 4097 classes, expected at most 4096",
        ),
        ([{"name": "a", "count": 10**12}], {}, "ops, expected at most 4000000"),
        (
            [{"name": "a", "count": 1}, {"name": "b", "count": 1, "time": [10**6, 1]}],
            {"stages": [{"device": 0, "F": 10**6 + 1, "B": 1, "W": 1}]},
            "p.json: microbatches[1]: got 'b', F of stage 0 becomes 1000001000000, expected at",
        ),
        (
            [{"name": "a", "count": 1, "comm": [10**6, 1]}],
            {"comm": {"default": 10**6 + 1}},
            "delay F from stage 0 becomes 1000001000000",
        ),
    ],
)
def test_bad_lists_get_one_line(microbatches: Any, rest: dict[str, Any], wanted: str) -> None:
    text = complaint(microbatches, **rest)
    assert wanted in text
    assert "\n" not in text


def test_a_sum_may_be_larger_than_any_stated_amount_and_outright_amounts_are_not_scaled() -> None:
    large = {"device": 0, "F": 1, "B": 10**12, "W": 10**12}
    assert parsed([{"name": "a", "count": 1}], stages=[large]).amounts(0, 0).BW == 2 * 10**12
    own = {"name": "a", "count": 1, "time": [2, 1], "stages": {"0": {"B": 1, "W": 1}}}
    assert parsed([own], stages=[large]).amounts(0, 0).BW == 2


def test_a_problem_without_lists_has_no_trace_of_them() -> None:
    problem = parsed(3)
    assert problem.plain
    assert problem.alike
    assert problem.routes[0].classes is None
    assert problem.amounts(1, 2) is problem.stages[1]


def test_pairs_by_time_cannot_stand_beside_a_list_those_by_factor_can() -> None:
    pairs: dict[str, Any] = {"pairs": [{"ops": ["0F", "0BW"], "time": 3}]}
    lists = [{"name": "a", "count": 2}]
    assert complaint(lists, overlap=pairs) == (
        "p.json: overlap.pairs[0].time: got 3, microbatches that are a list take no pairs by time: "
        "give `factor`, [num, den] of what the two take alone"
    )
    assert parsed(lists, overlap={"pairs": []}).overlap is None
    assert parsed(2, overlap=pairs).overlap is not None
    assert parsed(lists, overlap={"FB": [3, 4]}).overlap is not None
    by_factor = parsed(lists, overlap={"pairs": [{"ops": ["0F", "0BW"], "factor": [3, 4]}]})
    assert by_factor.overlap is not None
    assert by_factor.overlap.factors == {((0, "F"), (0, "BW")): (3, 4)}
