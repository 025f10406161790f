"""Which schedule a user means; nothing is made of one before the checker has passed it."""

from __future__ import annotations

import os.path
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from pipesat.core.checker import check
from pipesat.core.errors import BadInput, NotApplicable, Note, NotValid
from pipesat.core.result import Result

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Schedule
    from pipesat.export.torch.companions import Companions
    from pipesat.export.torch.csv_file import Imported


def schedule_of(problem: Problem, given: Schedule | Result | str | Path) -> Schedule:
    """Return the schedule that is meant, not yet checked.

    Parameters
    ----------
    given
        A schedule; the result that has it; the path of a schedule file, of torch's CSV
        (``.csv``) with what lies beside it, of another runtime's order (``.py``, read as data), or
        of the folder that a solve has written; or the name
        of a hand-written schedule as the rows of :func:`pipesat.compare` have it: ``1f1b``,
        ``1f1b, descending``, ``interleaved-1f1b, groups of 4``.

    Warns
    -----
    Note
        What a CSV has otherwise, and what was assumed.

    Raises
    ------
    BadInput
        If the result has no schedule, the file cannot be read, or nothing has this name.
    NotApplicable
        If the hand-written schedule does not exist for this problem.
    """
    if isinstance(given, Result):
        if given.schedule is None:
            raise BadInput(f"the result has no schedule: it is {given.status}")
        return given.schedule
    if not isinstance(given, str | Path):
        return given
    from pipesat.files.folder import has_file
    from pipesat.files.schedule_file import read_schedule

    path, file = str(given), Path(given)
    if os.path.isdir(path):
        if not has_file(file, "schedule.json"):
            text = "no schedule.json here, expected the folder of a solve that found a schedule"
            raise BadInput(text, source=path)
        return read_schedule(file / "schedule.json", problem)
    if file.suffix in (".csv", ".py"):
        read = read_order(file, problem)
        for text in read.notes:
            warnings.warn(Note(text), stacklevel=3)
        return read.schedule
    if file.suffix or os.sep in path or os.path.exists(path):
        return read_schedule(file, problem)
    from pipesat.workflows.hand_written import baseline, in_words

    try:
        return baseline(*in_words(path, problem))
    except NotApplicable as error:
        raise NotApplicable(f"{path} does not apply: {error}") from None


def valid_schedule(problem: Problem, schedule: Schedule | Result | str | Path) -> Schedule:
    """Return a schedule that keeps every rule of a problem.

    Parameters
    ----------
    schedule
        As :func:`schedule_of`.

    Raises
    ------
    NotValid
        With all violations, if the checker refuses it.
    BadInput, NotApplicable
        As :func:`schedule_of`.
    """
    timed = schedule_of(problem, schedule)
    if violations := check(problem, timed):
        name = schedule if isinstance(schedule, str | Path) else "the schedule"
        raise NotValid(f"{name} is not a valid schedule", violations)
    return timed


def read_order(path: Path, problem: Problem, companions: Companions | None = None) -> Imported:
    """Read a runtime's order and time it, not yet checked: Python as data, all else as torch's CSV.

    Raises
    ------
    BadInput, NotApplicable
        If it cannot be read, or is none of this problem, or torch cannot run such a pipeline.
    """
    from pipesat.export.programs import read_program
    from pipesat.export.torch.csv_file import Imported, read_torch_csv

    if path.suffix == ".py":
        return Imported(read_program(path, problem), ())
    return read_torch_csv(path, problem, companions)
