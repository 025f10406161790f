"""What commands claim when time was over at once, and when a proof of theirs is wrong.

The search is one that takes the first schedule that it is given: no test here depends on time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain as chain_of
from pathlib import Path
from typing import Any

import pytest

import pipesat.solver
from pipesat.advise import candidates
from pipesat.advise.plan import Plan
from pipesat.bounds.closed_form import closed_form_bound
from pipesat.check.checker import check
from pipesat.compare.frontier import curve
from pipesat.compare.sweep.cases import row_of
from pipesat.compare.sweep.row_file import NAME, require_agreement
from pipesat.compare.sweep.runs import REFUTED, SweepJob, run_case
from pipesat.compare.sweep.spec import cases_of, problem_of, read_spec
from pipesat.core.claims import Bound, Standing
from pipesat.core.errors import Contradiction, Fault
from pipesat.heuristics.registry import never
from pipesat.problem.problem import Problem
from pipesat.schedule.result import Baseline, Solution
from pipesat.schedule.timing import time_order
from pipesat.solver.options import SolveOptions
from pipesat.solver.starts import StartingSchedules
from tests.conftest import Run
from tests.support.problems import chain

PROBLEM = chain(4, 8, F=2, B=3, W=1, cap=5)
WRONG = Bound(10**6, "a wrong argument")
SWEEP = """format = "pipesat.sweep/1"
[costs.unit]
F = 2
B = 3
W = 1
held_after_F = 1
[grid]
devices = 3
microbatches = 5
memory = "1f1b"
seed = [0, 1]
"""
PLAN = ("--devices", 3, "--microbatches", 5, "--time-limit", 1)
LAYERS = {
    "format": "pipesat.layers/1",
    "layers": [
        {"name": f"{n}", "F": 2 + n % 3, "B": 3, "W": 1, "held_after_F": 1} for n in range(6)
    ],
}


def ended_at_once(problem: Problem, options: SolveOptions) -> Solution:
    """Return the first schedule that fits."""
    objective, written = options.objective, StartingSchedules(problem, options.starts, never)
    given = chain_of(options.schedules, written)
    starts = (time_order(problem, s.order, objective, s.source) for s in given)
    first = next((start for start in starts if not check(problem, start)), None)
    bound = closed_form_bound(problem, objective)
    value = None if first is None else first.value(objective)
    status = Standing(value, bound.value).status
    return Solution(problem, status, objective, first, bound, None, 0.0, options.seed, 1)


@pytest.fixture(autouse=True)
def _no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipesat.solver, "solve", ended_at_once)


Listed = tuple[str, int | None]


def of_solve(cli: Run, save: Any, folder: Path, objective: str) -> Iterator[list[Listed]]:
    """Lists of what was claimed: the best first, then what must not be better."""
    result = cli("solve", save(PROBLEM), "-o", folder, "--objective", objective, "--json").json
    baseline = result["baseline"] or {"value": None}
    yield [("solve", result["value"]), ("baseline", baseline["value"])]
    outcome = cli("show", folder, "--html", folder / "report.html")
    assert outcome.code == 0
    page = (folder / "report.html").read_text()
    assert "longer" not in page
    assert not re.search(r"-[0-9.]+ %", page.partition("<script")[0])


def of_compare(cli: Run, save: Any, folder: Path, objective: str) -> Iterator[list[Listed]]:
    rows = cli("compare", save(PROBLEM), "--objective", objective, "--json").json
    valid = {row["name"]: row[objective] for row in rows if row["valid"]}
    yield [("solver", valid["solver"]), *valid.items()]
    text = cli("compare", save(PROBLEM), "--objective", objective).out
    table = text[text.index("\nname ") :].splitlines()
    assert next(line for line in table if re.match(r"\S+ +[0-9]+ ", line)).startswith("solver")


def of_frontier(cli: Run, save: Any, folder: Path, objective: str) -> Iterator[list[Listed]]:
    common = ("--objective", objective, "--caps", "2,3,4", "--time-limit", 1)
    (curve,) = cli("frontier", save(PROBLEM), *common, "--json").json["curves"]
    published = [(p["name"], max(p["peak_memory"]), p["value"]) for p in curve["published"]]
    smaller: list[Listed] = []
    for point in curve["points"]:
        cap = point["cap"]
        fitting = [(n, v) for n, peak, v in published if cap is None or peak <= cap]
        yield [(f"cap {cap}", point["value"]), *fitting, *smaller]
        if point["value"] is not None:
            smaller.append((f"cap {cap}", point["value"]))


def of_min_memory(cli: Run, save: Any, folder: Path, objective: str) -> Iterator[list[Listed]]:
    words = ("--within", "5%", "--objective", objective, "--time-limit", 1, "--json")
    found = cli("frontier", save(PROBLEM), *words).json
    yield [("best", found["best"]["value"]), ("answer", found["value"])]
    yield [("answer", found["value"]), ("target", found["target"])]


def of_plan(cli: Run, save: Any, folder: Path, objective: str) -> Iterator[list[Listed]]:
    plan = cli("plan", save(LAYERS), *PLAN, "--objective", objective, "--json").json
    yield [("plan", plan["value"]), ("result", plan["result"]["value"])]
    for row in plan["comparison"]:
        fitting = [(n, c["value"]) for n, c in row["schedules"].items() if c["fits"]]
        yield [("plan", plan["value"]), (row["name"], row["best_order"]), *fitting]
        yield [(f"bound of {row['name']}", row["lower_bound"]), *fitting]


def of_sweep(cli: Run, save: Any, folder: Path, objective: str) -> Iterator[list[Listed]]:
    if objective == "makespan":
        folder.mkdir()
        spec = save(SWEEP, "sweep.toml")
        (folder / NAME).write_text("".join(f"{json.dumps(row)}\n" for row in rows_of(spec)))
        outcome = cli("sweep", spec, "-o", folder, "--json")
        assert outcome.code == 0
        for row in outcome.json["rows"]:
            baseline = row["result"]["baseline"] or {"value": None}
            yield [(row["key"], row["result"]["value"]), ("baseline", baseline["value"])]


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a sweep, made in this process."""
    spec = read_spec(path)
    for case in cases_of(spec):
        yield row_of(case, run_case(SweepJob(problem_of(spec, case), case.solve)))


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize(
    "claimed", [of_solve, of_compare, of_frontier, of_min_memory, of_plan, of_sweep]
)
def test_nothing_that_a_command_shows_is_better_than_what_it_calls_the_best(
    claimed: Callable[..., Iterator[list[Listed]]],
    objective: str,
    cli: Run,
    save: Any,
    tmp_path: Path,
) -> None:
    for (name, value), *others in claimed(cli, save, tmp_path / "out", objective):
        for other, theirs in others:
            if theirs is not None:
                assert value is not None, (name, other)
                assert value <= theirs, (name, other)


# Proofs that are wrong


def told(outcome: Any, folder: Path | None, *words: str) -> None:
    """Exit code 1, one message, no traceback."""
    assert outcome.code == 1, outcome.err
    assert "Traceback" not in outcome.err
    (line,) = [line for line in outcome.err.splitlines() if "internal error" in line]
    assert line.startswith("pipesat: internal error, please report it: ")
    for word in words:
        assert word in line
    if folder is not None:
        assert line.endswith(f"; what was found is in {folder}")


@pytest.mark.slow
def test_solve(cli: Run, save: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuted(problem: Problem, options: SolveOptions) -> Solution:
        result = ended_at_once(problem, options)
        assert result.baseline is None
        return replace(result, bound=None, status="feasible", contradictions=("A, but B",))

    monkeypatch.setattr(pipesat.solver, "solve", refuted)
    outcome = cli("solve", save(PROBLEM), "-o", tmp_path / "out")
    told(outcome, tmp_path / "out", "A, but B")
    assert json.loads((tmp_path / "out" / "result.json").read_text())["lower_bound"] is None
    assert cli("check", save(PROBLEM), tmp_path / "out" / "schedule.json").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["--within", "5%"]])
def test_caps(
    cli: Run, save: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setattr(curve, "closed_form_bound", lambda *_: WRONG)
    out = tmp_path / "out"
    outcome = cli("frontier", save(PROBLEM), *words, "-o", out, "--time-limit", 2)
    told(outcome, out, "a wrong argument says at least 1000000, but a checked schedule has")
    assert str(WRONG.value) not in outcome.out
    schedules = list(out.rglob("schedule.json"))
    assert schedules
    for schedule in schedules:
        assert cli("check", schedule.parent / "problem.json", schedule).code == 0


@pytest.mark.slow
def test_plan(cli: Run, save: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "closed_form_bound", lambda *_: WRONG)
    out = tmp_path / "out"
    outcome = cli("plan", save(LAYERS), *PLAN, "-o", out)
    told(outcome, out, "a wrong argument says at least 1000000, but a checked schedule has")
    assert not re.search(r"proven optimal|gap|at most", outcome.out)
    written = json.loads((out / "plan.json").read_text())
    assert [written[key] for key in ("status", "lower_bound", "gap")] == ["feasible", None, None]
    assert cli("check", out / "problem.json", out / "schedule.json").code == 0


@pytest.mark.slow
def test_a_plan_that_contradicts_itself_keeps_its_schedule(
    cli: Run, save: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise Contradiction("the plan is called the best and has 9, but another has 8")

    out = tmp_path / "out"
    assert cli("plan", save(LAYERS), *PLAN, "-o", out).code == 0
    assert (out / "plan.json").exists()
    monkeypatch.setattr(Plan, "document", refuse)
    told(cli("plan", save(LAYERS), *PLAN, "-o", out), out, "another has 8")
    assert not {"plan.json", "plan.png", "plan.svg"} & {path.name for path in out.iterdir()}
    assert cli("check", out / "problem.json", out / "schedule.json").code == 0


def test_the_best_baseline_of_some_is_not_called_the_best_of_all(
    cli: Run, save: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_some(problem: Problem, options: SolveOptions) -> Solution:
        made = StartingSchedules(problem, "all", never)
        first = next(s for s in made if not check(problem, s))
        result = ended_at_once(problem, replace(options, starts="none", schedules=[first]))
        best = Baseline(first.source, first.value(result.objective))
        return replace(result, baseline=best, baselines_left_out=True)

    said = lambda outcome: " ".join(outcome.out.split())  # noqa: E731
    assert "best hand-written schedule made in time" not in said(cli("solve", save(PROBLEM)))
    monkeypatch.setattr(pipesat.solver, "solve", of_some)
    outcome = cli("solve", save(PROBLEM))
    assert "best hand-written schedule made in time" in said(outcome)


def test_sweep(cli: Run, save: Any, tmp_path: Path) -> None:
    spec, out = save(SWEEP, "sweep.toml"), tmp_path / "out"
    good = list(rows_of(spec))
    require_agreement(good)
    value = good[0]["result"]["value"]
    out.mkdir()
    for changes, word in (
        ({"lower_bound": value + 1}, f"at least {value + 1}"),
        ({"lower_bound": value}, "said to be feasible"),
        ({"baseline": {"name": "better", "value": value - 1}}, f"better has {value - 1}"),
    ):
        bad = [good[0] | {"result": good[0]["result"] | changes}, good[1]]
        text = "".join(f"{json.dumps(row)}\n" for row in bad)
        (out / NAME).write_text(text)
        told(cli("sweep", spec, "-o", out), out / NAME, word)
        assert (out / NAME).read_text() == text


def test_rows_of_one_problem_agree(save: Any) -> None:
    one, other = rows_of(save(SWEEP, "sweep.toml"))
    value = one["result"]["value"]
    one["result"] |= {"value": value + 2, "lower_bound": value + 1}
    with pytest.raises(Contradiction, match=rf"{one['key'][:12]} and case {other['key'][:12]}"):
        require_agreement([one, other])
    other["problem_sha256"] = "another"
    require_agreement([one, other])


def test_a_case_with_a_refuted_proof_says_so(
    cli: Run, save: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuted(problem: Problem, options: SolveOptions) -> Solution:
        return replace(ended_at_once(problem, options), contradictions=("A, but B",))

    monkeypatch.setattr(pipesat.solver, "solve", refuted)
    spec, out = save(SWEEP, "sweep.toml"), tmp_path / "out"
    rows = list(rows_of(spec))
    assert {row["why"] for row in rows} == {f"{REFUTED}A, but B"}
    out.mkdir()
    (out / NAME).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    told(cli("sweep", spec, "-o", out), out / NAME, "A, but B")


def test_any_fault_is_one_line(cli: Run, save: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Solution:
        raise Fault("two parts\ndisagree")

    monkeypatch.setattr(pipesat.solver, "solve", fails)
    told(cli("solve", save(PROBLEM)), None, r"two parts\ndisagree")
