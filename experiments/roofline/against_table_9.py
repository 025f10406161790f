"""Roofline estimates against measured costs: Zero Bubble's table 9 (A100, 1024 tokens).

Stages of the paper's models hold (layers + 2) / ranks layers; microbatch sizes are those of its
table 3. Prints a Markdown table: estimate over measured, less 1, per op and in all.
"""

from __future__ import annotations

from pipesat.layers.roofline import FAST, LIKELY, SLOW, Run, estimated_layers
from pipesat.profile.published import named_gpu, named_shape

MEASURED = {  # name: sequences, layers per stage, F, B, W in microseconds
    "zb-1.5b": (6, 3, 18513, 18086, 9331),
    "zb-6.2b": (3, 4, 29802, 29428, 19530),
    "zb-14.6b": (1, 3, 11325, 11308, 8109),
    "zb-28.3b": (1, 2, 10402, 10248, 7698),
}


def main() -> None:
    """Print the table."""
    print("| model | efficiencies | F | B | W | in all |")
    print("|---|---|---|---|---|---|")
    for name, (batch, layers, *measured) in MEASURED.items():
        for label, efficiency in (("slow", SLOW), ("likely", LIKELY), ("fast", FAST)):
            run = Run(length=1024, batch=batch)
            made = estimated_layers(
                named_shape(name).shape, named_gpu("a100"), run, efficiency=efficiency
            )
            costs = made.layers[1].costs
            times = [layers * time for time in (costs.F, costs.B, costs.W)]
            errors = [x / y - 1 for x, y in zip(times, measured, strict=True)]
            errors.append(sum(times) / sum(measured) - 1)
            cells = " | ".join(f"{100 * error:+.0f} %" for error in errors)
            print(f"| {name} | {label} | {cells} |")


if __name__ == "__main__":
    main()
