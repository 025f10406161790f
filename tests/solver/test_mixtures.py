"""Problems that mix pairs, lists and memory modes, held against the oracle.

experiments/2026-11-23-mixtures-oracle has many more.
"""

from __future__ import annotations

from random import Random

import pytest

from pipesat.core.schedule import Objective
from tests.support.mixture_claims import (
    held_against_oracle,
    wrong_of_mixture_s_model,
    wrong_of_models_over_time,
)
from tests.support.mixtures import mixture
from tests.support.seeds import seeds

OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", seeds(5, quick=2))
def test_no_claim_about_a_mixture_is_false(seed: int, objective: Objective) -> None:
    names, _ = held_against_oracle(mixture(Random(seed)).document, objective, 0.05, 20.0)
    assert [name for name in names if name.endswith("!")] == []


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", seeds(4, quick=2))
def test_the_model_of_pairs_and_lists_is_exact(seed: int, objective: Objective) -> None:
    assert wrong_of_mixture_s_model(seed, objective) == []


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", [*seeds(4, quick=2), 39])
def test_models_with_memory_over_time_say_what_the_oracle_says(
    seed: int, objective: Objective
) -> None:
    """In seed 39, OR-Tools 9.15 left out a pair with a W of no time, as its intervals were then."""
    assert wrong_of_models_over_time(mixture(Random(seed)).document, objective) == []
