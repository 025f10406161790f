"""Printing, drawing and writing an answer computes no schedule: all of it is there at the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

import pipesat
from pipesat import Problem
from pipesat.core.showing import Displayed
from pipesat.heuristics.registry import Published
from pipesat.problem.lengths import microbatches_from_lengths
from pipesat.schedule import schedule
from pipesat.solver.lanes.incumbent import Incumbent

CHAIN: Final = Problem.chain(2, 3, F=2, B=2, W=1, held_after_F=3, memory=9, time_unit="ms")
LISTED: Final = CHAIN.with_microbatches(microbatches_from_lengths([8, 4], 4), order="same")
SOON: Final = {"time_limit": 0.2, "workers": 1}


def plan() -> Displayed:
    layers = pipesat.read(Path(pipesat.__file__).parent / "examples" / "layers-gemma-like.json")
    return pipesat.plan(layers, devices=2, microbatches=2, compare=False, **SOON)  # type: ignore[arg-type]


ANSWERS: Final[dict[str, Callable[[], Displayed]]] = {
    "solve": lambda: pipesat.solve(CHAIN, deterministic=True, time_limit=2),
    "no schedule": lambda: pipesat.solve(CHAIN.with_memory(2), **SOON),
    "of another runtime": lambda: pipesat.solve(CHAIN, target="torch", **SOON),
    "compare": lambda: pipesat.compare(CHAIN, search=False),
    "compare with a search": lambda: pipesat.compare(CHAIN, **SOON),
    "frontier": lambda: pipesat.frontier(CHAIN, caps=[6, 9], **SOON),
    "min_memory": lambda: pipesat.min_memory(CHAIN, within=0.05, **SOON),
    "balance": lambda: pipesat.balance(LISTED, schedules=["1f1b"], time_limit=0.2),
    "plan": plan,
    "risk": lambda: pipesat.risk(CHAIN, "1f1b", noise=0.05, samples=2),
    "show": lambda: pipesat.show(CHAIN, "1f1b"),
    "check": lambda: pipesat.check(CHAIN, pipesat.schedule_of(CHAIN, "1f1b"), "graph"),
}


def refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("an answer that is printed, drawn or written computes a schedule")


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_has_all_that_it_shows(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer = ANSWERS[name]()
    monkeypatch.setattr(Published, "__call__", refuse)
    monkeypatch.setattr(Incumbent, "__init__", refuse)
    if hasattr(answer, "save"):
        answer.save(tmp_path)
    monkeypatch.setattr(schedule.Schedule, "__init__", refuse)
    assert repr(answer)
    assert [*answer.facts(), *answer.details(), *answer.tables()]
    assert "<table" in answer._repr_html_()
    answer._repr_png_()
    if hasattr(answer, "document"):
        assert answer.document()
