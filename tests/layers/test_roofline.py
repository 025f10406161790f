"""Costs estimated from a model's shape: against sums done by hand, and its rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pipesat
from pipesat.compare.from_profile import estimate_layers
from pipesat.core.errors import BadInput
from pipesat.layers.layers_file import parse_layers
from pipesat.layers.pipeline import Pipeline
from pipesat.layers.profile.published import GPUS, DecoderShape, Gpu, named_gpu, named_shape
from pipesat.layers.roofline import (
    Efficiency,
    ModelRun,
    estimated_layers,
    microbatch_time,
    range_of_estimate,
)
from pipesat.layers.stages import problem_of_split
from tests.conftest import Run

GPT = DecoderShape(
    style="gpt", layers=2, width=64, heads=4, kv_heads=4, feed_forward=256, vocabulary=100
)
SLOW_GPU = Gpu(matmul=1e-6, memory_bandwidth=1e30, memory=1, link_bandwidth=1, source="none")
ALL = Efficiency(1, 1, 1)


def test_products_and_attention_of_a_gpt_block() -> None:
    # 12 w^2 weights, 2 operations each per token; attention 2 s w per token, at 10^6 per second
    run = ModelRun(length=8)
    block = estimated_layers(GPT, SLOW_GPU, run, efficiency=ALL).layers[1]
    products, attention = 2 * 8 * 12 * 64 * 64, 2 * 8 * 8 * 64
    assert block.weights == 12 * 64 * 64
    assert products + attention == block.costs.F
    assert products + attention * 5 // 2 == block.costs.B
    assert products == block.costs.W
    assert block.recomputed is not None
    assert block.recomputed.B == block.costs.B + block.costs.F


def test_memory_of_a_gpt_block_is_that_of_the_papers() -> None:
    # 34 bytes per token and width (Korthikanti et al. 2022, equation 2 without attention's square)
    # less 2 for dropout's masks; 32 of them are for W (Zero Bubble, table 1)
    shape = named_shape("zb-6.2b").shape
    block = estimated_layers(shape, named_gpu("a100"), ModelRun(length=1024, batch=8)).layers[1]
    per_token = 8 * 1024 * 32 * shape.width / 2**20
    statistics = 8 * 1024 * 4 * shape.heads / 2**20
    assert block.costs.held_after_F == per_token + statistics
    assert block.costs.held_after_B == per_token


@pytest.mark.parametrize("n", [1, 4, 8])
def test_a_llama3_70b_block_shared_by_gpus(n: int) -> None:
    """Counted anew from the model's shape: width 8192, 8 of 64 heads for keys, 8192 tokens."""
    layers = estimate_layers("llama3-70b", "h100", tensor_parallel=n)
    block, tokens, width, keys, inner = layers.layers[1], 8192, 8192, 1024, 28672
    # query and output, keys and values, three of the gated feed-forward
    weights = 2 * width * width + 2 * width * keys + 3 * width * inner
    assert weights == 855_638_016
    assert block.weights == weights // n
    # 989 Tflop/s: 0.7 in products, 0.4 in causal attention; 3.35 TB/s: 0.7 of bytes moved
    products = 2 * tokens * weights / (989e12 * 0.7)
    attention = 2 * tokens * tokens * width / (989e12 * 0.4)
    # two norms and two sums: 2 + 3 widths each; rotation of q and k; gate, up and their product
    moved = 2 * tokens * (10 * width + 2 * (width + keys) + 3 * inner) / (3350e9 * 0.7)
    # 2 all-gathers and 2 reduce-scatters, each of n - 1 shards of 128 MiB over 0.7 x 450 GB/s: both
    # in F and in B, which takes 5/2 of attention and twice the traffic; W has none
    shared = 4 * (n - 1) * 2 * tokens * width / (0.7 * 450e9)
    assert round((products + attention + moved + shared) / n * 1e6) == block.costs.F
    assert round((products + 2.5 * attention + 2 * moved + shared) / n * 1e6) == block.costs.B
    assert round(products / n * 1e6) == block.costs.W
    # sequence parallelism shares all that is held: 6 widths and keys and values, 4 inner widths,
    # and the sums of 64 heads in float32
    held = 2 * tokens * (6 * width + 2 * keys + 4 * inner) + 4 * 64 * tokens
    assert block.costs.held_after_F == -(-held // n // 2**20)
    # the next stage gets each GPU's own tokens
    assert block.output == 2 * tokens * width // n
    assert (layers.tensor_parallel, parse_layers(layers.document())) == (n, layers)
    took = {1: "", 4: "1.28 ms in a block's F", 8: "1.49 ms in a block's F"}[n]
    assert took in layers.estimate
    assert ("sequence parallelism" in layers.estimate) == (n > 1)
    assert ("at 315 GB/s" in layers.estimate) == (n > 1)
    # an embedding ends with a reduce-scatter, a head begins with an all-gather: a quarter of these
    ends = estimate_layers("llama3-70b", "h100").layers[0], layers.layers[0]
    assert abs(ends[1].costs.F - ends[0].costs.F / n - shared / 4 / n * 1e6) <= 1.5


def test_the_range_begins_where_what_gpus_share_is_hidden() -> None:
    """80 blocks of 989 Tflop/s at 0.85 in products, 0.6 in attention, traffic at 0.9; no links."""
    run = ModelRun(length=8192, tensor_parallel=8)
    shape = named_shape("llama3-70b").shape
    least, _ = range_of_estimate(shape, named_gpu("h100"), run)
    alone, _ = range_of_estimate(shape, named_gpu("h100"), ModelRun(length=8192))
    assert abs(least - alone / 8) <= 250  # each time is rounded


def test_gpus_that_all_have_links_to_each_other_use_them_at_once() -> None:
    # MI300X: seven links of 64 GB/s; two GPUs share one, four have three each, eight all of theirs
    for n, rate in ((2, "45 GB/s"), (4, "134 GB/s"), (8, "314 GB/s")):
        assert rate in estimate_layers("llama3-70b", "mi300x", tensor_parallel=n).estimate


def test_gpus_share_layers_in_equal_parts() -> None:
    # Megatron-LM wants a multiple: 64 heads, 8 of keys; 28672 and 8192 divide by 8, too
    for n, what in ((3, "heads 64"), (16, "kv_heads 8"), (64, "kv_heads 8")):
        with pytest.raises(BadInput) as raised:
            estimate_layers("llama3-70b", "h100", tensor_parallel=n)
        text = f"tensor_parallel: got {n}, {what} does not divide by it: expected one of 1, 2, 4, 8"
        assert str(raised.value) == text
    with pytest.raises(BadInput, match=r"length 2 does not divide by it: expected one of 1, 2$"):
        estimate_layers("llama3-70b", "h100", length=2, tensor_parallel=4)


def test_advice_and_flags_say_how_layers_are_shared() -> None:
    asked: dict[str, Any] = {"gpu": "h100", "length": 64, "target": "megatron", "time_limit": 4}
    advice = pipesat.advise("tiny", 2, 4, tensor_parallel=2, batch=3, **asked)
    assert "2 GPUs share every layer, with sequence parallelism" in dict(advice.facts())["Doubt"]
    _, flags, *_ = advice.tables()
    wanted = {"--tensor-model-parallel-size=2", "--sequence-parallel", "--micro-batch-size=3"}
    assert wanted <= {*map(str, flags.lines)}
    with pytest.raises(pipesat.Infeasible, match="parallelism over more than 1 divides weights"):
        pipesat.advise("llama3-70b", 2, 4, gpu="h100", time_limit=4)


@pytest.mark.parametrize("gpu", GPUS)
def test_the_range_holds_the_estimate_and_files_carry_the_word(gpu: str) -> None:
    named = named_shape("llama3-8b")
    run = ModelRun(length=1024, tensor_parallel=2)
    layers = estimated_layers(named.shape, named_gpu(gpu), run, name="x")
    least, most = range_of_estimate(named.shape, named_gpu(gpu), run)
    assert least < microbatch_time(layers) < most
    again = parse_layers(layers.document())
    assert again == layers
    assert layers.estimate_range is not None
    low, high = layers.estimate_range  # thousandths of the likely time, rounded outwards
    likely = microbatch_time(layers)
    assert 0 <= 1000 * least - low * likely < likely
    assert 0 <= high * likely - 1000 * most < likely
    assert "estimate" in again.document()
    split = (range(17), range(17, 34))
    problem = problem_of_split(again, split, Pipeline(devices=2, microbatches=4))
    assert problem.name == "x (estimated costs)"


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ([1001, 2000], "estimate_range: got \\[1001, 2000\\], expected the least"),
        ([0, 2000], "estimate_range\\[0\\]: got 0, expected an integer from 1 to 10\\^6"),
        ([900], "estimate_range"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(given: list[int], what: str) -> None:
    layers = {"format": "pipesat.layers/1", "estimate": "x", "estimate_range": given}
    with pytest.raises(BadInput, match=what):
        parse_layers(layers | {"layers": [{"F": 1, "B": 1, "W": 1}]})
    with pytest.raises(BadInput, match="estimate_range: needs estimate"):
        parse_layers(
            {"format": "pipesat.layers/1", "estimate_range": [900, 1100]}
            | {"layers": [{"F": 1, "B": 1, "W": 1}]}
        )


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(BadInput, match="products: got 0, expected a number above 0"):
        estimate_layers("tiny", "h100", products=0)
    with pytest.raises(BadInput, match="batch: got 0"):
        estimate_layers("tiny", "h100", batch=0)
    with pytest.raises(BadInput, match="a100, h100"):
        named_gpu("abacus")


def test_another_model_is_a_published_one_with_its_own_sizes(cli: Run, tmp_path: Path) -> None:
    sizes = {"layers": 32, "width": 4096, "heads": 32, "kv_heads": 8, "feed_forward": 14336}
    sizes["vocabulary"] = 128256  # of llama3-8b
    ours = estimate_layers("llama2-70b", "h100", shape=sizes, length=8192)
    there = estimate_layers("llama3-8b", "h100")
    assert replace(ours, name="") == replace(there, name="")
    assert ours.name.startswith("llama2-70b with layers=32, width=4096,")
    words = ",".join(f"{key}={size}" for key, size in sizes.items())
    for number, shape in enumerate((f"length=8192,{words}", f"{words},length=8192")):
        path = tmp_path / f"{number}.json"
        asked = ("--config", "llama2-70b", "--gpu", "h100", "--shape", shape, "-o", path)
        assert cli("problem", "estimate", *asked).code == 0
        assert pipesat.read(path) == ours
    with pytest.raises(BadInput, match="most similar of these with its own `shape`"):
        estimate_layers("qwen2.5-32b", "h100")
    with pytest.raises(BadInput, match=r"shape: got 'layers=3', only a published model"):
        pipesat.advise(tmp_path / "0.json", 2, 4, shape="layers=3")
    small = {"layers": 2, "width": 64, "heads": 2}  # feed_forward 352 x 64 / 128
    advice = pipesat.advise("tiny", 2, 4, gpu="h100", shape=small, time_limit=4)
    assert [layer.name for layer in advice.question.layers.layers][1:-1] == ["block 0", "block 1"]
