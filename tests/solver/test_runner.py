"""The door to CP-SAT: invalid models, hints, and what callbacks raise."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ortools.sat.python import cp_model

from pipesat.core.errors import Fault
from pipesat.heuristics.list_scheduling import list_schedules
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import Runner, slowness
from pipesat.solver.windows.window_search import WindowSearch
from tests.support.problems import chain


def model_of(most: int = 9) -> tuple[cp_model.CpModel, cp_model.IntVar]:
    cp = cp_model.CpModel()
    value = cp.new_int_var(0, most, "")
    cp.maximize(value)
    return cp, value


def solve(cp: cp_model.CpModel, **told: Callable[..., object]) -> cp_model.CpSolver:
    runner = Runner(Clock(60, deterministic=True))
    return runner.solve(cp, limit=60, seed=0, **told)[0]  # type: ignore[arg-type]


def test_an_invalid_model_is_a_fault_and_kept_as_a_file() -> None:
    cp, value = model_of()
    cp.add_hint(value, 3)
    cp.proto.solution_hint.vars.append(17)  # of no variable
    cp.proto.solution_hint.values.append(1)
    with pytest.raises(Fault, match=r"CP-SAT calls a model invalid: .+; the model is in") as raised:
        solve(cp)
    kept = Path(re.sub(".* is in ", "", str(raised.value)))
    assert "variables" in kept.read_text()
    kept.unlink()


def test_a_hint_that_is_given_twice_counts_once() -> None:
    cp, value = model_of()
    other = cp.new_bool_var("")
    for one, hinted in ((value, 9), (other.negated(), 1), (value, 2)):
        cp.add_hint(one, hinted)
    solver = solve(cp)
    assert solver.value(value) == 9
    hint = cp.proto.solution_hint
    assert sorted(zip(hint.vars, hint.values, strict=True)) == [(value.index, 9), (other.index, 0)]


@pytest.mark.parametrize("callback", ["on_solution", "on_bound"])
def test_what_a_callback_raises_is_not_lost(callback: str) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError("in a callback")

    cp, value = model_of()
    for factor in (2, 3, 5):  # something to do, so that there are bounds
        rest = cp.new_int_var(0, factor - 1, "")
        cp.add_modulo_equality(rest, value, factor)
        cp.add(rest == 1)
    with pytest.raises(ZeroDivisionError, match="in a callback"):
        solve(cp, **{callback: fail})


def test_a_callback_is_given_every_value() -> None:
    cp, value = model_of()
    found: list[int] = []
    solve(cp, on_solution=lambda of: found.append(of(value)))
    assert found[-1] == 9


def test_a_deterministic_clock_counts_what_a_model_costs() -> None:
    cp, value = model_of()
    for _ in range(6_000):
        cp.add(value <= 8)
    clock = Clock(60, deterministic=True)
    runner = Runner(clock)
    runner.solve(cp, limit=60, seed=0)
    assert clock.elapsed == runner.spent
    assert clock.elapsed >= 0.1  # 6,000 constraints at 60,000 a second


def test_on_a_busy_machine_seconds_by_the_clock_are_more() -> None:
    """Half of what was before counts; what takes no time says nothing, and 4 is the most."""
    assert slowness(1.0, 1.0, 1.0) == 1.0
    assert slowness(1.0, 0.5, 1.0) == 1.5
    assert slowness(1.0, 0.0, 2.0) == 3.0
    assert slowness(0.01, 0.001, 2.0) == 2.0
    assert slowness(1.0, 1.1, 3.0) == 2.0


@pytest.mark.parametrize(("share", "limit"), [(1, 0.8), (4, 3.2)])
def test_windows_have_processor_time(
    share: int, limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = chain(3, 6, F=2, B=3, W=2, cap=2)
    incumbent = Incumbent(problem, "makespan", Clock(1e6))
    incumbent.offer_timed(next(list_schedules(problem)))
    runner = Runner(incumbent.clock)
    runner.slowness = share
    limits: list[float] = []
    solve = runner.solve

    def noted(*told: Any, limit: float, **more: Any) -> Any:
        limits.append(limit)
        return solve(*told, limit=limit, **more)

    monkeypatch.setattr(runner, "solve", noted)
    WindowSearch(problem, incumbent, runner=runner, seed=0).step()
    assert limits == [limit]
