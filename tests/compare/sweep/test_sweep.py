"""pipesat sweep: the grid, the rows and what no end of a process may do to them."""

from __future__ import annotations

import csv
import errno
import importlib
import json
import os
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pipesat.check.checker import check
from pipesat.compare.sweep import row_file
from pipesat.compare.sweep.cases import Sweep
from pipesat.compare.sweep.row_file import FORMAT, NAME, SweepRow, opened
from pipesat.compare.sweep.runs import SweepJob, run_case, run_task
from pipesat.compare.sweep.sources import NumbersModel, ProfileModel
from pipesat.compare.sweep.spec import GridModel, RunModel, Spec, cases_of, problem_of, read_spec
from pipesat.core.errors import BadInput
from pipesat.problem.problem_file import parse_problem, read_problem
from pipesat.schedule.schedule_file import read_schedule
from tests.conftest import Run
from tests.support.outcomes import listing, one_bad_line
from tests.support.paths import ROOT
from tests.support.problems import chain
from tests.support.profiles import document as profile_document
from tests.support.sweeps import (
    COSTS,
    FEWER,
    HEAD,
    LONG,
    SIXTY,
    Save,
    children,
    ends_with_every_case_once,
    killed_after_two_rows,
    rows_in,
    rows_so_far,
    runs,
    small,
    start,
    wait_until,
)


def spec_of(text: str, save: Save) -> Spec:
    return read_spec(save(text, "sweep.toml"))


# The grid


def test_a_case_per_combination_in_the_order_of_the_axes(save: Save) -> None:
    cases = list(cases_of(spec_of(SIXTY, save)))
    assert len({case.key for case in cases}) == len(cases) == 60
    values = [(case.axes["devices"], case.axes["memory"], case.axes["objective"]) for case in cases]
    assert values[:3] == [
        (2, "unlimited", "makespan"),
        (2, "unlimited", "span"),
        (2, 1, "makespan"),
    ]
    assert values[-1] == (3, 4, "span")


def test_the_problem_of_a_case_is_that_of_problem_new(cli: Run, save: Save) -> None:
    text = small(
        'devices = 2\nmicrobatches = 3\nplacement = "loop"\nchunks = 3\nmemory = "1f1b*0.5"\n'
        'comm = 4\nbackward = "split"\nsplit = "balanced"'
    ).replace("W = 1", "W = 1\nlayers = 7\nstatic = [5, 6]\noverlap = [3, 4]")
    spec = spec_of(text, save)
    (case,) = cases_of(spec)
    words = (
        "--devices 2 --microbatches 3 --placement loop --placement chunks=3 --memory 1f1b*0.5 "
        "--link-delay 4 --backward split --placement cut=balanced --times F=2,B=3 --times W=1 "
        "--memory held_after_F=1,held_after_B=1 --times layers=7 --memory static=5,6 --overlap 3/4"
    )
    outcome = cli("problem", "new", *words.split())
    assert problem_of(spec, case).document == outcome.json
    assert case.problem_sha256 == parse_problem(outcome.json).sha256


def test_only_a_loop_has_chunks_and_equal_cases_are_one(save: Save) -> None:
    grid = (
        "devices = 2\nmicrobatches = 2\nchunks = [2, 3]\n"
        'placement = ["chain", "loop", "vee", "bidirectional"]'
    )
    shapes = [(c.axes["placement"], c.axes["chunks"]) for c in cases_of(spec_of(small(grid), save))]
    assert shapes == [
        ("chain", None),
        ("loop", 2),
        ("loop", 3),
        ("vee", None),
        ("bidirectional", None),
    ]


def test_the_key_is_of_the_content(save: Save) -> None:
    def key(text: str) -> str:
        (case,) = cases_of(spec_of(text, save))
        return case.key

    base = small("devices = 2\nmicrobatches = 2")
    assert key(base.replace("small", "other")) == key(base)
    assert key(small("devices = [2]\nmicrobatches = 2\nseed = 0")) == key(base)
    others = [
        small("devices = 3\nmicrobatches = 2"),
        small("devices = 2\nmicrobatches = 2\nseed = 1"),
        small("devices = 2\nmicrobatches = 2\ntime_limit = 7"),
        small('devices = 2\nmicrobatches = 2\nobjective = "span"'),
        small('devices = 2\nmicrobatches = 2\ntarget = "torch"'),
        small("devices = 2\nmicrobatches = 2", "[run]\nworkers = 2\n"),
        small("devices = 2\nmicrobatches = 2", "[run]\ndeterministic = true\n"),
        base.replace("W = 1", "W = 2"),
    ]
    assert len({key(base), *map(key, others)}) == len(others) + 1


def test_problem_files_with_other_microbatches_and_capacities(save: Save) -> None:
    save(chain(3, 5, held=(4, 4)), "a.json")
    save(chain(2, 5, cap=7), "b.json")
    text = HEAD + '[grid]\nproblem = ["?.json"]\nmicrobatches = [2, 9]\nmemory = ["1f1b", 30]\n'
    spec = spec_of(text, save)
    cases = list(cases_of(spec))
    made = [problem_of(spec, case) for case in cases]
    # 1F1B has min(p, m) microbatches in flight on the first device
    assert [(p.routes[0].microbatches, p.devices[0].memory) for p in made[:4]] == [
        (2, 2 * 4),
        (2, 30),
        (9, 3 * 4),
        (9, 30),
    ]
    assert [case.axes["problem"] for case in cases] == ["a.json"] * 4 + ["b.json"] * 4


def test_a_profile_takes_amounts_with_units(save: Save) -> None:
    save(profile_document(), "profile.json")
    text = HEAD + '[costs.model]\nprofile = "profile.json"\noptimizer = "sgd"\n[grid]\n'
    grid = 'devices = 2\nmicrobatches = 4\nmemory = ["8GiB", "unlimited", 3, "1f1b"]\n'
    spec = spec_of(text + grid, save)
    sized, unlimited, number, share = cases_of(spec)
    document = problem_of(spec, sized).document
    assert document["memory_unit"] == "MiB"
    assert [device["memory"] for device in document["devices"]] == [8192, 8192]
    assert "memory" not in problem_of(spec, unlimited).document["devices"][0]
    assert "40GiB" in number.refused
    problem = problem_of(spec, share)
    first, second = problem.stages
    # two microbatches in flight on the first device, one on the second
    peak = max(2 * first.held_after_F, second.held_after_F)
    assert [device.slack for device in problem.devices] == [peak, peak]


def test_the_page_and_the_example(save: Save) -> None:
    page = (ROOT / "docs" / "compare.md").read_text()
    page = page[page.index("## Many problems") :]
    shown = "".join(
        line[4:] + "\n" for line in page.splitlines() if line.startswith("    ") or not line
    )
    spec = spec_of(shown, save)
    assert list(spec.sources) == ["mine"]
    for model in (GridModel, RunModel, NumbersModel, ProfileModel):
        assert [name for name in model.model_fields if name not in page] == []
    (grid,) = spec.grids
    assert spec.most_cases == 2 * 2 * 3 * 2 * 3 * 2
    assert len(list(cases_of(spec))) == 2 * 2 * (1 + 2 + 1) * 3 * 2
    assert grid["time_limit"] == [10]
    example = read_spec(ROOT / "examples" / "sweep.toml")
    cases = list(cases_of(example))
    assert len(cases) == 2 * (1 + 2 + 1) * 3
    assert not any(case.refused for case in cases)


# Rows, on their own


def row(key: str, status: str = "optimal") -> SweepRow:
    return {
        "format": FORMAT,
        "key": key,
        "status": status,
        "case": {},
        "why": "é" * 20,
        "result": None,
    }


def test_what_a_crash_left_of_a_row_is_cut_off(tmp_path: Path) -> None:
    with opened(tmp_path) as (rows, append):
        append(row("a"))
        append(row("b"))
    whole = (tmp_path / NAME).read_bytes()
    start = whole.index(b"\n") + 1
    for cut in (*range(start, len(whole) - 1, 5), len(whole) - 1):
        (tmp_path / NAME).write_bytes(whole[:cut])
        with opened(tmp_path) as (rows, append):
            assert rows.keys() == {"a"}
            append(row("b"))
        assert (tmp_path / NAME).read_bytes() == whole


def test_a_block_of_zeros_is_a_lost_row_too(tmp_path: Path) -> None:
    line = json.dumps(row("a")).encode() + b"\n"
    (tmp_path / NAME).write_bytes(line + b"\0" * 100)
    with opened(tmp_path) as (rows, _):
        assert rows.keys() == {"a"}
    assert (tmp_path / NAME).read_bytes() == line


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("hello", ["rows.jsonl:1", "rows of a sweep"]),
        ("hello\n", ["rows.jsonl:1", "not JSON"]),
        ("{}\n", ["rows.jsonl:1", "format", "missing"]),
        (json.dumps(row("a") | {"format": "pipesat.sweep-row/2"}) + "\n", ["format", "row/2"]),
        (json.dumps(row("a")) + "\n" + json.dumps(row("a")) + "\n", ["rows.jsonl:2", "key"]),
        (json.dumps(row("a"))[:-9] + "\n" + json.dumps(row("b")) + "\n", ["rows.jsonl:1"]),
        (json.dumps(row("a") | {"key": 3}) + "\n", ["key", "a string"]),
        ("\xff\n", ["rows.jsonl:1"]),
    ],
)
def test_a_file_of_other_things_is_left_alone(
    cli: Run, save: Save, tmp_path: Path, content: str, words: list[str]
) -> None:
    path = save(content.encode("latin-1"), NAME)
    spec = save(small("devices = 1\nmicrobatches = 1"), "sweep.toml")
    one_bad_line(cli("sweep", spec, "-o", tmp_path), *words)
    assert path.read_bytes() == content.encode("latin-1")


def test_two_sweeps_of_one_folder(tmp_path: Path) -> None:
    with opened(tmp_path) as (rows, append):
        append(row("a"))
        with pytest.raises(BadInput, match="another sweep is running in this folder"):
            opened(tmp_path).__enter__()
        append(row("b"))
    with opened(tmp_path) as (rows, append):
        assert rows.keys() == {"a", "b"}


def test_a_full_disk_leaves_the_rows_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "the disk is full")

    with opened(tmp_path) as (_, append):
        append(row("a"))
        monkeypatch.setattr(row_file.os, "fsync", full)
        with pytest.raises(BadInput, match="disk is full"):
            append(row("b"))
        monkeypatch.undo()
    (tmp_path / NAME).write_bytes((tmp_path / NAME).read_bytes()[:-9])  # half of it was written
    with opened(tmp_path) as (_, append):
        append(row("c"))
    assert [line["key"] for line in rows_in(tmp_path)] == ["a", "c"]


def test_failures_can_be_forgotten(tmp_path: Path) -> None:
    with opened(tmp_path) as (_, append):
        for key, result in (("a", None), ("b", {"value": None}), ("c", None)):
            append(row(key) | {"result": result})
    with open(tmp_path / NAME, "ab") as file:
        file.write(b'{"format": "pipesat.sweep-row/')  # what a crash left goes, too
    with opened(tmp_path, forget={"a", "b"}) as (_, append):
        append(row("d"))
    assert [line["key"] for line in rows_in(tmp_path)] == ["b", "c", "d"]


# Whole sweeps


def test_the_table_says_what_its_times_are_in() -> None:
    row = {"key": "a", "status": "optimal", "why": None, "case": {"costs": "x"}, "wall_s": 1.0}
    row |= {"result": {"value": 3, "lower_bound": 3}, "time_unit": "ms"}
    (table,) = Sweep((), (row, row | {"key": "b"}), Path("rows.jsonl")).tables()
    assert table.notes == ["times in ms"]
    (table,) = Sweep((), (row, row | {"time_unit": "us"}), Path("rows.jsonl")).tables()
    assert (table.columns[-1].head, table.notes) == ("time\nunit", [])


@pytest.mark.slow
def test_values_by_hand_and_everything_that_is_written(
    cli: Run, save: Save, tmp_path: Path
) -> None:
    # One microbatch: p forwards, p backwards and the first stage's W, one after the other, which
    # take 2 p + 3 p + 1. With no memory at all nothing can run.
    spec = save(small("devices = [1, 2]\nmicrobatches = 1\nmemory = [1, 0]"), "sweep.toml")
    folder, table = tmp_path / "out", tmp_path / "rows.csv"
    common = ("sweep", spec, "-o", folder, "--csv", table, "--json")
    outcome = cli(*common, "--schedules", "--processes", 1)
    assert outcome.code == 0
    document = outcome.json
    assert (document["cases"], document["missing"]) == (4, 0)
    assert document["status"] == {"infeasible": 2, "optimal": 2}
    assert document["rows"] == rows_in(folder)
    one, none, two, _ = document["rows"]
    assert [one["result"]["value"], two["result"]["value"]] == [6, 11]
    assert one["case"]["devices"] == 1
    assert one["result"].keys() >= {"gap", "bubble", "peak_memory", "baseline", "versions"}
    assert "capacity" in none["why"]
    assert none["result"]["value"] is None
    schedule = folder / two["result"]["schedule"]
    problem = read_problem(schedule.parent / "problem.json")
    assert problem.sha256 == two["problem_sha256"]
    assert check(problem, read_schedule(schedule, problem)) == []
    with table.open() as file:
        lines = list(csv.DictReader(file))
    assert [(line["devices"], line["memory"], line["value"]) for line in lines] == [
        ("1", "1", "6"),
        ("1", "0", ""),
        ("2", "1", "11"),
        ("2", "0", ""),
    ]
    before = listing(tmp_path)
    again = cli(*common)
    assert again.json == document
    assert listing(tmp_path) == before  # nothing ran again
    larger = save(small("devices = [2, 1]\nmicrobatches = [2, 1]\nmemory = 1"), "larger.toml")
    more = cli("sweep", larger, "-o", folder, "--json", "--processes", 1)
    assert "2 of 4 cases to run" in more.err
    # on one device all ops follow each other, 6 per microbatch
    assert [r["result"]["value"] for r in more.json["rows"]][1:] == [11, 12, 6]
    assert len(rows_in(folder)) == 4 + 2
    plain = cli("sweep", spec, "-o", folder)
    assert (plain.code, plain.err) == (0, "")
    assert "2 infeasible, 2 optimal" in plain.out


def test_every_failure_is_a_row(cli: Run, save: Save, tmp_path: Path) -> None:
    text = (
        HEAD
        + COSTS
        + "[costs.layers]\nlayers = 3\nF = 1\nB = 1\nW = 1\n"
        + "[[grid]]\ncosts = 'layers'\ndevices = 4\nmicrobatches = 4\n"
        + "[[grid]]\ncosts = 'small'\ndevices = 2\nmicrobatches = 4\nplacement = 'bidirectional'\n"
        + "target = 'torch'\n"
    )
    spec = save(text, "sweep.toml")
    outcome = cli("sweep", spec, "-o", tmp_path / "out", "--json")
    assert outcome.code == 0
    few_layers, two_routes = outcome.json["rows"]
    assert few_layers["status"] == two_routes["status"] == "refused"
    assert few_layers["result"] is None
    assert "one per layer" in few_layers["why"]
    assert "torch" in two_routes["why"]
    again = cli("sweep", spec, "-o", tmp_path / "out", "--json")
    assert "to run" not in again.err


def test_an_exception_is_a_row_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by hand")

    monkeypatch.setattr(importlib.import_module("pipesat.compare.solve"), "solve", fails)
    found = run_case(SweepJob(chain(1, 1), {}))
    assert found["status"] == "error"
    assert found["why"].startswith("ZeroDivisionError: by hand (test_sweep.py:")


def test_a_dry_run_leaves_nothing(cli: Run, save: Save, tmp_path: Path) -> None:
    spec = save(SIXTY, "sweep.toml")
    before = listing(tmp_path)
    outcome = cli("sweep", spec, "-o", tmp_path / "out", "--dry-run")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines()[-1] == "Cases  60, 60 to run"
    assert len(outcome.out.splitlines()) >= 1 + 60 + 1
    assert max(map(len, outcome.out.splitlines())) <= 80  # a terminal's width
    assert len(cli("sweep", spec, "-o", tmp_path / "out", "--dry-run", "--json").json) == 60
    assert listing(tmp_path) == before


# However it ends


on_linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")


@pytest.mark.slow
@on_linux
def test_a_sweep_killed_twice(save: Save, tmp_path: Path) -> None:
    spec, folder = save(FEWER, "sweep.toml"), tmp_path / "out"
    for _ in range(2):
        below = killed_after_two_rows(spec, folder)
        wait_until(lambda: not any(map(runs, below)))  # noqa: B023  waits in the loop
    ends_with_every_case_once(spec, folder)


@pytest.mark.slow
@on_linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_what_is_done(number: int, save: Save, tmp_path: Path) -> None:
    # The short case is done first; the long one is then under way.
    text = LONG.replace("[grid]", "[[grid]]") + "[[grid]]\ndevices = 1\nmicrobatches = 1\n"
    first, _, rest = text.partition("[[grid]]")
    long, _, short = rest.partition("[[grid]]")
    spec = save(f"{first}[[grid]]{short}[[grid]]{long}", "sweep.toml")
    process = start(spec, tmp_path / "out", "--processes", 1)
    wait_until(lambda: rows_so_far(tmp_path / "out") == 1)
    wait_until(lambda: len(list(children(process.pid))) == 1)
    below = list(children(process.pid))
    process.send_signal(number)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 128 + number
    assert "stopping" in err
    assert "Traceback" not in err
    wait_until(lambda: not any(map(runs, below)))
    assert [row["case"]["devices"] for row in rows_in(tmp_path / "out")] == [1]


@pytest.mark.slow
@on_linux
def test_a_case_that_is_killed_is_a_row_and_the_next_one_runs(save: Save, tmp_path: Path) -> None:
    spec, folder = save(LONG, "sweep.toml"), tmp_path / "out"
    process = start(spec, folder, "--processes", 1)
    for row, number in enumerate((signal.SIGSEGV, signal.SIGKILL)):
        wait_until(lambda: rows_so_far(folder) == row and len([*children(process.pid)]) == 1)  # noqa: B023
        (case,) = children(process.pid)
        os.kill(case, number)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    one, two = rows_in(folder)
    assert one["status"] == two["status"] == "killed"
    assert one["why"].startswith("ended by signal 11")
    assert two["why"].startswith("ended by signal 9")
    assert "ran out of memory" in two["why"]


# Bad input


BAD = {
    "nothing": ("", ["empty sweep"]),
    "no grid": (HEAD + COSTS, ["empty sweep", "[grid]"]),
    "an empty grid": (HEAD + COSTS + "[grid]\n", ["empty sweep"]),
    "an empty axis": (small("devices = []\nmicrobatches = 1"), ["grid", "devices", "at least 1"]),
    "an unknown axis": (
        small("device = 2\nmicrobatches = 1"),
        ["grid: device", "nearest known key is devices"],
    ),
    "a missing axis": (small("devices = 2"), ["grid", "microbatches", "missing"]),
    "no costs": (HEAD + "[grid]\ndevices = 2\nmicrobatches = 1", ["[costs.NAME]"]),
    "unknown costs": (
        small('devices = 2\nmicrobatches = 1\ncosts = "large"'),
        ["costs[0]", "large", "small"],
    ),
    "a wrong value": (small("devices = 2\nmicrobatches = [1, 0]"), ["microbatches[1]", "got 0"]),
    "a wrong placement": (
        small('devices = 2\nmicrobatches = 1\nplacement = "ve"'),
        ["placement[0]", "'vee'"],
    ),
    "a wrong capacity": (
        small('devices = 2\nmicrobatches = 1\nmemory = [3, "1f1b*x"]'),
        ["memory[1]", "1f1b*0.75"],
    ),
    "chunks of a chain": (
        small("devices = 2\nmicrobatches = 1\nchunks = 2"),
        ["chunks", "only a loop"],
    ),
    "endless time": (
        small("devices = 2\nmicrobatches = 1\ntime_limit = inf"),
        ["time_limit[0]", "Infinity"],
    ),
    "a wrong cost": (
        small("devices = 2\nmicrobatches = 1").replace("F = 2", "F = [2, -1]"),
        ["costs.small", "F[1]", "-1"],
    ),
    "an unknown cost": (
        small("devices = 2\nmicrobatches = 1").replace("W = 1", "W = 1\nheld = 1"),
        ["costs.small", "held: unknown key"],
    ),
    "another version": (
        small("devices = 2\nmicrobatches = 1").replace("sweep/1", "sweep/2"),
        ["format", "pipesat.sweep/2", "pipesat.sweep/1"],
    ),
    "not TOML": ("format = \n", ["not TOML", "line 1"]),
    "a missing problem": (HEAD + '[grid]\nproblem = "no*.json"\n', ["problem[0]", "no*.json"]),
    "a missing profile": (
        HEAD + '[costs.a]\nprofile = "no.json"\n[grid]\ndevices = 1\nmicrobatches = 1\n',
        ["no.json", "No such file"],
    ),
    "devices of a problem file": (
        HEAD + '[grid]\nproblem = "p.json"\ndevices = 2\n',
        ["grid", "devices", "its own"],
    ),
    "a limit of cases": (
        small("devices = 2\nmicrobatches = 1", '[run]\nmemory_limit = "4GB"\n'),
        ["run.memory_limit", "unknown key"],
    ),
}


def test_a_time_limit_on_the_command_line(cli: Run, save: Save) -> None:
    spec = save(small("devices = 1\nmicrobatches = 1\ntime_limit = [5, 6]"), "sweep.toml")
    (case,) = cli("sweep", spec, "--time-limit", 3, "--dry-run", "--json").json
    assert case["case"]["time_limit"] == 3
    assert cli("sweep", spec, "--time-limit", "nan").code == 2


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_spec(cli: Run, save: Save, tmp_path: Path, name: str) -> None:
    text, words = BAD[name]
    spec = save(text, "sweep.toml")
    before = listing(tmp_path)
    one_bad_line(cli("sweep", spec, "-o", tmp_path / "out"), *words)
    assert listing(tmp_path) == before


def test_a_million_cases_have_to_be_meant(cli: Run, save: Save, tmp_path: Path) -> None:
    many = ", ".join(map(str, range(1, 1001)))
    spec = save(small(f"devices = 1\nmicrobatches = [{many}]\nseed = [{many}]"), "sweep.toml")
    outcome = cli("sweep", spec, "-o", tmp_path / "out")
    one_bad_line(outcome, "1000000 cases", "at most 5000", "max_cases=1000000")
    assert not (tmp_path / "out").exists()
    small_one = save(small("devices = 1\nmicrobatches = [1, 2]"), "small.toml")
    one_bad_line(cli("sweep", small_one, "--processes", "max_cases=1"), "2 cases", "max_cases=2")


def test_a_folder_that_cannot_be_written(cli: Run, save: Save, tmp_path: Path) -> None:
    spec = save(small("devices = 1\nmicrobatches = 1"), "sweep.toml")
    outcome = cli("sweep", spec, "-o", spec / "below")
    one_bad_line(outcome, str(spec / "below"), "cannot write into this folder")
    one_bad_line(cli("sweep", spec, "--csv", spec / "below" / "x.csv"), "Not a directory")


def test_a_machine_with_another_version_runs_nothing() -> None:
    with pytest.raises(BadInput, match=r"expected 99\.0"):
        run_task(b"", "99.0")


def test_an_address_where_nothing_listens(
    cli: Run, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))  # nothing of it is reached
    spec = save(small("devices = 1\nmicrobatches = 1"), "sweep.toml")
    outcome = cli("sweep", spec, "-o", tmp_path / "out", "--processes", "ray=127.0.0.1:1")
    one_bad_line(outcome, "127.0.0.1:1", "no Ray cluster is there")
    assert not (tmp_path / "out").exists()


def test_without_ray(cli: Run, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules: dict[str, Any] = {"ray": None}
    monkeypatch.setitem(sys.modules, *modules.popitem())
    spec = save(small("devices = 1\nmicrobatches = 1"), "sweep.toml")
    outcome = cli("sweep", spec, "-o", tmp_path / "out", "--processes", "ray=auto")
    one_bad_line(outcome, "pip install 'ray>=2.40'")
