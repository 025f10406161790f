"""The instance library: what is published holds, and only what holds gets in."""

from __future__ import annotations

import hashlib
import importlib
import json
import lzma
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import pipesat
from pipesat.bounds.closed_form import closed_form_bound
from pipesat.compare.schedules import schedule_of
from pipesat.problem.ops import parse_item
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import read_problem
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.schedule_file import read_schedule, write_schedule
from pipesat.schedule.timing import time_order
from tests.support.paths import ROOT

BENCH = ROOT / "bench" / "plain"
PAGE = BENCH / "instances.md"
OBJECTIVES = ("makespan", "span")

PUBLISHED = json.loads((BENCH / "best_known.json").read_text())["problems"]
RECORDS = {
    (name, objective): entry[objective]
    for name, entry in PUBLISHED.items()
    for objective in OBJECTIVES
    if objective in entry
}
KEPT = [key for key, found in RECORDS.items() if "schedule" in found["value"]["backed_by"]]


def problem_of(name: str) -> Problem:
    return read_problem(BENCH / "problems" / f"{name}.json")


# What is published


def test_every_problem_is_there_under_its_digest() -> None:
    files = {path.stem: path for path in (BENCH / "problems").glob("*.json")}
    assert PUBLISHED.keys() == files.keys()
    for name, path in files.items():
        plain = json.dumps(
            json.loads(path.read_text()), sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )
        assert PUBLISHED[name]["sha256"] == hashlib.sha256(plain.encode()).hexdigest()
        assert "makespan" in PUBLISHED[name]


def test_values_are_above_bounds() -> None:
    for key, found in RECORDS.items():
        assert found["bound"]["amount"] <= found["value"]["amount"], key
        assert found["value"]["backed_by"].keys() < {"schedule", "baseline"}, key


def test_nothing_contradicts_what_others_found() -> None:
    """reference.json has bounds without search and values by published programs."""
    compared = 0
    for name, known in json.loads((BENCH / "reference.json").read_text()).items():
        if known:
            ours = RECORDS[name, "makespan"]
            assert ours["value"]["amount"] >= known["best_bound_makespan"], name
            assert ours["bound"]["amount"] <= known["best_known_makespan"], name
            compared += 1
    assert compared == 70


@pytest.mark.slow
@pytest.mark.parametrize(("name", "objective"), KEPT)
def test_a_kept_schedule_is_valid_and_has_its_value(
    name: str, objective: str, tmp_path: Path
) -> None:
    record = RECORDS[name, objective]["value"]
    path = tmp_path / "schedule.json"
    path.write_bytes(lzma.decompress((BENCH / record["backed_by"]["schedule"]).read_bytes()))
    problem = problem_of(name)
    schedule = read_schedule(path, problem)
    assert pipesat.check(problem, schedule) == []
    assert schedule.value(objective) == record["amount"]  # type: ignore[arg-type]


def test_no_schedule_is_left_over() -> None:
    kept = {RECORDS[key]["value"]["backed_by"]["schedule"] for key in KEPT}
    assert {f"schedules/{path.name}" for path in (BENCH / "schedules").iterdir()} == kept


@pytest.mark.slow
def test_hand_written_schedules_have_their_values() -> None:
    """Of the smaller problems; `collect.py` looks at all of them."""
    looked_at = 0
    for (name, objective), found in RECORDS.items():
        baseline = found["value"]["backed_by"].get("baseline")
        problem = problem_of(name)
        if baseline is None or problem.op_count > 400:
            continue
        order = schedule_of(problem, baseline).order
        timed = time_order(problem, order, objective)  # type: ignore[arg-type]
        assert pipesat.check(problem, timed) == []
        assert timed.value(objective) == found["value"]["amount"], name  # type: ignore[arg-type]
        looked_at += 1
    assert looked_at > 5


def test_formulas_give_their_bounds() -> None:
    looked_at = 0
    for (name, objective), found in RECORDS.items():
        if "formula" in found["bound"]["backed_by"]:
            bound = closed_form_bound(problem_of(name), objective)  # type: ignore[arg-type]
            assert found["bound"]["amount"] <= bound.value <= found["value"]["amount"], name
            looked_at += 1
    assert looked_at > 30


def test_the_page_says_what_the_file_says() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.plain.table", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


# What gets in: a library of one problem, made up for this test

# Two stages, F = B = W = 1, no memory, backwards split. The second device starts at 1 and has 6 to
# do, so nothing is below 7; GOOD has 7. In LATE, W0 keeps B1 of the second device back by one, and
# the first device ends at 8. Their spans: GOOD 7 and 6 (devices 0 and 1), LATE 8 and 6.
# No span is below 7 either: between its F0 and B0 the first device waits 2 for the second one, and
# has only F1 (1) to do meanwhile.
TINY: dict[str, Any] = {
    "format": "pipesat.problem/1",
    "name": "tiny-p2-m2",
    "microbatches": 2,
    "devices": [{}, {}],
    "stages": [{"device": d, "F": 1, "B": 1, "W": 1, "backward": "split"} for d in (0, 1)],
}
GOOD = ("0F0 0F1 0B0 0W0 0B1 0W1", "1F0 1B0 1F1 1B1 1W0 1W1")
LATE = ("0F0 0F1 0B0 0W0 0B1 0W1", "1F0 1B0 1W0 1F1 1B1 1W1")


class Desk(NamedTuple):
    """A library in a folder of its own."""

    folder: Path
    problem: Problem

    @property
    def place(self) -> list[str]:
        return ["--folder", str(self.folder)]

    @property
    def known(self) -> dict[str, Any]:
        document = json.loads((self.folder / "best_known.json").read_text())
        found: dict[str, Any] = document["problems"]["tiny-p2-m2"]
        return found

    def amounts(self, objective: str = "makespan") -> dict[str, int]:
        return {kind: record["amount"] for kind, record in self.known.get(objective, {}).items()}

    def schedule(self, rows: tuple[str, str], name: str = "schedule.json") -> Path:
        order = tuple(tuple(map(parse_item, row.split())) for row in rows)
        path = self.folder / name
        write_schedule(path, self.problem, time_order(self.problem, order))
        return path

    @property
    def state(self) -> dict[str, bytes]:
        """Everything that a script may have changed."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in (self.folder / "best_known.json", self.folder / "instances.md")
            if path.exists()
        } | {path.name: path.read_bytes() for path in (self.folder / "schedules").glob("*")}


Script = Callable[..., int]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "problems").mkdir()
    path = tmp_path / "problems" / "tiny-p2-m2.json"
    path.write_text(json.dumps(TINY))
    shutil.copy(PAGE, tmp_path)
    return Desk(tmp_path, read_problem(path))


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Run a script of the library inside this process; returns its exit status."""

    def run(name: str, *arguments: object) -> int:
        module = importlib.import_module(f"bench.plain.{name}")
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        try:
            return int(module.main())
        except SystemExit as end:  # argparse
            return int(end.code or 0)

    return run


def contribute(script: Script, desk: Desk, path: Path, by: str = "Ada L.") -> int:
    problem = desk.folder / "problems" / "tiny-p2-m2.json"
    where = ["--by", by, "--date", "2026-11-21", *desk.place]
    return script("contribute", problem, path, *where)


def test_a_better_schedule_is_kept_and_a_worse_one_is_not(script: Script, desk: Desk) -> None:
    assert contribute(script, desk, desk.schedule(LATE), "Ada L.") == 0
    assert desk.amounts() == {"value": 8, "bound": 7}
    assert contribute(script, desk, desk.schedule(GOOD), "Bo") == 0
    assert desk.amounts() == desk.amounts("span") == {"value": 7, "bound": 7}
    record = desk.known["makespan"]["value"]
    assert (record["by"], record["date"]) == ("Bo", "2026-11-21")
    path = desk.folder / "kept.json"
    path.write_bytes(lzma.decompress((desk.folder / record["backed_by"]["schedule"]).read_bytes()))
    kept = read_schedule(path, desk.problem)
    assert pipesat.check(desk.problem, kept) == []
    assert kept.makespan == 7
    page = (desk.folder / "instances.md").read_text()
    assert "| 7 | 7 | **optimal** | Bo | 2026-11-21 |" in page
    before = desk.state
    assert contribute(script, desk, desk.schedule(LATE), "Cy") == 0
    assert contribute(script, desk, desk.schedule(GOOD), "Cy") == 0  # as good: the first keeps it
    assert desk.state == before


def test_what_breaks_a_rule_is_not_recorded(
    script: Script, desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    assert contribute(script, desk, desk.schedule(LATE)) == 0
    before = desk.state
    good = read_schedule(desk.schedule(GOOD), desk.problem)
    rows = [list(row) for row in good.devices]
    rows[1][0] = rows[1][0]._replace(start=0, end=1)  # 1F0 before 0F0 has ended
    path = desk.folder / "early.json"
    write_schedule(path, desk.problem, Schedule(tuple(map(tuple, rows))))
    assert contribute(script, desk, path) == 1
    assert "1F0 starts at 0, but its input 0F0 ends at 1" in capsys.readouterr().err
    assert desk.state == before


def test_a_value_below_a_bound_is_a_fault(
    script: Script, desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    assert contribute(script, desk, desk.schedule(LATE)) == 0
    path = desk.folder / "best_known.json"
    document = json.loads(path.read_text())
    wrong = {"amount": 8, "by": "a wrong proof", "date": "2026-11-20", "backed_by": {"rerun": {}}}
    document["problems"]["tiny-p2-m2"]["makespan"]["bound"] = wrong
    path.write_text(json.dumps(document))
    before = desk.state
    assert contribute(script, desk, desk.schedule(GOOD)) == 1
    message = capsys.readouterr().err
    assert (
        "fault: tiny-p2-m2: makespan 7 by Ada L. is below the bound 8 by a wrong proof" in message
    )
    assert desk.state == before


def test_bad_input(script: Script, desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    problem, schedule = desk.folder / "problems" / "tiny-p2-m2.json", desk.schedule(GOOD)
    other = desk.folder / "other.json"
    other.write_text(json.dumps(TINY | {"microbatches": 3}))
    wanted = {
        (other, schedule, "x"): "other.json: this problem is not in the library",
        (problem, problem, "x"): 'expected "pipesat.schedule/1"',
        (problem, desk.folder / "no.json", "x"): "no.json: cannot read",
        (problem, schedule, "a|b"): "--by: expected a name",
        (problem, schedule, " "): "--by: expected a name",
    }
    before = desk.state
    for (first, second, by), message in wanted.items():
        assert script("contribute", first, second, "--by", by, *desk.place) == 2
        assert message in capsys.readouterr().err
    assert desk.state == before


# Rows of the benchmark


def row(desk: Desk, **changes: Any) -> dict[str, Any]:
    return {
        "problem": "tiny-p2-m2",
        "objective": "makespan",
        "status": "optimal",
        "value": 7,
        "bound": 7,
        "bound_source": "CP-SAT",
        "baseline": None,
        "limit": 5,
        "workers": 1,
        "seed": 0,
        "date": "2026-11-21",
        "machine": "a machine",
        "versions": {"pipesat": "0.1.0"},
        "commit": "1234567",
        "problem_sha256": desk.problem.sha256,
    } | changes


def collect(script: Script, desk: Desk, *rows: dict[str, Any]) -> int:
    results = desk.folder / "results"
    results.mkdir(exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (results / "solve.jsonl").write_text(text + '{"cut off')
    return script("collect", "--results", results, *desk.place)


def test_a_rows_value_counts_with_its_schedule_alone(script: Script, desk: Desk) -> None:
    assert collect(script, desk, row(desk, problem_sha256="another")) == 0
    assert desk.amounts() == {}
    assert collect(script, desk, row(desk)) == 0
    assert desk.amounts() == {"bound": 7}
    assert "Nothing is known yet." in (desk.folder / "instances.md").read_text()
    (desk.folder / "schedules").mkdir(exist_ok=True)
    desk.schedule(GOOD, "schedules/tiny-p2-m2.makespan.7.json")
    assert collect(script, desk, row(desk)) == 0
    assert desk.amounts() == {"value": 7, "bound": 7}
    assert list(desk.known["makespan"]["value"]["backed_by"]) == ["schedule"]


def test_a_row_whose_bound_is_above_a_schedule_is_a_fault(
    script: Script, desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    assert contribute(script, desk, desk.schedule(GOOD)) == 0
    before = desk.state
    assert collect(script, desk, row(desk, value=None, bound=8)) == 1
    assert "makespan 7 by Ada L. is below the bound 8" in capsys.readouterr().err
    assert desk.state == before
