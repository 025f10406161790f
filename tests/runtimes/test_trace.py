import json

import pytest

from pipesat.heuristics import BASELINES
from pipesat.problem.ops import Op
from pipesat.problem.problem_file import parse_problem
from pipesat.runtimes import EXPORTERS
from pipesat.runtimes import trace as trace_room
from pipesat.schedule.metrics import memory_profiles


def problem(**changes):
    document = {
        "format": "pipesat.problem/1",
        "name": "three",
        "time_unit": "us",
        "memory_unit": "MiB",
        "microbatches": 4,
        "devices": [{"name": "rank $0", "memory": 99, "static": 7}, {}, {"name": "last"}],
        "stages": [
            {"device": d, "F": 3, "B": 4, "W": 2, "held_after_F": 5, "held_after_B": 2}
            for d in range(3)
        ],
        "comm": {"default": 1},
    }
    return parse_problem(document | changes)


def trace(pipeline, schedule):
    document = json.loads(EXPORTERS["trace"](pipeline, schedule).data)
    events = document["traceEvents"]
    return document, {phase: [e for e in events if e["ph"] == phase] for phase in "MXCsf"}


def processes(events):
    """Device number of each process, in the order in which they are shown."""
    order = [e for e in events["M"] if e["name"] == "process_sort_index"]
    order.sort(key=lambda event: event["args"]["sort_index"])
    return {event["pid"]: device for device, event in enumerate(order)}


def test_every_op_is_one_event_with_its_time():
    pipeline = problem()
    schedule = BASELINES["zb-h1"](pipeline)
    document, events = trace(pipeline, schedule)
    device_of = processes(events)
    ops = sorted((device_of[e["pid"]], e["ts"], e["ts"] + e["dur"], e["name"]) for e in events["X"])
    assert ops == sorted((d, t.start, t.end, str(t.item)) for d, t in schedule)
    for event in events["X"]:
        args = event["args"]
        assert str(Op(args["stage"], args["kind"], args["microbatch"])) == event["name"]
        assert event["cat"] == args["kind"]
    assert document["otherData"]["problem_sha256"] == pipeline.sha256


def test_counters_are_the_memory_profiles():
    pipeline = problem()
    schedule = BASELINES["zb-h1"](pipeline)
    _, events = trace(pipeline, schedule)
    device_of = processes(events)
    assert {e["name"] for e in events["C"]} == {"memory (MiB)"}
    for device, profile in enumerate(memory_profiles(pipeline, schedule)):
        counter = {e["ts"]: e["args"]["held"] for e in events["C"] if device_of[e["pid"]] == device}
        now = None
        for time, held in zip(profile.times.tolist(), profile.held.tolist(), strict=True):
            now = counter.get(time, now)
            assert now == held
        assert set(counter) <= set(profile.times.tolist())


@pytest.mark.parametrize(
    ("unit", "microseconds"), [("ns", 0.003), ("us", 3), ("ms", 3000), ("s", 3e6), ("tick", 3)]
)
def test_times_are_true_microseconds(unit, microseconds):
    pipeline = problem(time_unit=unit)
    _, events = trace(pipeline, BASELINES["1f1b"](pipeline))
    first = next(e for e in events["X"] if e["name"] == "0F0")
    assert (first["ts"], first["dur"]) == (0, microseconds)


def test_arrows_join_the_ops_that_exchange_data():
    pipeline = problem()
    _, events = trace(pipeline, BASELINES["1f1b"](pipeline))
    at = {(e["pid"], e["tid"], e["ts"]): e["args"] for e in events["X"]}
    ends = {e["id"]: at[e["pid"], e["tid"], e["ts"]] for e in events["f"]}
    assert len(ends) == len(events["s"]) == 2 * 2 * 4  # two links, both directions, 4 microbatches
    for event in events["s"]:
        source, target = at[event["pid"], event["tid"], event["ts"]], ends[event["id"]]
        assert source["microbatch"] == target["microbatch"]
        assert target["stage"] - source["stage"] == (1 if source["kind"] == "F" else -1)


def test_what_a_trace_cannot_show_is_said(monkeypatch):
    schedule = BASELINES["1f1b"](problem())
    assert EXPORTERS["trace"](problem(), schedule).notes == ()
    (unit,) = EXPORTERS["trace"](problem(time_unit="ticks"), schedule).notes
    assert unit.startswith("1 ticks is shown as 1 us")
    monkeypatch.setattr(trace_room, "_MOST_ITEMS_WITH_FLOWS", 5)
    exported = EXPORTERS["trace"](problem(), schedule)
    assert exported.notes == ("without arrows: they are left out of more than 5 ops",)
    assert not any(event["ph"] == "s" for event in json.loads(exported.data)["traceEvents"])
