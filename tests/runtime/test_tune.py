"""Tuning in place: the loop against machines that are made up, and when a gain is noise."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pipesat.core.errors import BadInput, NotApplicable
from pipesat.core.problem import Problem
from pipesat.core.timing import time_order
from pipesat.export.torch.companions import OwnWords
from pipesat.export.torch.csv_file import items_of, rows_of_csv
from pipesat.files.problem_file import parse_problem
from pipesat.runtime.job import Job
from pipesat.runtime.run import Measured
from pipesat.runtime.tuned import gain_over
from pipesat.timeline.timeline import DeviceRun, Ran, Timeline, TrainingStep
from pipesat.workflows.solve import solve
from pipesat.workflows.tuning import tune
from tests.support.problems import chain


class Machine:
    """Runs orders with the costs of ``truth``, each step ``noise`` longer or shorter by chance.

    It stands for the ranks: what they would measure, read from the same jobs.
    """

    def __init__(self, truth: Problem, noise: float = 0.0) -> None:
        self.truth, self.noise, self.chance = truth, noise, Random(7)
        self.jobs: list[list[Job]] = []

    def run_orders(self, problem: Problem, jobs: Sequence[Job], **_: Any) -> list[Measured]:
        self.jobs.append([*jobs])
        return [Measured(self.timeline(problem, job), None) for job in jobs]

    def timeline(self, problem: Problem, job: Job) -> Timeline:
        own = OwnWords(self.truth, range(self.truth.routes[0].microbatches))
        order = tuple(
            tuple(item for cell in row for item in items_of(cell, own))
            for row in rows_of_csv(job.csv, "torch csv")
        )
        timed = time_order(self.truth, order)
        steps = []
        for _ in range(job.steps):
            by = 1 + self.chance.uniform(-self.noise, self.noise)
            rows = []
            for row in timed.devices:
                ends = [0.0, *(by * one.end for one in row)]
                rows.append(
                    DeviceRun(
                        tuple(
                            Ran(one.item, by * one.start, by * one.end, by * one.start - free, None)
                            for one, free in zip(row, ends, strict=False)
                        )
                    )
                )
            steps.append(TrainingStep(tuple(rows)))
        return Timeline(problem.sha256, tuple(steps), 1.0, "a machine")


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Any:
    def put(machine: Machine) -> Machine:
        monkeypatch.setattr("pipesat.runtime.run.run_orders", machine.run_orders)
        return machine

    return put


def uneven(**changes: int) -> Problem:
    """Two stages, the second one slower; B + W take longer than BW."""
    costs = {"F": 1000, "B": 1300, "W": 900, "BW": 2000} | changes
    problem = chain(2, 4, cap=3, **costs)
    document = dict(problem.document) | {"time_unit": "us"}
    stages = [dict(stage) for stage in document["stages"]]
    stages[1] |= {"F": 1500, "W": 1400}
    return parse_problem(document | {"stages": stages})


def test_the_loop_ends_with_the_optimum_of_the_machine_not_of_the_first_guess(on: Any) -> None:
    guess = parse_problem(dict(chain(2, 4, F=10, B=10, W=10, cap=3).document) | {"time_unit": "us"})
    machine = on(Machine(uneven()))
    tuned = tune(guess, "1f1b", virtual=True, time_limit=2, steps=8)
    optimum = solve(machine.truth, target="torch", time_limit=5)
    assert optimum.status == "optimal"
    assert time_order(machine.truth, tuned.schedule.order).makespan == optimum.value
    assert [one.error for one in tuned.rounds] == [0.0]  # all kinds ran before it solved
    assert tuned.stopped == "the prediction holds, and nothing better comes"
    (row,) = tuned.rows[:-1]
    assert row.name == "1f1b, torch's best, yours"
    today = time_order(machine.truth, tune_order(guess)).makespan
    assert row.gain is not None
    assert row.gain.value == pytest.approx(1 - optimum.value / today)
    assert not row.gain.within_noise
    assert all(len(jobs) <= 3 for jobs in machine.jobs)
    assert {job.steps for job in machine.jobs[-1]} == {8}


def tune_order(problem: Problem) -> Any:
    return problem.schedule("1f1b").order


def test_a_machine_that_changes_is_given_up_after_five_rounds(on: Any) -> None:
    class Moody(Machine):
        """Every other run takes half as long again."""

        def timeline(self, problem: Problem, job: Job) -> Timeline:
            self.truth = slow if len(self.jobs) % 2 else quick
            return super().timeline(problem, job)

    quick, slow = uneven(), uneven(F=1500, B=2000, W=1400, BW=3000)
    machine = on(Moody(quick))
    tuned = tune(quick, "1f1b", virtual=True, time_limit=1, steps=6)
    assert len(tuned.rounds) == 5
    assert len(machine.jobs) == 7  # the first costs, five rounds, the last comparison
    assert all(abs(one.error) > 0.05 for one in tuned.rounds)
    assert "more are not made" in str(tuned)
    assert "does not hold" in str(tuned)


def test_a_gain_of_half_a_percent_is_within_noise(on: Any) -> None:
    """On two ranks 1F1B takes 9 x 3 ms; W's at the end save at most 8 x 17 us of it."""
    problem = parse_problem(dict(chain(2, 8, F=1000, B=1983, W=17).document) | {"time_unit": "us"})
    on(Machine(problem, noise=0.004))
    tuned = tune(problem, "1f1b", virtual=True, time_limit=2)
    (row,) = tuned.rows[:-1]
    assert 0.003 < 1 - time_order(problem, tuned.schedule.order).makespan / 27_000 < 0.0051
    assert row.gain is not None
    assert row.gain.within_noise
    assert "within noise" in str(tuned)


def test_an_order_that_is_todays_gains_nothing(on: Any) -> None:
    problem = parse_problem(
        dict(chain(1, 3, F=1000, B=1000, W=1000).document) | {"time_unit": "us"}
    )
    on(Machine(problem))
    tuned = tune(problem, "1f1b", virtual=True, time_limit=1, steps=6)
    assert len(tuned.rows) == 1
    assert "nothing better than this order was found" in str(tuned)


def test_an_interval_misses_a_median_of_zero_in_one_case_of_twenty() -> None:
    """Under no difference each sign is as likely, whatever the sizes: all patterns of ten pairs."""
    missed = 0
    for signs in product((-1, 1), repeat=10):
        steps = [1000.0 - sign * size for size, sign in enumerate(signs, start=1)]
        gain = gain_over([1000.0] * 10, steps)
        assert gain.interval is not None
        low, high = gain.interval
        missed += not low <= 0 <= high
    assert 0.01 < missed / 2**10 < 0.05


@pytest.mark.parametrize(
    ("other", "ours", "noise"),
    [
        ([100.0] * 5, [50.0] * 5, True),  # too few
        ([100.0] * 6, [50.0] * 6, False),
        ([100.0] * 6, [99.5] * 6, True),  # less than a launch differs from another
        ([100.0] * 6, [110.0] * 6, False),  # ours is longer, and that is no noise
        ([100.0, 90.0] * 10, [90.0, 100.0] * 10, True),
        ([100.0, 120.0] * 10, [95.0, 114.0] * 10, False),  # what disturbs both does not count
        ([100.0] * 20, [99.5, 98.0, 97.0, 91.0] * 5, True),  # 2.5 %, and single ones 0.5 to 9 %
        ([100.0] * 20, [87.0, 89.0, 81.0, 83.0] * 5, False),
    ],
)
def test_what_counts_as_noise(other: list[float], ours: list[float], noise: bool) -> None:
    gain = gain_over(other, ours)
    assert gain.within_noise is noise
    assert str(gain).startswith("within noise of ") is noise


def test_what_cannot_be_tuned(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="expected `model`, `shape` or `virtual`"):
        tune(uneven(), "1f1b")
    document = dict(uneven().document)
    stages = [dict(stage) for stage in document["stages"]]
    stages[0]["modes"] = [{"name": "again", "backward": "fused", "BW": 9}]
    with pytest.raises(NotApplicable, match="modes"):
        tune(parse_problem(document | {"stages": stages}), "1f1b", virtual=True)


def test_the_command_writes_a_folder(
    cli: Any, save: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = uneven()
    machine = Machine(problem)
    monkeypatch.setattr("pipesat.runtime.run.run_orders", machine.run_orders)
    path, folder = save(problem.document), tmp_path / "tuned"
    words = ["run", path, "1f1b", "--virtual", "--tune", "--time-limit", "1", "-o", folder]
    result = cli(*words, "--json")
    assert result.code == 0, result.err
    told = result.json
    assert told["rows"][-1]["name"] == "pipesat"
    assert told == json.loads((folder / "tuned.json").read_text()) | {"remarks": []}
    names = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    assert names == {
        *("problem.json", "schedule.json", "schedule.csv", "schedule.hazards.txt", "tuned.json"),
        *("timelines/0.json", "timelines/1.json", ".pipesat.json"),
    }
    assert cli("check", folder / "problem.json", folder / "schedule.json").code == 0
    assert cli(*words[:-2], "--verify").code == 2
    assert (
        cli("run", path, "1f1b", "--virtual", "--time-limit", "1", "-o", tmp_path / "t.json").code
        == 2
    )
