"""Problems made in Python say what the file would say, with the file's checks and messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipesat import BadInput, Device, Problem, ProblemWarning, Stage
from pipesat.problem.problem_file import read_problem

UNIT = {"F": 1, "B": 1, "W": 1}


def document(
    homes: list[int], microbatches: Any = 4, comm: Any = None, **more: Any
) -> dict[str, Any]:
    return {
        "format": "pipesat.problem/1",
        "microbatches": microbatches,
        "devices": [{} for _ in range(max(homes) + 1)],
        "stages": [{"device": home, **UNIT} for home in homes],
        "comm": {"default": 0} if comm is None else comm,
        **more,
    }


# Placements


def test_a_chain_has_one_stage_per_device() -> None:
    assert Problem.chain(3, 4, **UNIT).document == document([0, 1, 2])


def test_a_loop_goes_round_the_devices() -> None:
    assert Problem.loop(2, 4, chunks=3, **UNIT).document == document([0, 1, 0, 1, 0, 1])
    assert Problem.loop(2, 4, **UNIT).document == document([0, 1, 0, 1])


def test_a_vee_goes_there_and_back() -> None:
    assert Problem.vee(3, 4, **UNIT).document == document([0, 1, 2, 2, 1, 0])


def test_two_routes_go_in_opposite_directions() -> None:
    made = Problem.two_routes(2, 5, F=[1, 2], B=1, W=1)
    assert [(stage.device, stage.F) for stage in made.stages] == [(0, 1), (1, 2), (1, 1), (0, 2)]
    assert [(r.stages, r.microbatches) for r in made.routes] == [((0, 1), 3), ((2, 3), 2)]


def test_stages_lie_anywhere() -> None:
    with pytest.warns(ProblemWarning, match="device 1: no stage lies there"):
        made = Problem.from_stages([Stage(0, 1, 1, 1), Stage(2, 1, 1, 1), Stage(0, 1, 1, 1)], 4)
    assert made.document == document([0, 2, 0])


# Values


def test_numbers_are_one_for_all_or_one_each() -> None:
    made = Problem.chain(
        2, 4, F=[3, 4], B=2, W=1, BW=np.array([3, 2]), held_after_F=7, static=(1, 2),
        memory=[30, None],
    )  # fmt: skip
    assert made.stages == (
        Stage(0, 3, 2, 1, 3, held_after_F=7),
        Stage(1, 4, 2, 1, 2, held_after_F=7),
    )
    assert made.devices == (Device(memory=30, static=1), Device(static=2))


def test_numpys_numbers_are_numbers() -> None:
    made = Problem.chain(np.int64(2), np.int32(4), F=np.int64(1), B=1, W=1)  # type: ignore[arg-type]
    assert made.document == document([0, 1])


def test_longer_lists_are_of_layers() -> None:
    made = Problem.chain(2, 4, F=[1, 2, 3, 4], B=1, W=1)
    assert [(s.F, s.B) for s in made.stages] == [(1 + 2, 2), (3 + 4, 2)]
    assert [s.F for s in Problem.chain(2, 4, F=1, B=1, W=1, layers=6).stages] == [3, 3]


def test_a_share_of_1f1bs_peak() -> None:
    # the first of 3 devices holds 3 microbatches of 4: 12, and half of it on top of 5
    made = Problem.chain(3, 8, **UNIT, held_after_F=4, static=5, memory="1f1b*0.5")
    assert [device.memory for device in made.devices] == [11] * 3
    assert made.with_memory("1f1b").devices[0].memory == 5 + 12


def test_one_delay_or_one_per_link() -> None:
    assert Problem.chain(2, 4, **UNIT, comm=5).document["comm"] == {"default": 5}
    made = Problem.loop(3, 4, **UNIT, comm=[5, 7])
    delays = {hop: (link.F, link.B) for hop, link in made.links.items()}
    # from the last device to the first, the slowest link's
    assert delays == {
        (0, 1): (5, 5),
        (1, 2): (7, 7),
        (2, 3): (7, 7),
        (3, 4): (5, 5),
        (4, 5): (7, 7),
    }
    both = Problem.two_routes(3, 4, **UNIT, comm=[5, 7])
    assert {hop: link.F for hop, link in both.links.items()} == {
        (0, 1): 5,
        (1, 2): 7,
        (3, 4): 7,
        (4, 5): 5,
    }


def test_what_a_file_says_passes_through() -> None:
    edges = {"default": 3, "edges": [{"src": 0, "dst": 1, "F": 2, "B": 3}]}
    made = Problem.chain(2, 4, **UNIT, comm=edges, overlap={"FB": [3, 4]}, name="a", time_unit="s")
    assert made.document == document(
        [0, 1], comm=edges, overlap={"FB": [3, 4]}, name="a", time_unit="s"
    )


def test_a_stages_own_values_alone_are_written() -> None:
    made = Problem.from_stages(
        [Stage(0, 1, 2, 3), {"device": 1, "F": 1, "B": 2, "W": 3, "BW": 4, "held_after_F": 1}],
        routes=[{"stages": [1, 0], "microbatches": 2}],
        devices=[Device("first", memory=9), Device()],
        comm=6,
        overlap=(1, 2),
    )
    assert made.document == {
        "format": "pipesat.problem/1",
        "devices": [{"name": "first", "memory": 9}, {}],
        "stages": [
            {"device": 0, "F": 1, "B": 2, "W": 3},
            {"device": 1, "F": 1, "B": 2, "W": 3, "BW": 4, "held_after_F": 1},
        ],
        "comm": {"default": 6},
        "overlap": {"FB": [1, 2]},
        "routes": [{"stages": [1, 0], "microbatches": 2}],
    }


# Copies that differ


def test_copies_differ_in_what_is_said_alone() -> None:
    made = Problem.chain(2, 4, **UNIT)
    assert made.with_memory([5, None]).document == made.document | {"devices": [{"memory": 5}, {}]}
    assert made.with_memory([5, 6]).with_memory(None).document == made.document
    assert made.with_static(3).document == made.document | {"devices": [{"static": 3}] * 2}
    assert made.with_microbatches(9).document == document([0, 1], 9)
    assert made.with_comm([4]).document == document([0, 1], comm={"default": 4})
    assert made.with_overlap((1, 2)).with_overlap(None).document == made.document
    assert made.with_name("b").name == "b"
    assert {stage.backward for stage in made.with_backward("split").stages} == {"split"}
    assert made.document == document([0, 1])


def test_microbatches_of_two_routes() -> None:
    made = Problem.two_routes(2, 5, **UNIT)
    assert [r.microbatches for r in made.with_microbatches(7).routes] == [4, 3]
    assert [r.microbatches for r in made.with_microbatches([2, 6]).routes] == [2, 6]


def test_a_problem_is_written_and_read(tmp_path: Path) -> None:
    made = Problem.vee(2, 3, **UNIT, name="ä")
    made.write(tmp_path / "problem.json")
    assert read_problem(tmp_path / "problem.json").sha256 == made.sha256
    assert Problem.read(tmp_path / "problem.json") == made
    assert Problem.from_document(made.document) == made


# Messages


WRONG: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: Problem.vee(1, 8, F=[1, -1], B=1, W=1),
        "F[1]: got -1, expected an integer from 0 to 10^12 (no fractions: a smaller unit)",
    ),
    (
        lambda: Problem.loop(2, 8, F=[1, 2], B=1, W=1),
        "Problem.loop: F: 2 values, expected 4, one per stage (or more, one per layer), or one for "
        "all",
    ),
    (
        lambda: Problem.chain(2, 8, F=[1, 2, 3], B=[1, 2], W=1),
        "Problem.chain: B: 2 values, expected 3 as `F` says, or one for all",
    ),
    (
        lambda: Problem.chain(2, 8, F=1, B=1, W=1, layers=1),
        "Problem.chain: layers: 1 values, expected 2, one per stage (or more, one per layer), or "
        "one for all",
    ),
    (
        lambda: Problem.chain(10**9, 8, **UNIT),
        "devices: got 1000000000, expected an integer from 1 to 4096",
    ),
    (
        lambda: Problem.loop(4096, 8, chunks=16384, **UNIT),
        "Problem.loop: chunks: 67108864 stages, expected at most 16384",
    ),
    (
        lambda: Problem.two_routes(2, 1, **UNIT),
        "Problem.two_routes: microbatches: got 1, expected at least 2, one per direction",
    ),
    (
        lambda: Problem.two_routes(2, [{"name": "a", "count": 2}], **UNIT),
        "Problem.two_routes: microbatches: got [{'name': 'a', 'count': 2}], expected a number, or "
        "2: one per direction, each a number or a list",
    ),
    (
        lambda: Problem.chain(2, True, **UNIT),
        "microbatches: got True, expected an integer or a list",
    ),
    (
        lambda: Problem.chain(2, 4, **UNIT, memory="much"),
        "Problem.chain: memory: got 'much', expected a whole number, as no memory unit is stated: "
        "give each its unit, or none, or a share such as 1f1b*0.75",
    ),
    (
        lambda: Problem.chain(2, [{"name": "a", "count": 2}], **UNIT, memory="1f1b"),
        "Problem.chain: memory: a share of 1F1B's peak needs microbatches that are alike: give a "
        "capacity",
    ),
    (
        lambda: Problem.chain(3, 4, **UNIT, comm=[1]),
        "Problem.chain: comm: 1 values, expected 2, one per link between neighbours, or one for "
        "all",
    ),
    (
        lambda: Problem.chain(2, 4, **UNIT, backward="both"),  # type: ignore[arg-type]
        "backward: got 'both', expected split or fused or either or none or a list (each split or "
        "fused or either or none)",
    ),
    (
        lambda: Problem.chain(2, 4, **UNIT, overlap=(1, 0)),
        "Problem.chain: overlap.FB[1]: got 0, expected an integer from 1 to 10^12",
    ),
    (
        lambda: Problem.from_stages([Stage(5, 1, 1, 1)], 4, devices=2),
        "Problem.from_stages: stages[0].device: got 5, expected a device from 0 to 1",
    ),
    (
        lambda: Problem.chain(2, 4, **UNIT).with_memory([1, 2, 3]),
        "Problem.with_memory: memory: 3 values, expected 2, one per device, or one for all",
    ),
    (
        lambda: Problem.from_document({"format": "pipesat.problem/1"}),
        "problem: devices: this key is required and missing",
    ),
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=[text for _, text in WRONG])
def test_messages_are_those_of_files(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(BadInput) as raised:
        call()
    assert str(raised.value) == message


def test_memory_may_be_an_amount_with_its_unit() -> None:
    """40 GiB are 40,960 MiB. Only a capacity that is set later is rounded down: as much fits."""
    same = {"F": 1, "B": 1, "W": 1, "memory_unit": "MiB"}
    memory = ["40GiB", "2MiB"]
    problem = Problem.chain(2, 2, **same, memory=memory, static="1MiB", held_after_F=1)
    assert [(d.memory, d.static) for d in problem.devices] == [(40960, 1), (2, 1)]
    assert problem.with_memory("1.5MiB").devices[0].memory == 1
    with pytest.raises(
        BadInput, match=r"whole number in MiB, and it is 1\.5\. In .* 'KiB' it is one"
    ):
        problem.with_static("1.5MiB")
    assert Problem.chain(1, 2, **same, held_after_F="2GiB").stages[0].held_after_F == 2048


AMOUNTS = {"F": 1, "B": 1, "W": 1, "memory": "12GiB", "held_after_F": "2.4GiB"}


def test_no_amount_is_rounded() -> None:
    """Five activations of 2.4 GiB fit into 12 GiB, rounded up to MiB only four."""
    made = Problem.chain(2, 8, **AMOUNTS)
    assert (made.memory_unit, made.devices[0].memory) == ("1e-1 GiB", 120)
    assert made.stages[0].held_after_F == 24
    for unit in ("MiB", "GiB"):
        with pytest.raises(BadInput, match=r"held_after_F: got '2\.4GiB', .* '1e-1 GiB' it is one"):
            Problem.chain(2, 8, **AMOUNTS, memory_unit=unit)
    shared = Problem.chain(2, 8, **AMOUNTS | {"memory": "1f1b*0.5", "static": "512MiB"})
    assert (shared.memory_unit, shared.devices[0].memory) == ("1e-1 GiB", 5 + 24)
    named = Problem.chain(2, [{"name": "held", "count": 8}], **AMOUNTS)
    assert named.memory_unit == "1e-1 GiB"  # a name is no amount


@pytest.mark.parametrize(
    "beside", [{"memory": 12}, {"modes": [{"name": "r", "recompute": 1, "held_after_F": 0}]}]
)
def test_a_unit_is_chosen_only_where_no_plain_number_would_get_it(beside: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="expected a whole number, as no memory unit is stated"):
        Problem.chain(2, 8, **AMOUNTS | beside)
