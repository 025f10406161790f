"""The picture of a frontier: steps where they are, and texts that can be read."""

from __future__ import annotations

import pytest

import pipesat
from pipesat import Problem
from pipesat.compare.frontier.staircases import Staircase, frontier_figure, staircases
from pipesat.draw.figures import file_of
from tests.support.problems import chain


def test_steps_are_drawn_where_they_are_and_every_schedule_has_a_letter() -> None:
    published = [("1f1b", 8, 230), ("same", 8, 230), ("gpipe", 16, 210)]
    one = Staircase("chain", (4, 8), (300, 200), (250, 180, 150), (4, 8), published)
    other = Staircase("vee", (2, 8), (280, 190), (260, None, 140), (2, 8), ())
    figure = frontier_figure(chain(2, 3), "makespan", [one, other], None, "")
    lines = {line.get_label(): line for line in figure.axes[-1].lines}
    line = lines["chain: best schedule found"]
    assert [*zip(*line.get_data(), strict=True)][:2] == [(4, 300), (8, 200)]
    marks = [one for one in figure.axes[-1].lines if one.get_markerfacecolor() == "white"]
    letters = [one for one in figure.axes[-1].lines if str(one.get_marker()).startswith("$")]
    assert min(one.zorder for one in marks) > line.zorder  # no curve strikes a letter out
    assert min(one.zorder for one in letters) > max(one.zorder for one in marks)
    line = lines["vee: bound"]
    assert line.get_data()[1][1] == 140  # above a capacity of 8
    (legend,) = figure.legends
    title = legend.get_title().get_text()
    said = "Dots: rows of the table. Open marks, hand-written: a\u00a01f1b = same,  b\u00a0gpipe"
    assert title == said
    (area,) = figure.axes[-1].collections  # the one that is filled
    # from 2 on the lower of 250 (a chain's, below 4) and nothing known, from 4 on nothing, then 140
    assert {tuple(point) for point in area.get_paths()[0].vertices} >= {(8, 140), (8, 0)}


def test_marks_that_would_overlap_share_one_and_those_far_off_are_named() -> None:
    """At 8 one is 230 and the other 231 of 200 to 300; 57 is past 2.5 times the largest of 8."""
    published = [("zb-h1", 8, 230), ("zb-auto", 8, 231), ("1f1b", 9, 250), ("gpipe", 57, 250)]
    one = Staircase("", (4, 8), (300, 200), (250, 180, 150), (4, 8), published)
    figure = frontier_figure(chain(2, 3), "makespan", [one], None, "")
    (legend,) = figure.legends
    _, _, said = legend.get_title().get_text().partition("hand-written: ")
    texts = ("a\u00a0zb-h1 \u2248 zb-auto", "b\u00a01f1b", "at 57 :\u00a0gpipe")
    assert said == ",  ".join(texts)
    assert figure.axes[-1].get_xlim()[1] < 10


def test_a_bound_holds_up_to_the_next_amount_that_a_device_can_hold() -> None:
    """F holds 3 and nothing else does: who has 4 or 5 can use no more than who has 3."""
    problem = Problem.chain(2, 2, F=1, B=1, W=1, held_after_F=3)
    curves = pipesat.frontier(problem, caps=[3, 6], time_limit=2).curves
    (drawn,) = staircases(curves)
    assert all(row.standing.proven for row in curves[None].rows)
    assert drawn.caps[0] == 3
    assert drawn.bounds[1 : len(drawn.caps)] == drawn.values[:-1]  # the area reaches the line


@pytest.mark.parametrize("most", [160, 210, 390, 1_200, 90_000])
def test_an_axis_has_numbers(most: int) -> None:
    """Where the values' axis is logarithmic: it says so, and has several numbers."""
    one = Staircase("", (4, 8), (most, 100), (90, 80, 70), (4, 8), ())
    figure = frontier_figure(chain(2, 3), "makespan", [one], None, "")
    figure.canvas.draw()
    axes = figure.axes[-1]
    low, high = axes.get_ylim()
    assert len([tick for tick in axes.get_yticks() if low <= tick <= high]) >= 3
    assert axes.get_ylabel().endswith("log scale")


def test_a_picture_for_a_paper_has_text_in_it_and_no_title() -> None:
    one = Staircase("", (4, 8), (300, 200), (250, 180, 150), (4, 8), ())
    figure = frontier_figure(chain(2, 3), "makespan", [one], None, "")
    assert figure.get_suptitle() == ""
    data = file_of(figure, "pdf")
    assert data.startswith(b"%PDF")
    assert b"/CIDFontType2" in data  # type 42: text that can be selected
    assert data == file_of(figure, "pdf")
    assert b"title" not in file_of(figure, "svg")
