"""``pipesat advise`` with the parts of a layer: rows in which ops run together, by formula."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

import pipesat
from pipesat.choose.advice import Advice
from pipesat.choose.advice_table import megatron_flags
from pipesat.choose.files import remark_of
from pipesat.choose.pairs import alone, require_one_chunk, together, with_times
from pipesat.choose.rows import Row
from pipesat.core.checker import check
from pipesat.core.errors import BadInput
from pipesat.core.ops import KINDS
from pipesat.files.folder import write_folder
from pipesat.layers.file import write_layers
from pipesat.layers.layer import Layers
from pipesat.parts.file import parse_parts
from tests.conftest import Run
from tests.support.outcomes import one_bad_line
from tests.support.parts import least_by_trying, random_parts
from tests.support.plans import entry, layers_of

# A layer computes 2 and communicates 2, forwards and backwards: F and BW take 4, together 4 too
DOCUMENT: dict[str, Any] = {
    "format": "pipesat.parts/1",
    "time_unit": "ms",
    "streams": ["main", "comm"],
    "chunks": [
        {
            "name": "moe",
            "F": [
                {"name": "f", "stream": "main", "time": 2},
                {"name": "send", "stream": "comm", "time": 2},
            ],
            "B": [
                {"name": "send", "stream": "comm", "time": 2},
                {"name": "b", "stream": "main", "time": 2},
            ],
        }
    ],
    "stages": ["moe"] * 4,
}
PARTS = parse_parts(DOCUMENT)


def asked(runtime: str, layers: Layers | None = None, **options: Any) -> Advice:
    given = {"model": PARTS} if layers is None else {"model": layers, "parts": PARTS}
    options = {"devices": 2, "microbatches": 4, "time_limit": 60.0, "workers": 1} | options
    return pipesat.advise(**given, target=runtime, **options)


@pytest.fixture(scope="module")
def megatron() -> Advice:
    return asked("megatron")


def best(advice: Advice, name: str) -> Row:
    return min((row for row in advice.rows if row.name == name), key=lambda row: row.makespan)


def test_rows_by_formula(megatron: Advice) -> None:
    """1F1B with two layers a stage takes (m + p - 1) 16; interleaved 1F1B (m v + p - 1) 8.

    Combined 1F1B p v (F + BW) + (m v - (v - 1) p - 1) P = 4 * 8 + 5 * 4, with 3 and 5 pairs.
    """
    assert best(megatron, "1f1b").makespan == 80
    assert best(megatron, "interleaved-1f1b").makespan == 72
    combined = best(megatron, "interleaved-overlapped")
    assert (combined.makespan, combined.pairs, combined.placement) == (52, 8, "loop of 2")
    assert (combined.runs, combined.why_not) == (True, "")
    assert not best(megatron, "dualpipev").runs
    for row in megatron.rows:
        assert check(row.problem, row.schedule) == []


def test_the_advice_and_its_bound_are_of_one_split(megatron: Advice) -> None:
    """8 forwards and 8 backwards of 4 per device, of which 7 at most can run in pairs."""
    chosen = megatron.chosen
    assert chosen is not None
    assert (chosen.name, chosen.makespan) == ("interleaved-overlapped", 52)
    assert megatron.plan is None
    assert megatron.bound is not None
    least = 16 * 4 - 7 * 4
    assert least <= megatron.bound.value <= best(megatron, "ours").makespan
    lines = dict(megatron.facts())
    assert "8 of its 16 forwards run together with a backward" in lines["Limit"]
    assert "of this split in a loop of 2" in lines["Proof"] or "proven" in lines["Proof"]
    assert chosen.share_of_ideal(megatron.question) is None


def test_megatrons_flags_of_pairs(megatron: Advice) -> None:
    assert megatron.chosen is not None
    flags = shlex.split(megatron_flags(megatron.question, megatron.chosen), comments=True)
    assert flags == [
        "--pipeline-model-parallel-size=2",
        "--pipeline-model-parallel-layout=Et|t|t|tL",
        "--overlap-moe-expert-parallel-comm",
        "--delay-wgrad-compute",
    ]
    plain = megatron_flags(megatron.question, best(megatron, "interleaved-1f1b"))
    assert "overlap" not in plain


def test_layers_without_parts_run_by_themselves() -> None:
    """An embedding of F 1, BW 2: F 5 and BW 6 of its stage, together 4 and what it takes alone."""
    held = [entry(1, 1, 1, 0) | {"name": "E", "role": "embedding"}, *(entry(9, 9, 9, 3),) * 3]
    layers = replace(layers_of(held), time_unit="ms")
    advice = asked("torchtitan", layers, memory=100, reserve=0, time_limit=2.0)
    shape = advice.question.shape("chain")
    problem = advice.question.candidate((range(2), range(2, 4)), shape, (), "torchtitan").problem
    first, second = problem.stages
    assert (first.F, first.BW, first.held_after_F) == (5, 6, 3)
    assert (second.F, second.BW, second.held_after_F) == (8, 8, 6)
    pairs = problem.document["overlap"]["pairs"]
    assert pairs == [{"ops": ["0F", "0BW"], "time": 7}, {"ops": ["1F", "1BW"], "time": 8}]
    paired = [row for row in advice.rows if row.pairs and row.runs]
    assert all("OVERLAP_F_B" in row.by_hand for row in paired)
    assert all("function for OVERLAP_F_B" in remark_of(advice, row) for row in paired)
    assert ("recomputation", "not searched together with pairs") in advice.left_out


@pytest.mark.parametrize("seed", range(25))
def test_stages_and_pairs_take_the_least_of_all_orders(seed: int) -> None:
    """Stages of one and two layers, against trying every order of the parts."""
    document = random_parts(Random(seed))
    chunk = document["chunks"][0] | {"repeat": 1}
    one = document | {"chunks": [chunk], "stages": [chunk["name"]], "devices": [0]}
    parts = parse_parts(one)
    sizes = {"chunks": [chunk | {"name": f"{n}", "repeat": n} for n in (1, 2)]}
    for count in (1, 2):
        for kind in KINDS:
            least = least_by_trying(document | sizes, [(f"{count}", kind)])
            assert alone(parts, count, kind) == least
    for forwards, backwards in ((1, 1), (2, 1), (1, 2)):
        ops = [(f"{forwards}", "F"), (f"{backwards}", "BW")]
        assert together(parts, forwards, backwards) == least_by_trying(document | sizes, ops)


def test_megatrons_folder_has_what_megatron_takes(
    megatron: Advice, cli: Run, tmp_path: Path
) -> None:
    """No order for torch, nor what an earlier answer for it left there."""
    write_folder(tmp_path, {"schedule.toml": b"of an answer for torchtitan"})
    megatron.save(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names >= {"megatron.txt", "advice.json", "report.html", "schedule.json"}
    assert not [name for name in names if name.endswith((".csv", ".hazards.txt", ".toml"))]
    document = json.loads((tmp_path / "advice.json").read_text())
    assert document["parts"] == "parts"
    assert document["chosen"]["pairs"] == 8
    (name,) = [x["files"] for x in document["rows"] if x["files"] and x["pairs"] == 8 and x["runs"]]
    files = (tmp_path / f"{name}.problem.json", tmp_path / f"{name}.json")
    assert "makespan 52" in cli("check", *files).out


def test_what_does_not_go_with_parts() -> None:
    second = DOCUMENT["chunks"][0] | {"name": "dense"}
    two = parse_parts(DOCUMENT | {"chunks": [*DOCUMENT["chunks"], second]})
    with pytest.raises(BadInput, match=r"chunks: got 2, expected one chunk"):
        require_one_chunk(two)
    layers = replace(layers_of([entry(1, 1, 1)] * 2), time_unit="us")
    with pytest.raises(BadInput, match="time_unit: got 'ms', the layers have"):
        with_times(layers, PARTS)


def test_offloading_goes_with_pairs() -> None:
    """Capacity 10: a microbatch of two layers holds 8, copied out 2; F and BW pair in 8."""
    again = {"recompute": {"F": 2, "B": 3, "W": 1, "held_after_F": 1}}
    layers = replace(layers_of([entry(2, 2, 1, 4, role="block", **again)] * 4), time_unit="ms")
    advice = asked("torch", layers, memory=10, reserve=0, copy_bandwidth=6, time_limit=6.0)
    (row, *_) = [row for row in advice.rows if row.candidate.offload]
    assert check(row.problem, row.schedule) == []
    assert max(row.peaks) <= 10
    overlap = row.problem.overlap
    assert overlap is not None
    assert overlap.times[(0, "F"), (0, "BW")] < 2 * 8
    assert advice.chosen is not None
    assert not advice.chosen.candidate.offload


def test_the_command_line_takes_parts_alone_or_beside_layers(cli: Run, tmp_path: Path) -> None:
    parts, layers = tmp_path / "parts.json", tmp_path / "layers.json"
    parts.write_text(json.dumps(DOCUMENT))
    write_layers(layers, replace(layers_of([entry(1, 1, 1)] * 4), time_unit="ms"))
    words = ["--devices", 2, "--microbatches", 4, "--for", "megatron", "--time-limit", 60]
    alone = cli("advise", parts, *words)
    beside = cli("advise", layers, "--parts", parts, *words)
    assert alone.code == beside.code == 0, alone.err + beside.err
    for outcome in (alone, beside):
        assert "--overlap-moe-expert-parallel-comm" in outcome.out
        assert f"the least that the parts of {parts} can take" in " ".join(outcome.out.split())
    one_bad_line(cli("advise", layers, "--parts", layers, *words), "layers.json")
