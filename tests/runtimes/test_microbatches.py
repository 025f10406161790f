"""Microbatches that differ, in the formats of other programs: their own numbers survive."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipesat.core.amounts import time_text
from pipesat.measure.processes.job import Shape
from pipesat.measure.torch_runs import torch_job
from pipesat.problem.ops import parse_item
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.runtimes import EXPORTERS
from pipesat.runtimes.timeline import assemble
from pipesat.runtimes.torch.adapt import adapt
from pipesat.runtimes.torch.companions import OwnWords
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.timing import time_order


@pytest.fixture
def problem() -> Problem:
    """Two devices; the first microbatch takes 3 times as long, and twice as long to travel."""
    return parse_problem(
        {
            "format": "pipesat.problem/1",
            "time_unit": "s",
            "devices": [{}, {}],
            "stages": [{"device": d, "F": 1, "B": 1, "W": 1, "backward": "fused"} for d in (0, 1)],
            "comm": {"default": 2},
            "microbatches": [
                {"name": "long", "count": 1, "time": [3, 1], "comm": [2, 1]},
                {"name": "short", "count": 1},
            ],
        }
    )


@pytest.fixture
def short_first(problem: Problem) -> Schedule:
    texts = (["0F1", "0F0", "0BW1", "0BW0"], ["1F1", "1BW1", "1F0", "1BW0"])
    return time_order(problem, tuple(tuple(map(parse_item, row)) for row in texts))


def test_the_order_is_a_list_of_indices(problem: Problem, short_first: Schedule) -> None:
    assert json.loads(EXPORTERS["order"](problem, short_first).data) == [1, 0]


def test_torch_numbers_them_as_they_run_and_a_list_has_their_own_numbers(
    problem: Problem, short_first: Schedule
) -> None:
    exported = EXPORTERS["torch"](problem, short_first)
    assert exported.data.decode().splitlines() == ["0F0,0F1,0B0,0B1", "1F0,1B0,1F1,1B1"]
    assert json.loads(exported.beside[".order.json"]) == [1, 0]
    # nothing but the numbers changes, so what torch takes is what was planned
    takes = time_text(short_first.makespan, problem.time_unit)
    planned = f"makespan {takes}, as long as this schedule"
    assert any(planned in note for note in exported.notes)


@pytest.mark.parametrize(("order", "first", "takes"), [("given", "0B0", 16), ("free", "0B1", 15)])
def test_a_backward_written_whole_keeps_to_the_order(order: str, first: str, takes: int) -> None:
    """At the place of its W's, stage 0's would end at 15, but out of the order of the numbers."""
    stages = [{"device": d, "F": 1, "B": 1, "W": 4} for d in (0, 1)]
    counted = {"microbatches": [{"name": "a", "count": 1}, {"name": "b", "count": 1}]}
    document = {"format": "pipesat.problem/1", "devices": [{}, {}], "stages": stages, **counted}
    problem = parse_problem(document | {"order": order})
    texts = ("0F0 0B0 0F1 0B1 0W1 0W0", "1F0 1B0 1F1 1B1 1W0 1W1")
    schedule = time_order(problem, tuple(tuple(map(parse_item, row.split())) for row in texts))
    adapted = adapt(problem, schedule)
    assert (adapted.schedule.devices[0][-1].end, adapted.entering) == (takes, (0, 1))
    whole = [str(item) for item in adapted.schedule.order[0] if "B" in str(item)]
    assert whole[0] == first.replace("B", "BW")


def test_a_runs_timeline_has_the_microbatches_own_numbers(
    problem: Problem, short_first: Schedule
) -> None:
    told: list[str] = []
    size: dict[str, Any] = {"steps": 1, "warm_up": 0, "split": "even", "shape": Shape()}
    job = torch_job(problem, short_first, check=False, module="", note=told.append, **size)
    assert job.numbers == (1, 0)  # torch's number 0 is the short one
    assert any("the model has one shape" in text for text in told)
    rank: dict[str, Any] = {"ops": [["0F0", 0, 0, 9, None], ["0B1", 9, 9, 10, None]]}
    rank["transfers"] = [["0SEND_F1", 1, 2]]
    (step,) = assemble(OwnWords(problem, job.numbers), [[rank]], [0])
    assert [str(ran.item) for ran in step.devices[0].ops] == ["0F1", "0BW0"]
    assert step.devices[0].transfers[0].name == "0SEND_F0"
