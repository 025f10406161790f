"""Timelines of orders with memory modes: copies in the file, the comparison and the picture."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pipesat.core.errors import BadInput
from pipesat.measure.timeline.against_prediction import compare
from pipesat.measure.timeline.observed import measured_delays
from pipesat.problem.ops import Copy
from pipesat.runtimes.timeline import DeviceRun, Ran, RanCopy, Timeline, TrainingStep
from pipesat.runtimes.timeline_file import read_timeline
from tests.support.timed_modes import MODES, ORDER, TIMES, problem_with_modes

PROBLEM = problem_with_modes("ms")


def timeline(back: float = 45) -> Timeline:
    """As predicted, but for a copy back that takes ``back`` and all that follows from it."""
    late = back - 45
    rows = []
    for device, (row, times) in enumerate(zip(ORDER, TIMES, strict=True)):
        ops = []
        for item, (start, end) in zip(row, times, strict=True):
            by = late if device == 0 and start >= 115 else 0
            ops.append(Ran(item, 1000 * (start + by), 1000 * (end + by), 0))
        copies = [RanCopy(Copy(0, "O", 1), 20_000, 35_000)]
        copies += [RanCopy(Copy(0, "L", 1), 70_000, 1000 * (70 + back))]
        rows.append(DeviceRun(tuple(ops), (), tuple(copies) if device == 0 else ()))
    return Timeline(PROBLEM.sha256, (TrainingStep(tuple(rows)),), 1000.0, modes=MODES)


def test_a_run_as_predicted_waits_for_its_copies() -> None:
    found = compare(PROBLEM, timeline())
    assert (found.predicted, found.measured) == (155_000, 155_000)


def test_waiting_for_a_copy_is_no_link_delay() -> None:
    """0BW1 and 0BW2 wait from 70 to 125; 1BW1 sent at 80, and what ended at 125 was a copy."""
    slow = timeline(back=55)
    first, second = slow.steps[0].devices
    ops = tuple(ran._replace(waited=55_000 if str(ran.item) == "0BW1" else 0) for ran in first.ops)
    step = TrainingStep((replace(first, ops=ops), second))
    assert (1, 0) not in measured_delays(PROBLEM, replace(slow, steps=(step,)))
    without = TrainingStep((replace(first, ops=ops, copies=()), second))
    assert measured_delays(PROBLEM, replace(slow, steps=(without,)))[1, 0] == [45_000]


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    path, ran = tmp_path / "timeline.json", timeline()
    rows = tuple(replace(row, copies=()) for row in ran.steps[0].devices)
    for one in (ran, replace(ran, steps=(TrainingStep(rows),))):  # copies need not be measured
        one.write(path)
        assert read_timeline(path, PROBLEM) == one


@pytest.mark.parametrize(
    ("copy", "message"),
    [
        (["0B1", 0.0, 1.0], "expected a copy, as 0O3 or 0L3"),
        (["0O0", 0.0, 1.0], "its microbatch is not offloaded there"),
        (["9O0", 0.0, 1.0], "its microbatch is not offloaded there"),
        (["0O1", 2.0, 1.0], "it ends before it starts"),
        (["0O1", 2.0], "this entry is required and missing"),
    ],
)
def test_bad_copies(tmp_path: Path, copy: list[object], message: str) -> None:
    document = json.loads(timeline().file())
    document["steps"][0]["devices"][0]["copies"][0] = copy
    path = tmp_path / "timeline.json"
    path.write_text(json.dumps(document))
    with pytest.raises(BadInput) as error:
        read_timeline(path, PROBLEM)
    assert message in str(error.value)
    assert "steps[0].devices[0].copies[0]" in str(error.value)
