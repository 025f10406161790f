"""A problem writes its own document: what was read stays, what is written reads back the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipesat import Problem
from pipesat.problem.plain_problems import with_idle_keys
from pipesat.problem.problem import Link
from pipesat.problem.problem_file import parse_problem
from tests.oracle.generator import MODES, PAIRS, RULES, drawn

READ: dict[str, Any] = {
    "memory_unit": "MiB",
    "format": "pipesat.problem/1",
    "devices": [{"memory": None, "static": 0}, {"copy_channels": 2, "memory": 9}],
    "stages": [
        {"device": 0, "F": 2, "B": 1, "W": 1, "BW": 2, "backward": "either", "held_after_F": 3},
        {"W": 1, "B": 1, "F": 2, "device": 1, "held_after_F": 3, "held_in_backward": 1},
    ],
    "comm": {"edges": [{"src": 0, "dst": 1, "B": 4}], "default": 2},
    "routes": [{"microbatches": 4, "stages": [0, 1]}],
}
"""Defaults that stand there, keys in any order, and one that says nothing."""


@pytest.mark.parametrize("seed", range(40))
def test_what_is_written_reads_back_as_the_same_problem(seed: int) -> None:
    lists, by = ("",), ("", *PAIRS)
    if seed % 2:
        lists, by = RULES, ("", "factor", "factor and FB")
    drawn_one = drawn(seed, held=0.5, zeros=(0.2,), lists=lists, pairs=by, modes=("", *MODES))
    problem = parse_problem(drawn_one)
    ours = replace(problem, read_as=None)
    again = parse_problem(ours.document)
    assert again.document == ours.document
    assert with_idle_keys(again) == with_idle_keys(problem)


@pytest.mark.parametrize("seed", range(20))
def test_a_changed_document_reads_back_as_the_changed_problem(seed: int) -> None:
    drawn_one = drawn(seed, held=0.5, lists=("", *RULES), pairs=("", "factor"), modes=("", *MODES))
    problem = parse_problem({"mode_choice": "microbatch", **drawn_one})
    changes = [
        problem.with_memory(9),
        problem.with_backward("fused"),
        problem.with_comm(3),
        problem.with_overlap(None),
        problem.with_microbatches(6),
        problem.with_microbatches(6).with_name("six").with_static(1),
    ]
    for changed in changes:
        again = parse_problem(changed.document)
        assert with_idle_keys(again) == with_idle_keys(changed)
        assert again.sha256 == changed.sha256


def test_a_document_that_was_read_stays() -> None:
    problem = parse_problem(READ)
    assert [*problem.document.items()] == [*READ.items()]
    assert problem.with_memory([None, 9]).document == READ
    assert problem.with_memory(5).with_memory([None, 9]) == problem


def test_a_change_is_written_into_what_was_read() -> None:
    changed = parse_problem(READ).with_memory(5).with_backward("split").with_microbatches(6)
    assert changed.document == READ | {
        "devices": [{"memory": 5, "static": 0}, {"copy_channels": 2, "memory": 5}],
        "stages": [stage | {"backward": "split"} for stage in READ["stages"]],
        "routes": [{"stages": [0, 1], "microbatches": 6}],
    }
    assert [*changed.document] == [*READ]


def test_delays_that_change_are_written_as_a_whole() -> None:
    read = {**READ, "comm": {"default": 1, "edges": [{"src": 0, "dst": 1, "F": 2, "B": 2}]}}
    changed = parse_problem(read).with_comm(7)
    assert changed.document["comm"] == {"default": 7}
    unequal = replace(changed, links={(0, 1): Link(3, 4)})
    edges = [{"src": 0, "dst": 1, "F": 3, "B": 4}]
    assert unequal.document["comm"] == {"default": 4, "edges": edges}


def test_an_amount_that_says_nothing_comes_back_when_it_does() -> None:
    """A BW of no time holds nothing by itself; in a pair it takes some."""
    stage = {"device": 0, "F": 1, "B": 0, "W": 0, "backward": "fused", "held_in_backward": 2}
    idle = Problem.from_stages([stage], 2)
    assert (idle.stages[0].held_in_backward, idle.stages[0].idle) == (0, (("held_in_backward", 2),))
    assert idle.with_overlap((1, 2)).stages[0].held_in_backward == 2
    assert idle.with_overlap((1, 2)).with_overlap(None) == idle


def test_a_digest_is_of_what_the_problem_says_now() -> None:
    problem = parse_problem(READ)
    other = replace(problem, order="free", devices=(replace(problem.devices[0], static=1),) * 2)
    assert other.sha256 == parse_problem(other.document).sha256 != problem.sha256
