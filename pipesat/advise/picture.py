"""A plan as bars: time of every stage and memory of every device, with the bottleneck marked."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pipesat.advise.candidates import Candidate
from pipesat.advise.plan_tables import devices_of, stages_of
from pipesat.core.amounts import time_text
from pipesat.core.claims import Standing
from pipesat.draw.figures import (
    blank_figure,
    figure_of,
    files_of,
    in_brackets,
    unit_of_memory,
    unit_of_time,
)
from pipesat.draw.style import CAPACITY, FILL, GRID, HELD, MEANING, OUTLINE, STATIC
from pipesat.layers.layer import Layers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_NAMED: Final = 40  # stages; more only have numbers


def plan_pictures(layers: Layers, chosen: Candidate, standing: Standing) -> dict[str, bytes]:
    """Draw a partition; return its files, ``plan.png`` and the like."""
    return files_of(plan_figure(layers, chosen, standing), "plan")


def plan_figure(layers: Layers, chosen: Candidate, standing: Standing) -> Figure:
    """Draw a partition as a figure of its own."""
    return figure_of(partial(_figure, layers, chosen, standing))


def _figure(layers: Layers, chosen: Candidate, standing: Standing) -> Figure:
    stages, devices = stages_of(chosen, layers), devices_of(chosen)
    estimated = " (estimated costs)" if layers.estimate else ""
    proof = standing.verdict + ("" if standing.bound is None else " over all partitions")
    value = "unknown" if standing.value is None else time_text(standing.value, layers.time_unit)
    title = (
        f"{layers.name or 'plan'}{estimated}, {chosen.shape.geometry.label} on {len(devices)}\n"
        f"{chosen.objective} {value}, {proof}"
    )
    width = max(10.0, min(20.0, 2.0 + 0.4 * max(len(stages), len(devices))))
    figure = blank_figure(width, 6.5, title)
    times, memory = figure.subplots(2, 1)
    _draw_times(times, stages, chosen, layers.time_unit)
    _draw_memory(memory, devices, layers.memory_unit)
    return figure


def _draw_times(
    axes: Axes, stages: list[dict[str, Any]], chosen: Candidate, time_unit: str
) -> None:
    """One bar per stage: F, B and W on top of each other, or F and BW where it cannot be split."""
    may_split = [stage.may_split for stage in chosen.problem.stages]
    heights = {
        kind: [
            stage[kind] if kind == "F" or (kind == "BW") != apart else 0
            for stage, apart in zip(stages, may_split, strict=True)
        ]
        for kind in FILL
    }
    total = [sum(parts) for parts in zip(*heights.values(), strict=True)]
    scale, unit = unit_of_time(time_unit, max(total))
    on = chosen.shape.stages_on
    most = max(range(len(on)), key=lambda device: sum(total[stage] for stage in on[device]))
    bars = {MEANING[kind]: (FILL[kind], each) for kind, each in heights.items() if any(each)}
    _stack(axes, bars, float(scale))
    if again := [k for k, flag in enumerate(chosen.flags) if flag or chosen.first]:
        what = f"the first {chosen.first} layers recompute" if chosen.first else "recomputes"
        axes.bar(
            again,
            [total[stage] * float(scale) for stage in again],
            facecolor="none",
            edgecolor=OUTLINE,
            linewidth=0.5,
            hatch="//",
            label=what,
        )
    axes.bar(
        on[most],
        [total[stage] * float(scale) for stage in on[most]],
        width=0.92,
        facecolor="none",
        edgecolor=CAPACITY,
        linewidth=1.8,
        label=f"bottleneck: device {most}",
    )
    labels = [f"{s['stage']}\nd{s['device']}\n{len(s['layers'])}" for s in stages]
    _finish(axes, in_brackets("time per microbatch", unit), labels)
    axes.set_xlabel("stage, its device, its number of layers", fontsize=8)


def _draw_memory(axes: Axes, devices: list[dict[str, Any]], memory_unit: str) -> None:
    """One bar per device: static memory and the peak of activations; the cap as a line."""
    caps = [(at, d["memory"]) for at, d in enumerate(devices) if d["memory"] is not None]
    tallest = max([1, *(cap for _, cap in caps), *(device["peak"] for device in devices)])
    scale, unit = unit_of_memory(memory_unit, tallest)
    bars = {
        "static: weights, gradients, optimizer": (STATIC, [d["static"] for d in devices]),
        "activations at the peak": (HELD, [d["activations"] for d in devices]),
    }
    _stack(axes, bars, float(scale))
    if caps:
        axes.hlines(
            [cap * float(scale) for _, cap in caps],
            [place - 0.5 for place, _ in caps],
            [place + 0.5 for place, _ in caps],
            color=CAPACITY,
            linewidth=1.4,
            linestyle="--",
            label="capacity",
        )
    _finish(axes, in_brackets("memory", unit), [str(place) for place in range(len(devices))])
    axes.set_xlabel("device", fontsize=8)


def _stack(axes: Axes, bars: dict[str, tuple[str, list[int]]], scale: float) -> None:
    """Draw named bars on top of each other."""
    amounts = np.array([each for _, each in bars.values()]) * scale
    for (name, (colour, _)), heights, top in zip(
        bars.items(), amounts, amounts.cumsum(axis=0), strict=True
    ):
        axes.bar(
            range(len(heights)),
            heights,
            bottom=top - heights,
            label=name,
            color=colour,
            edgecolor=OUTLINE,
            linewidth=0.5,
        )


def _finish(axes: Axes, name: str, labels: list[str]) -> None:
    axes.set_ylabel(name, fontsize=8, parse_math=False)
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    step = -(-len(labels) // _MOST_NAMED)
    axes.set_xticks(range(0, len(labels), step), labels[::step])
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=8)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        frameon=False,
        fontsize=8,
        ncols=5,
        borderaxespad=0.2,
    )
