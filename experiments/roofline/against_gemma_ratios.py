"""The estimate of a Gemma-like model's head beside the public ratios in examples/."""

from __future__ import annotations

from pathlib import Path

from pipesat.layers.file import read_layers
from pipesat.layers.layer import Layer
from pipesat.layers.roofline import Run, estimated_layers
from pipesat.profile.published import DecoderShape, named_gpu

ROOT = Path(__file__).parents[2]
SHAPE = DecoderShape(
    style="llama",
    layers=26,
    width=2304,
    heads=8,
    kv_heads=4,
    feed_forward=9216,
    vocabulary=256_000,
)
"""Gemma 2's 2B model; its heads are 256 wide, here 288."""


def ratios(block: Layer, head: Layer) -> str:
    """B and W of a block, and F, B, W of the head, over the block's F; the head over a block."""
    amounts = [layer.amount(kind) for layer in (block, head) for kind in ("F", "B", "W")]
    own = " | ".join(f"{amount / amounts[0]:.2f}" for amount in amounts[1:])
    return f"{own} | {sum(amounts[3:]) / sum(amounts[:3]):.1f}"


def main() -> None:
    """Print the table."""
    public = read_layers(ROOT / "examples" / "layers-gemma-like.json").layers
    print("| costs | block B | W | head F | B | W | head over block, in all |")
    print("|---|---|---|---|---|---|---|")
    print(f"| public ratios | {ratios(public[1], public[-1])} |")
    for gpu in ("a100", "h100"):
        for length in (2048, 8192):
            layers = estimated_layers(SHAPE, named_gpu(gpu), Run(length=length)).layers
            print(f"| estimate, {gpu}, {length} tokens | {ratios(layers[1], layers[-1])} |")


if __name__ == "__main__":
    main()
