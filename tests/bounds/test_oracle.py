"""Closed forms and feasibility of every family of problems, never above what the oracle finds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import product

import pytest

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.problem.problem_file import parse_problem
from tests.oracle.claims import OBJECTIVES, least, wrong_of_bounds
from tests.oracle.generator import FAMILIES, GRAPHS, of_family
from tests.support.seeds import of_each
from tests.support.without_rows import without_waiting, without_whole_microbatches


@pytest.mark.parametrize(("family", "seed"), of_each(FAMILIES, 9, quick=6, fewer=GRAPHS))
def test_no_schedule_is_shorter_than_a_bound(family: str, seed: int) -> None:
    """And a problem is infeasible exactly if it is called so; else a sure order is valid."""
    document = of_family(family, 1000 + seed)
    assert [*wrong_of_bounds(document, OBJECTIVES[seed % 2])] == []


@pytest.mark.slow
@pytest.mark.parametrize("without", [without_waiting, without_whole_microbatches])
def test_what_raises_bounds_with_pairs(without: Callable[[], AbstractContextManager[None]]) -> None:
    """Each argument raises some; where it does, the oracle finds nothing shorter."""
    raised = 0
    for seed, objective in product(range(40), OBJECTIVES):
        if raised == 4:
            break
        document = of_family("tight pairs", seed)
        problem = parse_problem(document)
        bound = closed_form_bound(problem, objective).value
        with without():
            less = closed_form_bound(problem, objective).value
        assert less <= bound
        if less < bound:
            raised += 1
            assert least(document, objective, bound - 1)[0] is None, (seed, objective)
    assert raised == 4
