"""A plan as bars: time of every stage and memory of every device, with the bottleneck marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pipesat.core.amounts import time_text
from pipesat.picture.style import (
    CAPACITY,
    FILL,
    GRID,
    HELD,
    INK,
    MEANING,
    OUTLINE,
    STATIC,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pipesat.choose.plan import Plan

_MOST_NAMED: Final = 40  # stages; more only have numbers


def plan_pictures(plan: Plan) -> dict[str, bytes]:
    """Draw the chosen partition; return its files: ``png``, and ``svg``."""
    from pipesat.picture.figures import figure_of, png_and_svg

    return png_and_svg(figure_of(lambda: _figure(plan)))


def figure_of_plan(plan: Plan) -> Figure | None:
    """Draw a plan as a figure of its own, ``None`` if there is none."""
    from pipesat.picture.figures import figure_of

    return None if plan.chosen is None else figure_of(lambda: _figure(plan))


def _figure(plan: Plan) -> Figure:
    """Draw the chosen partition."""
    from pipesat.choose.plan_tables import devices_of, stages_of
    from pipesat.picture.figures import blank_figure

    stages, devices = stages_of(plan.chosen, plan.question.layers), devices_of(plan.chosen)
    width = max(10.0, min(20.0, 2.0 + 0.4 * max(len(stages), len(devices))))
    figure = blank_figure(width, 6.5, _title(plan))
    times, memory = figure.subplots(2, 1)
    _draw_times(times, stages, len(devices), plan)
    _draw_memory(memory, devices, plan)
    return figure


def _title(plan: Plan) -> str:
    from pipesat.layers.pipeline import shape_name

    layers, chosen = plan.question.layers, plan.chosen
    where = "" if chosen is None else f", {shape_name(chosen.shape)} on {chosen.shape.devices}"
    verdict = plan.standing.verdict
    proof = verdict if plan.bound is None else f"{verdict} over all partitions"
    name = f"{layers.name or 'plan'}{' (estimated costs)' if layers.estimate else ''}{where}"
    value = time_text(plan.value, layers.time_unit) if plan.value is not None else "unknown"
    return f"{name}\n{plan.question.objective} {value}, {proof}"


def _draw_times(axes: Axes, stages: list[dict[str, Any]], devices: int, plan: Plan) -> None:
    """One bar per stage: F, B and W on top of each other, or F and BW where it cannot be split."""
    from pipesat.picture.figures import in_brackets, unit_of_time

    problem = None if plan.chosen is None else plan.chosen.problem
    split = [problem is None or problem.stages[at].may_split for at in range(len(stages))]
    heights = {
        kind: [
            stage[kind] if kind == "F" or (kind == "BW") != apart else 0
            for stage, apart in zip(stages, split, strict=True)
        ]
        for kind in FILL
    }
    total = [sum(parts) for parts in zip(*heights.values(), strict=True)]
    scale, unit = unit_of_time(plan.question.layers.time_unit, max(total, default=0))
    bars = {MEANING[kind]: (FILL[kind], each) for kind, each in heights.items() if any(each)}
    _stack(axes, bars, scale)
    loads = [0] * devices
    for stage, work in zip(stages, total, strict=True):
        loads[stage["device"]] += work
    most = max(range(devices), key=loads.__getitem__)
    busiest = [at for at, stage in enumerate(stages) if stage["device"] == most]
    axes.bar(
        busiest,
        [total[at] * scale for at in busiest],
        width=0.92,
        facecolor="none",
        edgecolor=CAPACITY,
        linewidth=1.8,
        label=f"bottleneck: device {most}",
    )
    if len(stages) <= _MOST_NAMED:
        counts = [f"{len(s['layers'])}{' R' if s['recompute'] else ''}" for s in stages]
        tops = axes.bar(range(len(stages)), [scale * work for work in total], facecolor="none")
        axes.bar_label(tops, counts, fontsize=8, color=INK, padding=2)
    labels = [
        str(place) if len(stages) == devices else f"{place}\nd{stage['device']}"
        for place, stage in enumerate(stages)
    ]
    axes.set_ylim(0, 1.12 * max(1, *total) * scale)
    _finish(axes, in_brackets("time per microbatch", unit), labels)
    note = "stage; above each bar its number of layers"
    note += "" if len(stages) == devices else ", below its device"
    recomputes = ", R: recomputes" if any(stage["recompute"] for stage in stages) else ""
    axes.set_xlabel(note + recomputes, fontsize=8)


def _draw_memory(axes: Axes, devices: list[dict[str, Any]], plan: Plan) -> None:
    """One bar per device: static memory and the peak of activations; the cap as a line."""
    from pipesat.picture.figures import in_brackets, unit_of_memory

    caps = [(at, d["memory"]) for at, d in enumerate(devices) if d["memory"] is not None]
    tallest = max([1, *(cap for _, cap in caps), *(device["peak"] for device in devices)])
    exact, unit = unit_of_memory(plan.question.layers.memory_unit, tallest)
    scale = float(exact)
    bars = {
        "static: weights, gradients, optimizer": (STATIC, [d["static"] for d in devices]),
        "activations at the peak": (HELD, [d["activations"] for d in devices]),
    }
    _stack(axes, bars, scale)
    if caps:
        axes.hlines(
            [cap * scale for _, cap in caps],
            [place - 0.5 for place, _ in caps],
            [place + 0.5 for place, _ in caps],
            color=CAPACITY,
            linewidth=1.4,
            linestyle="--",
            label="capacity",
        )
    axes.set_ylim(0, 1.08 * tallest * scale)
    _finish(axes, in_brackets("memory", unit), [str(place) for place in range(len(devices))])
    axes.set_xlabel("device", fontsize=8)


def _stack(axes: Axes, bars: dict[str, tuple[str, list[int]]], scale: float) -> None:
    """Draw named bars on top of each other."""
    floor: list[float] = []
    for name, (colour, amounts) in bars.items():
        heights = [scale * amount for amount in amounts]
        floor = floor or [0.0] * len(heights)
        axes.bar(
            range(len(heights)),
            heights,
            bottom=floor,
            label=name,
            color=colour,
            edgecolor=OUTLINE,
            linewidth=0.5,
        )
        floor = [a + b for a, b in zip(floor, heights, strict=True)]


def _finish(axes: Axes, name: str, labels: list[str]) -> None:
    axes.set_ylabel(name, fontsize=8, parse_math=False)
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    step = -(-len(labels) // _MOST_NAMED)
    axes.set_xticks(range(0, len(labels), step), labels[::step])
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.tick_params(labelsize=8)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        frameon=False,
        fontsize=8,
        ncols=5,
        borderaxespad=0.2,
    )
