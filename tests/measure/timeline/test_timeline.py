"""Timelines: files, the comparison's arithmetic, refits, profiler traces and the picture."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesat.core.errors import BadInput, NotApplicable
from pipesat.heuristics import BASELINES
from pipesat.measure.timeline.against_prediction import compare
from pipesat.measure.timeline.observed import gaps_of
from pipesat.measure.timeline.refit import refit
from pipesat.measure.timeline.trace import import_traces
from pipesat.problem.ops import parse_item
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.runtimes.timeline import (
    DeviceRun,
    Ran,
    Timeline,
    TrainingStep,
    TransferCall,
    assemble,
    us_per_unit,
)
from pipesat.runtimes.timeline_file import read_timeline
from pipesat.runtimes.torch.companions import OwnWords
from pipesat.schedule.timing import time_order
from tests.support.problems import chain, document, problems
from tests.support.timelines import TRACES, files, ran, step, trace

# Two devices, two microbatches, F = 2 ms, BW = 4 ms, delay 1 ms. Predicted, in ms:
#   device 0: 0F0 0-2, 0F1 2-4, 0BW0 10-14, 0BW1 16-20
#   device 1: 1F0 3-5, 1BW0 5-9, 1F1 9-11, 1BW1 11-15
# The makespan is 20.
ORDER = (("0F0", "0F1", "0BW0", "0BW1"), ("1F0", "1BW0", "1F1", "1BW1"))


def problem(**changes: object) -> Problem:
    from pipesat.problem.problem_file import parse_problem

    plain = chain(2, 2, F=2, B=2, W=2, comm=1)
    return parse_problem(document(plain, time_unit="ms", name="two") | changes)


AS_PREDICTED = step(
    (("0F0", 0, 2, 0), ("0F1", 2, 4, 0), ("0BW0", 10, 14, 6), ("0BW1", 16, 20, 2)),
    (("1F0", 3, 5, 3), ("1BW0", 5, 9, 0), ("1F1", 9, 11, 0), ("1BW1", 11, 15, 0)),
)


def timeline(*steps: TrainingStep, of: Problem | None = None, scale: float = 1000.0) -> Timeline:
    return Timeline((of or problem()).sha256, steps or (AS_PREDICTED,), scale)


# The comparison


def test_a_run_as_predicted() -> None:
    result = compare(problem(), timeline())
    assert (result.predicted, result.measured, result.error) == (20_000, 20_000, 0)
    first, second = result.devices
    assert (first.busy, first.predicted_busy, first.idle, first.predicted_idle) == (
        12_000,
        12_000,
        8_000,
        8_000,
    )
    assert (second.busy, second.idle, second.calls, second.overhead) == (12_000, 8_000, 0, 0)
    forward, backward = result.links
    assert (forward.source, forward.target, forward.predicted) == (0, 1, 1000)
    assert (forward.measured, forward.count) == (1000, 1)  # 1F1 did not wait
    assert (backward.source, backward.target, backward.measured, backward.count) == (1, 0, 1000, 2)


def test_ops_that_all_take_twice_as_long() -> None:
    # F 4, BW 8: 0F0 0-4, 1F0 5-9, 1BW0 9-17, 1F1 17-21, 1BW1 21-29, 0BW1 30-38
    slow = step(
        (("0F0", 0, 4, 0), ("0F1", 4, 8, 0), ("0BW0", 18, 26, 10), ("0BW1", 30, 38, 4)),
        (("1F0", 5, 9, 5), ("1BW0", 9, 17, 0), ("1F1", 17, 21, 0), ("1BW1", 21, 29, 0)),
    )
    result = compare(problem(), timeline(slow))
    assert result.error == pytest.approx((20 - 38) / 38)
    kind = result.kinds[0]
    assert (kind.device, kind.kind, kind.count, kind.predicted, kind.measured) == (
        0,
        "F",
        2,
        2000,
        4000,
    )


def test_ops_that_had_half_a_core() -> None:
    # as above, every op twice as long; but F was on a core for 2 and BW for 5
    slow = step(
        (("0F0", 0, 4, 0), ("0F1", 4, 8, 0), ("0BW0", 18, 26, 10), ("0BW1", 30, 38, 4)),
        (("1F0", 5, 9, 5), ("1BW0", 9, 17, 0), ("1F1", 17, 21, 0), ("1BW1", 21, 29, 0)),
    )
    on_core = TrainingStep(
        tuple(
            DeviceRun(tuple(r._replace(cpu=2000 if r.item.kind == "F" else 5000) for r in row.ops))
            for row in slow.devices
        )
    )
    result = compare(problem(), timeline(on_core))
    assert [row.cpu for row in result.kinds] == [2000, 5000, 2000, 5000]


def test_a_slow_link() -> None:
    # the gradient of microbatch 1 takes 4 instead of 1, that of microbatch 0 is not waited for
    late = step(
        (("0F0", 0, 2, 0), ("0F1", 2, 4, 0), ("0BW0", 10, 14, 6), ("0BW1", 19, 23, 5)),
        (("1F0", 3, 5, 3), ("1BW0", 5, 9, 0), ("1F1", 9, 11, 0), ("1BW1", 11, 15, 0)),
    )
    # two gradients were waited for: delays of 1 and of 4
    backward = compare(problem(), timeline(late)).links[1]
    assert (backward.predicted, backward.measured, backward.count) == (1000, 2500, 2)


def test_what_was_sent_long_before_did_not_delay() -> None:
    # 1F1 waits 0.3 for something that was sent 5 before: the link from 0 to 1 was seen once, by 1F0
    late = step(
        (("0F0", 0, 2, 0), ("0F1", 2, 4, 0), ("0BW0", 10, 14, 6), ("0BW1", 16.3, 20.3, 2.3)),
        (("1F0", 3, 5, 3), ("1BW0", 5, 9, 0), ("1F1", 9.3, 11.3, 0.3), ("1BW1", 11.3, 15.3, 0)),
    )
    result = compare(problem(), timeline(late))
    assert [(link.measured, link.count) for link in result.links] == [(1000, 1), (1000, 2)]


def test_calls_and_overhead_between_ops() -> None:
    # device 1 needs 1.5 ms after 1BW0, 1 of it in calls; everything after it is later by 1.5
    late = step(
        (("0F0", 0, 2, 0), ("0F1", 2, 4, 0), ("0BW0", 10, 14, 6), ("0BW1", 17.5, 21.5, 3.5)),
        (("1F0", 3, 5, 3), ("1BW0", 5, 9, 0), ("1F1", 10.5, 12.5, 0), ("1BW1", 12.5, 16.5, 0)),
        calls=((), (TransferCall("1SEND_B0", 9100, 9600), TransferCall("1RECV_F1", 9700, 10_200))),
    )
    result = compare(problem(), timeline(late))
    assert (result.devices[1].calls, result.devices[1].overhead) == (1_000, 500)


def test_calls_inside_a_wait_are_no_gap() -> None:
    row = DeviceRun(
        (ran("0F0", 0, 2), ran("0F1", 5, 7, 2)),
        (TransferCall("x", 2500, 2700), TransferCall("y", 6000, 6500)),
    )
    assert [(gap.calls, gap.other) for gap in gaps_of(row)] == [(0, 0), (200, 800)]


@pytest.mark.slow
@given(problems(least_time=2), st.floats(0.5, 4))
def test_a_run_of_the_problems_own_times_is_as_predicted(
    any_problem: Problem, factor: float
) -> None:
    order = BASELINES["list-scheduling"](any_problem).order
    timed = time_order(any_problem, order)
    rows = tuple(
        DeviceRun(tuple(Ran(t.item, factor * t.start, factor * t.end, 0.0) for t in row))  # type: ignore[arg-type]
        for row in timed.devices
    )
    result = compare(any_problem, Timeline(any_problem.sha256, (TrainingStep(rows),), 1.0))
    assert result.predicted == timed.makespan
    exact = compare(any_problem, Timeline(any_problem.sha256, (TrainingStep(rows),), factor))
    assert exact.error == pytest.approx(0)


# Refit


def test_a_refit_of_a_run_as_predicted_changes_nothing() -> None:
    new = refit(problem(), timeline())
    assert [(s.F, s.BW, s.B, s.W) for s in new.problem.stages] == [(2, 4, 2, 2)] * 2
    assert new.problem.links == problem().links
    assert any("ran no B and W apart" in note for note in new.notes)


def test_a_refit_takes_medians_and_what_blocks_the_device_after_an_op() -> None:
    fine = problem(time_unit="us")
    # device 1 is busy for 0.5 ms after every op but its last, device 0 after none
    busy = step(
        (("0F0", 0, 3, 0), ("0F1", 3, 6, 0), ("0BW0", 14, 20, 8), ("0BW1", 22, 28, 2)),
        (("1F0", 4, 6, 4), ("1BW0", 6.5, 11.5, 0), ("1F1", 12, 14, 0), ("1BW1", 14.5, 19.5, 0)),
    )
    new = refit(fine, timeline(busy, of=fine, scale=1.0))
    first, second = new.problem.stages
    assert (first.F, first.BW, first.B, first.W) == (3000, 6000, 3000, 3000)
    # 1F0 and 1F1 are followed by 0.5; 1BW0 takes 5 + 0.5, 1BW1 5 and nothing: median 5.25
    assert (second.F, second.BW) == (2500, 5250)
    link = new.problem.links[0, 1]
    # 0 -> 1: 1F0 starts 1 after 0F0. 1 -> 0: 14 - 11.5 and 22 - 19.5, less the 0.5 in 1BW's cost
    assert (link.F, link.B) == (1000, 2000)
    again = new.problem
    order = tuple(tuple(map(parse_item, row)) for row in ORDER)
    predicted = time_order(again, order).makespan
    assert abs(predicted - 28_000) <= 500  # the median of 1BW is 0.25 off, twice


def test_a_refit_keeps_what_did_not_run_in_proportion() -> None:
    split = problem(
        time_unit="us",
        stages=[
            dict(s, BW=300, F=100, B=200, W=200, backward="either")
            for s in problem().document["stages"]
        ],
    )
    rows = BASELINES["zb-h1"](split)
    took = {"F": 150.0, "B": 300.0, "W": 300.0, "BW": 450.0}
    at, ops = 0.0, []
    for row in rows.order:
        line = []
        for op in row:
            line.append(Ran(op, at, at + took[op.kind], 0.0))  # type: ignore[arg-type, union-attr]
            at += took[op.kind]  # type: ignore[union-attr]
        ops.append(DeviceRun(tuple(line)))
    new = refit(split, Timeline(split.sha256, (TrainingStep(tuple(ops)),), 1.0))
    assert {(s.F, s.B, s.W, s.BW) for s in new.problem.stages} == {(150, 300, 300, 450)}


# Files


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    written = Timeline(
        problem().sha256, (AS_PREDICTED, AS_PREDICTED), 1000.0, "x", 3.5, {"torch": "2"}
    )
    path = tmp_path / "timeline.json"
    written.write(path)
    assert read_timeline(path, problem()) == written


def as_document() -> dict[str, object]:

    return json.loads(timeline().file())


def changed(path: list[object], value: object) -> dict[str, object]:
    result = as_document()
    inner: object = result
    for step_ in path[:-1]:
        inner = inner[step_]  # type: ignore[index]
    if value is None:
        del inner[path[-1]]  # type: ignore[attr-defined]
    else:
        inner[path[-1]] = value  # type: ignore[index]
    return result


FIRST_OP = ["steps", 0, "devices", 0, "ops", 0]


@pytest.mark.parametrize(
    ("document_", "where", "message"),
    [
        ([], "", "expected"),
        (changed(["format"], "pipesat.timeline/2"), "format", 'expected "pipesat.timeline/1"'),
        (changed(["problem_sha256"], None), "problem_sha256", "required and missing"),
        (changed(["step"], []), "step", "unknown key; the nearest known key is steps"),
        (changed(["us_per_time_unit"], 0.0), "us_per_time_unit", "a number from 1e-15"),
        (changed([*FIRST_OP, 0], "0X0"), "ops[0]", "expected an op, as 0F3"),
        (changed([*FIRST_OP, 1], float("nan")), "ops[0]", "times in microseconds"),
        (changed([*FIRST_OP, 2], -1.0), "ops[0]", "ends before it starts"),
        (changed([*FIRST_OP, 0], "0F7"), "steps[0]", "0F7 names microbatch 7"),
        (changed([*FIRST_OP, 0], "1F0"), "steps[0]", "1F0 runs on"),
        (changed([*FIRST_OP, 0], "0F1"), "steps[0]", "0F1 stands twice"),
        (changed(FIRST_OP, None), "steps[0]", "0F0 on device 0 is missing"),
        (changed(["steps", 0, "devices", 1], None), "steps[0]", "1 device lists, expected 2"),
    ],
)
def test_bad_files(tmp_path: Path, document_: object, where: str, message: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document_))
    with pytest.raises(BadInput) as error:
        read_timeline(path, problem())
    assert str(path) in str(error.value)
    assert where in error.value.where
    assert message in str(error.value)


def test_steps_of_different_orders_are_refused(tmp_path: Path) -> None:
    other = step(
        (("0F1", 0, 2, 0), ("0F0", 2, 4, 0), ("0BW0", 10, 14, 6), ("0BW1", 16, 20, 2)),
        (("1F0", 5, 6, 3), ("1BW0", 6, 9, 0), ("1F1", 9, 11, 0), ("1BW1", 11, 15, 0)),
    )
    path = tmp_path / "t.json"
    timeline(AS_PREDICTED, other).write(path)
    with pytest.raises(BadInput, match=r"steps\[1\]: another order than step 0"):
        read_timeline(path, problem())


def test_an_order_that_cannot_run_is_refused(tmp_path: Path) -> None:
    circle = step(
        (("0BW0", 0, 2, 0), ("0F1", 2, 4, 0), ("0F0", 10, 14, 6), ("0BW1", 16, 20, 2)),
        (("1F0", 5, 6, 3), ("1BW0", 6, 9, 0), ("1F1", 9, 11, 0), ("1BW1", 11, 15, 0)),
    )
    path = tmp_path / "t.json"
    timeline(circle).write(path)
    with pytest.raises(BadInput, match="not an order that can run"):
        read_timeline(path, problem())


# Recordings


def test_recordings_get_one_clock_and_begin_at_0() -> None:
    one = chain(2, 1)
    ranks = [
        [
            {
                "ops": [["0F0", 90, 1000, 3000, 1500], ["0B0", 3000, 9000, 12000, None]],
                "transfers": [["0SEND_F0", 3000, 3500]],
            }
        ],
        [
            {
                "ops": [
                    ["1F0", 500, 3500, 4500, 0],
                    ["1I0", 4500, 4500, 6000, 0],
                    ["1W0", 6000, 6000, 7000, 0],
                ],
                "transfers": [],
            }
        ],
    ]
    (only,) = assemble(OwnWords(one, [0]), ranks, [0, 1000])
    first, second = only.devices
    assert first.ops == (
        (parse_item("0F0"), 0.0, 2.0, 0.91, 1.5),
        (parse_item("0BW0"), 8.0, 11.0, 6.0, None),
    )
    assert first.transfers == (("0SEND_F0", 2.0, 2.5),)
    assert [str(r.item) for r in second.ops] == ["1F0", "1B0", "1W0"]
    assert second.ops[0] == (parse_item("1F0"), 3.5, 4.5, 3.0, 0.0)


# torch's profiler


@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_of_a_run_as_predicted(tmp_path: Path, packed: bool) -> None:
    imported = import_traces(problem(), files(tmp_path, *TRACES, packed=packed))
    (only,) = imported.timeline.steps
    assert only.order == AS_PREDICTED.order
    assert only.makespan == 20_000
    # what a trace does not tell: 0BW0 got its input at 9 + 1, here it is taken for 9
    first = {str(r.item): r for r in only.devices[0].ops}
    assert (first["0BW0"].start, first["0BW0"].waited) == (9_000, 5_000)
    result = compare(problem(), imported.timeline)
    assert result.predicted == result.measured == 20_000


def test_a_gap_between_ranges_is_overhead_and_no_wait(tmp_path: Path) -> None:
    # 0F1 could start at 5, its range begins at 6: a ms that a refit adds to what comes before it
    late = trace(0, ("0F0", 3, 5), ("0F1", 6, 8), ("0B0", 8, 16), ("0B1", 16, 22))
    (only,) = import_traces(problem(), files(tmp_path, late, TRACES[1])).timeline.steps
    waited = {str(ran.item): ran.waited for ran in only.devices[0].ops}
    assert (waited["0F1"], gaps_of(only.devices[0])[1].other) == (0, 1_000)


def test_traces_out_of_order_are_sorted_by_their_rank(tmp_path: Path) -> None:
    straight = import_traces(problem(), files(tmp_path, *TRACES)).timeline.steps
    turned = import_traces(problem(), files(tmp_path, *reversed(TRACES))).timeline.steps
    assert turned == straight


def test_traces_have_their_own_zero(tmp_path: Path) -> None:
    first, second = (dict(t) for t in TRACES)
    second["baseTimeNanoseconds"] = 2_000_000  # its times are 2 ms earlier than they were
    second["traceEvents"] = [
        dict(event, ts=event["ts"] - 2000.0) if "ts" in event else event
        for event in second["traceEvents"]  # type: ignore[union-attr]
    ]
    assert (
        import_traces(problem(), files(tmp_path, first, second)).timeline.steps
        == import_traces(problem(), files(tmp_path, *TRACES)).timeline.steps
    )


def twice(content: dict[str, object]) -> dict[str, object]:
    events = [e for e in content["traceEvents"] if "PP:" in e["name"]]  # type: ignore[union-attr]
    later = [dict(event, ts=event["ts"] + 100_000.0) for event in events]
    return content | {"traceEvents": [*later, *events]}


def test_steps_are_told_apart_and_can_be_skipped(tmp_path: Path) -> None:
    paths = files(tmp_path, *map(twice, TRACES))
    both = import_traces(problem(), paths).timeline
    assert [s.makespan for s in both.steps] == [20_000, 20_000]
    assert both.steps[0] == both.steps[1]
    assert len(import_traces(problem(), paths, skip=1).timeline.steps) == 1
    with pytest.raises(BadInput, match="skip: got 2, the trace has 2 whole steps"):
        import_traces(problem(), paths, skip=2)


def test_what_the_gpu_did_counts_more_than_what_the_host_asked_for(tmp_path: Path) -> None:
    host = [
        trace(t["distributedInfo"]["rank"], *((n, 0, 1) for n in row))  # type: ignore[index]
        for t, row in zip(TRACES, (("0F0", "0F1", "0B0", "0B1"), ("1F0",)), strict=True)
    ]
    # on the GPU, a receive's range ends with its message: a ms after 1B0 and 0F0 sent it
    received = {"PP:0RECV_B0": {"ts": 7_000, "dur": 6_000}, "PP:1RECV_F0": {"dur": 3_000}}
    kernel = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_SendRecv()", "ts": 5, "dur": 1}
    merged = []
    for asked, done in zip(host, TRACES, strict=True):
        on_gpu = [
            event | {"cat": "gpu_user_annotation"} | received.get(event["name"], {})
            for event in done["traceEvents"]  # type: ignore[union-attr]
            if "PP:" in event["name"]
        ]
        # a range also has a part for its messages' stream
        beside = [one | {"tid": 20, "dur": 1} for one in on_gpu if one["name"] == "PP:1F0"]
        every = [*asked["traceEvents"], *on_gpu, *beside, kernel | {"pid": 1, "tid": 20}]  # type: ignore[misc]
        merged.append(done | {"traceEvents": every})  # type: ignore[operator]
    (step,) = import_traces(problem(), files(tmp_path, *merged)).timeline.steps
    assert step.makespan == 20_000
    starts = {str(ran.item): ran.start for _, ran in step}
    # times count from 3 ms: 0B0 has its input at 13 ms, 1F0 at 6 ms
    assert (starts["0BW0"], starts["1F0"]) == (10_000, 3_000)


def test_numbers_of_microbatches_that_differ_are_said_to_be_the_problems(tmp_path: Path) -> None:
    one = problem().document
    listed = parse_problem(dict(one) | {"microbatches": [{"name": "a", "count": 2}]})
    notes = import_traces(listed, files(tmp_path, *TRACES)).notes
    assert any("taken for the problem's own" in note for note in notes)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (TRACES[:1], "ops of one rank only"),
        (({"x": 1}, {"x": 1}), "no known trace"),
        ((TRACES[0], TRACES[0]), "rank 0, as is "),
        ((trace(0, ("5F0", 0, 1)), TRACES[1]), "stages"),
        ((trace(0, ("0F0", 0, 1), ("0B0", 1, 2)), TRACES[1]), "microbatch 1 on stage 0"),
    ],
)
def test_bad_traces(tmp_path: Path, documents: tuple[object, ...], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        import_traces(problem(), files(tmp_path, *documents))


def test_a_trace_of_another_placement_is_refused(tmp_path: Path) -> None:
    other = parse_problem(dict(problem().document) | {"devices": [{}] * 3})
    with pytest.raises(NotApplicable, match="needs a stage on every rank"):
        import_traces(other, files(tmp_path, *TRACES))
    stages = [stage | {"device": 1 - stage["device"]} for stage in problem().document["stages"]]
    other = parse_problem(dict(problem().document) | {"stages": stages})
    with pytest.raises(BadInput, match=r"stages are on ranks \[0, 1\], the problem's on \[1, 0\]"):
        import_traces(other, files(tmp_path, *TRACES))


def test_a_trace_that_is_no_json(tmp_path: Path) -> None:
    paths = files(tmp_path, *TRACES)
    paths[0].write_bytes(b"\x1f\x8bnot gzip")
    with pytest.raises(BadInput, match="cannot read"):
        import_traces(problem(), paths)
    paths[0].write_bytes(b"{")
    with pytest.raises(BadInput, match="not JSON"):
        import_traces(problem(), paths)


# Commands


@pytest.fixture
def measured(save, tmp_path: Path) -> list[Path]:
    path = tmp_path / "timeline.json"
    slow = step(
        (("0F0", 0, 4, 0), ("0F1", 4, 8, 0), ("0BW0", 18, 26, 10), ("0BW1", 30, 38, 4)),
        (("1F0", 5, 9, 5), ("1BW0", 9, 17, 0), ("1F1", 17, 21, 0), ("1BW1", 21, 29, 0)),
    )
    timeline(slow).write(path)
    return [save(problem()), path]


@pytest.mark.slow
def test_the_comparison_as_a_table_and_a_picture(cli, measured, tmp_path: Path) -> None:
    png = tmp_path / "t.png"
    outcome = cli("timeline", "compare", *measured, "--png", png)
    assert outcome.code == 0
    assert "predicted 20.00 ms, measured 38.00 ms" in outcome.out
    assert "error -47.4 %" in outcome.out
    assert "take the measured costs: pipesat timeline refit" in outcome.out
    assert re.search(r"source +target +predicted", outcome.out)
    data = png.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert width > 1000
    assert height > 400


def test_costs_of_a_busy_machine_are_not_recommended(cli, measured) -> None:
    """Each op was on a core for half of its time: others had it for the rest."""
    path = measured[1]
    document = json.loads(path.read_text())
    ops = [op for row in document["steps"][0]["devices"] for op in row["ops"]]
    for op in ops:
        op[4:] = [0.5 * (op[2] - op[1])]
    path.write_text(json.dumps(document))
    said = cli("timeline", "compare", *measured).out
    assert "ops were on a core for 50 % of their time" in " ".join(said.split())
    assert "refit" not in said


def test_the_shortest_step_alone(cli, save, tmp_path: Path) -> None:
    slow = step(
        (("0F0", 0, 4, 0), ("0F1", 4, 8, 0), ("0BW0", 18, 26, 10), ("0BW1", 30, 38, 4)),
        (("1F0", 5, 9, 5), ("1BW0", 9, 17, 0), ("1F1", 17, 21, 0), ("1BW1", 21, 29, 0)),
    )
    path = tmp_path / "timeline.json"
    timeline(slow, AS_PREDICTED, slow).write(path)
    arguments = ("timeline", "compare", save(problem()), path, "--json")
    assert cli(*arguments).json["measured"] == 38_000
    result = cli(*arguments, "--shortest").json
    assert (result["measured"], result["steps"]) == (20_000, 1)
    assert result["error"] == 0  # costs are those of this step alone


def test_the_refit_can_be_solved_and_predicts_what_was_measured(cli, measured, tmp_path) -> None:
    new = tmp_path / "new.json"
    assert cli("timeline", "refit", *measured, "-o", new).code == 0
    outcome = cli("timeline", "compare", new, measured[1], "--json")
    assert outcome.json["predicted"] == outcome.json["measured"] == 38_000
    assert "another problem of the same shape" in outcome.err
    assert cli("export", new, "1f1b", "--to", "schedule", "-o", tmp_path / "s.json").code == 0


def test_the_import(cli, save, tmp_path: Path) -> None:
    output = tmp_path / "t.json"
    paths = files(tmp_path, *TRACES)
    outcome = cli("timeline", "import", save(problem()), *paths, "-o", output)
    assert outcome.code == 0
    assert "no receive is in the trace: link delays count as time of the op" in outcome.err
    assert read_timeline(output, problem()).typical.makespan == 20_000


def test_a_timeline_of_something_else_is_refused(cli, save, measured) -> None:
    outcome = cli("timeline", "compare", save(chain(3, 2), "other.json"), measured[1])
    assert outcome.code == 2
    assert "2 device lists, expected 3" in outcome.err


# Units


@pytest.mark.parametrize(
    ("unit", "us"), [("ns", 0.001), ("us", 1), ("ms", 1000), ("s", 1e6), ("", 1)]
)
def test_units(unit: str, us: float) -> None:
    assert us_per_unit(problem(time_unit=unit)) == us
