"""``pipesat.read``: every file by the format that it states, and a solve's folder."""

from __future__ import annotations

from pathlib import Path

import pytest

import pipesat
from pipesat import BadInput, Problem
from pipesat.compare.schedules import schedule_of
from tests.support.paths import ROOT


def test_one_function_reads_every_file(tmp_path: Path) -> None:
    """By the format that the file states; what is of a problem needs it."""
    problem = Problem.chain(2, 2, F=1, B=1, W=1)
    problem.write(tmp_path / "problem.json")
    assert pipesat.read(tmp_path / "problem.json") == problem
    schedule_of(problem, "1f1b").write(tmp_path / "1f1b.json")
    assert pipesat.read(tmp_path / "1f1b.json", problem) == schedule_of(problem, "1f1b")
    with pytest.raises(BadInput, match=r"a schedule has no costs: expected pipesat.read\(path, "):
        pipesat.read(tmp_path / "1f1b.json")
    layers = pipesat.read(ROOT / "examples" / "layers-gemma-like.json")
    layers.write(tmp_path / "layers.json")
    assert pipesat.read(tmp_path / "layers.json") == layers
    result = pipesat.solve(problem, deterministic=True, time_limit=5)
    result.save(tmp_path / "out")
    again = pipesat.read(tmp_path / "out")
    # the second device starts after the first F and works for 2 x 3
    assert (again.value, again.lower_bound, again.schedule) == (7, 7, result.schedule)
    (tmp_path / "other.json").write_text('{"format": "pipesat.plan/1"}')
    with pytest.raises(BadInput, match=r"format: got 'pipesat\.plan/1', expected one of"):
        pipesat.read(tmp_path / "other.json")
    (tmp_path / "other.json").write_text('{"a": null}')
    with pytest.raises(BadInput, match=r'got {"a": null}, expected a JSON object with a format'):
        pipesat.read(tmp_path / "other.json")
