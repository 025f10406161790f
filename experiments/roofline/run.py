"""Roofline estimates against measured costs, and against public ratios.

    python -m experiments.roofline.run

First Zero Bubble's table 9 (A100, 1024 tokens): stages of the paper's models hold (layers + 2) /
ranks layers; microbatch sizes are those of its table 3. Estimate over measured, less 1. Then the
head of a Gemma-like model beside its blocks, against the public ratios in examples/.
"""

from __future__ import annotations

from pathlib import Path

from bench.pages import table
from pipesat.layers.layer import Layer
from pipesat.layers.layers_file import read_layers
from pipesat.layers.profile.published import DecoderShape, named_gpu, named_shape
from pipesat.layers.roofline import FAST, LIKELY, SLOW, ModelRun, estimated_layers

MEASURED = {  # name: sequences, layers per stage, F, B, W in microseconds
    "zb-1.5b": (6, 3, 18513, 18086, 9331),
    "zb-6.2b": (3, 4, 29802, 29428, 19530),
    "zb-14.6b": (1, 3, 11325, 11308, 8109),
    "zb-28.3b": (1, 2, 10402, 10248, 7698),
}
HEADS = {"width": 2304, "heads": 8, "kv_heads": 4, "feed_forward": 9216, "vocabulary": 256_000}
GEMMA = DecoderShape(style="llama", layers=26, **HEADS)
"""Gemma 2's 2B model; its heads are 256 wide, here 288."""
GEMMA_FILE = Path(__file__).parents[2] / "examples" / "layers-gemma-like.json"


def ratios(block: Layer, head: Layer) -> list[str]:
    """B and W of a block, and F, B, W of the head, over the block's F; the head over a block."""
    amounts = [layer.amount(kind) for layer in (block, head) for kind in ("F", "B", "W")]
    own = [f"{amount / amounts[0]:.2f}" for amount in amounts[1:]]
    return [*own, f"{sum(amounts[3:]) / sum(amounts[:3]):.1f}"]


def main() -> None:
    rows = []
    for name, (batch, layers, *measured) in MEASURED.items():
        for label, efficiency in (("slow", SLOW), ("likely", LIKELY), ("fast", FAST)):
            run, shape = ModelRun(length=1024, batch=batch), named_shape(name).shape
            made = estimated_layers(shape, named_gpu("a100"), run, efficiency=efficiency)
            costs = made.layers[1].costs
            times = [layers * time for time in (costs.F, costs.B, costs.W)]
            errors = [x / y - 1 for x, y in zip(times, measured, strict=True)]
            errors.append(sum(times) / sum(measured) - 1)
            rows.append([name, label, *(f"{100 * error:+.0f} %" for error in errors)])
    print(table(("model", "efficiencies", "F", "B", "W", "in all"), rows), "\n")
    public = read_layers(GEMMA_FILE).layers
    rows = [["public ratios", *ratios(public[1], public[-1])]]
    for gpu in ("a100", "h100"):
        for length in (2048, 8192):
            made = estimated_layers(GEMMA, named_gpu(gpu), ModelRun(length=length))
            own = ratios(made.layers[1], made.layers[-1])
            rows.append([f"estimate, {gpu}, {length} tokens", *own])
    print(table(("costs", "block B", "W", "head F", "B", "W", "head over block, in all"), rows))


if __name__ == "__main__":
    main()
