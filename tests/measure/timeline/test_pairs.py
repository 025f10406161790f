"""Timelines in which two ops ran as one: the pair is one item everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipesat.core.errors import BadInput
from pipesat.measure.timeline.against_prediction import compare
from pipesat.measure.timeline.observed import measured_delays, sources_of
from pipesat.measure.timeline.refit import refit
from pipesat.measure.timeline.trace import import_traces
from pipesat.problem.ops import parse_item
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.runtimes.timeline import Timeline, TrainingStep
from pipesat.runtimes.timeline_file import read_timeline
from pipesat.schedule.timing import time_order
from tests.support.problems import chain, document
from tests.support.timelines import files, step, trace

# Two devices, two microbatches, F = 2 ms, BW = 4 ms, delay 1 ms, a pair of them 5 ms:
#   device 0: 0F0 0-2, 0F1 2-4, 0BW0 11-15, 0BW1 15-19
#   device 1: 1F0 3-5, (1F1+1BW0) 5-10, 1BW1 10-14
PREDICTED = 19
SLOW_PAIR = step(  # it takes 8
    (("0F0", 0, 2, 0), ("0F1", 2, 4, 0), ("0BW0", 14, 18, 10), ("0BW1", 18, 22, 0)),
    (("1F0", 3, 5, 3), ("(1F1+1BW0)", 5, 13, 0), ("1BW1", 13, 17, 0)),
)
LISTED = {"pairs": [{"ops": [f"{stage}F", f"{stage}BW"], "time": 5} for stage in (0, 1)]}


def problem(overlap: object = LISTED) -> Problem:
    plain = chain(2, 2, F=2, B=2, W=2, comm=1)
    return parse_problem(document(plain, time_unit="ms", overlap=overlap))


def timeline(ran: TrainingStep = SLOW_PAIR) -> Timeline:
    return Timeline(problem().sha256, (ran,), 1000.0)


def test_a_pair_that_takes_longer_is_a_cost_and_a_kind_of_its_own() -> None:
    assert time_order(problem(), SLOW_PAIR.order).makespan == PREDICTED
    result = compare(problem(), timeline())
    assert (result.predicted, result.measured) == (19_000, 22_000)
    kinds = {
        (row.device, row.kind): (row.count, row.predicted, row.measured) for row in result.kinds
    }
    assert kinds[1, "F+BW"] == (1, 5_000, 8_000)
    assert kinds[1, "F"] == (1, 2_000, 2_000)
    assert kinds[1, "BW"] == (1, 4_000, 4_000)
    assert result.devices[1].predicted_busy == 11_000


def test_which_of_two_inputs_a_pair_waited_for_is_not_known() -> None:
    three = parse_problem(
        document(
            chain(3, 2, F=2, B=2, W=2, comm=1),
            time_unit="ms",
            overlap={"pairs": [{"ops": ["1F", "1BW"], "time": 5}]},
        )
    )
    # 0F1 ends at 4, 2BW0 at 12: the pair begins at 13; 0BW0 waits for it, and so does 2F1
    ran = step(
        (("0F0", 0, 2, 0), ("0F1", 2, 4, 0), ("0BW0", 19, 23, 15), ("0BW1", 31, 35, 8)),
        (("1F0", 3, 5, 3), ("(1F1+1BW0)", 13, 18, 8), ("1BW1", 26, 30, 8)),
        (("2F0", 6, 8, 6), ("2BW0", 8, 12, 0), ("2F1", 19, 21, 7), ("2BW1", 21, 25, 0)),
        calls=((), (), ()),
    )
    pair = parse_item("(1F1+1BW0)")
    assert [event for _, event in sources_of(three, pair)] == [(0, "F", 1), (2, "B", 0)]
    seen = measured_delays(three, Timeline(three.sha256, (ran,), 1000.0))
    assert seen == {
        (0, 1): [1000.0],  # 1F0
        (1, 2): [1000.0, 1000.0],  # 2F0, 2F1
        (1, 0): [1000.0, 1000.0],  # 0BW0, 0BW1
        (2, 1): [1000.0],  # 1BW1
    }


def test_a_refit_writes_what_pairs_took() -> None:
    new = refit(problem(), timeline())
    assert new.problem.document["overlap"]["pairs"] == [
        {"ops": ["0F", "0BW"], "time": 5},  # did not run; its ops took what they should
        {"ops": ["1F", "1BW"], "time": 8},
    ]
    assert "listed pairs that did not run: 1, scaled like their two ops" in new.notes
    assert [(s.F, s.BW) for s in new.problem.stages] == [(2, 4), (2, 4)]
    assert time_order(new.problem, SLOW_PAIR.order).makespan == 22


def test_a_refit_scales_a_pair_that_did_not_run_like_its_ops() -> None:
    slow = step(  # device 0's ops take twice as long: its pair 10 instead of 5
        (("0F0", 0, 4, 0), ("0F1", 4, 8, 0), ("0BW0", 18, 26, 10), ("0BW1", 26, 34, 0)),
        (("1F0", 5, 7, 5), ("(1F1+1BW0)", 12, 17, 5), ("1BW1", 17, 21, 0)),
    )
    new = refit(problem(), timeline(slow)).problem.document["overlap"]
    assert [entry["time"] for entry in new["pairs"]] == [10, 5]


def test_a_refit_lists_a_pair_that_the_factor_allowed() -> None:
    factor = problem({"FB": [5, 6]})
    assert time_order(factor, SLOW_PAIR.order).makespan == PREDICTED
    new = refit(factor, timeline())
    assert new.problem.document["overlap"] == {
        "FB": [5, 6],
        "pairs": [{"ops": ["1F", "1BW"], "time": 8}],
    }


def test_pairs_in_files(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    timeline().write(path)
    assert read_timeline(path, problem()) == timeline()
    path.write_text(path.read_text().replace("(1F1+1BW0)", "(1BW0+1F1)"))
    assert read_timeline(path, problem()) == timeline()
    with pytest.raises(BadInput, match="`overlap` does not allow a pair of 1F and 1BW"):
        read_timeline(path, problem({"pairs": [{"ops": ["0F", "0BW"], "time": 5}]}))
    path.write_text(path.read_text().replace("(1BW0+1F1)", "(1BW0+7F1)"))
    with pytest.raises(BadInput, match="no stage of this problem"):
        read_timeline(path, problem())


def test_an_overlapped_range_of_a_trace_is_a_pair_where_the_problem_has_one(tmp_path) -> None:
    first = trace(0, ("0F0", 3, 5), ("0F1", 5, 7), ("0B0", 7, 19), ("0B1", 19, 25))
    second = trace(1, ("1F0", 3, 8), ("(1F1;1B0)OVERLAP_F_B", 8, 14), ("1B1", 14, 18))
    paths = files(tmp_path, first, second)
    (only,) = import_traces(problem(), paths).timeline.steps
    assert list(map(str, only.order[1])) == ["1F0", "(1F1+1BW0)", "1BW1"]
    assert (only.devices[1].ops[1].start, only.devices[1].ops[1].end) == (5_000, 11_000)
