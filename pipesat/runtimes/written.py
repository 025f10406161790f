"""An order as a file in a format, checked, with what belongs beside it."""

from __future__ import annotations

import contextlib
import os.path
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from keyword import iskeyword
from pathlib import Path
from typing import Any

from pipesat.check.checker import require_valid
from pipesat.core.atomic import digest, prepare_folder, remove_empty, require_writable
from pipesat.core.errors import require
from pipesat.core.folder import add_files
from pipesat.core.strict_json import LARGEST_ORDER, read_bytes
from pipesat.problem.problem import Problem
from pipesat.runtimes import EXPORTERS, FILE_NAMES, RUNTIMES, format_of
from pipesat.runtimes.knobs import SUFFIX as KNOBS
from pipesat.runtimes.options import Options
from pipesat.runtimes.torch.companions import SUFFIXES
from pipesat.runtimes.torch.hazards import SUFFIX as HAZARDS
from pipesat.schedule.schedule import Exported, Schedule


def warned(made: Exported, stacklevel: int = 3) -> Exported:
    """Return an order; warn, at a line of the user's, if it is another one than the schedule's."""
    if made.changed:
        warnings.warn(made.changed, stacklevel=stacklevel)
    return made


def exported(
    problem: Problem,
    schedule: Schedule,
    to: str,
    path: str | Path | None,
    *,
    name: str | Path = "the schedule",
    **options: Any,
) -> Exported:
    """Return a schedule that is checked in a format, and write it if there is a path.

    ``name`` is what a user calls it; the options are those of :class:`pipesat.runtimes.options`.
    """
    to = format_of(to)
    if path is None:
        return EXPORTERS[to](problem, require_valid(problem, schedule, name), Options(**options))
    with file_of(path, to) as file:
        asked = Options(file, **options)
        made = EXPORTERS[to](problem, require_valid(problem, schedule, name), asked)
        told = [*made.notes, *_not_imported(to, (file.name, *files_beside(made, file)))]
        if gone := _write(made, file):
            told.append(f"removed {', '.join(gone)}: of an earlier order under this name")
    return replace(made, path=file, notes=tuple(told))


@contextlib.contextmanager
def file_of(path: str | Path, to: str) -> Iterator[Path]:
    """Give the file that an export is written to; a folder that stays empty goes again.

    A folder has it under the format's own name: ``schedule.csv``, ``schedule.toml``,
    ``trace.json``, ... It is made of a text that ends in ``/``, and for a runtime, which is handed
    several files, of a name without a suffix.
    """
    file, new = Path(path), list[Path]()
    to = format_of(to)
    several = to in RUNTIMES and not file.suffix and not os.path.lexists(file)
    if str(path).endswith("/") or os.path.isdir(file) or several:
        new = prepare_folder(file)
        file /= FILE_NAMES[to]
    try:
        require_writable(file)
        yield file
    finally:
        remove_empty(new)


def _not_imported(to: str, names: Iterable[str]) -> Iterator[str]:
    """Say which Python files are to be renamed, and why."""
    for stem in (name.removesuffix(".py") for name in names if name.endswith(".py")):
        hides = stem == to.replace("-", "_")
        if hides or iskeyword(stem) or not stem.isidentifier():
            why = f"it hides the package {stem}" if hides else "no import can name it"
            yield f"rename {stem}.py before you import it: {why}"


def files_beside(made: Exported, path: Path) -> dict[str, bytes]:
    """Return what belongs beside a file, by name."""
    beside = {path.with_suffix(suffix).name: text for suffix, text in made.beside.items()}
    require(
        path.name not in beside,
        "this name is needed for a file beside it: choose another suffix",
        where="path",
        value=path.name,
    )
    return beside


def _write(made: Exported, path: Path) -> list[str]:
    """Write an order and what belongs beside it; remove what lies there of another, by name."""
    files = {path.name: made.data, **files_beside(made, path)}
    stale: dict[str, str] = {}
    if HAZARDS in made.beside:  # no picture, say
        named = (*SUFFIXES, KNOBS)
        beside = [path.with_suffix(suffix) for suffix in named if suffix not in made.beside]
        there = [file for file in beside if os.path.isfile(file)]
        stale = {file.name: digest(read_bytes(file, LARGEST_ORDER)) for file in there}
    add_files(path.parent, files, stale)
    return [*stale]
