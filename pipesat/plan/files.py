"""The folder of a plan."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pipesat.export.result_folder import write_result_folder
from pipesat.files.atomic import prepare_folder, write_with_claims
from pipesat.plan.answer import Plan, layout_text, module_names
from pipesat.plan.document import plan_document
from pipesat.plan.picture import plan_pictures

_OF_A_PLAN = ("plan.png", "plan.svg", "layout.txt", "module_fqns.json")


def write_plan(folder: Path, plan: Plan, log: Sequence[str]) -> str | None:
    """Write every file of a plan and return the path of its schedule, if there is one.

    Raises
    ------
    BadInput
        If the folder cannot be written.
    Contradiction
        If the plan contradicts itself; then its schedule is written all the same.
    """
    path = None
    files: dict[str, bytes] = {}
    if plan.result is not None:
        path = write_result_folder(folder, plan.result, log).schedule
    text, names = layout_text(plan), module_names(plan)
    if text is not None:
        files["layout.txt"] = f"{text}\n".encode()
    if names is not None:
        files["module_fqns.json"] = _json_bytes(names)
    kept = set(files)

    def claims() -> dict[str, bytes]:
        made = {"plan.json": _json_bytes(plan_document(plan, path))}
        if plan.result is not None:
            made |= {f"plan.{kind}": data for kind, data in plan_pictures(plan).items()}
        kept.update(made)
        return made

    try:
        write_with_claims(folder, files, claims)
    finally:
        for stale in {"plan.json", *_OF_A_PLAN} - kept:
            (folder / stale).unlink(missing_ok=True)  # of an earlier plan in the same folder
    return path


def save_plan(plan: Plan, folder: str | Path, log: Sequence[str] = ()) -> str | None:
    """Write every file of a plan into a folder, which is made if it is not there.

    Raises
    ------
    BadInput
        If the folder cannot be written.
    """
    prepare_folder(Path(folder))
    return write_plan(Path(folder), plan, log)


def _json_bytes(document: object) -> bytes:
    return (json.dumps(document, indent=1) + "\n").encode()
