"""A baseline that is better than what the search found is the answer, wherever both are shown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesat.compare.best_known import with_hand_written
from pipesat.compare.compare import Comparison, compare
from pipesat.compare.hand_written import row_of, with_ratios
from pipesat.compare.result import Result
from pipesat.compare.schedules import schedule_of
from pipesat.core.claims import Bound, Standing
from pipesat.core.errors import BadInput, Contradiction
from pipesat.heuristics import BASELINES
from pipesat.schedule.result import Baseline
from tests.conftest import Run
from tests.support.problems import chain

# Unit costs: 1F1B takes (m + p - 1) (F + B + W), ZB-H1 m (F + B + W) + (p - 1) F.
PROBLEM = chain(4, 8)  # 33 and 27; GPipe takes 33 as well
LOAD = 24  # of every device, plus 3 for the first F to arrive at the last


def ended_early(problem: Any = PROBLEM, **changes: Any) -> Result:
    """A search whose time was over when it had 1F1B."""
    values: dict[str, Any] = {
        "problem": problem,
        "status": "feasible",
        "objective": "makespan",
        "schedule": BASELINES["1f1b"](problem),
        "bound": Bound(LOAD, "load"),
        "baseline": Baseline("1f1b", 33),
        "wall_s": 0.0,
        "seed": 0,
        "workers": 1,
    }
    return Result(**values | changes)


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let every solve return what a search has that ended early."""

    def returns(**changes: Any) -> None:
        import pipesat.solver

        monkeypatch.setattr(
            pipesat.solver, "solve", lambda problem, _: ended_early(problem, **changes)
        )

    return returns


# The answer


def test_a_better_baseline_is_the_answer_and_says_so() -> None:
    result = with_hand_written(
        ended_early(), [BASELINES["gpipe"](PROBLEM), BASELINES["zb-h1"](PROBLEM)]
    )
    assert (result.value, result.status) == (27, "feasible")
    assert result.schedule is not None
    assert result.schedule.source == "zb-h1"
    assert result.baseline == Baseline("zb-h1", 27)
    assert "zb-h1, made afterwards, has 27" in result.explanation
    assert result.history[-1].value == 27
    assert not result.contradictions


def test_it_may_prove_optimality() -> None:
    result = ended_early(bound=Bound(27, "load and the first arrival"))
    assert with_hand_written(result, [BASELINES["zb-h1"](PROBLEM)]).status == "optimal"


def test_nothing_changes_where_the_answer_is_as_good() -> None:
    result = ended_early()
    assert with_hand_written(result, [BASELINES["gpipe"](PROBLEM)]) is result


def test_what_does_not_fit_is_no_answer() -> None:
    tight = chain(4, 8, cap=1)
    result = ended_early(tight, status="unknown", schedule=None, baseline=None)
    assert with_hand_written(result, [BASELINES["zb-h1"](tight)]) is result


def test_a_refuted_proof_is_dropped() -> None:
    nothing = {"schedule": None, "baseline": None, "bound": None}
    for planted in (
        {"bound": Bound(30, "a wrong argument")},
        nothing | {"status": "infeasible", "explanation": "a wrong argument"},
    ):
        result = with_hand_written(ended_early(**planted), [BASELINES["zb-h1"](PROBLEM)])
        assert (result.value, result.status, result.lower_bound) == (27, "feasible", None)
        (wrong,) = result.contradictions
        assert "a wrong argument" in wrong
        assert "27" in wrong
        assert wrong in result.explanation


@given(st.integers(0, 40), st.booleans(), st.lists(st.sampled_from(["gpipe", "1f1b", "zb-h1"])))
def test_whatever_is_built_the_answer_agrees_with_itself(
    bound: int, found: bool, names: list[str]
) -> None:
    less = {} if found else {"schedule": None, "status": "unknown", "baseline": None}
    before = ended_early(bound=Bound(min(bound, 32), "?"), **less)
    made = [BASELINES[name](PROBLEM) for name in names]
    result = with_hand_written(before, made)
    values = [schedule.makespan for schedule in made] + ([33] if found else [])
    assert result.value == min(values, default=None)
    assert (result.lower_bound is None) == (min(values, default=99) < min(bound, 32))


# Results that contradict themselves


@pytest.mark.parametrize(
    "wrong",
    [
        {"bound": Bound(34, "?")},
        {"status": "optimal"},
        {"bound": Bound(33, "?")},  # then it is optimal
        {"status": "infeasible"},
        {"status": "unknown"},
        {"schedule": None, "baseline": None},
        {"baseline": Baseline("zb-h1", 27)},
    ],
)
def test_no_result_contradicts_itself(wrong: dict[str, Any]) -> None:
    with pytest.raises(Contradiction):
        ended_early(**wrong)


def test_no_comparison_has_a_row_better_than_its_answer() -> None:
    row = row_of("zb-h1", PROBLEM, BASELINES["zb-h1"](PROBLEM))
    with pytest.raises(Contradiction, match="solver is called the best and has 33, but zb-h1 has"):
        Comparison(None, PROBLEM, ended_early(), (row,))
    for bound in (28, 33):
        standing = Standing(33, bound)
        late = ended_early(bound=Bound(bound, "?"), status=standing.status)
        with pytest.raises(Contradiction, match=f"zb-h1 has 27, below {bound}"):
            with_ratios([row], late)


# Commands


@pytest.mark.slow
def test_compare(cli: Run, save: Any, search: Any, tmp_path: Any) -> None:
    search()
    outcome = cli("compare", save(PROBLEM), "-o", tmp_path / "out")
    assert outcome.code == 0, outcome.err
    assert "found by the hand-written schedule zb-" in " ".join(outcome.out.split())
    written = json.loads((tmp_path / "out" / "result.json").read_text())
    rows = json.loads(cli("compare", save(PROBLEM), "--json").out)
    values = {row["name"]: row["makespan"] for row in rows if row["valid"]}
    assert values["solver"] == min(values.values()) == written["value"] == 27
    assert written["baseline"]["value"] == 27


def test_an_order_that_a_runtime_does_not_run_is_no_row_of_its_table() -> None:
    with pytest.raises(BadInput, match="'mine', torch does not run this order as it is"):
        compare(PROBLEM, target="torch", schedules={"mine": schedule_of(PROBLEM, "zb-h1")})
    compare(PROBLEM, target="torch", schedules={"mine": "1f1b"}, time_limit=0.1)  # it runs


def test_report(cli: Run, save: Any, search: Any, tmp_path: Any) -> None:
    search()
    folder = tmp_path / "out"
    assert cli("solve", save(PROBLEM), "-o", folder).code == 0
    outcome = cli("show", folder, "--html", folder / "report.html")
    assert outcome.code == 0
    assert "made afterwards, has 27" in outcome.err
    page = (folder / "report.html").read_text()
    assert re.search(r"(?i)none over zb-\S+, the best hand-written", page)
    assert not re.search(r"-[0-9.]+ % (shorter|longer)", page)


@pytest.mark.parametrize("command", ["compare", "report"])
def test_a_wrong_proof_is_told_and_the_files_are_kept(
    cli: Run, save: Any, search: Any, tmp_path: Any, command: str
) -> None:
    search(bound=Bound(30, "a wrong argument"))
    problem, folder = save(PROBLEM), tmp_path / "out"
    if command == "report":
        assert cli("solve", problem, "-o", folder).code == 0
        outcome = cli("show", folder, "--html", folder / "report.html")
        assert not (folder / "report.html").exists()
    else:
        outcome = cli("compare", problem, "-o", folder)
        written = json.loads((folder / "result.json").read_text())
        assert (written["value"], written["lower_bound"], written["gap"]) == (27, None, None)
    assert outcome.code == 1
    assert "Traceback" not in outcome.err
    last = outcome.err.strip().splitlines()[-1]
    assert re.match(
        r"pipesat: internal error, please report it: a wrong argument says at least 30, "
        rf"but a checked schedule has 27; what was found is in {re.escape(str(folder))}$",
        last,
    )
    assert cli("check", folder / "problem.json", folder / "schedule.json").code == 0
