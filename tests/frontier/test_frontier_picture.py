"""The picture of a frontier: steps where they are, and texts that can be read."""

from __future__ import annotations

from pipesat.frontier.picture import Staircase, frontier_figure
from tests.support.problems import chain


def test_steps_are_drawn_where_they_are_and_every_schedule_has_a_letter() -> None:
    published = [("1f1b", 8, 230), ("same", 8, 230), ("gpipe", 16, 210)]
    one = Staircase("chain", (4, 8), (300, 200), (250, 180, 150), (4, 8), published)
    other = Staircase("vee", (2, 8), (280, 190), (260, None, 140), (2, 8), ())
    figure = frontier_figure(chain(2, 3), "makespan", [one, other], None, "")
    lines = {line.get_label(): line for line in figure.axes[-1].lines}
    line = lines["chain: best schedule found"]
    assert [*zip(*line.get_data(), strict=True)][:2] == [(4, 300), (8, 200)]
    line = lines["vee: bound"]
    assert line.get_data()[1][1] == 140  # above a capacity of 8
    (legend,) = figure.legends
    title = legend.get_title().get_text()
    assert title == "Open marks, hand-written: a\u00a01f1b = same,  b\u00a0gpipe"
    (area,) = figure.axes[-1].collections  # the one that is filled
    # from 2 on the lower of 250 (a chain's, below 4) and nothing known, from 4 on nothing, then 140
    assert {tuple(point) for point in area.get_paths()[0].vertices} >= {(8, 140), (8, 0)}
