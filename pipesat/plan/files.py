"""The folder of a plan."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pipesat.export.result_folder import result_files
from pipesat.files.folder import write_folder
from pipesat.plan.answer import Plan, layout_text, module_names
from pipesat.plan.document import plan_document
from pipesat.plan.picture import plan_pictures


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
    text, names = layout_text(plan), module_names(plan)
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
