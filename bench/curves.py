"""Pictures: quality over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rows import gap_after, group_of, reached
from runner import Row

STEPS = 200
PAST_THE_LIMIT = 1.1  # start-up is counted too, so the last figures come a little later
FLOOR = 1e-4  # gaps below 0.01 % are drawn there
LEVELS = ((0.0, "proven optimal"), (0.005, "gap at most 0.5 %"), (0.02, "gap at most 2 %"))
COLOURS = ("#1b6ca8", "#d1495b", "#3a7d44", "#e6a117", "#7b4b94", "#5c6b73", "#00a6a6", "#a3623a")
DASHES = ("-", "--", ":")


def moments(limit: float) -> list[float]:
    """Times from 0.2 s to a little past the limit, evenly spaced on a logarithmic axis."""
    first, last = 0.2, PAST_THE_LIMIT * limit
    return [first * (last / first) ** (step / (STEPS - 1)) for step in range(STEPS)]


def draw_quality(path: Path, rows: Sequence[Row], limit: float) -> None:
    """Left: how many problems are solved to a gap after t seconds. Right: mean gap per group."""
    figure, (left, right) = _panels()
    times = moments(limit)
    for (gap, label), colour in zip(LEVELS, COLOURS, strict=False):
        reaching = [reached(row, gap) for row in rows]
        solved = [sum(r <= t for r in reaching) for t in times]
        left.step(times, solved, where="post", color=colour, label=label)
    left.set(ylim=(0, len(rows)), ylabel=f"problems, of {len(rows)}")
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(group_of(row["problem"]), []).append(row)
    _draw_gaps(right, sorted(groups.items()), times)
    _finish(figure, path, (left, right), limit)


def _panels() -> tuple[Figure, tuple[Axes, Axes]]:
    mpl.use("Agg")
    figure = Figure(figsize=(12, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    return figure, (left, right)


def _draw_gaps(axes: Axes, groups: Sequence[tuple[str, list[Row]]], times: list[float]) -> None:
    for number, (name, rows) in enumerate(groups):
        gaps = [max(FLOOR, fmean(gap_after(row, t) for row in rows)) for t in times]
        axes.step(
            times,
            [100 * gap for gap in gaps],
            label=name,
            where="post",
            color=COLOURS[number % len(COLOURS)],
            linestyle=DASHES[number // len(COLOURS)],
        )
    axes.set(yscale="log", ylim=(80 * FLOOR, 110), ylabel="mean gap, %")


def _finish(figure: Figure, path: Path, panels: tuple[Axes, Axes], limit: float) -> None:
    for axes in panels:
        axes.set(
            xscale="log",
            xlim=(0.2, PAST_THE_LIMIT * limit),
            xlabel="seconds since the process started",
        )
        ticks = [t for t in (0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600) if t <= limit]
        axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
        axes.minorticks_off()
        axes.grid(color="#e3e3e3", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    panels[1].set_yticks([0.01, 0.1, 1, 10, 100], ["0.01", "0.1", "1", "10", "100"])
    panels[0].legend(frameon=False, loc="best", fontsize=9)
    panels[1].legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, metadata={"Software": None})
