"""Reading anything that pipesat writes: a file by the format that it states, or a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipesat.core.arguments import public
from pipesat.core.errors import BadInput
from pipesat.files.strict_json import read_json
from pipesat.layers.file import parse_layers
from pipesat.parts.file import parse_parts
from pipesat.profile.file import read_profile
from pipesat.replicas.answer import parse_assignment
from pipesat.report.study import result_in

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.result import Result
    from pipesat.core.schedule import Schedule
    from pipesat.layers.layer import Layers
    from pipesat.parts.parts import Parts
    from pipesat.profile.file import Profile
    from pipesat.replicas.answer import Assignment
    from pipesat.timeline.timeline import Timeline

_LARGEST: Final = 1 << 30
_OF_A_PROBLEM: Final = ("schedule", "timeline")
_KNOWN: Final = ("problem", "layers", "profile", "parts", "assignment", *_OF_A_PROBLEM)


@public
def read(
    path: str | Path, problem: Problem | None = None
) -> Problem | Layers | Profile | Parts | Assignment | Result | Schedule | Timeline:
    """Read a file by the format that it states, or the folder that a solve has written.

    What is read has ``write(path)``, a result ``save(folder)``.

    Parameters
    ----------
    path
        A problem, layers, profile, parts or assignment file; the folder of a solve: its result; a
        schedule or timeline file.
    problem
        What a schedule or timeline is of: their files have no costs.

    Raises
    ------
    BadInput
        If it is none of these, is wrong, or belongs to another problem.
    NotValid
        If a folder's schedule breaks a rule.
    """
    from pipesat.files.problem_file import parse_problem
    from pipesat.files.schedule_file import read_schedule
    from pipesat.timeline.file import read_timeline

    file, source = Path(path), str(path)
    if file.is_dir():
        return result_in(file)
    document = read_json(file, _LARGEST)
    stated = document.get("format") if isinstance(document, dict) else None
    kind = str(stated).partition("/")[0].removeprefix("pipesat.")
    if kind not in _KNOWN:
        kinds = ", ".join(f'"pipesat.{name}/1"' for name in _KNOWN)
        raise BadInput(f"expected one of {kinds}", source=source, where="format", value=stated)
    if kind in _OF_A_PROBLEM and problem is None:
        expected = f"a {kind} has no costs: expected pipesat.read(path, problem)"
        raise BadInput(expected, source=source)
    if kind == "schedule":
        return read_schedule(file, problem)  # type: ignore[arg-type]
    if kind == "timeline":
        return read_timeline(file, problem)  # type: ignore[arg-type]
    if kind == "profile":
        return read_profile(file)
    parsers: dict[str, Callable[[Any, str], Problem | Layers | Parts | Assignment]] = {
        "assignment": parse_assignment,
        "layers": parse_layers,
        "parts": parse_parts,
    }
    return parsers.get(kind, parse_problem)(document, source)
