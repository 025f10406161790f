"""Parts files: what is refused, in one line that says where and what would be right."""

from __future__ import annotations

import copy
import json

import pytest

from pipesat.core.errors import BadInput
from pipesat.parts.file import parse_parts
from tests.support.parts import BY_HAND
from tests.support.paths import ROOT

FIRST = "chunks[0].F[0]"


def changed(path, value):
    document = copy.deepcopy(BY_HAND)
    node = document
    for step in path[:-1]:
        node = node[step]
    if value is None:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), "x", "format: got 'x', expected \"pipesat.parts/1\""),
        (("streams",), [], "streams: 0 entries, expected at least 1"),
        (("streams",), ["main", "main"], "streams[1]: got 'main', this name appears twice"),
        (("chunks", 0, "repeat"), 0, "chunks[0].repeat: got 0, expected an integer from 1 to"),
        (("chunks", 0, "repeat"), 900, "chunks[0].repeat: got 900, 5400 parts in all layers"),
        (("chunks", 0, "F", 0, "time"), 1.5, f"{FIRST}.time: got 1.5, expected an integer from 0"),
        (("chunks", 0, "F", 0, "time"), -1, f"{FIRST}.time: got -1, expected an integer from 0 to"),
        (("chunks", 0, "F", 0, "time"), True, f"{FIRST}.time: got True, expected an integer from"),
        (("chunks", 0, "F", 0, "time"), 10**12 + 1, f"{FIRST}.time: got 1000000000001, expected"),
        (("chunks", 0, "F", 0, "time"), None, f"{FIRST}.time: this key is required and missing"),
        (("chunks", 0, "F", 0, "name"), "", f"{FIRST}.name: got '', expected a name, not empty"),
        (
            ("chunks", 0, "F", 0, "stream"),
            "com",
            f"{FIRST}.stream: got 'com', expected the name of a stream; the nearest is comm",
        ),
        (
            ("chunks", 0, "F", 0, "after"),
            "attn",
            f"{FIRST}.after: unknown key; the nearest known key is time",
        ),
        (("chunks", 0, "W", 0, "after"), None, "chunks[0].W[0].after: this key is required and mi"),
        (
            ("chunks", 0, "W", 0, "after"),
            "attn",
            "chunks[0].W[0].after: got 'attn', expected the name of a part of B; the nearest is ",
        ),
        (
            ("chunks", 0, "B", 2, "name"),
            "mlp",
            "chunks[0].W[0].after: got 'mlp', several parts of B have this name, expected one",
        ),
        (("chunks", 0, "G"), [], "chunks[0].G: unknown key"),
        (("stages",), ["moe", "dense"], "stages[1]: got 'dense', expected the name of a chunk"),
        (("devices",), [0], "devices: 1 entries, expected 2, one per stage"),
        (("devices",), [0, 4096], "devices[1]: got 4096, expected a device from 0 to 4095"),
    ],
)
def test_what_is_wrong_is_said(path, value, message: str) -> None:
    with pytest.raises(BadInput) as error:
        parse_parts(changed(path, value), "p.json")
    assert str(error.value).startswith(f"p.json: {message}")
    assert "\n" not in str(error.value)


def test_two_chunks_of_one_name_are_refused() -> None:
    twice = BY_HAND | {"chunks": BY_HAND["chunks"] * 2}
    with pytest.raises(BadInput, match=r"chunks\[1\].name: got 'moe', this name appears twice"):
        parse_parts(twice)


def test_the_key_that_is_missing_is_the_nearest_one() -> None:
    """Fw is as near to F as to W, which is there already."""
    document = changed(("chunks", 0, "Fw"), [])
    del document["chunks"][0]["F"]
    with pytest.raises(BadInput, match=r"chunks\[0\].Fw: unknown key; the nearest known key is F$"):
        parse_parts(document)


def test_defaults() -> None:
    plain = {key: value for key, value in BY_HAND.items() if key not in ("time_unit", "devices")}
    parts = parse_parts(plain)
    assert (parts.time_unit, parts.devices, parts.chunks[0].repeat) == ("", (0, 1), 1)
    assert parts.chunks[0].W[0].after == 1


def test_the_examples_times_are_the_published_ones_per_layer() -> None:
    """Totals of four layers, from the trace; the part that is given is the rounded quarter."""
    document = json.loads((ROOT / "examples" / "parts-deepseek-like.json").read_text())
    (chunk,) = document["chunks"]
    totals = {
        "F": [17479, 26761, 18415, 34736],
        "B": [23077, 21224, 29947, 37363],
        "W": [14158, 9554],
    }
    for kind, row in totals.items():
        assert [part["time"] for part in chunk[kind]] == [int(t / 4 + 0.5) for t in row]
