"""Schedules in other formats, and orders of other programs as schedules."""

from __future__ import annotations

import os.path
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipesat.core.arguments import public
from pipesat.core.checker import check
from pipesat.core.errors import BadInput, NotValid
from pipesat.core.settings import Count
from pipesat.export.options import Checkpointing
from pipesat.workflows.schedules import read_order, valid_schedule

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.result import Result
    from pipesat.core.schedule import Exported, Schedule
    from pipesat.export.torch.csv_file import Imported


@public
def export(
    problem: Problem,
    schedule: Schedule | Result | str | Path,
    to: str = "torch",
    path: str | Path | None = None,
    *,
    layers: Count | Sequence[Count] | None = None,
    exact: bool = False,
    remark: str = "",
    checkpointing: Checkpointing | None = None,
    pattern: str | None = None,
) -> Exported:
    """Return a checked schedule in another format, and write it if there is a path.

    Parameters
    ----------
    path
        File to write; what belongs beside it is written beside it, under the same name with other
        suffixes. A folder, or a text that ends in ``/``: a file there, see :func:`file_of`.
    layers
        Transformer layers of the model in all, which stages share equally, or a number per stage:
        for a framework's cut of the model.
    exact
        Change nothing in torch's order, and refuse what torch cannot run as it is.
    remark
        What has to be done besides, one line: for the comments of a configuration, and the first
        of the hazards.
    checkpointing
        Activation checkpointing of all layers, for a framework's configuration; ``None``: none if
        backwards are split, else the framework's. With split backwards, ``full`` is refused.
    pattern
        Megatron-LM's symbols of a hybrid model's layers, as ``M*|ME``. Without ``|``, ``layers``
        has the symbols per stage.

    Returns
    -------
    Exported
        ``data`` are the file's bytes, ``beside`` those of the files beside it by suffix, ``notes``
        what their user has to know.

    Warns
    -----
    UserWarning
        If the runtime can only run another order, which takes another time.

    Raises
    ------
    NotValid
        If the checker refuses the schedule; nothing is written.
    NotApplicable
        If the runtime cannot run it.
    BadInput
        If there is no such format, or a file cannot be written.
    """
    exported = _exported(
        problem,
        schedule,
        to,
        path,
        layers=layers,
        exact=exact,
        remark=remark,
        checkpointing=checkpointing,
        pattern=pattern,
    )
    if exported.changed:
        warnings.warn(exported.changed, stacklevel=3)  # beyond what looks at the arguments
    return exported


def _exported(
    problem: Problem,
    schedule: Schedule | Result | str | Path,
    to: str,
    path: str | Path | None,
    **options: Any,
) -> Exported:
    from pipesat.export import EXPORTERS, format_of
    from pipesat.export.options import Options

    to = format_of(to)
    file = None if path is None else file_of(path, to)
    asked = Options(**options) if file is None else Options(file, **options)
    exported = EXPORTERS[to](problem, valid_schedule(problem, schedule), asked)
    if file is None:
        return exported
    told = list(exported.notes)
    if file.name == f"{to}.py":
        told.append(f"rename it before you import it: as {file.name} it hides the package {to}")
    if gone := _write(exported, file):
        told.append(f"removed {', '.join(gone)}: of an earlier order under this name")
    return replace(exported, path=file, notes=tuple(told))


def file_of(path: str | Path, to: str) -> Path:
    """Return the file that an export is written to.

    A folder, or a text that ends in ``/`` (then the folder is made), has it under the format's own
    name: ``schedule.csv``, ``schedule.toml``, ``trace.json``, ...
    """
    from pipesat.export import FILE_NAMES, format_of
    from pipesat.files.atomic import prepare_folder, require_writable

    to = format_of(to)
    file = Path(path)
    if str(path).endswith("/") or os.path.isdir(file):
        prepare_folder(file)
        file /= FILE_NAMES[to]
    require_writable(file)
    return file


def files_beside(exported: Exported, path: Path) -> dict[str, bytes]:
    """Return what belongs beside a file, by name."""
    beside = {path.with_suffix(suffix).name: text for suffix, text in exported.beside.items()}
    if path.name in beside:
        raise BadInput(
            "this name is needed for a file beside it: choose another suffix",
            where="path",
            value=path.name,
        )
    return beside


def _write(exported: Exported, path: Path) -> list[str]:
    """Write an order and what belongs beside it; remove what lies there of another, by name."""
    from pipesat.export.torch.companions import SUFFIXES
    from pipesat.export.torch.csv_file import LARGEST_FILE
    from pipesat.export.torch.hazards import SUFFIX as HAZARDS
    from pipesat.files.atomic import digest
    from pipesat.files.folder import add_files
    from pipesat.files.strict_json import read_bytes

    files = {path.name: exported.data, **files_beside(exported, path)}
    stale: dict[str, str] = {}
    if HAZARDS in exported.beside:  # no picture, say
        beside = [path.with_suffix(suffix) for suffix in SUFFIXES if suffix not in exported.beside]
        there = [file for file in beside if os.path.isfile(file)]
        stale = {file.name: digest(read_bytes(file, LARGEST_FILE)) for file in there}
    add_files(path.parent, files, stale)
    return [*stale]


def export_result(
    result: Result, to: str, path: str | Path | None = None, **options: Any
) -> Exported:
    """Return a result's schedule in another format; see :func:`export`."""
    exported = _exported(result.problem, result, to, path, **options)
    if exported.changed:
        warnings.warn(exported.changed, stacklevel=4)  # of who called Result.export
    return exported


def save_result(result: Result, folder: str | Path, log: Sequence[str] = ()) -> str | None:
    """Write what ``pipesat solve -o`` writes; return the path of the schedule, if there is one."""
    from pipesat.export.result_folder import write_result_folder

    written = write_result_folder(Path(folder), result, log)
    if written.told:
        warnings.warn(written.told, stacklevel=4)  # of who called Result.save
    return written.schedule


@public
def import_order(
    path: str | Path,
    problem: Problem,
    *,
    order: str | Path | None = None,
    modes: str | Path | None = None,
) -> Imported:
    """Read an order that a runtime runs, torch's CSV or a Python file, time it and check it.

    What :func:`export` writes comes back: the files that it writes beside the CSV are read.

    Parameters
    ----------
    path
        The CSV file: row i is rank i. Or a Python file as :func:`export` writes it for another
        runtime: its data are read, nothing in it is executed.
    problem
        The problem that it is an order of.
    order
        The microbatches' own numbers; the file beside the CSV that ends in ``.order.json``, if
        there is one, where none is named.
    modes
        What runs in which memory mode; the same with ``.modes.json``.

    Returns
    -------
    Imported
        ``schedule``, and ``notes``: what in the file it has otherwise, and what was assumed.

    Raises
    ------
    NotValid
        If the order does not fit the problem, with all violations.
    BadInput
        If a file cannot be read, breaks a rule of torch's (the first cell that does is named), or
        contradicts the CSV or the problem.
    NotApplicable
        If torch cannot run a pipeline of the problem's shape.
    """
    from pipesat.export.torch.companions import Companions, assumptions

    file = Path(path)
    given = (None if named is None else Path(named) for named in (order, modes))
    companions = Companions.of(file, *given)
    imported = read_order(file, problem, companions)
    if violations := check(problem, imported.schedule):
        assumed = "; ".join(assumptions(problem, companions, file))
        told = f" ({assumed})" if assumed else ""
        raise NotValid(f"this order does not fit the problem{told}", violations)
    return imported
