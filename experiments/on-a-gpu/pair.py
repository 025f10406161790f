"""What a pair takes: F of one microbatch beside BW of another, on two streams of one GPU.

    python experiments/on-a-gpu/pair.py [--samples 20] [--rehearse] [-o pairs.json]

Two blocks at four numbers of tokens each: llama3-8b's, and one with experts on other GPUs, whose
two exchanges of tokens are stood in for by copies to the host and back. Each line has F alone, BW
alone, both at once, and the share of F + BW that both take: what ``--overlap`` asks for.
``--rehearse`` needs no GPU: toys on the CPU, where both run in turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pipesat.layers.profile.published import DecoderShape, named_shape
from pipesat.measure.processes.decoder import Attention, build_layer
from pipesat.measure.processes.meters import clock_and_meter

EXPERTS, CHOSEN, NARROW = 8, 4, 1408  # experts here, a token's, width inside one
TOKENS = (1024, 2048, 4096, 8192)


class Exchange(torch.autograd.Function):
    """An all-to-all as copies to pinned memory of the host and back, forwards and backwards."""

    @staticmethod
    def forward(_ctx: Any, x: Any) -> Any:
        """Copy there and back on the present stream."""
        host = torch.empty(x.shape, dtype=x.dtype, pin_memory=x.is_cuda)
        host.copy_(x, non_blocking=True)
        return torch.empty_like(x).copy_(host, non_blocking=True)

    backward = forward


class ExpertBlock(nn.Module):
    """Attention, then experts of equal loads between two exchanges."""

    def __init__(self, shape: DecoderShape, length: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.RMSNorm(shape.width) for _ in range(2)])
        self.attention = Attention(shape, length)
        self.up = nn.Parameter(torch.randn(EXPERTS, shape.width, NARROW) / shape.width**0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, NARROW, shape.width) / NARROW**0.5)

    def forward(self, x: Any) -> Any:
        """Send each token to its experts, and back."""
        x = x + self.attention(self.norms[0](x))
        sent = self.norms[1](x).flatten(0, 1).repeat(CHOSEN, 1)
        there = Exchange.apply(sent).unflatten(0, (EXPERTS, -1))
        done = Exchange.apply(nn.functional.silu(there @ self.up) @ self.down)
        return x + done.flatten(0, 1).unflatten(0, (CHOSEN, -1)).sum(0).view_as(x)


def measured(block: nn.Module, x: Any, samples: int) -> dict[str, float]:
    """Medians of F, BW and both at once, in ms."""
    cuda = x.is_cuda
    clock, _ = clock_and_meter(x.device.type)
    lanes: list[Any] = [torch.cuda.Stream() if cuda else None for _ in range(2)]
    gradient = torch.randn_like(x)

    def on(lane: int) -> Any:
        return torch.cuda.stream(lanes[lane]) if cuda else nullcontext()

    def forward() -> Any:
        return block(x.detach().requires_grad_())

    def timed(ops: list[tuple[int, Callable[[], Any]]]) -> float:
        while True:
            clock.begin(lead=True)
            marks = [clock.mark()]
            for lane, op in ops:
                if cuda:
                    lanes[lane].wait_stream(torch.cuda.current_stream())
                with on(lane):
                    op()
            for lane, _ in ops:
                if cuda:
                    torch.cuda.current_stream().wait_stream(lanes[lane])
            marks.append(clock.mark())
            if (took := clock.durations(marks)) is not None:
                return took[0] / 1000

    def sample() -> tuple[float, float, float]:
        with on(1):
            alone, beside = forward(), forward()
        block.zero_grad(set_to_none=False)
        one = timed([(0, forward)])
        two = timed([(1, lambda: alone.backward(gradient))])
        return one, two, timed([(0, forward), (1, lambda: beside.backward(gradient))])

    times = [sample() for _ in range(samples + 3)][3:]
    F, BW, pair = (statistics.median(column) for column in zip(*times, strict=True))
    return {"F": F, "BW": BW, "pair": pair, "longest": max(F, BW), "share": pair / (F + BW)}


def main() -> None:
    """Measure both blocks, print a table, write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("-o", type=Path, default=Path("pairs.json"))
    asked = parser.parse_args()
    device = torch.device("cpu" if asked.rehearse else "cuda")
    dtype = torch.float32 if asked.rehearse else torch.bfloat16
    shape = named_shape("tiny" if asked.rehearse else "llama3-8b").shape
    rows = []
    print("block    tokens      F, ms         BW       pair  longest of both  share of both")
    for tokens in (8, 16) if asked.rehearse else TOKENS:
        for kind in ("dense", "experts"):
            made = build_layer(shape, tokens, 1, dtype, device)
            block = made if kind == "dense" else ExpertBlock(shape, tokens).to(device, dtype)
            x = torch.randn(1, tokens, shape.width, dtype=dtype, device=device)
            row = {"block": kind, "tokens": tokens, **measured(block, x, asked.samples)}
            rows.append(row)
            figures = [f"{row[key]:10.3f}" for key in ("F", "BW", "pair", "longest", "share")]
            print(f"{kind:8} {tokens:6} {' '.join(figures)}", flush=True)
    machine = torch.cuda.get_device_name() if not asked.rehearse else "CPU, toys"
    about = {"machine": machine, "torch": torch.__version__, "cuda": torch.version.cuda}
    asked.o.write_text(json.dumps({**about, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
