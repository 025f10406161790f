"""The picture of a frontier: what is written on its axes can be read."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pipesat.frontier.caps import Scale1F1B
from pipesat.frontier.picture import Staircase, frontier_figure
from tests.support.problems import chain


@pytest.mark.parametrize(
    ("caps", "static", "activations"),
    [
        ((47_500, 57_500, 180_000), 37_500, 40_000),  # shares of 1/8 and 1/4 all but coincide
        ((1, 20, 5_000_000), 0, 4),  # the right panel shows next to nothing of a long step
    ],
)
def test_texts_of_the_memory_axis_do_not_touch(
    caps: tuple[int, ...], static: int, activations: int
) -> None:
    curve = Staircase("", caps, (300, 200, 100), (100, 100, 100, 100), caps, ())
    scale = Scale1F1B(static, activations)
    figure = frontier_figure(chain(2, 3), "makespan", [curve], scale)
    axes = figure.axes[0]
    assert axes.get_xscale() == "log"
    figure.canvas.draw()
    for axis in (axes.xaxis, axes.child_axes[0].xaxis):
        low, high = sorted(axis.get_view_interval())
        boxes = [
            label.get_window_extent()
            for place, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
            if low <= place <= high
        ]
        assert len(boxes) >= 2
        for left, right in pairwise(sorted(boxes, key=lambda box: box.x0)):
            assert left.x1 < right.x0
