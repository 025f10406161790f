"""A plan as a document, ``pipesat.plan/1``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pipesat.plan.answer import (
    Plan,
    devices_of,
    layout_text,
    module_names,
    require_consistent,
    stages_of,
)
from pipesat.plan.comparison import comparison_document
from pipesat.plan.shapes import shape_name

FORMAT: Final = "pipesat.plan/1"


def plan_document(plan: Plan, schedule_path: str | None = None) -> dict[str, Any]:
    """Return ``pipesat.plan/1``, ready for JSON."""
    require_consistent(plan)
    chosen, question = plan.chosen, plan.question
    shape = None if chosen is None else chosen.shape
    return {
        "format": FORMAT,
        "name": question.layers.name,
        "status": plan.status,
        "objective": question.objective,
        "value": plan.value,
        "lower_bound": None if plan.bound is None else plan.bound.value,
        "lower_bound_source": None if plan.bound is None else plan.bound.source,
        "every_partition_accounted_for": plan.complete,
        "gap": plan.gap,
        "shape": None
        if shape is None
        else {
            "placement": shape.placement,
            "stages": shape.stages,
            "devices": shape.devices,
            "microbatches": shape.microbatches,
        },
        "proposed_by": None if chosen is None else chosen.proposed_by,
        "recompute": question.space.choice,
        "stages": stages_of(plan),
        "devices": devices_of(plan),
        "layout": layout_text(plan),
        "module_fqns_per_model_part": module_names(plan),
        "considered": [*_considered(plan), *_left_out(plan)],
        "comparison": comparison_document(plan.rows, question.objective),
        "gains": [*plan.gains],
        "remarks": [*plan.remarks],
        "result": None if plan.result is None else plan.result.document(schedule_path),
        "wall_s": round(plan.seconds, 3),
    }


def _considered(plan: Plan) -> Iterator[dict[str, Any]]:
    """Shapes that were searched, each with its bound."""
    known = plan.known
    for number, state in enumerate(known.states):
        bound = None if plan.contradictions else known.bound_of(number)
        yield {
            "shape": shape_name(state.shape),
            "lower_bound": None if bound is None else bound.value,
            "lower_bound_source": None if bound is None else bound.source,
            "partitions": sum(c.shape_number == number for c in known.candidates),
            "every_partition_accounted_for": known.accounted_for(number),
            "why_not": state.why_not or None,
        }


def _left_out(plan: Plan) -> Iterator[dict[str, Any]]:
    """Shapes that were not searched, and why."""
    for name, why in plan.left_out:
        yield {
            "shape": name,
            "lower_bound": None,
            "lower_bound_source": None,
            "partitions": 0,
            "every_partition_accounted_for": True,
            "why_not": why,
        }
