"""Answers in a terminal and in a notebook."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import pipesat
from pipesat import BadInput, Problem, Result

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def result() -> Result:
    # one device, two microbatches: F 1 + B 1 + W 1 each, nothing to wait for
    problem = Problem.chain(1, 2, F=1, B=1, W=1, name="<small>", time_unit="us")
    return pipesat.solve(problem, deterministic=True, time_limit=5)


def test_a_result_is_a_few_lines(result: Result) -> None:
    lines = repr(result).splitlines()
    assert lines[0] == "Result"
    assert ["status", "optimal"] in [line.split() for line in lines]
    assert ["makespan", "6", "us"] in [line.split() for line in lines]
    assert len(lines) <= 12


def test_problem_and_schedule_are_one_line(result: Result) -> None:
    assert repr(result.problem) == "<Problem '<small>': 1 devices, 1 stages, 2 microbatches>"
    assert re.fullmatch(
        r"<Schedule by '.*': 1 devices, \d items, makespan 6, span 6>", repr(result.schedule)
    )


def test_a_result_is_drawn(result: Result, tmp_path: Path) -> None:
    figure = result.plot()
    assert figure is not None
    figure.savefig(tmp_path / "gantt.png")
    assert (tmp_path / "gantt.png").read_bytes().startswith(PNG)
    assert figure._repr_png_().startswith(PNG)  # type: ignore[attr-defined]
    assert (result._repr_png_() or b"").startswith(PNG)


def test_a_result_in_a_notebook(result: Result) -> None:
    page = result._repr_html_()
    assert "<td" in page
    assert "data:image/png;base64," in page
    assert "<small>" not in page  # names are escaped


def test_a_result_as_a_table(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = result.records()
    assert sum(row["end"] - row["start"] for row in rows) == 6
    assert {row["kind"] for row in rows} <= {"F", "B", "W", "BW"}
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda given: given))
    assert result.to_frame() == rows
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BadInput, match="needs pandas"):
        result.to_frame()


def test_a_result_without_a_schedule() -> None:
    # F holds 2, the device has 1
    problem = Problem.chain(1, 1, F=1, B=1, W=1, held_after_F=2, memory=1)
    result = pipesat.solve(problem, deterministic=True, time_limit=5)
    assert result.status == "infeasible"
    assert result.plot() is None
    assert result._repr_png_() is None
    assert result.records() == []
    assert "infeasible" in repr(result)
    assert "infeasible" in result._repr_html_()
    with pytest.raises(BadInput, match="no schedule: it is infeasible"):
        result.export("torch-csv")


def test_a_result_is_saved_and_exported(result: Result, tmp_path: Path) -> None:
    result.save(tmp_path / "out")
    assert (tmp_path / "out" / "schedule.json").is_file()
    exported = result.export("torch-csv", tmp_path / "order.csv")
    assert (tmp_path / "order.csv").read_bytes() == exported.data
    again, notes = pipesat.import_order(tmp_path / "order.csv", result.problem)
    assert again.makespan == 6
    assert not notes
