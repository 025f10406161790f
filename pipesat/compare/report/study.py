"""Reports of results; reading anything that pipesat writes: a file by its format, or a folder."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pipesat.compare.best_known import Comparison, comparison_of
from pipesat.compare.replicas.assignment import parse_assignment
from pipesat.compare.report.page import page
from pipesat.compare.report.result_file import read_advice, read_result, result_folders
from pipesat.compare.result import Result, Schedule
from pipesat.compare.schedules import valid_schedule
from pipesat.core.arguments import public
from pipesat.core.complaint import unknown_format
from pipesat.core.errors import BadInput, require
from pipesat.core.folder import add_files, has_file
from pipesat.core.strict_json import LARGEST_RUN, read_json
from pipesat.layers.layers_file import parse_layers
from pipesat.layers.profile.profile_file import parse_profile
from pipesat.problem.problem_file import parse_problem, read_problem
from pipesat.problem.stated import warned
from pipesat.runtimes.timeline import Timeline
from pipesat.runtimes.timeline_file import read_timeline
from pipesat.schedule.schedule_file import read_schedule

if TYPE_CHECKING:
    from pipesat.compare.replicas.assignment import Assignment
    from pipesat.layers.layer import Layers
    from pipesat.layers.profile.profile_file import Profile
    from pipesat.problem.problem import Problem
    from pipesat.schedule import schedule as plain

    _Alone: TypeAlias = Problem | Layers | Profile | Assignment

MANY_OPS: Final = 20_000  # from here on the hand-written schedules take more than a few seconds


@dataclass(frozen=True, repr=False)
class Report:
    """One HTML file that opens in any browser and loads nothing; ``cases`` are what it shows."""

    html: bytes
    cases: tuple[Comparison, ...]

    @property
    def contradictions(self) -> list[str]:
        """Proofs that a checked schedule has refuted: faults of pipesat."""
        return [text for case in self.cases for text in case.result.contradictions]

    def _repr_html_(self) -> str:
        page = html.escape(self.html.decode())
        return f'<iframe srcdoc="{page}" style="width:100%;height:40em;border:0"></iframe>'

    def __repr__(self) -> str:
        schedules = sum(len(case.rows) for case in self.cases)
        return f"<Report: {schedules} schedules, {len(self.html)} bytes of HTML>"


@public
def report(
    source: Result | str | Path,
    path: str | Path | None = None,
    *,
    baselines: bool = True,
    note: Callable[[str], None] | None = None,
) -> Report:
    """Make one HTML file of a result: timeline, memory, baselines, idle time, assumptions.

    Parameters
    ----------
    source
        A result, or the folder that ``result.save`` or ``pipesat solve -o`` wrote; of several
        placements, all are in it.
    path
        The HTML file to write; ``None``: none is written.
    baselines
        With the hand-written schedules of the same problem.
    note
        Called with what is to be said meanwhile: that it may take a minute, that a baseline is
        better than the result.

    Raises
    ------
    BadInput
        If the folder has no result, or the file cannot be written.
    NotValid
        If the checker refuses its schedule.
    """
    say = note or (lambda _: None)
    if isinstance(source, Result):
        cases, home = [_case(None, source, baselines, say)], "DIR"  # of result.save(DIR)
        advice = None
    else:
        home, advice = str(source), read_advice(Path(source))
        cases = [
            _case(name or None, result_in(place), baselines, say, place / "schedule.json")
            for name, place in result_folders(Path(source))
        ]
    made = Report(page(cases, home, advice), tuple(cases))
    if path is not None:
        add_files(Path(path).parent, {Path(path).name: made.html})
    return made


def result_in(folder: Path) -> Result:
    """Read what a solve has written into a folder."""
    problem = read_problem(folder / "problem.json")
    path = folder / "schedule.json"
    require(
        has_file(folder, "result.json"),
        "no result.json here: expected a folder that pipesat solve -o or compare -o wrote",
        source=str(folder),
    )
    schedule = valid_schedule(problem, path) if has_file(folder, "schedule.json") else None
    return read_result(folder / "result.json", problem, schedule)


def _case(
    name: str | None,
    result: Result,
    baselines: bool,
    say: Callable[[str], None],
    path: Path | None = None,
) -> Comparison:
    if not baselines:
        return comparison_of(result, name, made=[])
    if result.problem.op_count > MANY_OPS:
        say("pipesat: making the hand-written schedules, up to a minute")
    case = comparison_of(result, name)
    if case.result.value != result.value and path is not None:
        say(f"pipesat: {case.result.explanation}; {path} stays as it is")
    return case


_PARSERS: Final[dict[str, Callable[[Any, str], Problem | Layers | Profile | Assignment]]] = {
    "problem": parse_problem,
    "layers": parse_layers,
    "profile": parse_profile,
    "assignment": parse_assignment,
}
_READERS: Final[dict[str, Callable[[Path, Problem], plain.Schedule | Timeline]]] = {
    "schedule": read_schedule,
    "timeline": read_timeline,
}
"""Of files that speak of a problem."""


@public
def read(
    path: str | Path, problem: Problem | None = None
) -> Problem | Layers | Profile | Assignment | Result | Schedule | Timeline:
    """Read a file by the format that it states, or the folder that a solve has written.

    What is read has ``write(path)``, a result ``save(folder)``.

    Parameters
    ----------
    path
        A problem, layers, profile or assignment file; the folder of a solve: its result; a
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
    file, source = Path(path), str(path)
    if file.is_dir():
        return result_in(file)
    document = read_json(file, LARGEST_RUN)
    stated = document.get("format") if isinstance(document, dict) else None
    kind = str(stated).partition("/")[0].removeprefix("pipesat.")
    if kind == "problem":
        return warned(parse_problem(document, source))
    if kind in _PARSERS:
        return _PARSERS[kind](document, source)
    if kind not in _READERS:
        raise unknown_format(document, (*_PARSERS, *_READERS), source)
    if problem is None:
        raise BadInput(
            f"a {kind} has no costs: expected pipesat.read(path, problem)", source=source
        )
    found = _READERS[kind](file, problem)
    return found if isinstance(found, Timeline) else Schedule.of_problem(found, problem)
