"""Answers in a terminal and in a notebook."""

from __future__ import annotations

import re
import sys
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import pytest

import pipesat
from pipesat import BadInput, Problem, Result
from pipesat.compare.exports import import_order
from pipesat.compare.result import Schedule
from pipesat.compare.schedules import schedule_of
from pipesat.core.claims import Bound, uneven
from pipesat.core.errors import Contradiction
from pipesat.core.showing import Said, frame_of, table_of

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def result() -> Result:
    # one device, two microbatches: F 1 + B 1 + W 1 each, nothing to wait for
    problem = Problem.chain(1, 2, F=1, B=1, W=1, name="<small>", time_unit="us")
    return pipesat.solve(problem, deterministic=True, time_limit=5)


def test_a_result_is_a_few_lines(result: Result) -> None:
    lines = repr(result).splitlines()
    assert lines[0] == "Result"
    assert lines[1].split()[:6] == ["Take", "0.006", "ms", "a", "step", "(makespan),"]
    assert ["Proof", "proven", "optimal"] in [line.split()[:3] for line in lines]
    assert ("makespan", "6 us") in result.details()
    assert len(lines) <= 12
    assert "Modes" not in [line.split()[0] for line in lines]


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


def test_a_bound_that_is_the_value_looks_as_it_does() -> None:
    row = {"makespan": 123_460, "gap": 0.0, "bound": 123_460}
    table = table_of([row, row | {"gap": 1e-5, "bound": 123_459}], units=dict.fromkeys(row, "us"))
    assert [line[2] for line in table.lines] == ["123.5", "123.4"]


def test_a_result_as_a_table(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = result.records()
    assert sum(row["end"] - row["start"] for row in rows) == 6
    assert {row["kind"] for row in rows} <= {"F", "B", "W", "BW"}
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda given: given))
    assert result.to_frame() == rows
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BadInput, match="needs pandas"):
        result.to_frame()


def test_a_column_has_numbers_or_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cap is a number, and none where memory is unlimited; published schedules are apart."""
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda given: given))
    problem = Problem.chain(2, 2, F=1, B=1, W=1, held_after_F=1, memory=1)
    curve = pipesat.frontier(problem, caps=[1, 2], time_limit=1)
    assert [row["cap"] for row in curve.to_frame()] == [1, 2, None]
    names = [row["name"] for row in curve.to_frame(published=True)]
    assert {"1f1b", "gpipe"} <= {*names}
    mixed = [{"memory": 4, "why": None, "ok": True}, {"memory": "1f1b*0.5", "why": "x", "ok": True}]
    found = [*map(dict, frame_of(mixed)), *curve.to_frame(), *curve.to_frame(published=True)]
    for name in {name for row in found for name in row}:
        cells = [row[name] for row in found if row.get(name) is not None]
        assert len({isinstance(cell, str) for cell in cells}) <= 1, name
    assert [row["memory"] for row in frame_of(mixed)] == ["4", "1f1b*0.5"]


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
    again, notes = import_order(tmp_path / "order.csv", result.problem)
    assert again.makespan == 6
    assert not notes


def test_who_exports_another_order_than_was_solved_is_told(tmp_path: Path) -> None:
    """One microbatch at a time fits. B frees it, so split F1 follows at 4 and all ends at 9.

    torch runs the first stage's B and W as one: F1 at 5, all ends at 10.
    """
    problem = Problem.chain(2, 2, F=1, B=1, W=1, held_after_F=1, memory=1)
    split = pipesat.solve(problem, deterministic=True, time_limit=5)
    assert split.value == 9
    for give in (split.save, lambda path: split.export("torch-csv", path / "order.csv")):
        with pytest.warns(
            UserWarning, match=r"torch's order takes 10, 11.11 % longer than the schedule: solve"
        ) as told:
            give(tmp_path)
        assert told[0].filename == __file__
    with pytest.warns(UserWarning, match="takes 10"):
        exported = pipesat.export(problem, split, path=tmp_path / "order.csv")
    assert repr(exported).splitlines()[:3] == [
        "Exported",
        f"  file    {tmp_path / 'order.csv'}, {len(exported.data)} bytes",
        f"  beside  {tmp_path / 'order.hazards.txt'}: read it before you run this",
    ]
    whole = pipesat.solve(problem, target="torch", deterministic=True, time_limit=5)
    assert whole.value == 10
    assert whole.export("torch-csv").changed == ""


def test_what_a_result_has_is_listed() -> None:
    assert {"status", "value", "lower_bound", "gap", "schedule", "baseline"} <= set(dir(Result))
    assert repr(Bound(548, "CP-SAT")) == "548 (CP-SAT)"


def test_a_problem_in_a_notebook_is_a_table() -> None:
    page = Problem.chain(
        2, 3, F=[1, 7], B=2, W=1, name="<x>", held_after_F=1, memory=5
    )._repr_html_()
    assert "&lt;x&gt;" in page
    assert page.count("<tr>") == 3  # a heading and a row per stage
    assert "<td >7</td>" in page
    assert "modes" not in page  # a column in which nothing stands


def test_a_table_in_a_notebook_has_the_schedules_that_apply(result: Result) -> None:
    table = pipesat.compare(result.problem, result)
    page = table._repr_html_()
    assert page.count("<caption") == 1
    assert re.search(r"<td[^>]*>1f1b</td><td >0.006</td>", page)
    assert "dualpipe" not in page
    with pytest.raises(KeyError, match="'nothing', expected one of"):
        table["nothing"]


def test_a_long_table_says_how_many_rows_are_left() -> None:
    for rows, left in ((60, 0), (61, 1)):
        shown = Said(shown=[table_of([{"row": row} for row in range(rows)], notes=["times in us"])])
        for text in (repr(shown), shown._repr_html_()):
            assert ("more rows" in text) == bool(left)
            assert "times in us" in text
    assert repr(shown).endswith("and 1 more rows: to_frame()")


def test_the_split_is_to_blame_where_it_costs_more_than_the_order() -> None:
    """Loads 6, 2, 2, 2 of 12, an equal share is 3: a split saves up to 3 of 4ths of the largest.

    In 8, an order saves 2 at most: the split is to blame. In 9 it saves as much, 3: it is not. Of
    loads 11, 10, 10, 10 the largest is above its share of 41/4 by less than a tenth.
    """
    found = uneven([2, 6, 2, 2], 8)
    assert found == (1, Fraction(1, 2), Fraction(1, 4))
    assert str(found) == "50 % of all work, an equal share is 25 %"
    assert uneven([2, 6, 2, 2], 9) is None
    assert uneven([11, 10, 10, 10], 11) is None
    assert uneven([], 0) is None
    with pytest.raises(Contradiction, match="works 6 in a schedule of 5"):
        uneven([6], 5)


def test_an_answer_names_the_device_that_has_too_much() -> None:
    """F, B, W of 6 on one device and of 2 on the other: 18 of 24 for each microbatch."""
    problem = Problem.chain(2, 6, F=[6, 2], B=[6, 2], W=[6, 2], time_unit="ms")
    result = pipesat.solve(problem, deterministic=True, time_limit=5)
    lines = dict(result.facts())
    assert max(map(len, repr(result).splitlines())) <= 80 < len(lines["Limit"])
    assert lines["Limit"] == (
        "device 0 has 75 % of all work, an equal share is 50 %: the split costs more than the "
        "order, see pipesat plan"
    )


def test_a_schedule_knows_its_problem(tmp_path: Path) -> None:
    """1F1B on p ranks takes (m + p - 1)(F + BW), rank d holds p - d microbatches."""
    problem = Problem.chain(2, 4, F=1, B=1, W=1, held_after_F=1)
    order = schedule_of(problem, "1f1b")
    assert (order.makespan, order.peak_memory, order.check()) == (5 * 3, [2, 1], [])
    assert order.problem is problem
    assert order.plot()._repr_png_().startswith(PNG)  # type: ignore[attr-defined]
    order.write(tmp_path / "1f1b.json")
    again = schedule_of(problem, tmp_path / "1f1b.json")
    assert (again, again.problem) == (order, problem)
    tight = problem.with_memory(1)
    assert "over its capacity of 1" in order.on(tight).check()[0].message
    assert order.problem is problem  # on() returns another one
    assert order.export("torch-csv").data.count(b"\n") == 2
    with pytest.raises(BadInput, match="no problem is known"):
        Schedule(order.devices).check()


def test_the_problem_of_a_result_is_its_schedules(result: Result) -> None:
    assert result.schedule is not None
    assert result.schedule.problem is result.problem
    again = pipesat.solve(result.problem, deterministic=True, time_limit=5)
    assert (again.value, again.lower_bound, again.gap) == (6, 6, 0)  # one device: 2 x 3
    assert again.lower_bound_source
    table = pipesat.compare(result.problem, search=False)
    row = table["1f1b"]
    assert (row.makespan, row.schedule and row.schedule.check()) == (6, [])


def test_a_search_in_a_notebook_shows_its_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line that renews itself and goes at the end; whoever listens hears it in its place."""
    problem = Problem.chain(1, 2, F=1, B=1, W=1)  # takes 2 x 3
    pipesat.solve(problem, deterministic=True, time_limit=5)
    assert capsys.readouterr().err == ""
    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
    pipesat.solve(problem, deterministic=True, time_limit=5)
    *lines, last, end = capsys.readouterr().err.split("\r")
    assert any("value 6  bound 6" in line for line in lines)
    assert (last.strip(), end) == ("", "")
    heard: list[object] = []
    pipesat.solve(problem, deterministic=True, time_limit=5, listener=heard.append)
    assert heard
    assert capsys.readouterr().err == ""
