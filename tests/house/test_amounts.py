"""The amounts of a stage are one table; who has names of its own has the same ones."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import fields

import pytest

from pipesat.check.check_ops import CheckedAmounts
from pipesat.compare.sweep.sources import NumbersModel
from pipesat.layers.layers_file import CostsModel
from pipesat.problem.costs import Costs
from pipesat.problem.problem import Problem
from pipesat.problem.stage import AMOUNTS, COSTS, MORE, MicrobatchClass, Stage
from tests.support.paths import ROOT

MAKERS = [Problem.chain, Problem.loop, Problem.vee, Problem.two_routes]
WHERE = (ROOT / "docs" / "files.md").read_text()
DOCUMENTED = [
    key
    for row in re.findall(r"^\| (`stages\[\][^|]*) \|", WHERE, re.MULTILINE)
    for key in re.findall(r"\.(\w+)`", row)
]


@pytest.mark.parametrize(
    ("names", "besides"),
    [
        (CheckedAmounts._fields, {"backward"}),  # the checker's own, on purpose
        (DOCUMENTED, {"device", "backward"}),
    ],
    ids=["checker", "docs"],
)
def test_each_list_of_amounts_has_those_of_the_table(
    names: Iterable[str], besides: set[str]
) -> None:
    assert sorted(names) == sorted({*AMOUNTS, *besides})


@pytest.mark.parametrize("make", MAKERS)
def test_python_takes_every_amount(make: object) -> None:
    assert {*AMOUNTS} <= {*inspect.signature(make).parameters}  # type: ignore[arg-type]


def test_what_layers_cost_is_all_but_what_stages_alone_have() -> None:
    assert [*AMOUNTS] == [*COSTS, *MORE]
    assert [f.name for f in fields(Costs)] == [*COSTS]
    assert [*CostsModel.model_fields] == [*COSTS]
    assert [key for key in NumbersModel.model_fields if key in AMOUNTS] == [*COSTS]


def test_each_amount_is_scaled_by_a_factor_that_classes_have() -> None:
    factors = {*AMOUNTS.values()}
    assert factors == {"time", "held"}
    assert factors <= {f.name for f in fields(MicrobatchClass)}


def test_what_few_problems_have_is_0_unless_it_is_stated() -> None:
    stage = Stage(0, 1, 2, 3)
    assert [getattr(stage, key) for key in MORE] == [0] * len(MORE)
