"""bench/outside: every figure of others comes out, and the page has what the script says."""

from __future__ import annotations

import pytest

from bench.outside import formulas, runs
from bench.outside.checks import Check
from bench.outside.run import PAGE
from bench.pages import table

pytestmark = pytest.mark.filterwarnings("ignore::pipesat.core.errors.ProblemWarning")


def test_figures_of_others_come_out_and_are_on_the_page() -> None:
    found = [*formulas.checks(), *runs.checks()]
    assert [check for check in found if not check.holds] == []
    assert [check.what for check in formulas.checks() if check.apart] == []
    page = PAGE.read_text()
    assert [
        row for check in found if (row := table(check.row, []).splitlines()[0]) not in page
    ] == []


def test_pairs_that_end_together_make_mindspeed_s_bubble_longer() -> None:
    """Its F passes its output on before the pair ends: docs/pairs.md."""
    idle = [
        formulas.idle_of_last_rank(p, m, backward="fused", overlap=(12, 12))
        for p, m in formulas.SHAPES
    ]
    assert idle == [14, 14, 34]


def test_a_figure_that_is_too_far_off_is_noticed() -> None:
    assert not Check("", "", [100], [102], within=0.015).holds
    assert Check("", "", [100, 50], [101, 50], within=0.015).holds
    assert not Check("", "", [100], [99]).holds
