"""Draw what each way of ordering microbatches takes over the bound, by distribution of lengths.

python experiments/microbatch-orders/3_picture.py

Draws docs/pictures/microbatch-orders.png.
"""

from __future__ import annotations

from importlib import import_module
from statistics import fmean

import matplotlib as mpl
from cases import DISTRIBUTIONS, ROOT, WAYS
from matplotlib.figure import Figure

PICTURE = ROOT / "docs" / "pictures" / "microbatch-orders.png"
COLOURS = ("#999999", "#e6a15c", "#4c8bc2", "#1a7f5a")
WIDTH = 0.2


def main() -> None:
    """Draw bars: means over all sizes and draws, with the single cases as dots."""
    mpl.use("Agg")
    cases = import_module("2_table").over_bound()
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    axes = figure.subplots()
    for number, way in enumerate(WAYS):
        at = [place + (number - 1.5) * WIDTH for place in range(len(DISTRIBUTIONS))]
        values = [
            [value[way] for case, value in cases.items() if case.distribution == name]
            for name in DISTRIBUTIONS
        ]
        axes.bar(at, [fmean(own) for own in values], WIDTH, label=way, color=COLOURS[number])
        for x, own in zip(at, values, strict=True):
            axes.plot([x] * len(own), own, ".", color="black", alpha=0.35, markersize=3)
    axes.set_xticks(range(len(DISTRIBUTIONS)), list(DISTRIBUTIONS))
    axes.set(xlabel="lengths of microbatches", ylabel="makespan over the bound, %")
    axes.grid(axis="y", color="#e3e3e3", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, title="order")
    figure.savefig(PICTURE, dpi=130, metadata={"Software": None})


if __name__ == "__main__":
    main()
