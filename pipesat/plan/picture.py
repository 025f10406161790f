"""A plan as bars: time and memory of every stage by kind, with the caps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pipesat.picture.both_formats import blank_figure, figure_of, png_and_svg
from pipesat.picture.lettering import fitted
from pipesat.picture.style import (
    CAPACITY,
    FAINT_INK,
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

    from pipesat.plan.answer import Plan

_MOST_NAMED: Final = 40  # stages; more only have numbers
_CHUNKS: Final = (STATIC, HELD)


def plan_pictures(plan: Plan) -> dict[str, bytes]:
    """Draw the chosen partition; return its files: ``png``, and ``svg``."""
    return png_and_svg(lambda: plan_figure(plan))


def figure_of_plan(plan: Plan) -> Figure | None:
    """Draw a plan as a figure of its own, ``None`` if there is none."""
    return None if plan.chosen is None else figure_of(lambda: plan_figure(plan))


def plan_figure(plan: Plan) -> Figure:
    """Draw the chosen partition."""
    from pipesat.plan.answer import devices_of, stages_of

    stages, devices = stages_of(plan), devices_of(plan)
    width = max(8.0, min(24.0, 3.0 + 0.55 * max(len(stages), len(devices))))
    figure = blank_figure(width, 8)
    times, memory = figure.subplots(2, 1)
    _draw_times(times, stages, len(devices), plan)
    _draw_memory(memory, devices, plan)
    lines = (fitted(line, 72 * width - 40, 13, bold=True) for line in _title(plan))
    figure.suptitle("\n".join(lines), x=0.01, ha="left", weight="bold", parse_math=False)
    return figure


def _title(plan: Plan) -> tuple[str, str]:
    from pipesat.plan.shapes import shape_name

    layers, chosen = plan.question.layers, plan.chosen
    unit = f" {layers.time_unit}" if layers.time_unit else ""
    where = "" if chosen is None else f", {shape_name(chosen.shape)} on {chosen.shape.devices}"
    verdict = plan.standing.verdict
    proof = verdict if plan.bound is None else f"{verdict} over all partitions"
    name = f"{layers.name or 'plan'}{' (estimated costs)' if layers.estimate else ''}"
    return f"{name}{where}", f"{plan.question.objective} {plan.value:,}{unit}, {proof}"


def _draw_times(axes: Axes, stages: list[dict[str, Any]], devices: int, plan: Plan) -> None:
    """One bar per stage: F, B and W on top of each other, or F and BW where it cannot be split."""
    places = range(len(stages))
    problem = plan.chosen.problem if plan.chosen is not None else None
    split = [problem is None or s.may_split for s in (problem.stages if problem else ())]
    floor = [0] * len(stages)
    for kind in ("F", "B", "W", "BW"):
        heights = [
            stage[kind] if kind == "F" or (kind == "BW") != apart else 0
            for stage, apart in zip(stages, split, strict=True)
        ]
        if any(heights):
            axes.bar(
                places,
                heights,
                bottom=floor,
                color=FILL[kind],
                edgecolor=OUTLINE,
                linewidth=0.5,
                label=MEANING[kind],
                width=0.8,
            )
        floor = [a + b for a, b in zip(floor, heights, strict=True)]
    again = [place for place in places if stages[place]["recompute"]]
    top = max([*floor, 1])
    for place in places:
        count = len(stages[place]["layers"])
        text = f"{count}" + ("\nR" if place in again else "")
        if len(stages) <= _MOST_NAMED:
            axes.annotate(
                text,
                (place, floor[place]),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=8,
                color=INK,
            )
    unit = plan.question.layers.time_unit
    axes.set_ylim(0, 1.16 * top)
    _finish(axes, f"time per microbatch{f' ({unit})' if unit else ''}")
    labels = [
        str(place) if len(stages) == devices else f"{place}\nd{stages[place]['device']}"
        for place in places
    ]
    _ticks(axes, labels)
    note = "stage; above each bar its number of layers"
    note += "" if len(stages) == devices else ", below its device"
    axes.set_xlabel(note + (", R: recomputes" if again else ""))


def _draw_memory(axes: Axes, devices: list[dict[str, Any]], plan: Plan) -> None:
    """One bar per device: static memory and the peak of activations; the cap as a line."""
    places = range(len(devices))
    static = [device["static"] for device in devices]
    axes.bar(
        places,
        static,
        color=STATIC,
        edgecolor=OUTLINE,
        linewidth=0.5,
        width=0.8,
        label="static: weights, gradients, optimizer",
    )
    axes.bar(
        places,
        [device["activations"] for device in devices],
        bottom=static,
        color=HELD,
        edgecolor=OUTLINE,
        linewidth=0.5,
        width=0.8,
        label="activations at the peak",
    )
    caps = [(place, device["memory"]) for place, device in zip(places, devices, strict=True)]
    known = [(place, cap) for place, cap in caps if cap is not None]
    if known:
        axes.hlines(
            [cap for _, cap in known],
            [place - 0.5 for place, _ in known],
            [place + 0.5 for place, _ in known],
            color=CAPACITY,
            linewidth=1.6,
            label="capacity",
        )
    tallest = max([*(cap for _, cap in known), *(device["peak"] for device in devices), 1])
    axes.set_ylim(0, 1.08 * tallest)
    unit = plan.question.layers.memory_unit
    _finish(axes, f"memory{f' ({unit})' if unit else ''}")
    _ticks(axes, [str(place) for place in places])
    axes.set_xlabel("device")


def _ticks(axes: Axes, labels: list[str]) -> None:
    step = -(-len(labels) // _MOST_NAMED)
    axes.set_xticks(range(0, len(labels), step), labels[::step])
    axes.set_xlim(-0.6, len(labels) - 0.4)


def _finish(axes: Axes, name: str) -> None:
    axes.set_ylabel(fitted(name, 360, 10), parse_math=False)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=FAINT_INK)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        frameon=False,
        fontsize=9,
        ncols=4,
        borderaxespad=0.2,
    )
