"""Write the JSON Schema of each file format, from the models that read it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from pipesat.compare.replicas.assignment import AssignmentModel
from pipesat.compare.sweep.spec import SpecModel
from pipesat.layers.layers_file import LayersModel
from pipesat.layers.profile.profile_file import LinksModel, Profile
from pipesat.problem.problem_file import ProblemModel
from pipesat.runtimes.timeline_file import TimelineModel
from pipesat.schedule.schedule_file import ScheduleModel

FOLDER: Final = Path(__file__).parents[1] / "pipesat" / "core" / "schemas"
MODELS: Final[dict[str, type[BaseModel]]] = {
    "problem": ProblemModel,
    "schedule": ScheduleModel,
    "layers": LayersModel,
    "profile": Profile,
    "links": LinksModel,
    "timeline": TimelineModel,
    "sweep": SpecModel,
    "assignment": AssignmentModel,
}
"""What reads each format, ``pipesat.NAME/1``."""


def schema_of(name: str) -> str:
    """Return the JSON Schema of a format as text."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    schema = MODELS[name].model_json_schema() | head | {"title": f"pipesat.{name}/1"}
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in MODELS:
        (FOLDER / f"{name}.schema.json").write_text(schema_of(name), encoding="utf-8")
    sys.stdout.write(f"{FOLDER}: {len(MODELS)} schemas\n")
