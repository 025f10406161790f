"""A plan as a document, ``pipesat.plan/1``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pipesat.choose.comparison import comparison_document
from pipesat.choose.picture import plan_pictures
from pipesat.choose.plan import Plan, require_consistent
from pipesat.choose.plan_tables import devices_of, layout_text, module_names, stages_of
from pipesat.export.result_folder import result_files
from pipesat.files.folder import write_folder
from pipesat.layers.pipeline import shape_name

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
        "stages": stages_of(plan.chosen, plan.question.layers),
        "devices": devices_of(plan.chosen),
        "layout": layout_text(plan.chosen, plan.question.layers),
        "module_fqns_per_model_part": module_names(plan.chosen, plan.question.layers),
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


def save_plan(plan: Plan, folder: str | Path, log: Sequence[str] = ()) -> str | None:
    """Write every file of a plan into a folder; return the path of its schedule, if there is one.

    Raises
    ------
    BadInput
        If the folder cannot be written.
    Contradiction
        If the plan contradicts itself; then its schedule is written all the same.
    """
    result = plan.result
    made = None if result is None else result_files(Path(folder), result, log)
    files = {} if made is None else made.files
    path = None if made is None else made.schedule
    text, names = (
        layout_text(plan.chosen, plan.question.layers),
        module_names(plan.chosen, plan.question.layers),
    )
    if text is not None:
        files["layout.txt"] = f"{text}\n".encode()
    if names is not None:
        files["module_fqns.json"] = _json_bytes(names)

    def claims() -> dict[str, bytes]:
        return {"plan.json": _json_bytes(plan_document(plan, path))}

    def pictures() -> dict[str, bytes]:
        if made is None:
            return {}
        drawn = {f"plan.{kind}": data for kind, data in plan_pictures(plan).items()}
        return drawn | made.pictures()

    write_folder(Path(folder), files, claims=claims, pictures=pictures)
    return path


def _json_bytes(document: object) -> bytes:
    return (json.dumps(document, indent=1) + "\n").encode()
