"""docs/python.md names the whole surface, every function is called there, the notebook runs."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

import pipesat
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "python.md").read_text()
CELLS = json.loads((ROOT / "docs" / "first-steps.ipynb").read_text())["cells"]


def test_the_page_names_every_public_name() -> None:
    assert [name for name in pipesat.__all__ if not re.search(rf"\b{name}\b", PAGE)] == []


FUNCTIONS = [name for name in dir(pipesat) if inspect.isfunction(getattr(pipesat, name))]


def test_the_page_has_an_example_of_every_function() -> None:
    # tests/house/test_documentation.py runs them, but for those that need ranks or traces
    examples = "".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    assert 15 <= len(FUNCTIONS) <= 20
    missing = [name for name in FUNCTIONS if f"pipesat.{name}(" not in examples]
    assert missing == []


def test_help_explains_every_parameter() -> None:
    for name in ("solve", "compare", "frontier", "min_memory", "plan", "risk", "run", "sweep"):
        function = getattr(pipesat, name)
        text = inspect.getdoc(function) or ""
        for parameter in inspect.signature(function).parameters:
            assert re.search(rf"\b{parameter}\b", text), (name, parameter)


def test_a_result_for_torch_is_compared_with_what_torch_runs() -> None:
    problem = pipesat.Problem.chain(2, 4, F=2, B=2, W=2)
    result = pipesat.solve(problem, target="torch", deterministic=True, time_limit=5)
    table = pipesat.compare(problem, result)
    assert table.result is not None
    assert table.result.contradictions == ()
    assert table["solver"].value("makespan") == result.value
    assert all((row.makespan or 0) >= (result.value or 0) for row in table if row.valid)


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    code = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]
    for source in code:
        exec(source.replace("time_limit=10", "time_limit=0.5"), names)  # our own
    assert (tmp_path / "schedule.csv").is_file()
