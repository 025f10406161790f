"""Problem files: contract, section 2."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipesat.core.errors import BadInput
from pipesat.core.strict_json import LARGEST_FILE
from pipesat.problem.problem import Device, Link, Overlap, Problem, Route, Stage
from pipesat.problem.problem_file import parse_problem, read_problem

Save = Callable[..., Path]

FORMAT = "pipesat.problem/1"
UNIT = {"device": 0, "F": 1, "B": 1, "W": 1}


def entry(a: object, b: object, time: object = 1) -> dict[str, Any]:
    return {"ops": [a, b], "time": time}


def listed(ops: list[object], time: object = 1) -> dict[str, Any]:
    return {"pairs": [{"ops": ops, "time": time}]}


def by_factor(factor: object) -> dict[str, object]:
    return {"pairs": [{"ops": ["0F", "0B"], "factor": factor}]}


def small(**changes: Any) -> dict[str, Any]:
    """One device, one stage, one microbatch; ``None`` removes a key."""
    document = {"format": FORMAT, "microbatches": 1, "devices": [{}], "stages": [dict(UNIT)]}
    return {key: value for key, value in (document | changes).items() if value is not None}


def row(count: int, **changes: Any) -> dict[str, Any]:
    """A chain of stages, each on a device of its own."""
    stages = [UNIT | {"device": d} for d in range(count)]
    return small(devices=[{}] * count, stages=stages, **changes)


def stage(**changes: Any) -> dict[str, Any]:
    return small(stages=[UNIT | changes])


def complaint(document: object) -> BadInput:
    with pytest.raises(BadInput) as caught:
        parse_problem(document)
    return caught.value


# What a problem says


def test_the_contracts_example() -> None:
    problem = parse_problem(
        {
            "format": FORMAT,
            "name": "two-stages",
            "time_unit": "us",
            "memory_unit": "MiB",
            "microbatches": 16,
            "devices": [{"name": "rank0", "memory": 65536, "static": 21000}, {"memory": 65536}],
            "stages": [
                {
                    "device": 0,
                    "F": 1200,
                    "B": 1300,
                    "W": 900,
                    "BW": 2100,
                    "held_after_F": 310,
                    "held_after_B": 140,
                    "backward": "either",
                },
                {"device": 1, "F": 1250, "B": 1350, "W": 900},
            ],
            "comm": {"default": 60, "edges": [{"src": 0, "dst": 1, "F": 60, "B": 80}]},
        }
    )
    assert (problem.name, problem.time_unit, problem.memory_unit) == ("two-stages", "us", "MiB")
    assert problem.devices == (Device("rank0", 65536, 21000), Device("", 65536, 0))
    assert problem.stages == (
        Stage(0, 1200, 1300, 900, 2100, 310, 140, "either"),
        Stage(1, 1250, 1350, 900, 1350 + 900, 0, 0, "either"),
    )
    assert problem.routes == (Route((0, 1), 16),)
    assert problem.links == {(0, 1): Link(60, 80)}
    assert problem.overlap is None


def test_defaults() -> None:
    problem = parse_problem(small())
    assert (problem.name, problem.time_unit, problem.memory_unit) == ("", "", "")
    assert problem.devices == (Device("", None, 0),)  # unlimited, nothing static
    assert problem.stages == (Stage(0, 1, 1, 1, 2, 0, 0, "either"),)
    assert problem.links == {}
    assert problem.overlap is None


def test_null_memory_is_unlimited() -> None:
    (device,) = parse_problem(small(devices=[{"memory": None, "static": 7}])).devices
    assert (device.memory, device.slack) == (None, None)


def test_a_fused_backward_of_zero_is_not_the_default() -> None:
    assert parse_problem(stage(BW=0)).stages[0].BW == 0


@pytest.mark.parametrize("amount", [0, 10**12])
@pytest.mark.parametrize("key", ["F", "B", "W", "BW", "held_after_F", "held_after_B"])
def test_amounts_from_0_to_10_to_the_12(key: str, amount: int) -> None:
    assert getattr(parse_problem(stage(**{key: amount})).stages[0], key) == amount


@pytest.mark.parametrize(
    ("comm", "link"),
    [
        (None, Link(0, 0)),
        ({}, Link(0, 0)),
        ({"default": 5}, Link(5, 5)),
        ({"default": 5, "edges": []}, Link(5, 5)),
        ({"default": 5, "edges": [{"src": 0, "dst": 1}]}, Link(5, 5)),
        ({"default": 5, "edges": [{"src": 0, "dst": 1, "F": 7}]}, Link(7, 5)),
        ({"default": 5, "edges": [{"src": 0, "dst": 1, "B": 0}]}, Link(5, 0)),
        ({"edges": [{"src": 0, "dst": 1, "F": 7}]}, Link(7, 0)),
    ],
)
def test_a_missing_delay_is_the_default(comm: dict[str, Any] | None, link: Link) -> None:
    assert parse_problem(row(2, comm=comm)).links == {(0, 1): link}


def test_stages_on_one_device_have_no_delay() -> None:
    document = small(stages=[UNIT, UNIT], comm={"default": 5})
    assert parse_problem(document).links == {}


def test_routes_say_stages_and_microbatches() -> None:
    routes = [{"stages": [0, 2], "microbatches": 3}, {"stages": [3, 1], "microbatches": 5}]
    comm = {"default": 1, "edges": [{"src": 3, "dst": 1, "F": 9}]}
    problem = parse_problem(row(4, microbatches=None, routes=routes, comm=comm))
    assert problem.routes == (Route((0, 2), 3), Route((3, 1), 5))
    assert problem.microbatches == (3, 5, 3, 5)
    assert problem.previous == (None, 3, 0, None)
    assert problem.next == (2, None, None, 1)
    assert problem.links == {(0, 2): Link(1, 1), (3, 1): Link(9, 1)}


def test_overlap_is_a_factor() -> None:
    assert parse_problem(small(overlap={"FB": [3, 4]})).overlap == Overlap((3, 4))


def test_overlap_lists_pairs_of_any_kinds() -> None:
    # the stage never runs B and W apart: an entry of theirs is unused, not wrong
    one = {"device": 0, "F": 1, "B": 1, "W": 1, "backward": "fused"}
    pairs = [entry("0F", "1BW", 10**12), entry("0W", "1B", 1), entry("0F", "0F", 2)]
    doc = small(stages=[one, one], overlap={"FB": [1, 2], "pairs": pairs})
    overlap = parse_problem(doc).overlap
    assert overlap is not None
    assert overlap.factor == (1, 2)
    kinds = ((0, "F"), (1, "BW")), ((0, "W"), (1, "B")), ((0, "F"), (0, "F"))
    assert overlap.times == dict(zip(kinds, (10**12, 1, 2), strict=True))


def test_a_list_of_no_pairs() -> None:
    assert parse_problem(small(overlap={"pairs": []})).overlap is None


# What is refused, with the path of the value

NOT_AN_AMOUNT = [
    1.0,
    0.5,
    float("nan"),
    float("inf"),
    -1,
    True,
    False,
    "1",
    [1],
    {},
    10**12 + 1,
    10**30,
    -(10**30),
]
PATHS_OF_AMOUNTS = {
    "devices[0].memory": lambda v: small(devices=[{"memory": v}]),
    "devices[1].static": lambda v: row(2) | {"devices": [{}, {"static": v}]},
    "stages[0].device": lambda v: stage(device=v),
    "stages[0].F": lambda v: stage(F=v),
    "stages[0].B": lambda v: stage(B=v),
    "stages[0].W": lambda v: stage(W=v),
    "stages[0].BW": lambda v: stage(BW=v),
    "stages[0].held_after_F": lambda v: stage(held_after_F=v),
    "stages[0].held_after_B": lambda v: stage(held_after_B=v),
    "comm.default": lambda v: small(comm={"default": v}),
    "comm.edges[0].src": lambda v: row(2, comm={"edges": [{"src": v, "dst": 1}]}),
    "comm.edges[0].dst": lambda v: row(2, comm={"edges": [{"src": 0, "dst": v}]}),
    "comm.edges[0].F": lambda v: row(2, comm={"edges": [{"src": 0, "dst": 1, "F": v}]}),
    "comm.edges[0].B": lambda v: row(2, comm={"edges": [{"src": 0, "dst": 1, "B": v}]}),
    "routes[0].stages[0]": lambda v: small(
        microbatches=None, routes=[{"stages": [v], "microbatches": 1}]
    ),
}
PATHS_OF_COUNTS = {
    "microbatches": lambda v: small(microbatches=v),
    "routes[0].microbatches": lambda v: small(
        microbatches=None, routes=[{"stages": [0], "microbatches": v}]
    ),
    "overlap.FB[0]": lambda v: small(overlap={"FB": [v, 1]}),
    "overlap.FB[1]": lambda v: small(overlap={"FB": [1, v]}),
    "overlap.pairs[0].time": lambda v: small(overlap=listed(["0F", "0BW"], v)),
}


@pytest.mark.parametrize("value", NOT_AN_AMOUNT, ids=str)
@pytest.mark.parametrize("path", PATHS_OF_AMOUNTS)
def test_an_amount_is_an_integer_from_0_to_10_to_the_12(path: str, value: object) -> None:
    error = complaint(PATHS_OF_AMOUNTS[path](value))
    assert error.where == path
    assert f"{path}: got " in str(error)
    assert "expected an integer from 0 to 10^12" in str(error)


@pytest.mark.parametrize("value", [0, *NOT_AN_AMOUNT], ids=str)
@pytest.mark.parametrize("path", PATHS_OF_COUNTS)
def test_a_count_is_an_integer_from_1_to_10_to_the_12(path: str, value: object) -> None:
    error = complaint(PATHS_OF_COUNTS[path](value))
    if value == [1] and path.endswith("microbatches"):  # a list of classes, and 1 is none
        assert f"{path}[0]: got 1, expected an object" in str(error)
        return
    assert error.where == path
    assert "expected an integer from 1 to 10^12" in str(error)


@pytest.mark.parametrize("path", [p for p in PATHS_OF_AMOUNTS if p != "devices[0].memory"])
def test_only_memory_may_be_null(path: str) -> None:
    assert complaint(PATHS_OF_AMOUNTS[path](None)).where == path


@pytest.mark.parametrize("key", ["name", "order", "routes", "comm", "overlap", "mode_choice"])
def test_a_key_that_is_not_meant_is_left_out_not_null(key: str) -> None:
    assert complaint(small() | {key: None}).where == key


def test_a_number_of_microbatches_that_is_null_is_called_so() -> None:
    assert "microbatches: got null, expected" in str(complaint(small() | {"microbatches": None}))


@pytest.mark.parametrize(
    ("document", "where", "expected"),
    [
        ([], "", "a JSON object"),
        (None, "", "a JSON object"),
        (small(format=None), "format", "required"),
        (small(format="pipesat.problem/2"), "format", FORMAT),
        ({"format": "pipesat.schedule/1", "problem_sha256": "", "devices": []}, "format", FORMAT),
        (small(devices=None), "devices", "required"),
        (small(devices=[]), "devices", "at least 1"),
        (small(devices=[1]), "devices[0]", "an object"),
        (small(devices=[{"name": 3}]), "devices[0].name", "a string"),
        (small(name=["x"]), "name", "a string"),
        (small(stages=[{"device": 0, "F": 1, "B": 1}]), "stages[0].W", "required"),
        (stage(device=1), "stages[0].device", "from 0 to 0"),
        (stage(backward="both"), "stages[0].backward", "'split', 'fused', 'either' or 'none'"),
        (small(microbatches=None), "microbatches", "both are missing"),
        (small(routes=[{"stages": [0], "microbatches": 1}]), "microbatches", "not both"),
        (small(microbatches=None, routes=[{"stages": [0]}]), "routes[0].microbatches", "required"),
        (small(comm=[]), "comm", "an object"),
        (row(2, comm={"edges": [{"src": 0}]}), "comm.edges[0].dst", "required"),
        (small(overlap={}), "overlap", "expected FB, pairs or both"),
        (small(overlap={"pairs": [{"ops": ["0F", "0B"]}]}), "overlap.pairs[0]", "both are missing"),
        (
            small(overlap={"pairs": [entry("0F", "0B") | {"factor": [1, 2]}]}),
            "overlap.pairs[0]",
            "either time or factor, not both",
        ),
        (small(overlap=by_factor([3, 2])), "overlap.pairs[0].factor", "num <= den"),
        (small(overlap=by_factor([0, 1])), "overlap.pairs[0].factor[0]", "1 to 10^6"),
        (small(overlap=by_factor([1, 10**6 + 1])), "overlap.pairs[0].factor[1]", "1 to 10^6"),
        (small(overlap=listed(["0F", "0B"], None)), "overlap.pairs[0].time", "1 to 10^12"),
        (small(overlap=listed(["0F0", "0B"])), "overlap.pairs[0].ops[0]", "as in 0F"),
        (small(overlap=listed(["0F", "0I"])), "overlap.pairs[0].ops[1]", "<stage><F|B|W|BW>"),
        (small(overlap=listed(["00F", "0B"])), "overlap.pairs[0].ops[0]", "as in 0F"),
        (small(overlap=listed(["0F", "1B"])), "overlap.pairs[0].ops[1]", "a stage from 0 to 0"),
        (
            row(2, overlap=listed(["0F", "1B"])),
            "overlap.pairs[0].ops",
            "expected two stages of one device, but stage 0 lies on device 0, stage 1 on device 1",
        ),
        (
            small(overlap={"pairs": [entry("0F", "0B"), entry("0B", "0F")]}),
            "overlap.pairs[1].ops",
            "each combination at most once, but overlap.pairs[0] has it already",
        ),
        (
            small(overlap={"pairs": [entry("0F", "0F"), entry("0F", "0F")]}),
            "overlap.pairs[1].ops",
            "each combination at most once",
        ),
    ],
)
def test_a_wrong_structure_names_the_place(document: object, where: str, expected: str) -> None:
    error = complaint(document)
    assert error.where == where
    assert expected in str(error)


@pytest.mark.parametrize(
    ("document", "where", "nearest"),
    [
        (small(micro_batches=1), "micro_batches", "microbatches"),
        (small(device=[]), "device", "devices"),
        (small(devices=[{"memroy": 1}]), "devices[0].memroy", "memory"),
        (stage(f=1), "stages[0].f", "F"),
        (stage(held_after_f=1), "stages[0].held_after_f", "held_after_F"),
        (small(comm={"edge": []}), "comm.edge", "edges"),
        (row(2, comm={"edges": [{"source": 0, "dst": 1}]}), "comm.edges[0].source", "src"),
        (small(overlap={"FBW": [1, 1]}), "overlap.FBW", "FB"),
        (small(overlap={"pair": []}), "overlap.pair", "pairs"),
        (small(overlap={"pairs": [{"op": []}]}), "overlap.pairs[0].op", "ops"),
        (
            small(microbatches=None, routes=[{"stage": [0], "microbatches": 1}]),
            "routes[0].stage",
            "stages",
        ),
    ],
)
def test_an_unknown_key_names_the_nearest_known_one(
    document: object, where: str, nearest: str
) -> None:
    error = complaint(document)
    assert error.where == where
    assert re.search(rf"unknown key; the nearest known key is {nearest}$", str(error))


@pytest.mark.parametrize(
    ("routes", "where", "expected"),
    [
        ([[0, 1], [2]], "routes", "stage 3 is on no route"),
        ([[0, 1], [2, 3, 0]], "routes[1].stages[2]", "it also stands at routes[0].stages[0]"),
        ([[0, 1, 1, 2, 3]], "routes[0].stages[2]", "it also stands at routes[0].stages[1]"),
        ([[0, 1, 2, 3, 4]], "routes[0].stages[4]", "from 0 to 3"),
        ([[0, 1, 2, 3], []], "routes[1].stages", "at least 1"),
    ],
)
def test_every_stage_is_on_one_route_once(
    routes: list[list[int]], where: str, expected: str
) -> None:
    given = [{"stages": stages, "microbatches": 1} for stages in routes]
    error = complaint(row(4, microbatches=None, routes=given))
    assert error.where == where
    assert expected in str(error)


@pytest.mark.parametrize(("src", "dst"), [(0, 2), (1, 0), (0, 0), (2, 3), (9, 10)])
def test_edges_join_consecutive_stages_forward(src: int, dst: int) -> None:
    edges = [{"src": 0, "dst": 1}, {"src": src, "dst": dst}]
    error = complaint(row(3, comm={"edges": edges}))
    assert error.where == "comm.edges[1]"
    assert f"{src} -> {dst} are not consecutive stages of a route" in str(error)


def test_edges_follow_the_routes() -> None:
    # on the route 1, 0 the hop is 1 -> 0; 0 -> 1 runs backward
    routes = [{"stages": [1, 0], "microbatches": 1}]
    edges = [{"src": 0, "dst": 1}]
    error = complaint(row(2, microbatches=None, routes=routes, comm={"edges": edges}))
    assert error.where == "comm.edges[0]"


def test_an_edge_is_given_once() -> None:
    error = complaint(row(2, comm={"edges": [{"src": 0, "dst": 1}, {"src": 0, "dst": 1}]}))
    assert error.where == "comm.edges[1]"
    assert "0 -> 1 is given twice" in str(error)


# Limits


def test_most_devices() -> None:
    assert len(parse_problem(small(devices=[{}] * 4096)).devices) == 4096
    error = complaint(small(devices=[{}] * 4097))
    assert str(error) == "problem: devices: 4097 entries, expected at most 4096"


def test_most_stages() -> None:
    assert len(parse_problem(small(stages=[UNIT] * 16384)).stages) == 16384
    error = complaint(small(stages=[UNIT] * 16385))
    assert str(error) == "problem: stages: 16385 entries, expected at most 16384"


@pytest.mark.parametrize(("backward", "ops"), [("fused", 2), ("split", 3), ("either", 3)])
def test_most_ops(backward: str, ops: int) -> None:
    most = 4_000_000 // ops  # microbatches on the one stage
    assert parse_problem(stage(backward=backward) | {"microbatches": most}).op_count == ops * most
    error = complaint(stage(backward=backward) | {"microbatches": most + 1})
    count = f"problem: microbatches: got {most + 1}, {ops * (most + 1)} ops"
    assert str(error) == f"{count}, expected at most 4000000"


def test_an_object_is_asked_for_with_its_keys() -> None:
    error = complaint(small(comm=-1))
    assert str(error) == "problem: comm: got -1, expected an object with default, edges"
    error = complaint(small(stages=[7]))  # those that it has to have
    assert str(error) == "problem: stages[0]: got 7, expected an object with device, F, B, W"


@pytest.mark.slow
def test_largest_file(tmp_path: Path) -> None:
    path = tmp_path / "problem.json"
    text = json.dumps(small()).encode()
    path.write_bytes(text + b" " * ((64 << 20) - len(text)))
    assert path.stat().st_size == LARGEST_FILE
    assert len(read_problem(path).stages) == 1
    with path.open("ab") as file:
        file.write(b" ")
    with pytest.raises(BadInput, match="larger than the limit of 64 MiB"):
        read_problem(path)


# Files


@pytest.mark.parametrize(
    ("content", "where", "expected"),
    [
        (b"", "", "the file is empty"),
        (b" \n\t ", "", "the file is empty"),
        (b"hello", "", "not JSON: .* at line 1 column 1"),
        (b'{"format": \n', "", "not JSON: .* at line 2 column 1"),
        (b'{"a": 1,}', "", "not JSON"),
        (b'{"a": "b', "", "not JSON: Unterminated string starting at line 1 column 7"),
        (b"{'a': 1}", "", "not JSON"),
        (json.dumps(small()).encode() * 2, "", "not JSON: Extra data"),
        (b"\xef\xbb\xbf" + json.dumps(small()).encode(), "", "not JSON: .*BOM"),
        (json.dumps(small()).encode("utf-16"), "", "not UTF-8"),
        (b'{"name": "\xff"}', "", r"not UTF-8 text \(byte 10\)"),
        (b"[" * 100_000, "", "nested too deeply"),
        (b"[" * 100_000 + b"]" * 100_000, "", "nested too deeply"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "", "nested too deeply"),
        (b'{"name": "\\ud800"}', "name", "lone surrogate"),
        (b'{"\\udfff": 1}', r"['\udfff']", "lone surrogate"),
        (b'{"microbatches": ' + b"9" * 5000 + b"}", "microbatches", "thousands of digits"),
        (b'{"name": "a", "name": "a"}', "name", "twice"),
        (b'{"stages": [{"F": 1}, {"F": 1, "B": 2, "F": 3}]}', "stages[1].F", "twice"),
        (b'{"comm": {"edges": [{"src": 0, "src": 0}]}}', "comm.edges[0].src", "twice"),
        (b'{"a": {"b": 1, "b": 2}, "a": 3}', "a", "twice"),
        (b'{"a b": 1, "a b": 2}', "['a b']", "twice"),
    ],
)
def test_a_file_that_is_no_good_json(save: Save, content: bytes, where: str, expected: str) -> None:
    path = save(content)
    with pytest.raises(BadInput, match=expected) as caught:
        read_problem(path)
    assert caught.value.source == str(path)
    assert caught.value.where == where


def test_many_repeated_keys_are_found_quickly(save: Save) -> None:
    # 200,000 keys, the last one twice: comparing every two of them would take hours
    keys = ",".join(f'"k{i}":0' for i in range(200_000))
    with pytest.raises(BadInput, match="k199999: this key appears twice"):
        read_problem(save("{" + keys + ',"k199999":1}'))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("missing.json", "cannot read: No such"), (".", "a folder, expected a f")],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        read_problem(tmp_path / name)


def test_a_good_file(save: Save) -> None:
    document = row(2, name="Gerät 東京")
    assert read_problem(save(document)) == parse_problem(document)


# Digest


def test_digest_of_the_canonical_form() -> None:
    document = {
        "stages": [{"device": 0, "W": 3, "F": 1, "B": 2}],
        "name": "é\n/",
        "microbatches": 1,
        "format": FORMAT,
        "devices": [{}],
    }
    # keys sorted, no spaces, UTF-8 as it is; by hand from the contract
    canonical = (
        '{"devices":[{}],"format":"pipesat.problem/1","microbatches":1,"name":"é\\n/",'
        '"stages":[{"B":2,"F":1,"W":3,"device":0}]}'
    )
    assert parse_problem(document).sha256 == hashlib.sha256(canonical.encode("utf-8")).hexdigest()


def test_digest_ignores_whitespace_key_order_and_escapes(save: Save) -> None:
    document = row(2, name="é")
    digest = parse_problem(document).sha256
    backwards = dict(reversed(document.items()))
    for text in (
        json.dumps(document, indent=4, ensure_ascii=True),
        json.dumps(backwards, ensure_ascii=False),
        "\n" + json.dumps(document, separators=(",", ":")) + "\n",
    ):
        assert read_problem(save(text)).sha256 == digest


@pytest.mark.parametrize(
    "written",
    [
        small(name=""),
        small(devices=[{"memory": None}]),
        small(devices=[{"static": 0}]),
        stage(BW=2),
        stage(backward="either"),
        small(comm={}),
        small(microbatches=None, routes=[{"stages": [0], "microbatches": 1}]),
    ],
)
def test_digest_does_not_fill_in_defaults(written: dict[str, Any]) -> None:
    problem, same = parse_problem(small()), parse_problem(written)
    assert same == problem  # it says the same,
    assert same.sha256 != problem.sha256  # but the file's own keys differ


def test_a_problem_keeps_its_digest_when_the_document_is_changed_later() -> None:
    document = small()
    before = parse_problem(copy.deepcopy(document)).sha256
    problem = parse_problem(document)
    document["microbatches"] = 2
    document["stages"][0]["F"] = 9
    assert isinstance(problem, Problem)
    assert problem.sha256 == before


def test_a_lone_surrogate_has_no_digest() -> None:
    assert "lone surrogate" in str(complaint(small(name="\ud800")))
