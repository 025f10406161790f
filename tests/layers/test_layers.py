"""Layers files, what they say of stages, and problems from them: every number by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipesat.core.errors import BadInput, NotApplicable
from pipesat.layers.from_profile import layers_of_profile
from pipesat.layers.layer import FORMAT, Layers
from pipesat.layers.layers_file import parse_layers, read_layers
from pipesat.layers.pipeline import Pipeline, in_flight_1f1b, link_delay
from pipesat.layers.profile.profile_file import parse_profile
from pipesat.layers.profile.static import Training
from pipesat.layers.rules import check_partition, neighbours
from pipesat.layers.stages import problem_of_split, static_of_devices, untold
from tests.conftest import Run
from tests.support.paths import ROOT
from tests.support.profiles import MIB, document, weights

EXAMPLES = ROOT / "examples"
Save = Callable[..., Path]


def entry(F: int = 2, B: int = 3, W: int = 1, **more: Any) -> dict[str, Any]:
    return {"F": F, "B": B, "W": W} | more


def of(*entries: dict[str, Any], **more: Any) -> Layers:
    return parse_layers({"format": FORMAT, "layers": list(entries)} | more)


FOUR = of(
    entry(F=1, name="embedding", role="embedding", first=True, weights=10, output=8),
    entry(held_after_F=4, held_after_B=2, weights=5, output=16, name="block", repeat=2, BW=3),
    entry(
        F=7,
        name="head",
        role="head",
        last=True,
        weights=12,
        tied_to="embedding",
        tie="copies",
        tied_weights=9,
        recompute=entry(F=7, B=8),
    ),
    name="four",
    time_unit="us",
    memory_unit="MiB",
    reserve=100,
)


# Files


def test_defaults_and_repeated_layers() -> None:
    plain = of(entry(), entry(name="x", repeat=2)).layers
    assert [layer.name for layer in plain] == ["layer 0", "x 0", "x 1"]
    assert plain[1].amount("BW") == 3 + 1
    assert (plain[0].weights, plain[0].output, plain[0].role) == (0, 0, "block")
    assert not any((plain[0].first, plain[0].last, plain[0].with_next, plain[0].fused))
    assert FOUR.amounts("BW") == (4, 3, 3, 4)
    assert FOUR.amounts("B", recompute=True) == (3, 3, 3, 8)  # the others have no variant
    assert FOUR.may_cut == (True, True, True, True, True)
    assert (FOUR.first_stage_until, FOUR.last_stage_from) == (1, 3)


def test_a_file_is_written_and_read_back(tmp_path: Path) -> None:
    for layers in (FOUR, *map(read_layers, EXAMPLES.glob("layers-*.json"))):
        layers.write(tmp_path / "layers.json")
        assert read_layers(tmp_path / "layers.json") == layers


def test_the_recipe_is_bytes_per_weight() -> None:
    recipe = {
        "unit_bytes": MIB,
        "dtype": "bfloat16",
        "grad_dtype": "float32",
        "optimizer": "adamw",
        "state_dtype": "float32",
        "master_dtype": "float32",
    }
    layers = of(entry(weights=MIB), entry(weights=1), static=recipe)
    assert layers.recipe is not None
    assert layers.recipe.parts(1) == (2, 4, 2 * 4 + 4)
    assert layers.static == (18, 1)  # 18 bytes take a whole MiB
    plain = of(entry(weights=MIB), static={"unit_bytes": 1, "dtype": "float32"})
    assert plain.static == (MIB * (4 + 4 + 2 * 4),)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "pipesat.problem/1"}, 'format: got .*, expected "pipesat.layers/1"'),
        ({"layers": []}, "layers: 0 entries, expected at least 1"),
        ({"layers": [{"F": 1, "B": 1}]}, r"layers\[0\].W: this key is required and missing"),
        ({"layers": [entry(F=-1)]}, r"layers\[0\].F: got -1, expected an integer from 0 to 10\^12"),
        (
            {"layers": [entry(weight=1)]},
            r"layers\[0\].weight: unknown key; the nearest known key is weights",
        ),
        ({"layers": [entry(recompute={"F": 1})]}, r"layers\[0\].recompute.B: this key is required"),
        ({"layers": [entry(repeat=0)]}, r"repeat: got 0, expected an integer from 1 to 4096"),
        ({"layers": [entry(repeat=4000), entry(repeat=97)]}, r"layers\[1\].repeat: .*4096 layers"),
        (
            {"layers": [entry(name="a"), entry(name="a")]},
            r"layers\[1\].name: got 'a', expected another name, layers\[0\] has this one",
        ),
        ({"layers": [entry(first=1)]}, r"layers\[0\].first: got 1, expected true or false"),
        ({"layers": [entry(tied_to="b")]}, r"layers\[0\].tied_to: got 'b', expected the name of"),
        ({"layers": [entry(name="a", tied_to="a")]}, r"expected the name of another layer"),
        ({"layers": [entry(tie="copies")]}, r"layers\[0\].tie: needs tied_to"),
        (
            {"layers": [entry(name="a"), entry(tied_to="a", tied_weights=1)]},
            r"layers\[1\].tied_weights: got 1, expected at most the layer's weights, 0",
        ),
        (
            {"layers": [entry(last=True, name="a"), entry(), entry(first=True)]},
            r"layers\[2\].first: layer 2 must be on the first stage but layer 0 \(a\), before it, "
            "on the last",
        ),
        ({"layers": [entry(), entry(first=True, last=True)]}, "the same layer on the last"),
        (
            {"layers": [entry(), entry(with_next=True)]},
            r"layers\[1\].with_next: the last layer has no next one",
        ),
        (
            {"layers": [entry()], "static": {"unit_bytes": 1, "dtype": "float33"}},
            "static.dtype: got 'float33', expected one of 'float64', 'float32'",
        ),
        (
            {"layers": [entry()], "static": {"unit_bytes": 1, "optimizer": "magic"}},
            "static.optimizer: got 'magic', expected one of 'none', 'sgd'",
        ),
        ({"layers": [entry()], "static": {"unit_bytes": 0}}, "an integer from 1 to 10"),
    ],
)
def test_bad_files_are_one_clear_error(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=f"^file: {message}|^file: .*{message}"):
        parse_layers({"format": FORMAT, "layers": [entry()]} | change, "file")


# Pipelines


def test_microbatches_in_flight() -> None:
    assert in_flight_1f1b(Pipeline(devices=4, microbatches=8)) == (4, 3, 2, 1)
    assert in_flight_1f1b(Pipeline(devices=4, microbatches=2)) == (2, 2, 2, 1)
    # 2 ranks of 2 chunks run 2 (1 - d) + 2 + 1 chunks ahead: rank 0 two and two and one more
    # of the first chunk, rank 1 two and one
    loop = Pipeline(devices=2, microbatches=4, placement="loop")
    assert in_flight_1f1b(loop) == (3, 2, 2, 1)
    with pytest.raises(NotApplicable):
        in_flight_1f1b(Pipeline(devices=2, microbatches=4, placement="vee"))


# Problems


def test_a_problem_of_two_stages() -> None:
    pipeline = Pipeline(devices=2, microbatches=4, memory=[500, None], delay=link_delay(3, 4))
    parts = (range(2), range(2, 4))
    assert problem_of_split(FOUR, parts, pipeline, recompute=(False, True)).document == {
        "format": "pipesat.problem/1",
        "name": "four",
        "time_unit": "us",
        "memory_unit": "MiB",
        "microbatches": 4,
        "devices": [{"memory": 500, "static": 100 + 15}, {"static": 100 + 17}],
        "stages": [
            {"device": 0, "F": 3, "B": 6, "W": 2, "BW": 7, "held_after_F": 4, "held_after_B": 2},
            # the block has no variant, the head's B is 8
            {"device": 1, "F": 9, "B": 11, "W": 2, "BW": 12, "held_after_F": 4, "held_after_B": 2},
        ],
        "comm": {"default": 3 + 4},  # 16 size units after the first block
    }
    problem = problem_of_split(FOUR, parts, pipeline)
    assert problem.name == "four"
    assert problem.stages[1].B == 6


def test_shared_weights_count_once_on_one_device() -> None:
    vee = Pipeline(devices=2, microbatches=1, placement="vee")
    parts = tuple(range(k, k + 1) for k in range(4))
    assert static_of_devices(FOUR, parts, vee) == (100 + 10 + 12 - 9, 100 + 5 + 5)
    assert untold(FOUR, parts, vee) == ()
    chain = Pipeline(devices=4, microbatches=1)
    assert static_of_devices(FOUR, parts, chain) == (110, 105, 105, 112)
    (remark,) = untold(FOUR, parts, chain)
    assert "layer 0 (embedding) and layer 3 (head) share weights and lie on devices 0 and 3" in (
        remark
    )


def test_a_stage_without_layers_passes_on_what_it_gets() -> None:
    pipeline = Pipeline(devices=3, microbatches=1, delay=link_delay(0, 1))
    problem = problem_of_split(FOUR, (range(1), range(1, 1), range(1, 4)), pipeline)
    assert (problem.stages[1].F, problem.stages[1].BW) == (0, 0)
    assert problem.links[0, 1].F == problem.links[1, 2].F == 8


def test_amounts_beyond_a_problems_are_refused() -> None:
    layers = of(entry(F=10**12, repeat=2))
    with pytest.raises(BadInput, match=r"stages\[0\].F"):
        problem_of_split(layers, (range(2),), Pipeline(devices=1, microbatches=1))


TIED = of(entry(name="a"), entry(with_next=True), entry(), entry(tied_to="a", last=True))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([range(2)], "stages: 1 stages, expected 2"),
        ([range(2), range(3, 4)], "expected layers 0 to 3 in order, each on one"),
        ([range(3), range(2, 4)], "expected layers 0 to 3 in order, each on one"),
        ([range(3), range(3, 5)], "expected layers 0 to 3 in order, each on one"),
        ([range(2, 4), range(2)], "expected layers 0 to 3 in order, each on one"),
        ([range(2), range(2, 4)], "layer 1 must be with layer 2, they are on stages 0, 1"),
        ([range(4), range(4, 4)], r"layer 3 must be on the last stage \(1\), it is on stage 0"),
        (
            [range(1), range(1, 4)],
            r"layer 0 \(a\) and layer 3 share weights, but lie on devices 0 "
            'and 1. Put them on one device: a V .*Or say "tie": "copies"',
        ),
    ],
)
def test_broken_partitions_are_explained(parts: list[range], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        check_partition(TIED, parts, (0, 1))


def test_flags_of_the_first_stage() -> None:
    layers = of(entry(), entry(first=True), entry())
    with pytest.raises(BadInput, match="layer 1 must be on the first stage, it is on stage 1"):
        check_partition(layers, [range(1), range(1, 3)], (0, 1))
    check_partition(layers, [range(2), range(2, 3)], (0, 1))


def test_neighbours_move_one_layer_and_keep_rules() -> None:
    layers = of(*[entry()] * 2, entry(with_next=True), *[entry()] * 3)
    pipeline = Pipeline(devices=3, microbatches=1)
    found = set(neighbours(layers, (range(1), range(1, 4), range(4, 6)), pipeline))
    # cut 1 may go to 2 (3 would part layers 2 and 3); cut 4 to 2 (not 3) or 5
    assert found == {
        (range(2), range(2, 4), range(4, 6)),
        (range(1), range(1, 2), range(2, 6)),
        (range(1), range(1, 5), range(5, 6)),
    }


# From a profile


def test_layers_of_a_profile() -> None:
    shared = {"name": "words", "layers": [0, 3], "parameter": weights(30)}
    layers = layers_of_profile(parse_profile(document(tied=[shared])))
    assert (layers.time_unit, layers.memory_unit, layers.size_unit) == ("us", "MiB", "B")
    assert [layer.name for layer in layers.layers] == [
        "embedding 0",
        "block 1",
        "block 2",
        "head 3",
    ]
    assert [layer.role for layer in layers.layers] == ["embedding", "block", "block", "head"]
    embedding, block, _, head = layers.layers
    assert [block.amount(kind) for kind in ("F", "B", "W", "BW")] == [2000, 2500, 1500, 3800]
    assert [block.amount(kind) for kind in ("held_after_F", "held_after_B")] == [800, 1000]
    assert block.weights == 4 * 100  # weights, gradients, two states of AdamW
    assert (embedding.fused, block.fused, head.fused) == (True, False, False)
    assert (head.tied_to, head.tie, head.tied_weights) == ("embedding 0", "copies", 4 * 30)
    assert block.output == 256 * MIB
    assert layers.reserve == 90  # the head's B
    assert parse_layers(layers.document()) == layers


def test_the_training_counts_in_a_profiles_layers() -> None:
    training = Training(optimizer="sgd", grad_dtype="bfloat16", reserve=7 * MIB)
    layers = layers_of_profile(parse_profile(document()), training)
    assert layers.layers[1].weights == 100 + 50
    assert layers.reserve == 90 + 7


# Commands


def test_show(cli: Run) -> None:
    for path in EXAMPLES.glob("layers-*.json"):
        done = cli("show", path)
        assert (done.code, done.err) == (0, "")
    assert "4 to 61" in cli("show", EXAMPLES / "layers-deepseek-like.json").out
    # 2 + 4 + 12 bytes for each of 77.9 million weights: 1338 MiB
    assert read_layers(EXAMPLES / "layers-gemma-like.json").static[1] == 1338


def test_from_profile(cli: Run, save: Save, tmp_path: Path) -> None:
    path = tmp_path / "layers.json"
    done = cli(
        "problem",
        "from-profile",
        save(document()),
        "--layers",
        "-o",
        path,
        "--training",
        "optimizer=sgd",
        "--memory",
        "reserve=1GiB",
    )
    assert (done.code, done.out.split()[:2]) == (0, ["Layers", "4"])
    layers = read_layers(path)
    assert layers.layers[1].weights == 2 * 100
    assert layers.reserve == 90 + 1024
    assert json.loads(path.read_text())["format"] == FORMAT
    words = ("problem", "from-profile", save(document()), "--layers", "-o", path)
    wrong = cli(*words, "--training", "optimizer=magic")
    assert wrong.code == 2
    assert read_layers(path) == layers
