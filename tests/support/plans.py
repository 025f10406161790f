"""Layers in a line, and the search over all of their plans, deterministic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipesat.advise.comparison import compared
from pipesat.advise.plan import Plan, concluded
from pipesat.advise.plan_search import Search
from pipesat.advise.question import Question
from pipesat.layers.layer import FORMAT, Layers
from pipesat.layers.layers_file import parse_layers
from pipesat.layers.pipeline import Pipeline
from pipesat.schedule.solving import Deadline
from pipesat.solver import SolveOptions


def layers_of(entries: Sequence[dict[str, Any]], **more: Any) -> Layers:
    return parse_layers({"format": FORMAT, "layers": [*entries]} | more)


def entry(F: int, B: int, W: int, held: int = 1, **more: Any) -> dict[str, Any]:
    return {"F": F, "B": B, "W": W, "held_after_F": held, "held_after_B": held // 2} | more


def searched(layers: Layers, shapes: Sequence[Pipeline], **options: Any) -> Search:
    objective = options.pop("objective", "makespan")
    exact = SolveOptions(objective=objective, deterministic=True)
    deadline = Deadline(options.pop("time_limit", 600.0))  # never reached: everything is proven
    choice = options.pop("recompute", "never")
    return Search(Question(layers, shapes[0], tuple(shapes), choice, objective), exact, deadline)


def planned(layers: Layers, shapes: Sequence[Pipeline], **options: Any) -> Plan:
    search = searched(layers, shapes, **options)
    return concluded(search, compared(search, plain=False))
