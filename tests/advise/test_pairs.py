"""``plan`` and ``advise`` where F and BW of a device may pair, by formula and against schedules."""

from __future__ import annotations

import json
import random
import shlex
from pathlib import Path
from typing import Any

import pytest

import pipesat
from pipesat.advise.advice_table import megatron_flags
from pipesat.advise.bounds import partitions_below, shape_bound
from pipesat.advise.files import Advice, remark_of
from pipesat.advise.question import Question
from pipesat.advise.table_rows import Row
from pipesat.check.checker import check
from pipesat.core.errors import BadInput, NotApplicable
from pipesat.core.folder import write_folder
from pipesat.layers.layer import Layers
from pipesat.layers.pipeline import Pipeline
from pipesat.layers.stages import problem_of_split
from pipesat.problem.partition import partition_of
from pipesat.solver import SolveOptions, solve
from tests.conftest import Run
from tests.support.plans import entry, layers_of

# F and BW take 4, and together 4 too
LAYERS = layers_of([entry(4, 4, 0)] * 4, time_unit="ms")


def asked(runtime: str, layers: Layers = LAYERS, **options: Any) -> Advice:
    options = {"devices": 2, "microbatches": 4, "time_limit": 1.5, "workers": 1} | options
    return pipesat.advise(layers, overlap="1/2", target=runtime, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def megatron() -> Advice:
    return asked("megatron", time_limit=20.0)


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


def test_the_advice_has_a_bound_over_all_splits(megatron: Advice) -> None:
    """8 forwards and 8 backwards of 4 per device, of which every two may run in 4."""
    chosen = megatron.chosen
    assert chosen is not None
    assert (chosen.name, chosen.makespan) == ("interleaved-overlapped", 52)
    assert megatron.bound is not None
    assert 8 * 4 <= megatron.bound.value <= min(row.makespan for row in megatron.rows)
    lines = dict(megatron.facts())
    assert "8 of its 16 forwards run together with a backward" in lines["Limit"]
    assert "on any split of chain, V, VPP 2" in lines["Proof"]
    assert "Every pair of F and BW is taken to last 1/2 of both" in lines["Doubt"]
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
    assert document["overlap"] == [1, 2]
    assert document["chosen"]["pairs"] == 8
    (name,) = [x["files"] for x in document["rows"] if x["files"] and x["pairs"] == 8 and x["runs"]]
    files = (tmp_path / f"{name}.problem.json", tmp_path / f"{name}.json")
    assert "makespan 52" in cli("check", *files).out


def test_only_runtimes_that_run_pairs_of_f_and_bw_get_them() -> None:
    split = (range(2), range(2, 4))
    problems = {}
    for name in ("d9d", "torch"):
        line = Pipeline(devices=2, microbatches=4, overlap=(1, 2))
        question = Question(LAYERS, line, runtime=name)  # type: ignore[arg-type]
        problems[name] = question.candidate(question.shape("chain"), split).problem
    assert problems["d9d"].overlap is None
    overlap = problems["torch"].overlap
    assert overlap is not None
    assert overlap.factor == (1, 2)


def test_pairs_and_recomputing_go_together_where_a_runtime_can() -> None:
    """Megatron-LM's combined 1F1B refuses full recomputation; torch's pairs are work by hand."""
    again = {"recompute": {"F": 4, "B": 6, "W": 0, "held_after_F": 1}}
    layers = layers_of([entry(4, 4, 0, 4, role="block", **again)] * 4, time_unit="ms")
    own = asked("megatron", layers, memory=10, reserve=0)
    refused = [row for row in own.rows if row.pairs and row.again and row.fits and not row.runs]
    assert any("refuses --recompute-granularity full" in row.why_not for row in refused)
    torch = asked("torchtitan", layers, memory=10, reserve=0)
    paired = [row for row in torch.rows if row.pairs and row.runs and not row.again]
    assert all("OVERLAP_F_B" in row.by_hand for row in paired)
    assert all("function for OVERLAP_F_B" in remark_of(torch, row) for row in paired)
    assert [row for row in torch.rows if row.pairs and row.runs and row.again]


def test_offloading_goes_with_pairs() -> None:
    """Capacity 10: a microbatch of two layers holds 8, copied out 2."""
    again = {"recompute": {"F": 4, "B": 6, "W": 1, "held_after_F": 1}}
    layers = layers_of([entry(4, 4, 0, 4, role="block", **again)] * 4, time_unit="ms")
    advice = asked("torch", layers, memory=10, reserve=0, copy_bandwidth=6)
    (row, *_) = [row for row in advice.rows if row.candidate.offload]
    assert check(row.problem, row.schedule) == []
    assert max(row.peaks) <= 10
    assert row.problem.overlap is not None


GLANCE = SolveOptions(deterministic=True, starts="none", time_limit=0.05)


@pytest.mark.parametrize("seed", range(6))
def test_no_bound_over_partitions_is_above_a_schedule_with_pairs(seed: int) -> None:
    """Every partition of four layers, its pairs and its memory, solved: no value is below."""
    draw = random.Random(f"pairs {seed}")
    costs = [(draw.randint(1, 6), draw.randint(1, 6), draw.randint(0, 4)) for _ in range(4)]
    layers = layers_of([entry(*three, held=draw.randint(1, 3)) for three in costs])
    shape = Pipeline(
        devices=2,
        microbatches=3,
        placement=draw.choice(["chain", "vee", "loop"]),  # type: ignore[arg-type]
        memory=draw.choice([None, 14]),
        overlap=draw.choice([(1, 2), (11, 20), (4, 5), (5, 4)]),
    )
    cuts = [(0, 1, 2, 3, 4)] if shape.stages == 4 else [(0, c, 4) for c in (1, 2, 3)]
    found = {}
    for partition in map(partition_of, cuts):
        problem = problem_of_split(layers, partition, shape)
        result = solve(problem, GLANCE)
        assert problem.overlap is not None
        if result.value is not None:
            found[partition] = result.value
    least = min(found.values())
    assert shape_bound(layers, shape, "makespan").value <= least
    below = partitions_below(layers, shape, "makespan", least + 1)
    assert below is not None
    assert {split for split, value in found.items() if value == least} <= set(below)


def test_a_plan_pairs_and_says_no_load(cli: Run, tmp_path: Path) -> None:
    """Half the work may run under the other half, so the plan is shorter than without pairs."""
    LAYERS.write(tmp_path / "l.json")
    words = ("plan", tmp_path / "l.json", "--devices", 2, "--microbatches", 4, "--time-limit", 2)
    words += ("--placement", "vee", "--workers", 1, "--json")
    plain = json.loads(cli(*words).out)
    paired = json.loads(cli(*words, "--overlap", "1/2").out)
    assert paired["value"] < plain["value"]
    assert paired["result"]["pairs"]["F+BW"] > 0
    assert 32 <= paired["lower_bound"] <= paired["value"]


def test_a_runtime_that_mixes_ways_is_planned_without_pairs() -> None:
    """JaxPP splits all or none, but for whole ones in pairs: two searches would not have all."""
    layers = layers_of([entry(4, 4, 2)] * 4)
    with pytest.raises(NotApplicable, match="plan without `overlap`"):
        pipesat.plan(layers, 2, 4, overlap="1/2", target="jaxpp", time_limit=1.0)


@pytest.mark.parametrize("text", ["0/2", "2", "1/0", "x", "1/2/3", f"1/{10**13}"])
def test_a_share_that_is_none(text: str) -> None:
    with pytest.raises(BadInput, match=r"overlap: .*expected NUM/DEN"):
        pipesat.plan(LAYERS, 2, 4, overlap=text)
