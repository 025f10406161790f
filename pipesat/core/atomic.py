"""Writing files all or nothing, whatever ends the process: beside, then swapped.

New files are written into a temporary folder beside the old ones. One rename makes it the
``.pipesat.new`` of the folder: from here on the new files are what the folder has. Then each is
moved to its place. A process killed meanwhile leaves ``.pipesat.new``, and the next that reads or
writes a file there moves the rest (:func:`finish`): a folder's files are all old or all new.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from pipesat.core.errors import BadInput

_NEW: Final = ".pipesat.new"
_TEMPORARY: Final = ".pipesat.tmp-"
_MOVES: Final = "moves.json"
_DEEPEST: Final = 3
"""Folders between a file and the folder whose swap may hold it: ``vee/caps/40/problem.json``."""


def write_file(path: Path, data: bytes) -> None:
    """Write one file so that it is there whole or not at all."""
    write_files(path.parent, {path.name: data})


def write_files(
    folder: Path, files: Mapping[str, bytes], remove: Mapping[str, str] | None = None
) -> None:
    """Write files into a folder and remove others: all of it happens, or nothing.

    Names may have folders before them, which are made; what is left empty by a removal goes.
    ``remove`` has the digest of each file (:func:`digest`): one that is another by now stays.
    """
    finish(folder)
    for name in files:
        with complaining(folder / name):
            _refuse_special(folder / name)
            _refuse_elsewhere(folder, name)
    with complaining(folder / next(iter(files), "")), temporary_folder(folder) as staged:
        for number, name in enumerate(files):
            with complaining(folder / name):
                _write(staged / str(number), files[name])
        if len(files) == 1 and not remove and os.path.isdir((folder / name).parent):
            os.replace(staged / "0", folder / name)
            _sync(folder)
            return
        moves = {"files": [*files], "remove": dict(remove or {})}
        _write(staged / _MOVES, json.dumps(moves).encode())
        _sync(staged)
        with _locked(folder):
            _finish(folder)
            os.replace(staged, folder / _NEW)
            _finish(folder)


def finish(folder: Path) -> None:
    """Move into place what a killed process has written into a folder, or into one above it."""
    place = os.path.abspath(folder)
    for _ in range(_DEEPEST + 1):
        if _pending(Path(place)):
            with complaining(place), _locked(Path(place)):
                _finish(Path(place))
        place = os.path.dirname(place)


def digest(data: bytes) -> str:
    """Return what a file is known by."""
    return hashlib.sha256(data).hexdigest()


def _finish(folder: Path) -> None:
    """Do the moves of a folder, if there are any; again, as often as it is interrupted."""
    if not _pending(folder):
        return
    new = folder / _NEW
    moves: dict[str, Any] = {"remove": {}, "files": []}
    with contextlib.suppress(FileNotFoundError):  # all is moved, but the folder was not removed
        moves = json.loads((new / _MOVES).read_bytes())
    for name, known in moves["remove"].items():
        _remove(folder, _inside(folder, name), known)
    for number, name in enumerate(moves["files"]):
        target = _inside(folder, name)
        made = _make(target.parent)
        with contextlib.suppress(FileNotFoundError):  # it was moved before
            os.replace(new / str(number), target)
        for place in {*made, target.parent}:
            _sync(place)
    _sync(folder)
    _remove_flat(new)


def _pending(folder: Path) -> bool:
    """Whether moves were left here, by us or by whose folder it is (not a stranger, in /tmp)."""
    try:
        return os.lstat(folder / _NEW).st_uid in {os.geteuid(), os.stat(folder).st_uid}
    except OSError:
        return False


def _inside(folder: Path, name: str) -> Path:
    """Return the path of a name within a folder; what says otherwise is not pipesat."""
    path, parts = folder / name, PurePosixPath(name).parts
    home, real = os.path.realpath(folder), os.path.realpath(path.parent)
    if not parts or ".." in parts or os.path.commonpath([home, real]) != home:
        raise OSError(errno.EXDEV, f"{name!r} is not below {folder}")
    return path


def _remove(folder: Path, path: Path, known: str) -> None:
    """Remove a file that is as it was, and the folders that are empty without it."""
    if os.path.isfile(path):  # else it is gone, and its folder may not be
        if digest(path.read_bytes()) != known:
            return
        path.unlink()
    with contextlib.suppress(OSError):  # not empty
        while (path := path.parent) != folder:
            path.rmdir()


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def _locked(folder: Path, how: int = fcntl.LOCK_EX) -> Iterator[bool]:
    """Lock a folder against other processes; whether it is. A killed one's lock ends with it."""
    with contextlib.ExitStack() as stack:
        locked = False
        with contextlib.suppress(OSError):  # not every file system can, nor whose files are many
            handle = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, handle)
            fcntl.flock(handle, how)
            stack.callback(fcntl.flock, handle, fcntl.LOCK_UN)  # a child may have the handle, too
            locked = True
        yield locked


@contextlib.contextmanager
def temporary_folder(folder: Path) -> Iterator[Path]:
    """Make a folder in a folder, for as long as this lasts; those of killed processes go."""
    with contextlib.ExitStack() as stack:
        with _locked(folder):  # until the new one is locked, no one takes it for abandoned
            for left in folder.glob(f"{_TEMPORARY}*"):
                with _locked(left, fcntl.LOCK_EX | fcntl.LOCK_NB) as abandoned:
                    if abandoned:
                        _remove_flat(left)
            made = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=folder))
            stack.callback(_remove_flat, made)
            stack.enter_context(_locked(made))
        yield made


def _remove_flat(folder: Path) -> None:
    """Remove a folder of files, with one open file (``shutil.rmtree`` takes two), if it can."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            os.unlink(folder / name)
        os.rmdir(folder)


def prepare_folder(folder: Path) -> list[Path]:
    """Create a folder and make sure that files can be created in it; return what was made."""
    made: list[Path] = []
    try:
        with complaining(folder, "cannot write into this folder"):
            made = _make(folder)
            with temporary_folder(folder):
                return made
    except BadInput:
        remove_empty(made)
        raise


def remove_empty(made: list[Path]) -> None:
    """Remove folders that were made, the innermost first, up to one that has something in it."""
    with contextlib.suppress(OSError):
        for place in reversed(made):
            place.rmdir()


def _make(folder: Path) -> list[Path]:
    """Make a folder and those above it, and return them (Python's own way fails 1,000 deep)."""
    missing = [place for place in (folder, *folder.parents) if not place.is_dir()][::-1]
    for number, place in enumerate(missing):
        try:
            place.mkdir(exist_ok=True)  # it may be `new/..`
        except OSError:
            remove_empty(missing[:number])
            raise
    return missing


def require_writable(path: Path) -> None:
    """Pass if a file could be written now: known before work, not after it."""
    with complaining(path):
        with contextlib.suppress(FileNotFoundError):
            path.lstat()  # a name that is too long, or below a file
        _refuse_special(path)
        with temporary_folder(path.parent):
            pass


@contextlib.contextmanager
def complaining(place: str | Path, what: str = "cannot write") -> Iterator[None]:
    """Turn what the operating system refuses at a place into bad input that names the place."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"{what}: {reason}", source=str(place)) from None


def _refuse_elsewhere(folder: Path, name: str) -> None:
    """A file goes below its folder, by one rename: known before any is moved."""
    place = _inside(folder, name).parent
    while not os.path.lexists(place):
        place = place.parent
    for code, wrong in (
        (errno.ENOTDIR, not place.is_dir()),
        (errno.EACCES, not os.access(place, os.W_OK | os.X_OK)),
        (errno.EXDEV, place.stat().st_dev != folder.stat().st_dev),
    ):
        if wrong:
            raise OSError(code, os.strerror(code))


def _refuse_special(target: Path) -> None:
    """Renaming onto a directory fails; onto ``/dev/null`` it would succeed and replace it."""
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "Not a regular file")


def _sync(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not every file system can
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
