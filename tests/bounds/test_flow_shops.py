"""What is proven of flow shops and job shops, on drawn pipelines without a limit of memory."""

from __future__ import annotations

import pytest

from bench.outside.formulas import asynchronous, held_by_sends, last_ends
from bench.outside.packages import chains
from pipesat.bounds.closed_form import closed_form_bound
from pipesat.heuristics import BASELINES
from tests.support.problems import of


@pytest.mark.filterwarnings("ignore::pipesat.core.errors.ProblemWarning")
def test_chains_of_forwards_reach_their_closed_form() -> None:
    """heteropipe 0.1.0, theorems 2 and 3; the bound says that nothing is shorter."""
    for times, delays, m in chains(30):
        expected = asynchronous(times, delays, m)
        assert last_ends(times, delays, m) == (expected, expected)
        held = held_by_sends(times, delays)
        expected = (m - 1) * max(held) + sum(held)
        assert last_ends(held, [0] * len(delays), m) == (expected, expected)


@pytest.mark.parametrize("seed", range(40))
def test_without_a_limit_of_memory_the_optimum_is_near_the_load(seed: int) -> None:
    """Bertsimas and Sethuraman, Mathematical Programming 92, 2002, with one type of job.

    The least makespan is at most the largest load + 3 times the longest op times the ops of a
    microbatch. So no bound may be above that, and one of our schedules is not.
    """
    problem = of(
        "plain",
        f"load {seed}",
        shapes=("chain", "loop", "V", "anywhere"),
        microbatches=(40, 60),
        ops=1000,
        backwards=("fused",),
        memory=("none",),
        delays=(0,),
    )
    m = problem.microbatches[0]
    loads = [
        m * sum(problem.stages[s].F + problem.stages[s].BW for s in stages)
        for stages in problem.stages_on
    ]
    longest = max(max(stage.F, stage.BW) for stage in problem.stages)
    most = max(loads) + 3 * longest * 2 * len(problem.stages)
    serial = m * sum(stage.F + stage.BW for stage in problem.stages)
    bound = closed_form_bound(problem, "makespan").value
    assert max(loads) <= bound <= min(serial, most)
    assert bound <= BASELINES["list-scheduling"](problem).makespan <= most
