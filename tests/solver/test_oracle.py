"""Solves and models of every family of problems, held against the oracle."""

from __future__ import annotations

import pytest

from tests.oracle.__main__ import applicable
from tests.oracle.claims import (
    OBJECTIVES,
    wrong_of_model,
    wrong_of_models_over_time,
    wrong_of_proofs,
    wrong_of_solve,
)
from tests.oracle.generator import FAMILIES, GRAPHS, of_family
from tests.support.seeds import of_each, seeds


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", seeds(4, quick=3))
def test_no_claim_of_a_solve_is_false(family: str, seed: int) -> None:
    """Status, value, bound, gap and schedule; rounded where times are large."""
    assert [*wrong_of_solve(of_family(family, 2000 + seed), OBJECTIVES[seed % 2])] == []


@pytest.mark.parametrize(
    ("family", "seed"),
    of_each((one for one in FAMILIES if not one.endswith("modes")), 6, quick=4, fewer=GRAPHS),
)
def test_the_model_is_exact_and_its_relaxations_are_below(family: str, seed: int) -> None:
    more = {"held": 0.0} | ({"modes": ("",)} if "mixtures" in family else {})
    document = of_family(family, 3000 + seed, **more)
    assert "model" in applicable(document)
    assert [*wrong_of_model(document, OBJECTIVES[seed % 2])] == []


@pytest.mark.parametrize(
    ("family", "seed"),
    of_each(["modes", "zero modes", "mixtures", *GRAPHS], 6, quick=4, fewer=GRAPHS),
)
def test_models_with_memory_over_time_are_exact(family: str, seed: int) -> None:
    """In one order they have a part of all schedules; one device alone a part of the rules."""
    document = of_family(family, 4000 + seed, ops=9)
    assert [*wrong_of_models_over_time(document, OBJECTIVES[seed % 2])] == []


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", seeds(4, quick=2))
def test_no_proof_is_false(family: str, seed: int) -> None:
    """Relaxations, devices alone and whole models, asked of a poor schedule."""
    assert [*wrong_of_proofs(of_family(family, 5000 + seed), OBJECTIVES[seed % 2])] == []
