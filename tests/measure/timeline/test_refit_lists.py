"""Refits of microbatches that are a list: every class has its own costs."""

from __future__ import annotations

from pipesat.measure.timeline.refit import refit
from pipesat.problem.ops import Op, parse_item
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.problem.rules import one_of_each
from pipesat.runtimes.timeline import DeviceRun, Ran, Timeline, TrainingStep
from pipesat.schedule.timing import time_order

US = 1000.0  # per time unit


def problem() -> Problem:
    """Two devices; the long one takes 3 times as long, and 3 times as long to travel."""
    return parse_problem(
        {
            "format": "pipesat.problem/1",
            "time_unit": "ms",
            "devices": [{}, {}],
            "stages": [
                {"device": d, "F": 100, "B": 100, "W": 70, "backward": "fused", "held_after_F": 2}
                for d in (0, 1)
            ],
            "comm": {"default": 60},
            "microbatches": [
                {"name": "long", "count": 1, "time": [3, 1], "held": [2, 1], "comm": [3, 1]},
                {"name": "short", "count": 1, "stages": {"1": {"F": 90, "held_after_F": 1}}},
                {"name": "long", "count": 1},
            ],
            "order": "same",
        }
    )


def ran(shown: Problem) -> Timeline:
    """A step of an order, exactly as predicted."""
    texts = ("0F1 0F0 0BW1 0F2 0BW0 0BW2", "1F1 1BW1 1F0 1BW0 1F2 1BW2")
    order = tuple(tuple(map(parse_item, row.split())) for row in texts)
    schedule = time_order(shown, order)
    rows = []
    for row in schedule.devices:
        before, items = 0, []
        for timed in row:
            waited = US * (timed.start - before)
            items.append(Ran(timed.item, US * timed.start, US * timed.end, waited))  # type: ignore[arg-type]
            before = timed.end
        rows.append(DeviceRun(tuple(items)))
    return Timeline(shown.sha256, (TrainingStep(tuple(rows)),), US, "test", 0.0, {})


def amounts(found: Problem) -> dict[Op, object]:
    def of(op: Op) -> object:
        stage = found.amounts(op.stage, op.microbatch)
        link = found.link(0, op.microbatch)
        return stage.F, stage.BW, stage.held_after_F, link

    return {op: of(op) for op in one_of_each(found)}


def test_a_run_as_predicted_changes_nothing() -> None:
    new = refit(problem(), ran(problem())).problem
    assert amounts(new) == amounts(problem())
    assert new.routes[0].classes == problem().routes[0].classes
    assert new.order == "same"


def test_a_class_that_took_longer_has_its_own_costs_and_others_keep_theirs() -> None:
    slower = parse_problem(
        dict(problem().document)
        | {
            "comm": {"default": 80},
            "microbatches": [
                {"name": "long", "count": 1, "time": [4, 1], "held": [2, 1], "comm": [3, 1]},
                *problem().document["microbatches"][1:],
            ],
        }
    )
    # what ran had the slower one's times: the refit of the first problem is the slower one
    assert amounts(refit(problem(), ran(slower)).problem) == amounts(slower)
