"""One folder is one result: what one command wrote goes when the next one writes.

``.pipesat.json`` lists the files of the result that a folder has, with their digests. Another
result written there removes them, but none that is not listed, that has been changed since, that
was there before us, or that this process has read: those are the user's. Readers of a folder go by
the list. Files and list change together (:mod:`pipesat.core.atomic`).
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final, get_args

from pipesat.core.atomic import digest, finish, prepare_folder, remove_empty, write_files
from pipesat.core.errors import BadInput, Contradiction
from pipesat.core.settings import Target
from pipesat.core.strict_json import was_read

LIST: Final = ".pipesat.json"
FORMAT: Final = "pipesat.folder/1"

FILES: Final = frozenset(
    f"{name}.{kind}"
    for name, kinds in {
        "problem": "json",
        "result": "json",
        "schedule": "json csv order.json modes.json hazards.txt knobs.json toml yaml py",
        "gantt": "png",
        "trace": "json",
        "solver": "log",
        "report": "html",
        "plan": "json png svg pdf",
        "layout": "txt",
        "module_fqns": "json",
        "frontier": "json csv png svg pdf",
        "advice": "json",
        "assignment": "json",
        "timeline": "json",
        "best": "json",
        "layers": "json",
        "megatron": "txt knobs.json",
        **{f"{name.replace('-', '_')}_order": "py knobs.json" for name in get_args(Target)},
    }.items()
    for kind in kinds.split()
)
"""Names of all files that commands write at the top of a folder."""
MORE: Final = "more-memory"
FOLDERS: Final = frozenset({"caps", "rows", "nothing-by-hand", MORE})


def json_file(document: object) -> bytes:
    """Return a document as a file that people may read; ASCII, as paths may be no text."""
    return (json.dumps(document, indent=1) + "\n").encode()


def prepare_result_folder(folder: Path) -> list[Path]:
    """Create the folder of a result, and make sure that all files can be written into it.

    Returns what was made.
    """
    made = prepare_folder(folder)
    wrong = {name: "a folder" for name in FILES if os.path.isdir(folder / name)}
    wrong |= {name: "a file" for name in FOLDERS if os.path.isfile(folder / name)}
    for name, what in wrong.items():
        remove_empty(made)
        raise BadInput(f"cannot write: {what} has this name", source=str(folder / name))
    return made


def write_folder(
    folder: Path,
    files: Mapping[str, bytes],
    *,
    claims: Callable[[], Mapping[str, bytes]] | None = None,
    pictures: Callable[[], Mapping[str, bytes]] | None = None,
    keep: Collection[str] = (),
) -> None:
    """Write all files of a result, which is the only one of its folder then.

    If the claims contradict themselves, the others are written without them, and that is raised.
    If pictures cannot be drawn, the rest is there without them, and a warning says so.

    Parameters
    ----------
    claims
        Makes the files that say what is proven.
    pictures
        Makes what is worth less than the rest: it is made when that is written.
    keep
        Folders in it whose files belong to this result, and were written before.
    """
    prepare_result_folder(folder)
    try:
        _write(folder, files if claims is None else {**files, **claims()}, keep)
    except Contradiction as error:
        _write(folder, files, keep)
        error.kept = str(folder)
        raise
    if pictures is None:
        return
    try:
        drawn = pictures()
    except Exception as error:  # too few open files, a broken font: the result is there
        warnings.warn(f"{folder}: no pictures: {type(error).__name__}: {error}", stacklevel=2)
        return
    _write(folder, drawn, None)


def add_files(
    folder: Path, files: Mapping[str, bytes], remove: Mapping[str, str] | None = None
) -> None:
    """Write files; in a result's folder, under names of ours, they are part of the result.

    ``remove`` is as in :func:`pipesat.core.atomic.write_files`.
    """
    finish(folder)
    owner = _owner(folder)
    if owner is None or not files.keys() <= FILES:
        write_files(folder, files, remove)
        return
    home = os.path.relpath(folder, owner)
    named = {os.path.normpath(os.path.join(home, name)): data for name, data in files.items()}
    gone = {
        os.path.normpath(os.path.join(home, name)): known for name, known in (remove or {}).items()
    }
    _write(owner, named, None, gone)


def listed(folder: Path) -> list[str] | None:
    """Return the names of a result's files, below ``folder``; ``None`` where nothing lists them."""
    finish(folder)
    owner = _owner(folder)
    if owner is None:
        return None
    below = os.path.join(os.path.relpath(folder, owner), "")
    return [os.path.relpath(name, below) for name in _read(owner) if _is_below(name, below)]


def has_file(folder: Path, name: str) -> bool:
    """Whether a result has a file; one that lies there and is not listed is not its."""
    names = listed(folder)
    return (folder / name).exists() if names is None else name in names


def _write(
    folder: Path,
    files: Mapping[str, bytes],
    keep: Collection[str] | None,
    remove: Mapping[str, str] | None = None,
) -> None:
    """Write files and the list; of what was listed, all but ``remove`` stays without ``keep``."""
    finish(folder)
    before = _read(folder)
    kept = {
        name: known
        for name, known in before.items()
        if name not in (remove or ())
        and (keep is None or any(_is_below(name, place) for place in keep))
    }
    mine = {name: digest(data) for name, data in files.items()}
    there = {name for name in mine if name not in before and os.path.lexists(folder / name)}
    theirs = there | {name for name, known in before.items() if known is None}
    now = kept | {name: None if name in theirs else known for name, known in mine.items()}
    gone = {
        name: known
        for name, known in before.items()
        if known is not None and name not in now and not was_read(folder / name)
    }
    contents = json_file({"format": FORMAT, "files": now})
    write_files(folder, {**files, LIST: contents}, {**gone, **(remove or {})})


def _read(folder: Path) -> dict[str, str | None]:
    """Return what is listed: digests by name, ``None`` of files that were there before ours."""
    try:
        found = json.loads((folder / LIST).read_bytes())
        if found["format"] == FORMAT:
            return {str(name): known and str(known) for name, known in found["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass  # none, or not ours: nothing is known to be ours then
    return {}


def _owner(folder: Path) -> Path | None:
    """Return the folder whose result has files in this one: itself, or one not far above."""
    for place in (folder, *Path(os.path.abspath(folder)).parents[:2]):
        below = os.path.join(os.path.relpath(folder, place), "")
        if any(_is_below(name, below) for name in _read(place)):
            return place
    return None


def _is_below(name: str, folder: str) -> bool:
    return os.path.normpath(folder) == "." or name.startswith(os.path.join(folder, ""))
