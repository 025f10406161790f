"""The benchmark's scripts on a problem of two microbatches, and its arithmetic on made-up rows."""

from __future__ import annotations

import importlib
import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.slow

FOLDER = ROOT / "experiments" / "2026-11-21-benchmark"

# One unit of memory, held until W's end: the first device runs F, waits for the other's F and B,
# runs B and W, and only then may start again. 5 per microbatch, so 10 for two.
SERIAL = {
    "format": "pipesat.problem/1",
    "microbatches": 2,
    "devices": [{"memory": 1}, {"memory": 1}],
    "stages": [
        {"device": d, "F": 1, "B": 1, "W": 1, "held_after_F": 1, "held_after_B": 1} for d in (0, 1)
    ],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    problems = tmp_path / "problems"
    problems.mkdir()
    (problems / "serial-p2-m2.json").write_text(json.dumps(SERIAL))
    return problems


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a module of the experiment."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


def script(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(FOLDER / name), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rows(name: str, folder: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    """Run a script on the folder; its rows by variant."""
    out = folder.parent / "rows.jsonl"
    places = ["--folder", str(folder), "--only", "serial-*", "--out", str(out), "--repeat", "1"]
    script(name, *places, "--limit", "10", "--workers", "1", *arguments)
    made = [json.loads(line) for line in out.read_text().splitlines()]
    return {row["variant"]: row for row in made}


def test_the_problems_are_what_the_script_writes() -> None:
    assert "0 differences" in script("0_generate.py", "--check")


def test_a_solve_writes_a_row_once(folder: Path) -> None:
    row = rows("1_solve.py", folder)["pipesat"]
    assert (row["status"], row["value"], row["bound"]) == ("optimal", 10, 10)
    assert 0 < row["first_s"] <= row["best_s"] <= row["proof_s"] <= row["wall_s"]
    assert row["history"][-1][1:] == [10, 10]
    assert row["peak_mib"] > 10
    out = folder.parent / "rows.jsonl"
    before = out.read_bytes()
    rows("1_solve.py", folder)
    assert out.read_bytes() == before


def test_a_cut_off_line_is_run_again(folder: Path) -> None:
    rows("1_solve.py", folder)
    out = folder.parent / "rows.jsonl"
    out.write_bytes(out.read_bytes()[:40])
    places = ["--folder", str(folder), "--out", str(out), "--repeat", "1", "--limit", "10"]
    assert "1 of 1 cases to run, at most 0 h 01 min" in script("1_solve.py", *places, "--plan")
    script("1_solve.py", *places)
    assert json.loads(out.read_text().splitlines()[1])["value"] == 10


def test_an_ablation_runs_without_the_part(folder: Path) -> None:
    everything = script("2_ablate.py", "--folder", str(folder), "--only", "serial-*", "--plan")
    assert int(everything.split()[1]) > 4  # the whole, without warm starts, and without parts
    made = rows("2_ablate.py", folder, "--variant", "[ec][vl]*e*")
    assert made.keys() == {"everything", "closed_forms"}
    assert {(row["status"], row["value"]) for row in made.values()} == {("optimal", 10)}
    assert "closed form" in made["everything"]["bound_source"]
    assert "closed form" not in made["closed_forms"]["bound_source"]


def test_the_other_methods_find_the_optimum(folder: Path) -> None:
    if importlib.util.find_spec("highspy") is None:
        pytest.skip("the ILP needs highspy")
    made = rows("3_others.py", folder)
    assert set(made) == {"pipesat", "plain CP-SAT", "ILP", "ILP with a start"}
    assert {(r["status"], r["value"], r["bound"]) for r in made.values()} == {("optimal", 10, 10)}


def test_the_steady_state_alone(folder: Path) -> None:
    row = rows("4_steady.py", folder)["steady"]  # 5 per microbatch, for ever
    assert (row["status"], row["value"], row["bound"]) == ("optimal", 5, 5)
    assert 0 < row["best_s"] == row["proof_s"] <= row["wall_s"]


def test_the_page_has_every_marker(tmp_path: Path) -> None:
    page = FOLDER / "results.md"
    copy = Path(shutil.copy(page, tmp_path))
    script("5_tables.py", "--results", str(tmp_path), "--page", str(copy))
    markers = [line for line in page.read_text().splitlines() if line.startswith("<!--")]
    assert [x for x in copy.read_text().splitlines() if x.startswith("<!--")] == markers
    assert copy.read_text().count("Not run.") >= len(markers) // 2 - 2  # goals, missed


def test_gaps_over_time(module: Any) -> None:
    figures = module("rows")
    row = {"history": [[1, None, 5], [2, 10, 5], [3, 8, 6]]}
    assert [figures.gap_after(row, t) for t in (0.5, 1.5, 2, 4)] == [1, 1, 0.5, 0.25]
    assert figures.reached(row, 0.5) == 2
    assert figures.reached(row, 0.1) == float("inf")


def test_the_run_in_the_middle(module: Any) -> None:
    def run(seed: int, gap: float | None) -> dict[str, Any]:
        return {
            "problem": "a-p2-m2",
            "variant": "x",
            "objective": "span",
            "limit": 60,
            "seed": seed,
            "gap": gap,
            "wall_s": 1,
        }

    made = [run(0, None), run(1, 0.1), run(2, 0.2), run(0, 0.0) | {"limit": 5}]
    middle = module("rows").medians(made, "span", 60)
    assert {key: row["seed"] for key, row in middle.items()} == {("a-p2-m2", "x"): 2}


def test_goals_cover_the_benchmark(module: Any) -> None:
    goals = module("goals")
    names = set(json.loads((FOLDER.parent / "bench" / "reference.json").read_text()))
    assert {n for n in names if not any(g.covers(n) for g in goals.GOALS)} == {"adaptis-p4-m8"}
    counts = {(g.group, g.text): sum(map(g.covers, names)) for g in goals.GOALS}
    assert counts["table5 cap 1", "proven in 5 s each"] == 12
    assert counts["table5 cap 2", "gap <= 0.05 %"] == 12
    lines = sum(n for (group, _), n in counts.items() if group.startswith("lines"))
    assert lines == 16 + 8 + 2 + 3  # lowcap, uneven, head, midcap


def test_against_peers(module: Any) -> None:
    goals = module("goals")
    peers = {"a": {"makespan": 100, "within_cap": True}, "b": {"makespan": 90, "within_cap": False}}
    reference = {"peers": peers, "best_bound_makespan": 95}
    assert goals.beats_peers({"value": 99, "bound": 96}, reference)
    assert not goals.beats_peers({"value": 100, "bound": 96}, reference)
    assert goals.beats_peers({"value": 100, "bound": 100}, reference)
    assert not goals.beats_peers({"value": 101, "bound": 96}, reference)
