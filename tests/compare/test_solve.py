"""The whole solve: proven values, honesty about what is unknown, determinism, early stops."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

import pipesat
import pipesat.solver
from pipesat.bounds.closed_form import closed_form_bound
from pipesat.check.checker import check
from pipesat.compare.solve import solve
from pipesat.core.claims import Bound
from pipesat.heuristics import BASELINES
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem, read_problem
from pipesat.schedule.schedule import Schedule
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.starts import StartingSchedules
from tests.oracle.exact import optimum
from tests.support.paths import ROOT
from tests.support.problems import chain, document

BENCH = ROOT / "bench" / "plain"
REFERENCE = json.loads((BENCH / "reference.json").read_text())


def bench(name: str) -> Problem:
    return read_problem(BENCH / "problems" / f"{name}.json")


def test_table_5_is_proven_by_formula() -> None:
    # Zero Bubble Table 5, 6.2B, p = 8, m = 32 with Table 9's costs: ZB-H1's span
    # m (F + B + W) + (p - 1)(F + B - W + 4c) = 32 * 79199 (Table 9) ... from the file's own costs
    problem = bench("table5-6.2B-p8-m32-cap1")
    stage = problem.stages[0]
    delay = problem.links[0, 1].F
    value = 32 * (stage.F + stage.B + stage.W) + 7 * (stage.F + stage.B - stage.W + 4 * delay)
    result = solve(problem, time_limit=20, workers=1, deterministic=True)
    assert (result.status, result.value) == ("optimal", value)
    assert result.baseline is not None
    assert result.baseline.name == "zb-h1"  # equal to the best baseline, and said so


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "adaptis-p4-m8",
        "lowcap-unit-p4-m8-cap0.75",
        "lowcap-6.2B-p4-m8-cap0.75",
        "lowcap-6.2B-p4-m8-cap0.5",
        "tessel-V-p4-m8-cap4",
        "vee-unit-p4-m4-cap0.75",
    ],
)
def test_known_optima_are_proven(name: str) -> None:
    """Values and bounds as the benchmark's reference has them from other solvers."""
    result = solve(bench(name), time_limit=60, workers=1, deterministic=True)
    assert result.status == "optimal"
    assert result.value == REFERENCE[name]["best_known_makespan"]
    assert result.lower_bound is not None
    assert result.lower_bound == REFERENCE[name]["best_bound_makespan"]


def test_infeasible_has_no_schedule_no_bound_and_an_explanation() -> None:
    result = solve(chain(2, 2, cap=2, held=(3, 1)), workers=1)
    assert result.status == "infeasible"
    found = result.document()
    for key in ("value", "makespan", "span", "lower_bound", "gap", "schedule", "baseline"):
        assert found[key] is None
    assert "the smallest capacity that works is 3" in result.explanation


def test_without_time_for_anything_there_is_one_microbatch_after_the_other() -> None:
    stop = threading.Event()
    stop.set()
    problem = chain(3, 4, cap=0, F=0, B=0, W=0, held=(1, 1))
    # one microbatch at a time, in an instant, is valid and optimal: nothing is ever held
    assert solve(problem, workers=1).status == "optimal"
    from pipesat.solver import SolveOptions
    from pipesat.solver import solve as bare

    result = bare(chain(3, 4), SolveOptions(workers=1, stop=stop, starts="none"))
    assert result.schedule is not None
    assert result.schedule.source == "one microbatch after the other"
    assert result.value == 4 * (3 * 1 + 3 * 2)  # three F's and three BW's in a row, four times
    assert result.baseline is None


def test_a_stop_keeps_the_best_schedule_so_far() -> None:
    stop = threading.Event()
    seen = []

    def listener(improvement):
        seen.append(improvement)
        if improvement.value is not None:
            stop.set()

    problem = bench("vee-6.2B-p8-m16-cap0.625")
    result = solve(problem, time_limit=600, workers=1, listener=listener, stop=stop)
    assert result.status == "feasible"
    assert result.schedule is not None
    assert check(problem, result.schedule) == []
    assert result.wall_s < 600  # the stop ended it, not the limit
    assert seen[-1].value == result.value


@pytest.mark.parametrize("schedule_first", [True, False])
def test_a_bound_above_a_checked_schedule_is_dropped(schedule_first: bool) -> None:
    problem = chain(2, 2)  # 1F1B: F0 at 0, then both devices take turns; longer than 6 anyway
    incumbent = Incumbent(problem, "makespan", Clock(60))
    order = BASELINES["1f1b"](problem).order
    if schedule_first:
        incumbent.offer(order, "1f1b")
    for value, origin in ((5, "wrong"), (3, "right"), (10**6, "wrong"), (6, "wrong")):
        incumbent.raise_bound(Bound(value, f"an argument for {value}"), origin)
    if not schedule_first:
        assert incumbent.bound.value == 10**6
        incumbent.offer(order, "1f1b")
    assert incumbent.value == BASELINES["1f1b"](problem).makespan
    assert incumbent.bound == Bound(3, "an argument for 3")  # 5 and 6 come from where 10^6 did
    assert not incumbent.trusts("wrong")
    assert incumbent.trusts("right")
    (fault,) = incumbent.faults
    assert "an argument for 1000000 says at least 1000000" in fault
    assert "(1f1b) has" in fault


def test_a_wrong_proof_costs_neither_the_schedule_nor_the_other_bounds() -> None:
    problem = chain(2, 3, cap=1)
    right = solve(problem, time_limit=60, workers=1, deterministic=True)
    wrong = solve(
        problem,
        time_limit=60,
        workers=1,
        deterministic=True,
        known_bound=Bound(10**6, "a wrong argument"),
    )
    assert (wrong.status, wrong.value) == ("optimal", right.value)
    assert wrong.lower_bound == right.lower_bound
    (warning,) = wrong.warnings
    assert "a wrong argument says at least 1000000" in warning
    assert warning in wrong.explanation


def test_schedules_that_break_a_rule_are_never_kept() -> None:
    problem = chain(4, 6, cap=2)
    incumbent = Incumbent(problem, "makespan", Clock(60))
    assert incumbent.offer(BASELINES["gpipe"](problem).order, "gpipe") is None
    assert incumbent.schedule is None


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_bounds_hold_with_overlap_in_the_problem(objective: str) -> None:
    problem = parse_problem(document(chain(2, 3, F=2, B=2, W=2), overlap={"FB": [1, 2]}))
    result = solve(problem, objective=objective, time_limit=5, workers=1, deterministic=True)
    assert result.value is not None
    least = optimum(problem.document, objective, at_most=result.value)
    assert least is not None
    assert result.lower_bound is not None
    closed = closed_form_bound(problem, objective)
    assert closed.value <= result.lower_bound <= least <= result.value
    assert (result.status == "optimal") == (result.lower_bound == result.value)


def test_solutions_with_ops_of_length_zero_are_not_lost() -> None:
    """Stage 1 takes no time and has room for one activation: B(k) and F(k+1) share instants."""
    real = {"F": 12, "B": 13, "W": 9, "held_after_F": 31, "held_after_B": 14}
    problem = parse_problem(
        {
            "format": "pipesat.problem/1",
            "microbatches": 5,
            "devices": [{"memory": 93}, {"memory": 31}, {"memory": 93}],
            "stages": [
                {"device": 0} | real,
                {"device": 1} | real | {"F": 0, "B": 0, "W": 0},
                {"device": 2} | real,
            ],
        }
    )
    result = solve(problem, time_limit=60, workers=1, deterministic=True)
    assert result.status == "optimal"
    assert "refused" not in result.explanation


@pytest.mark.slow
def test_a_stricter_model_is_no_fault() -> None:
    """Where ops of length zero let the problem be freer than the model, no fault is claimed."""
    times = [("F", "B", "W", "BW"), (0, 0, 0, 2), (3, 1, 1, 0), (0, 0, 2, 2), (0, 3, 0, 0)]
    held = [(4, 3), (0, 0), (3, 1), (2, 0)]
    modes = ["either", "either", "split", "either"]
    stages = [
        {"device": 0, "backward": mode, "held_after_F": a, "held_after_B": w}
        | dict(zip(times[0], row, strict=True))
        for row, (a, w), mode in zip(times[1:], held, modes, strict=True)
    ]
    problem = parse_problem(
        {
            "format": "pipesat.problem/1",
            "microbatches": 1,
            "devices": [{"memory": 8, "static": 2}],
            "stages": stages,
        }
    )
    result = solve(problem, time_limit=10, workers=1, deterministic=True)
    assert result.schedule is not None
    assert "infeasible against" not in result.explanation


@pytest.mark.slow
def test_deterministic_means_the_same_whatever_the_load() -> None:
    """Limits in deterministic time: two runs agree in everything but seconds, one under load."""
    problem = chain(4, 8, F=5, B=7, W=4, comm=1, cap=30, held=(10, 4))
    busy = threading.Event()

    def load() -> None:
        while not busy.is_set():
            sum(range(1000))

    outcomes = []
    for loaded in (False, True):
        thread = threading.Thread(target=load)
        if loaded:
            thread.start()
        result = solve(problem, time_limit=0.1, seed=3, deterministic=True)
        busy.set() if loaded else None
        outcomes.append((result.schedule, result.lower_bound, result.status, result.workers))
    thread.join()
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][3] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time_limit": 0}, "time_limit: got 0, expected a number above 0, at most"),
        ({"time_limit": float("nan")}, "time_limit: got nan, expected"),
        ({"workers": 0}, "workers: got 0, expected an integer from 1 to 1024 or None"),
        ({"seed": -1}, "seed: got -1, expected an integer from 0 to"),
    ],
)
def test_settings_out_of_range_name_their_parameter(options, message) -> None:
    problem = chain(1, 1)
    for function in (pipesat.solve, pipesat.frontier, pipesat.min_memory):
        with pytest.raises(pipesat.BadInput, match=message):
            function(problem, **options)


def test_a_class_alone_may_hold_more_while_its_backward_runs() -> None:
    """All microbatches are alike, but what the class states is in no stage."""
    held = {"name": "a", "count": 2, "stages": {"0": {"held_in_backward": 4}}}
    stages = [{"device": 0, "F": 1, "B": 1, "W": 1, "held_after_F": 2}]
    problem = parse_problem(
        document(chain(1, 2), stages=stages, microbatches=[held], order="given")
        | {"devices": [{"memory": 5}]}
    )
    # both F first would hold 2 + 4 in the first backward, so one microbatch follows the other
    result = solve(problem, time_limit=5, workers=1, deterministic=True)
    assert (result.status, result.value) == ("optimal", 6)
    assert result.schedule is not None
    assert not check(problem, result.schedule)


def test_list_scheduling_without_a_choice_is_not_tried_by_every_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # a microbatch holds 1 on a device without room, unless its ops share an instant: then list
    # scheduling has one schedule whatever its policy, made while nothing is known, and at its turn
    problem = parse_problem(
        {
            "format": "pipesat.problem/1",
            "devices": [{"memory": 0}],
            "stages": [{"device": 0, "F": 0, "B": 0, "W": 0, "held_after_F": 1}],
            "microbatches": 3,
        }
    )
    taken = []

    def recorded(starts: StartingSchedules) -> Iterator[Schedule]:
        for schedule in real(starts):
            taken.append(schedule)
            yield schedule

    real = StartingSchedules.__iter__
    monkeypatch.setattr(StartingSchedules, "__iter__", recorded)
    assert solve(problem, deterministic=True, time_limit=1).value == 0
    assert [schedule.source for schedule in taken].count("list-scheduling") <= 2


def test_with_no_time_at_all_a_large_problem_has_many_microbatches_in_flight() -> None:
    """8 devices, 250 microbatches, 6,000 ops, memory for 5: one after the other takes 250 rounds.

    Each of 8 (F + B) + W = 8 * 7 + 2. One policy of list scheduling, which comes first, takes a
    quarter of it at most.
    """
    problem = chain(8, 250, F=3, B=4, W=2, cap=5, held=(1, 1))
    (first, *_) = StartingSchedules(problem, "all", lambda: True, lambda: False)
    assert check(problem, first) == []
    assert first.source == "list-scheduling"  # a name that can be typed
    assert first.makespan < 250 * (8 * 7 + 2) / 4
    result = solve(problem, time_limit=0.05, workers=1)
    assert result.value is not None
    assert result.value <= first.makespan


def test_the_gain_over_1f1b_is_said() -> None:
    """Two devices, F = 2, B = 2, W = 1, delay 1: 1F1B by hand as in tests/cli/test_lines.py.

    It holds two microbatches on device 0, so that it does not fit where one fits.
    """
    found = pipesat.solve(chain(2, 3, F=2, B=2, W=1, comm=1, held=(4, 1)), time_limit=2, workers=1)
    assert found.value is not None
    assert found.value < 24
    gain = (24 - found.value) * 10000 // 24 / 100  # in percent, rounded down
    assert dict(found.facts())["Gain"].startswith(f"{gain:.2f} % shorter than 1F1B (24). ")
    tight = pipesat.solve(
        chain(2, 3, F=2, B=2, W=1, comm=1, held=(4, 1), cap=7), time_limit=2, workers=1
    )
    assert dict(tight.facts())["Gain"].endswith(". 1F1B does not fit into memory")
