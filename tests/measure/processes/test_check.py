"""``run --check``: models of 16 bits, and parameters that a pipeline leaves without a gradient."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from pipesat.heuristics import BASELINES
from pipesat.problem.ops import parse_item
from pipesat.schedule.schedule_file import write_schedule
from pipesat.schedule.timing import time_order
from tests.support.problems import chain

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("warm"),
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None,
        reason="needs torch: pip install 'pipesat[torch]'",
    ),
]

OPTIONS = ("--verify", "--json", "--steps", 1, "--steps", "warm_up=1")
M = 4


@pytest.fixture
def run(cli, save, tmp_path):
    """Run an order of a chain on two ranks; rows as texts, or the name of a baseline."""

    def ran(order, *options):
        problem = chain(2, M)
        if isinstance(order, str):
            found = BASELINES[order](problem)
        else:
            rows = tuple(tuple(map(parse_item, row.split())) for row in order)
            found = time_order(problem, rows)
        schedule = tmp_path / "schedule.json"
        write_schedule(schedule, problem, found)
        words = ("run", save(problem), schedule, "-o", tmp_path / "timeline.json")
        return cli(*words, *OPTIONS, *options)

    return ran


# The last stage adds its weight gradients in another order than 0, 1, 2, 3: in bfloat16 another sum
BACK_TO_FRONT = (
    "0F0 0F1 0F2 0F3 0BW0 0BW1 0BW2 0BW3",
    "1F0 1F1 1F2 1F3 1B0 1B1 1B2 1B3 1W2 1W3 1W1 1W0",
)


def test_sums_of_16_bits_are_added_in_the_order_of_the_run(run) -> None:
    outcome = run(BACK_TO_FRONT, "--shape", "dtype=bfloat16,width=32")
    assert outcome.code == 0, outcome.err
    check = outcome.json["check"]
    assert check["compared"] == M + 2 * 12 + 5  # losses, blocks, words, positions, norm and head
    assert check["tolerance"] == 2e-2  # five roundings of 2^-8
    assert check["largest_relative_error"] == 0  # nothing is left to rounding


MODEL = """
import torch
from torch import nn

DTYPE = torch.{dtype}


class Stage(nn.Module):
    def __init__(self, number):
        super().__init__()
        torch.manual_seed(number)
        self.number, self.calls = number, 0
        self.layer = nn.Linear(8, 8)
        {init}

    def forward(self, x):
        self.calls += 1
        y = torch.tanh(self.layer(x))
        {forward}
        return y


def build_stage(stage, stages):
    global built
    built = Stage(stage).to(DTYPE)
    return built


def whole_batch(m):
    batch = torch.randn(2, m * 8, 8, generator=torch.Generator().manual_seed(7))
    return batch.to(DTYPE)


def loss_of(output, target):
    {loss}
"""


@pytest.fixture
def model(tmp_path: Path):
    def write(*, dtype="float32", init="", forward="", loss="") -> list[object]:
        path = tmp_path / "mine.py"
        text = {"dtype": dtype, "init": init, "forward": forward}
        path.write_text(
            MODEL.format(**text, loss=loss or "return (output - target).float().square().mean()")
        )
        return ["--model", path]

    return write


def test_a_microbatch_lost_is_seen_in_16_bits(run, model) -> None:
    """In the measured step, after M + 1 forwards of warm-up and shapes; the reference runs M."""
    lost = f"if self.calls == {M + 3} and self.number == 1: y = y.detach() + 0 * x"
    failed = run(BACK_TO_FRONT, *model(dtype="bfloat16", forward=lost))
    assert failed.code == 1
    assert failed.json["check"]["largest_relative_error"] > 2e-2
    assert failed.json["check"]["untrained"] == []


# As FSDP runs a stage whose weights it puts away after the forward: the graph has others than
# `parameters()`, and hands their gradients over when autograd accumulates them.
PUT_AWAY = """held = self.norm
        used = nn.Parameter(held.detach().clone())
        def hand_over(used):
            held.grad = used.grad if held.grad is None else held.grad + used.grad
            used.grad = None
        used.register_post_accumulate_grad_hook(hand_over)
        y = y * used"""
# As a loss that runs the head itself, chunk by chunk, with a backward of its own
CHUNKED = """
    class Bridge(torch.autograd.Function):
        @staticmethod
        def forward(context, hidden, gradient, loss):
            context.save_for_backward(gradient)
            return loss.detach()

        @staticmethod
        def backward(context, _):
            return context.saved_tensors[0], None, None

    total, gradients = output.new_zeros(()), []
    for hidden, wanted in zip(output.detach().chunk(2), target.chunk(2)):
        hidden.requires_grad_()
        loss = (built.head(hidden) - wanted).square().mean()
        loss.backward()
        total = total + loss.detach()
        gradients.append(hidden.grad)
    return Bridge.apply(output, torch.cat(gradients), total)"""
NORM_AND_HEAD = """if number == 1:
            self.norm = nn.Parameter(torch.ones(8))
            self.head = nn.Linear(8, 8)"""


def test_a_norm_that_a_split_backward_leaves_untrained(run, model) -> None:
    """The fault of a chunked loss over FSDP: with whole backwards it is none."""
    options = model(
        init=NORM_AND_HEAD,
        forward=f"if self.number == 0: return y\n        {PUT_AWAY}",
        loss=CHUNKED,
    )
    whole = run("1f1b", *options)
    assert whole.code == 0, whole.err + whole.out
    assert whole.json["check"]["compared"] == M + 2 * 2 + 1 + 2
    split = run(BACK_TO_FRONT, *options)
    assert split.code == 1
    check = split.json["check"]
    assert check["untrained"] == ["stage 1's norm"]
    assert check["worst"] == "gradient of stage 1's norm"
    assert check["largest_relative_error"] is None


def test_parameters_that_nothing_depends_on(run, model) -> None:
    """Those that are not to be trained do not count."""
    spare = "self.{} = nn.Parameter(torch.ones(3), requires_grad={})"
    init = "\n        ".join((spare.format("spare", True), spare.format("frozen", False)))
    outcome = run("1f1b", *model(init=init))
    assert outcome.code == 1
    assert outcome.json["check"]["untrained"] == ["stage 0's spare", "stage 1's spare"]
    assert outcome.json["check"]["largest_relative_error"] < 1e-6
