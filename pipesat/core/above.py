"""What users call on core's classes and rooms above do, looked up when it is first called.

``Problem.chain`` and ``result.plot()`` are methods, so that editors offer them and ``help``
explains them where users look; reading, placing and drawing is not core's business. This table is
the one place where core names rooms above it, and only the methods that users call go through it:
nothing in core needs one of them to work.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

ROOMS: Final = {
    "built": "pipesat.placement.building",
    "changed": "pipesat.placement.changing",
    "export_result": "pipesat.workflows.exports",
    "figure_of_parts": "pipesat.parts.picture",
    "figure_of_plan": "pipesat.plan.picture",
    "figure_of_result": "pipesat.picture.of_result",
    "frame_of": "pipesat.picture.notebook",
    "from_parts": "pipesat.placement.building",
    "html_of": "pipesat.picture.notebook",
    "html_of_problem": "pipesat.picture.notebook",
    "parse_problem": "pipesat.files.problem_file",
    "png_of": "pipesat.picture.notebook",
    "read_problem": "pipesat.files.problem_file",
    "save_advice": "pipesat.advise.files",
    "save_plan": "pipesat.plan.files",
    "save_result": "pipesat.workflows.exports",
    "write_problem": "pipesat.files.problem_text",
}
"""Home of each function, by its name there."""


def above(name: str) -> Any:
    """Return a function of a room above."""
    return getattr(importlib.import_module(ROOMS[name]), name)
