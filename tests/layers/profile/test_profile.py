"""Measuring real layers: memory and structure, which are exact; of times that they are there."""

from __future__ import annotations

import gc
import importlib.util
import json
import math
import sys
import types
from pathlib import Path

import pytest

from pipesat.core.errors import BadInput
from pipesat.layers.profile.profile_file import parse_profile, read_profile
from pipesat.layers.profile.published import SHAPES, DecoderShape, named_shape
from pipesat.measure.processes.profile_model import profile_model

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs torch: pip install 'pipesat[torch]'", allow_module_level=True)

import torch
from torch import nn
from torch.nn import functional

from pipesat.measure.processes import meters
from pipesat.measure.processes.decoder import build_layer
from pipesat.measure.processes.models import decoder_model, imported_model, model_of_profile
from pipesat.measure.processes.profiling import require_device

ROWS, WIDTH = 32, 64
UNIT = ROWS * WIDTH * 4
"""Bytes of the activation between layers."""


class Feed(nn.Module):
    """A residual layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return self.down(functional.gelu(self.up(self.norm(x))))


def batch(number):
    generator = torch.Generator().manual_seed(number)
    return tuple(torch.randn(2, ROWS, WIDTH, generator=generator))


def measured(*layers, microbatch=batch, loss=functional.mse_loss, **options):
    return profile_model(
        list(layers), microbatch, loss, **({"samples": 1, "warmup": 0, "threads": 1} | options)
    )


def linears(count):
    return [nn.Linear(WIDTH, WIDTH) for _ in range(count)]


# Memory


@pytest.mark.slow
def test_memory_of_a_feed_forward_layer_and_of_its_modes() -> None:
    first, last = linears(2)
    profile = measured(first, Feed(), last, modes=True, loss=lambda output, _: output.sum())
    costs = profile.kinds["Feed"]
    # F keeps the outputs of norm, up, gelu and down, and the norm's mean and deviation per row
    statistics = 2 * ROWS * 4
    assert costs.held_after_F == (1 + 4 + 4 + 1) * UNIT + statistics
    # B adds what W multiplies: the gradients of the outputs of up and norm (down's comes from
    # outside)
    assert costs.held_after_B == costs.held_after_F + (4 + 1) * UNIT
    assert costs.transient.F == 0
    # W's largest product has 4 x 64 x 64 numbers; it is there before it is added to the gradient
    largest = 4 * WIDTH * WIDTH * 4
    assert largest <= costs.transient.W < 2 * largest
    assert profile.copies is None  # a CPU has no host to copy to
    assert costs.recompute is not None
    assert costs.offload is not None
    # the output stays; norm, up and gelu's outputs and the statistics go
    assert costs.offload.held == UNIT
    assert costs.offload.bytes == costs.held_after_F - UNIT
    # recomputed: besides the output, the state of the random numbers
    state = costs.recompute.held_after_F - UNIT
    assert 0 <= state <= 16 * 1024
    # in the backward everything is there again, and an op's own memory on top of it
    assert costs.recompute.peak_in_backward >= costs.held_after_F
    assert costs.recompute.peak_in_backward <= costs.held_after_F + state + 2 * costs.transient.BW
    # W needs the gradients of the outputs of up and down
    assert costs.recompute.gradients == (4 + 1) * UNIT
    # the loss is no part of the stage that is copied or recomputed: its number stays
    final = profile.costs_of(2)
    assert final.offload is not None
    assert (final.offload.bytes, final.offload.held) == (0, UNIT + 4)


@pytest.mark.slow
def test_the_first_and_the_last_layer_with_every_sample() -> None:
    layers = linears(2)
    before = [parameter.clone() for layer in layers for parameter in layer.parameters()]
    profile = measured(*layers, loss=lambda output, _: output.sum(), samples=4, warmup=2)
    first, last = (profile.kinds[layer.kind] for layer in profile.layers)
    assert (first.B, first.W, first.held_after_B) == (None, None, 0)
    assert "input needs no gradient" in first.no_split
    assert first.held_after_F == UNIT  # its output
    assert last.held_after_F == UNIT + 4  # its output and the loss
    numbers = WIDTH * WIDTH + WIDTH
    assert [p.model_dump() for p in last.parameters] == [
        {"dtype": "float32", "elements": numbers, "bytes": 4 * numbers, "trainable": True}
    ]
    assert last.input.model_dump() == {"shape": [ROWS, WIDTH], "dtype": "float32", "bytes": UNIT}
    assert last.B is not None
    assert last.W is not None
    assert [len(s.times) for s in (last.F, last.B, last.W, last.BW)] == [8, 4, 4, 4]
    assert 0 < last.F.low <= last.F.median <= last.F.high
    assert (profile.options.samples, profile.options.warmup) == (4, 2)
    assert profile.environment.torch == torch.__version__
    assert (profile.environment.dtype, profile.environment.threads) == ("float32", 1)
    after = [parameter for layer in layers for parameter in layer.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert all(parameter.grad is None for parameter in after)
    assert parse_profile(profile.model_dump()) == profile
    with pytest.raises(BadInput, match="handed over by a Python call"):
        model_of_profile(profile)


@pytest.mark.slow
def test_a_checkpointed_layer_holds_its_output_alone_and_runs_again_per_weight_group() -> None:
    class Counting(Feed):
        runs = 0

        def forward(self, x):
            Counting.runs += 1
            return super().forward(x)

    first, last = linears(2)
    costs = measured(first, Counting(), last, checkpoint=True).kinds["Counting"]
    plain = measured(first, Feed(), last).kinds["Feed"]
    # besides the output, the state of the random numbers that the second run starts from
    assert UNIT <= costs.held_after_F <= UNIT + 16 * 1024 < plain.held_after_F
    assert costs.transient.BW > plain.transient.BW
    assert Counting.runs > 12


# Times and structure


@pytest.mark.slow
def test_equal_layers_are_measured_once_and_stages_as_a_whole() -> None:
    layers = [*linears(2), nn.ReLU(), *linears(4)]
    profile = measured(*layers, stages=[2, 7])
    # first, inner and last linear layers differ: input gradient, loss
    assert [layer.kind for layer in profile.layers] == [
        "Linear",
        "Linear 2",
        "ReLU",
        "Linear 2",
        "Linear 2",
        "Linear 2",
        "Linear 3",
    ]
    assert [stage.layers for stage in profile.stages] == [[0, 4], [4, 7]]
    assert profile.stages[1].costs.parameters[0].elements == 3 * (WIDTH * WIDTH + WIDTH)
    assert measured(nn.Dropout(0.1), nn.Dropout(0.2), *linears(1)).layers[1].kind == "Dropout 2"


@pytest.mark.slow
def test_frozen_layers() -> None:
    layers = linears(5)
    for number in (0, 1, 3):
        layers[number].requires_grad_(False)
    profile = measured(*layers)
    costs = [profile.costs_of(number) for number in range(5)]
    assert [c.no_split != "" for c in costs] == [True, True, True, False, False]
    assert costs[0].no_split == costs[1].no_split == "nothing in it or before it is trained"
    assert [c.BW.median > 0 for c in costs] == [False, False, True, True, True]
    assert not costs[3].parameters[0].trainable


@pytest.mark.slow
def test_tied_weights_are_found() -> None:
    layers = linears(4)
    layers[3].weight = layers[0].weight
    profile = measured(*layers, stages=[1])
    (tied,) = profile.tied
    assert (tied.name, tied.layers) == ("0.weight", [0, 3])
    assert tied.parameter.elements == WIDTH * WIDTH
    # measured together they are one parameter
    assert profile.stages[0].costs.parameters[0].elements == 3 * WIDTH * WIDTH + 4 * WIDTH


# Models that cannot be profiled


class Pair(nn.Module):
    def forward(self, x):
        return x, x


class Shrinking(nn.Module):
    def forward(self, x):
        return x[: 3 + int(x.sum() > 0)]


@pytest.mark.parametrize(
    ("layers", "options", "message"),
    [
        ([*linears(1), Pair()], {}, "layer 1 Pair returns a tuple of 2, expected one tensor"),
        (
            [Shrinking()],
            {"microbatch": lambda i: (torch.ones(4, 2) * (i - 0.5), None)},
            r"returns shape \(3, 2\) for microbatch 0 and \(4, 2\) for microbatch 1",
        ),
        (linears(2), {"loss": lambda o, t: (o - t).sum() * math.nan}, "the loss .* is nan"),
        (linears(2), {"loss": lambda o, t: o - t}, r"loss: got \(32, 64\), expected a tensor with"),
        (linears(2), {"loss": lambda o: o.sum()}, "the loss failed on .* TypeError"),
        ([nn.Linear(3, 3)], {}, "layer 0 Linear failed on .*RuntimeError: mat1 and mat2"),
        ([], {}, "layers: got 'list', expected a list of torch.nn.Module with at least one"),
        ([abs], {}, r"layers\[0\]: got 'builtin_function_or_method', expected a torch.nn.Module"),
        (linears(1), {"microbatch": lambda _: 3}, r"microbatch\(0\): got 'int', expected a tuple"),
        (linears(1), {"microbatch": lambda _: (3, 3)}, r"microbatch\(0\): got 'int', expected one"),
        (linears(1), {"microbatch": lambda _: 1 / 0}, r"microbatch\(0\) failed: ZeroDivisionError"),
        (linears(2), {"stages": [3]}, "stages: got 3, the model has 2 layers"),
    ],
)
def test_models_that_are_refused(layers, options, message) -> None:
    with pytest.raises(BadInput, match=message):
        measured(*layers, **options)


@pytest.mark.slow
def test_a_loss_that_turns_bad_while_measuring() -> None:
    calls = []

    def loss(output, target):
        calls.append(1)
        return functional.mse_loss(output, target) * (math.inf if len(calls) > 8 else 1)

    with pytest.raises(BadInput, match="the loss is inf, expected a finite number"):
        measured(*linears(2), loss=loss, samples=9)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_that_is_not_there() -> None:
    with pytest.raises(BadInput, match=r"device: got 'cuda', torch .* Take device cpu"):
        require_device("cuda")


def test_the_cuda_clock_and_meter_read_events_and_counters(monkeypatch) -> None:
    """No device: a stand-in for torch.cuda with a clock in ms and a counter in bytes."""
    state = {"ms": 0.0, "bytes": 100, "peak": 0, "asleep": [], "late": 0}

    class Event:
        def __init__(self, enable_timing) -> None:
            assert enable_timing

        def record(self) -> None:
            state["ms"] += 1.5
            self.at = state["ms"]

        def query(self):
            state["late"] -= 1
            return state["late"] >= 0

        def elapsed_time(self, later):
            return later.at - self.at

    cuda = types.SimpleNamespace(
        Event=Event,
        synchronize=lambda: state.update(done=True),
        _sleep=lambda cycles: state.update(asleep=[*state["asleep"], cycles]),
        reset_peak_memory_stats=lambda: state.update(peak=state["bytes"]),
        memory_allocated=lambda: state["bytes"],
        max_memory_allocated=lambda: state["peak"],
    )
    monkeypatch.setattr(meters.torch, "cuda", cuda)
    clock = meters.CudaClock()
    clock.begin(lead=True)
    state["done"] = False
    assert clock.durations([clock.mark() for _ in range(3)]) == [1500.0, 1500.0]
    assert state["done"]
    with meters.CudaMeter().op() as reading:
        state.update(bytes=130, peak=180)
    assert (reading.change, reading.peak) == (30, 80)
    # the host was not done with enqueueing twice: the sequence again, each time with twice the lead
    state.update(asleep=[], late=2)
    readings = []
    for _ in range(3):
        clock.begin(lead=True)
        readings.append(clock.durations([clock.mark(), clock.mark()]))
    assert readings == [None, None, [1500.0]]
    first = state["asleep"][0]
    assert state["asleep"] == [first, 2 * first, 4 * first]
    assert not clock.host_bound
    # a host that waits for the device itself is never done: say so, once and for all of a subject
    state.update(asleep=[], late=10**9)
    readings = []
    while not clock.host_bound:
        clock.begin(lead=True)
        readings.append(clock.durations([clock.mark(), clock.mark()]))
    assert len(state["asleep"]) < 10
    assert readings[-1] == [1500.0]
    assert not any(readings[:-1])
    assert clock.durations([clock.mark(), clock.mark()]) == [1500.0]


@pytest.mark.slow
def test_a_profile_on_cuda_as_far_as_a_stand_in_goes() -> None:
    """Every call of torch.cuda; memory as on the CPU, whose allocator's own events count there."""
    from tests.support.cuda import NAME, stand_in

    def profile(device):
        torch.manual_seed(0)
        return measured(*linears(2), device=device, stages=[1], samples=1, warmup=0, modes=True)

    here = profile("cpu")
    with stand_in():
        there = profile("cuda")
    assert (there.environment.device, there.environment.device_name) == ("cuda", NAME)
    assert there.copies is not None
    assert there.copies.out.median > 0
    assert there.kinds.keys() == here.kinds.keys()
    for kind, costs in there.kinds.items():
        known = here.kinds[kind]
        assert costs.held_after_F == known.held_after_F > 0
        assert costs.held_after_B == known.held_after_B
        assert costs.offload == known.offload
        assert costs.recompute is not None
        assert costs.recompute.held_after_F <= known.held_after_F
        assert min(costs.F.times + costs.BW.times) > 0
    assert [stage.layers for stage in there.stages] == [stage.layers for stage in here.stages]


def test_what_the_caller_has_frozen_stays_frozen() -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    measured(*linears(1))
    assert gc.get_freeze_count() > frozen // 2  # some of it may have gone; thawed, none is left


# The built-in decoder


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gpt2", 124_439_808 + 50257 * 768),  # the published model ties its head to the embedding
        ("llama-7b", 6_738_415_616),
        ("llama2-70b", 68_976_648_192),
        ("llama3-8b", 8_030_261_248),
        ("llama3-70b", 70_553_706_496),
        ("llama3-405b", 405_853_388_800),
        ("mistral-7b", 7_241_732_096),
    ],
)
def test_published_models_have_their_published_numbers_of_parameters(name, parameters) -> None:
    shape, length = SHAPES[name].shape, SHAPES[name].length
    embedding, block, head = (
        sum(p.numel() for p in build_layer(shape, length, i, torch.float32, "meta").parameters())
        for i in (0, 1, 1 + shape.layers)
    )
    assert embedding + shape.layers * block + head == parameters


TINY = DecoderShape(
    style="llama", layers=3, width=16, heads=4, kv_heads=2, feed_forward=24, vocabulary=50
)


@pytest.mark.slow
def test_a_model_is_the_same_however_it_is_cut_and_wherever_it_is_built() -> None:
    losses = []
    for stages in (1, 2, 4):
        model = decoder_model(TINY, 2, 8, torch.float64, "cpu")
        x, target = model.whole_batch(3)
        for stage in range(stages):
            x = model.build_stage(stage, stages)(x)
        losses.append(float(model.loss_of(x, target).detach()))
    assert losses[0] == losses[1] == losses[2]
    assert losses[0] == pytest.approx(math.log(50), rel=0.1)  # it knows nothing yet


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 3}, "heads: got 3, expected a divisor of width 16"),
        ({"kv_heads": 3}, "kv_heads: got 3, expected a divisor of heads 4"),
        ({"layers": 0}, "layers: got 0, expected a whole number of at least 1"),
        ({"style": "bert"}, "style: got 'bert', expected gpt or llama"),
        ({"heads": 16, "kv_heads": 16}, "rotary positions need an even width per head"),
    ],
)
def test_shapes_that_cannot_be(changes, message) -> None:
    with pytest.raises(BadInput, match=message):
        DecoderShape(**vars_of(TINY) | changes)


def vars_of(shape):
    return {name: getattr(shape, name) for name in shape.__dataclass_fields__}


def test_an_unknown_configuration() -> None:
    with pytest.raises(BadInput, match="config: got 'gpt9', expected one of tiny, gpt2"):
        named_shape("gpt9")


# The command

SMALL = ["--shape", "layers=2,width=32,heads=2,length=16,vocabulary=64"]
SMALL += ["--samples", "2", "--samples", "warm_up=1"]


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_from_a_profile_to_a_problem(cli, tmp_path) -> None:
    profile, problem = tmp_path / "profile.json", tmp_path / "problem.json"
    done = cli("profile", *SMALL, "--stages", "2,4", "--measure", "links", "-o", profile)
    assert done.code == 0, done.err
    assert " us for " in done.out
    data = read_profile(profile)
    assert [layer.name for layer in data.layers] == ["embedding", "block 0", "block 1", "head"]
    assert [stage.layers for stage in data.stages] == [[0, 2], [2, 4]]
    assert data.links is not None
    assert {size.bytes for size in data.links.sizes} >= {16 * 32 * 4}
    assert data.model.shape["feed_forward"] == 352 * 32 // 128
    for devices in (2, 4):
        options = ["--devices", devices, "--microbatches", 4, "--memory", "1GiB", "-o", problem]
        done = cli("problem", "from-profile", profile, *options)
        assert done.code == 0, done.err
        assert "sums of their layers" not in done.err
    assert json.loads(problem.read_text())["stages"][0]["backward"] == "fused"
    rebuilt = model_of_profile(data)
    assert len(rebuilt.build_stage(0, 2)) == 2


OWN = """
import torch
from torch import nn
def good():
    return {"layers": [nn.Linear(8, 8) for _ in range(3)],
            "microbatch": lambda i: (torch.ones(4, 8), torch.ones(4, 8)),
            "loss": nn.functional.mse_loss}
"""

OTHER = """
def a_list():
    return [1]
def other():
    return {"layers": [], "losses": 3}
def fails():
    raise RuntimeError("no data here")
"""


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_the_users_own_model(cli, tmp_path, monkeypatch) -> None:
    (tmp_path / "own_model.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    arguments = ["profile", "--samples", 1, "--samples", "warm_up=0", "-o", "p.json", "--model"]
    assert cli(*arguments, "own_model:good").code == 0
    assert read_profile("p.json").model.path == "own_model:good"
    missing = cli(*arguments, "no_such_module:good")
    assert (missing.code, missing.out) == (2, "")
    assert "ModuleNotFoundError: No module named 'no_such_module'" in missing.err


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("other_model:a_list", "it returned list, expected a dict with the keys layers, microb"),
        ("other_model:other", r"it returned \['layers', 'losses'\], expected a dict with the keys"),
        ("other_model:fails", "cannot be imported and called: RuntimeError: no data here"),
        ("other_model:nothing", "AttributeError: module 'other_model' has no attribute 'nothing'"),
        ("other_model", "model: got 'other_model', expected package.module:function"),
        (":f", "expected package.module:function"),
    ],
)
def test_modules_that_bring_no_model(path, message, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "other_model.py").write_text(OTHER)
    with pytest.raises(BadInput, match=message):
        imported_model(path, str(tmp_path), "cpu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--config", "x"], "config: got 'x'"),
        (["--model", "m:f", "--shape", "heads=2"], "this is of the built-in decoder"),
        (["--stages", "x"], "--stages: got 'x', expected an integer from 1 to 1000000"),
        (["--stages", "0"], "--stages: got '0', expected an integer from 1 to 1000000"),
        (["--stages", "2,2"], "--stages: got '2,2', 2 appears twice"),
        (["--shape", "heads=7"], "heads: got 7, expected a divisor of width 128"),
        (
            ["--stages", "cut=balanced"],
            "--stages cut: got 'balanced', expected `--stages`, which are cut so",
        ),
    ],
)
def test_options_that_are_refused_before_anything_is_measured(cli, options, message) -> None:
    done = cli("profile", *options, "-o", "never.json")
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert not Path("never.json").exists()
