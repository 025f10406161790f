"""solve and compare: results, infeasibility, signals. Contract, sections 5 and 6."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pipesat.check.checker import check
from pipesat.cli.process import Interrupts
from pipesat.cli.progress import Progress
from pipesat.core.folder import LIST
from pipesat.core.progress import being_done, doing
from pipesat.heuristics import BASELINES
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem, read_problem
from pipesat.schedule.result import Improvement
from pipesat.schedule.schedule_file import read_schedule
from tests.conftest import Outcome, Run
from tests.support.paths import ROOT
from tests.support.problems import chain, vee

Save = Callable[..., Path]

KEYS = {
    "status",
    "problem_sha256",
    "objective",
    "value",
    "makespan",
    "span",
    "lower_bound",
    "lower_bound_source",
    "gap",
    "bubble",
    "peak_memory",
    "baseline",
    "schedule",
    "wall_s",
    "seed",
    "workers",
    "versions",
}
FILES = {
    LIST,
    "schedule.json",
    "result.json",
    "problem.json",
    "gantt.png",
    "trace.json",
    "solver.log",
    "schedule.csv",
    "schedule.hazards.txt",
    "schedule.knobs.json",
}

# Two devices, one microbatch, delay 1: 0F 0-1, 1F 2-3, 1B 3-4, 0B 5-6, 0W 6-7 is a chain of
# dependent ops, so nothing is shorter than 7. Compute time is 2 x 3 = 6.
RETURN_TRIP = chain(2, 1, comm=1)


# The result object


def test_the_result_object(cli: Run, save: Save) -> None:
    outcome = cli("solve", save(RETURN_TRIP), "--json", "--seed", 5, "--workers", 1)
    assert outcome.code == 0
    result = outcome.json
    assert result.keys() >= KEYS
    assert result["status"] == "optimal"
    assert result["format"] == "pipesat.result/1"
    assert result["problem_sha256"] == RETURN_TRIP.sha256
    assert result["objective"] == "makespan"
    assert [result[key] for key in ("value", "makespan", "span", "lower_bound")] == [7, 7, 7, 7]
    assert result["gap"] == 0
    assert result["bubble"]["makespan"] == pytest.approx(1 - 6 / (2 * 7))
    assert result["bubble"]["span"] == pytest.approx(1 - 3 / 7)
    assert result["peak_memory"] == [1, 1]  # one microbatch holds 1 from F to W
    assert result["baseline"]["name"] in BASELINES
    assert result["baseline"]["value"] == 7
    assert result["schedule"] is None  # no folder was asked for
    assert (result["seed"], result["workers"]) == (5, 1)
    assert isinstance(result["lower_bound_source"], str)
    assert 0 < result["wall_s"] < 60
    assert {"pipesat", "ortools", "python"} <= result["versions"].keys()


def test_the_summary_names_value_and_proof_and_progress_is_on_stderr(cli: Run, save: Save) -> None:
    outcome = cli("solve", save(RETURN_TRIP))
    lines = re.sub(r"\n +", " ", outcome.out).splitlines()
    words = dict(line.split(maxsplit=1) for line in lines)
    assert re.match(r"7 a step \(makespan\), found by the hand-written schedule \S", words["Take"])
    assert words["Proof"].startswith("proven optimal")
    assert words["Bubble"].startswith("57.14 % of the makespan")  # 1 - 6/14
    first, *_, last = outcome.err.splitlines()
    assert first == "pipesat: solving"
    assert re.fullmatch(r" *[\d.]+ of 60 s  best 7  bound 7  gap 0 %  \S+", last)


# The folder


def test_the_folder_has_everything(cli: Run, save: Save, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "out"
    problem_file = save(RETURN_TRIP)
    outcome = cli("solve", problem_file, "-o", folder, "--json")
    assert {path.name for path in folder.iterdir()} == FILES
    assert json.loads((folder / "result.json").read_bytes()) == outcome.json
    assert outcome.json["schedule"] == str(folder / "schedule.json")
    copy = read_problem(folder / "problem.json")
    assert copy.sha256 == RETURN_TRIP.sha256
    schedule = read_schedule(folder / "schedule.json", RETURN_TRIP)
    assert check(RETURN_TRIP, schedule) == []
    assert schedule.makespan == 7
    assert (folder / "gantt.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    trace = json.loads((folder / "trace.json").read_bytes())
    names = [event.get("name") for event in trace["traceEvents"]]
    assert {str(timed.item) for _, timed in schedule} <= set(names)
    assert "best 7  bound 7" in (folder / "solver.log").read_text()
    assert cli("check", problem_file, folder / "schedule.json").code == 0


def test_a_folder_whose_name_is_no_text(cli: Run, save: Save, tmp_path: Path) -> None:
    folder = tmp_path / "out\udcff"  # how Python shows the byte 0xff
    outcome = cli("solve", save(RETURN_TRIP), "-o", folder, "--json")
    assert outcome.code == 0
    assert outcome.json["schedule"] == str(folder / "schedule.json")
    assert (folder / "result.json").exists()


# Infeasible


def two_chunks(cap: int | None) -> Problem:
    return vee(2, 1, cap=cap, held_after_F=2)


def tight(cap: int | None) -> Problem:
    return chain(2, 3, cap=cap, held=(5, 1))


def growing(cap: int | None) -> Problem:
    return chain(2, 3, cap=cap, held=(2, 5), backward="split")


def with_static(cap: int | None) -> Problem:
    document = dict(tight(None).document)
    document["devices"] = [{}, {"name": "[red]gpu\x1b[31m 1", "memory": cap, "static": 3}]
    return parse_problem(document)


@pytest.mark.parametrize(
    ("problem", "need", "names"),
    [
        (tight, 5, ["device 0", "device 1"]),  # an F takes 5, and needs nothing else
        (growing, 5, ["device 0", "device 1"]),  # B takes the 3 that are more than F's 2
        (two_chunks, 4, ["device 0", "device 1"]),  # a microbatch visits both chunks: 2 + 2
        (with_static, 8, [r"[red]gpu\x1b[31m 1"]),  # 3 + 5
    ],
)
def test_infeasible_says_what_would_work(
    cli: Run, save: Save, problem: Callable[[int], Problem], need: int, names: list[str]
) -> None:
    outcome = cli("solve", save(problem(need - 1)), "--json")
    assert outcome.code == 3
    assert outcome.json["status"] == "infeasible"
    assert [outcome.json[key] for key in ("value", "makespan", "span", "lower_bound")] == [None] * 4
    (message,) = [line for line in outcome.err.splitlines() if "infeasible" in line]
    for name in names:
        assert f"{name} has a capacity of {need - 1} but needs {need} " in message
    assert message.count("the smallest capacity that works is") == len(names)
    assert set(re.findall(r"the smallest capacity that works is (\d+)", message)) == {str(need)}
    works = cli("solve", save(problem(need)), "--json")
    assert works.code == 0
    assert works.json["status"] == "optimal"
    assert works.json["peak_memory"][-1] == need


def test_an_infeasible_folder_has_no_schedule(cli: Run, save: Save, tmp_path: Path) -> None:
    cli("solve", save(tight(5)), "-o", tmp_path / "out")
    outcome = cli("solve", save(tight(4)), "-o", tmp_path / "out", "--json")
    assert (outcome.code, outcome.json["schedule"]) == (3, None)
    left = {path.name for path in (tmp_path / "out").iterdir()}  # nothing of the earlier solve
    assert left == {"result.json", "problem.json", "solver.log", LIST}
    assert "needs 5" in (tmp_path / "out" / "solver.log").read_text()
    compared = cli("compare", save(tight(4)), "--json")
    assert compared.code == 3
    assert not any(row["valid"] for row in compared.json)
    assert "needs 5" in compared.json[-1]["why_not"]


# Compare


def rows_by_name(outcome: Any) -> dict[str, dict[str, Any]]:
    assert all(
        row.keys() >= {"name", "makespan", "span", "bubble", "peak_memory", "valid", "why_not"}
        for row in outcome.json
    )
    return {row["name"]: row for row in outcome.json}


def test_compare_shows_every_baseline_beside_the_solver(cli: Run, save: Save) -> None:
    # one device is never idle: 3 microbatches take 9, whatever the order
    outcome = cli("compare", save(chain(1, 3, cap=2)), "--json")
    rows = rows_by_name(outcome)
    assert outcome.code == 0
    assert rows.keys() == {*BASELINES, "solver"}
    assert rows["solver"] == {
        "name": "solver",
        "makespan": 9,
        "span": 9,
        "bubble": {"makespan": 0, "span": 0},
        "peak_memory": rows["solver"]["peak_memory"],
        "valid": True,
        "why_not": None,
        "ratio_to_best": 1,
        "ratio_to_bound": 1,
        "placement": None,
    }
    assert rows["solver"]["peak_memory"][0] <= 2
    # GPipe runs all forwards first and holds 3; 1F1B holds 1 on the last device
    assert (rows["gpipe"]["valid"], rows["gpipe"]["peak_memory"]) == (False, [3])
    assert "over its capacity of 2" in rows["gpipe"]["why_not"]
    assert (rows["1f1b"]["valid"], rows["1f1b"]["peak_memory"]) == (True, [1])


# Names that look like markup, colours or emoji


def test_names_are_shown_literally(cli: Run, save: Save) -> None:
    document = dict(chain(1, 3, cap=2).document)
    document["name"] = "[red]name\x1b[31m :fire:\x9b"
    document["devices"] = [{"name": "[bold]d0\n\x07\u2028", "memory": 2}]
    outcomes = [cli(command, save(document)) for command in ("solve", "compare")]
    for outcome in outcomes:
        assert outcome.code == 0
        shown = (outcome.out + outcome.err).replace("\n", "")
        assert shown.isprintable()
        assert "[bold]d0" in shown
    assert r"[red]name\x1b[31m :fire:\x9b" in outcomes[1].out


def test_the_line_on_a_terminal() -> None:
    screen = io.StringIO()
    with Progress(Console(file=screen, force_terminal=True, width=100)) as progress:
        progress(Improvement(2.0, 8, 6, "load of [red]\x1b[31m:fire:"))
        progress.live.refresh()
    assert r"best 8  bound 6  gap 25.00 %  load of [red]\x1b[31m:fire:" in screen.getvalue()
    assert len(progress.lines) == 1


def test_one_clock_in_all_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files were read for 7 s before the search, whose seconds improvements come with, began."""
    now = [100.0]
    monkeypatch.setattr("pipesat.cli.progress.time.monotonic", lambda: now[0])
    screen = io.StringIO()
    progress = Progress(Console(file=screen, width=100), limit=12.5)
    now[0] += 9
    progress(Improvement(2.0, 8, 6, "load"))
    now[0] += 4
    progress.note(progress._now())
    clocks = [line.split("  best")[0].strip() for line in screen.getvalue().splitlines()[1:]]
    assert clocks == ["2.0 of 12.5 s", "6.0 of 12.5 s"]


def test_what_shows_the_same_numbers_is_printed_once() -> None:
    """Both are kept: solver.log has the full story."""
    screen = io.StringIO()
    progress = Progress(Console(file=screen, width=100))
    for bound, source in ((6, "load"), (6, "tail"), (7, "CP-SAT")):
        progress(Improvement(2.0, 8, bound, source))
    printed = [line.split("  ")[-1] for line in screen.getvalue().splitlines()[1:]]
    assert printed == ["load", "CP-SAT"]
    assert len(progress.lines) == 3


def test_lines_never_go_back_and_say_why_they_go_on_at_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A deterministic search has counted 3 s when 9 have passed; then value and bound meet."""
    now = [100.0]
    monkeypatch.setattr("pipesat.cli.progress.time.monotonic", lambda: now[0])
    progress = Progress(Console(file=io.StringIO(), width=100))
    progress(Improvement(2.0, 8, 6, "load"))
    now[0] += 7
    monkeypatch.setattr("pipesat.cli.progress.compiling", lambda: False)
    assert " ".join(progress._now().split()) == "9.0 s best 8 bound 6 gap 25.00 % load"
    progress(Improvement(3.0, 8, 8, "CP-SAT"))
    assert " ".join(progress.lines[-1].split()) == "9.0 s best 8 bound 8 gap 0 % CP-SAT"
    assert progress._now().endswith("CP-SAT; now ending: value and bound meet")
    with doing("the narrower problem keep"):
        assert progress._now().endswith("CP-SAT; now the narrower problem keep")
        monkeypatch.setattr("pipesat.cli.progress.compiling", lambda: True)
        assert progress._now().endswith("now compiling loops, which are kept for later runs")


def test_long_work_is_named_while_nothing_improves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until there is a value, its name alone; then what is known, which is not logged again."""
    monkeypatch.setattr("pipesat.cli.progress.SILENCE", 0.01)
    monkeypatch.setattr("pipesat.cli.progress.compiling", lambda: False)
    screen = io.StringIO()

    def wait_for(text: str) -> None:
        while not re.search(text, screen.getvalue(), re.MULTILINE):
            time.sleep(0.01)

    with Progress(Console(file=screen, width=100)) as progress:
        wait_for(r"^ +\d+\.\d s  starting$")
        with doing("reading"), doing("times of the\x1b[31m parts"):
            wait_for(r"^ +\d+\.\d s  times of the\\x1b\[31m parts$")
        progress(Improvement(2.0, 8, 6, "load"))
        with doing("writing files"):
            wait_for(r"^ +\d+\.\d s  best 8  bound 6  gap 25.00 %  load; now writing files$")
    assert len(progress.lines) == 1
    assert not progress.beat.is_alive()
    assert being_done() == ""


# Signals

LONG = ROOT / "bench/plain/problems/lowcap-6.2B-p8-m32-cap0.5.json"  # not proven in minutes
SIGNALS = [(signal.SIGINT, 130, 0.0), (signal.SIGTERM, 143, 3.0)]  # at once, in the exact search


def signalled(number: signal.Signals, pause: float, *arguments: object) -> Outcome:
    """Run a command in a process; send it a signal some seconds after its first schedule."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pipesat", *map(str, arguments), "--json", "--time-limit", "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            if re.search(r"best \d", line):
                break
        time.sleep(pause)
        process.send_signal(number)
        out, err = (
            process.communicate()
        )  # the code tells an end by the signal from one by the limit
    assert "Traceback" not in err
    return Outcome(process.returncode, out, err)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code", "pause"), SIGNALS)
def test_a_signal_ends_a_solve_with_the_best_schedule_so_far(
    tmp_path: Path, number: signal.Signals, code: int, pause: float
) -> None:
    folder = tmp_path / "out"
    outcome = signalled(number, pause, "solve", LONG, "-o", folder, "--workers", 1)
    assert outcome.code == code
    assert outcome.json == json.loads((folder / "result.json").read_bytes())
    assert outcome.json["status"] == "feasible"
    assert {path.name for path in folder.iterdir()} == FILES
    problem = read_problem(LONG)
    schedule = read_schedule(folder / "schedule.json", problem)
    assert check(problem, schedule) == []
    assert schedule.makespan == outcome.json["value"]


@pytest.mark.slow
def test_a_signal_ends_a_comparison_with_its_rows() -> None:
    outcome = signalled(signal.SIGINT, 0, "compare", LONG)
    assert outcome.code == 130
    assert rows_by_name(outcome)["solver"]["valid"]


@pytest.mark.parametrize(("number", "code", "pause"), SIGNALS)
def test_the_first_signal_asks_and_the_second_kills(
    number: signal.Signals, code: int, pause: float
) -> None:
    before = signal.getsignal(number)
    with Interrupts() as interrupts:
        assert (interrupts.stop.is_set(), interrupts.exit_code) == (False, 0)
        signal.raise_signal(number)
        assert interrupts.stop.is_set()
        assert signal.getsignal(number) == signal.SIG_DFL
    assert interrupts.exit_code == code
    assert signal.getsignal(number) == before


def test_compare_and_frontier_also_answer_for_torch(cli: Run, save: Any) -> None:
    """Stock torch runs the first stage's backward whole.

    Alone on its device, one stage does F and then B, W or BW for each of two microbatches: whole,
    a microbatch takes 1 + 5, in halves 1 + 1 + 1.
    """
    document = dict(chain(1, 2, F=1, B=1, W=1).document)
    document["stages"] = [document["stages"][0] | {"BW": 5}]
    problem = save(document)
    limits = ("--time-limit", 5, "--workers", 1, "--json")
    for words, value in (((), 6), (("--for", "torch"), 12)):
        assert cli("solve", problem, *words, *limits).json["value"] == value
        rows = cli("compare", problem, *words, *limits).json
        assert min(row["makespan"] for row in rows if row["valid"]) == value
        assert [row["makespan"] for row in rows if row["name"] == "solver"] == [value]
        (curve,) = cli("frontier", problem, *words, *limits).json["curves"]
        assert curve["points"][-1]["value"] == value
