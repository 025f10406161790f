"""Parts from a trace: a small one by hand, in the form of torch's profiler."""

from __future__ import annotations

import copy
import gzip
import json

import pytest

from pipesat.core.errors import BadInput
from pipesat.parts.file import parse_parts, read_mapping, read_parts
from pipesat.parts.trace import parts_of_trace
from tests.support.annotated_trace import MAPPING as SHIPPED
from tests.support.annotated_trace import annotation, kernel, write_annotated_trace
from tests.support.paths import ROOT

MAPPING = {
    "format": "pipesat.parts-map/1",
    "chunk": "moe",
    "repeat": 2,
    "streams": {"main": [], "comm": []},
    "parts": [
        {"kind": "F", "name": "attn", "annotation": "attn(F)", "stream": "main"},
        {"kind": "F", "name": "dispatch", "annotation": "dispatch(F)", "stream": "comm"},
        {"kind": "B", "name": "attn", "annotation": None, "stream": "main"},
        {"kind": "W", "name": "attn W", "annotation": "attn(W)", "stream": "main", "after": "attn"},
    ],
}


EVENTS = [
    annotation("step", 0, 1000),  # not in the mapping
    annotation("attn(F)", 10, 20),
    *kernel(1, 11, 7, 100, 8),
    *kernel(2, 12, 7, 110, 4),  # 8 + 4 busy; from 100 to 114 by the wall
    annotation("attn(F)", 40, 20),
    *kernel(3, 41, 7, 200, 11),
    annotation("dispatch(F)", 15, 4),  # inside the first attn(F)
    *kernel(4, 16, 20, 120, 31),
    annotation("attn(W)", 70, 10),
    *kernel(5, 71, 7, 300, 6),
    *kernel(6, 72, 21, 300, 5),  # on a side stream
    *kernel(7, 75, 7, 400, 20, thread=2),  # another thread: of no annotation
    kernel(8, 0, 7, 500, 3)[1],  # launched before the trace began
    {"ph": "M", "name": "process_name"},
]


def parts_from(tmp_path, events=EVENTS, **changes):
    """The parts, by chunk's kind, and the notes."""
    trace, mapping = tmp_path / "trace.json", tmp_path / "map.json"
    trace.write_text(json.dumps({"traceEvents": events}))
    mapping.write_text(json.dumps(MAPPING | changes))
    return parts_of_trace(trace, read_mapping(mapping))


def times_in(found):
    (chunk,) = json.loads(found.text)["chunks"]
    return {kind: [part["time"] for part in chunk[kind]] for kind in ("F", "B", "W")}


def rules(**changes):
    parts = copy.deepcopy(MAPPING["parts"])
    parts[0] |= changes
    return parts


def test_kernels_belong_to_the_annotation_that_launched_them(tmp_path) -> None:
    found = parts_from(tmp_path)
    # two layers: (8 + 4 + 11) / 2 = 11.5, 31 / 2 = 15.5, 20 / 2, 6 / 2; halves are rounded up
    assert times_in(found) == {"F": [12, 16], "B": [10], "W": [3]}
    parts = parse_parts(json.loads(found.text))
    assert (parts.streams, parts.chunks[0].repeat) == (("main", "comm"), 2)
    assert found.notes == (
        "left out: 5 us of attn(W) on stream 21",
        "left out: 1 kernels whose launch is not in the trace",
    )


def test_wall_times_are_called_a_calibration(tmp_path) -> None:
    found = parts_from(tmp_path, parts=rules(time="wall"))
    assert times_in(found)["F"][0] == 13  # (14 + 11) / 2
    assert "a calibration, not what the kernels take" in found.notes[-1]


def test_kernels_that_overlap_count_once(tmp_path) -> None:
    found = parts_from(tmp_path, [*EVENTS, *kernel(9, 42, 7, 205, 10)])  # 200 to 211, 205 to 215
    assert times_in(found)["F"][0] == 14  # (12 + 15) / 2


def test_stream_numbers_may_be_given(tmp_path) -> None:
    streams = {"main": [7, 21], "comm": [20]}
    found = parts_from(tmp_path, streams=streams)
    assert times_in(found)["W"] == [3]  # both run from 300: busy until 306
    assert len(found.notes) == 1


def test_a_packed_trace_and_more_layers_than_the_chunk_has(tmp_path) -> None:
    trace, mapping = tmp_path / "trace.json.gz", tmp_path / "map.json"
    trace.write_bytes(gzip.compress(json.dumps(EVENTS).encode()))
    mapping.write_text(json.dumps(MAPPING | {"repeat": 3, "layers": 1}))
    found = parts_of_trace(trace, read_mapping(mapping))
    assert times_in(found)["B"] == [20]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "x"}, "map.json: format: got 'x', expected \"pipesat.parts-map/1\""),
        ({"parts": rules(stream="x")}, "map.json: parts[0].stream: got 'x', expected a key of str"),
        ({"parts": rules(after="attn")}, "map.json: parts[0].after: got 'attn', only W has it"),
        ({"parts": rules(kind="W")}, "map.json: parts[0].after: got '', expected the part of B"),
        (
            {"parts": rules(annotation=None, time="wall")},
            "map.json: parts[0].time: got 'wall', expected busy",
        ),
        (
            {"parts": [*MAPPING["parts"], MAPPING["parts"][0] | {"name": "again"}]},
            "map.json: parts[4].annotation: got 'attn(F)', F attn takes the same kernels",
        ),
        ({"parts": rules(colour=1)}, "map.json: parts[0].colour: unknown key"),
        (
            {"parts": rules(annotation="attn")},
            "trace.json: traceEvents: got 'attn', no kernel was launched in it, see parts[0]",
        ),
        (
            {"streams": {"main": [7], "comm": [7]}},
            "trace.json: traceEvents: stream 7 of the trace would be both comm and main",
        ),
        ({"stages": ["x"]}, "trace.json: made into parts: stages[0]: got 'x', expected"),
    ],
)
def test_what_is_wrong_with_a_mapping_is_said(tmp_path, changes, message) -> None:
    with pytest.raises(BadInput) as error:
        parts_from(tmp_path, **changes)
    assert str(error.value).startswith(f"{tmp_path}/{message}")


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (EVENTS[1] | {"ts": "x"}, "[0].ts: got 'x', expected a number of microseconds"),
        (EVENTS[3] | {"dur": -1}, "[0].dur: got -1, expected a number of microseconds from 0"),
        (EVENTS[3] | {"args": {}}, "[0].args.stream: got None, expected the number of a stream"),
    ],
)
def test_what_is_wrong_with_a_trace_is_said(tmp_path, event, message) -> None:
    with pytest.raises(BadInput) as error:
        parts_from(tmp_path, [event, *EVENTS])
    assert str(error.value).startswith(f"{tmp_path}/trace.json: traceEvents{message}")


def test_the_shipped_mapping_gives_the_shipped_parts(tmp_path) -> None:
    """A trace made of the published totals, a kernel per part: the example's parts come back."""
    trace = tmp_path / "trace.json"
    write_annotated_trace(trace)
    found = parts_of_trace(trace, read_mapping(SHIPPED))
    (tmp_path / "parts.json").write_text(found.text)
    example = read_parts(ROOT / "examples" / "parts-deepseek-like.json")
    made = read_parts(tmp_path / "parts.json")
    assert (made.chunks, made.stages, made.devices) == (
        example.chunks,
        example.stages,
        example.devices,
    )
    assert found.notes == ("left out: 11,355 us of mlp(W) on stream 24",)
