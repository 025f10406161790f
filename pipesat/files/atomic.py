"""Writing files all or nothing: temporary files in the same folder, fsync, rename."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from pipesat.core.errors import BadInput, Contradiction
from pipesat.files.temporary import new_temporary, remove_abandoned


def write_file(path: Path, data: bytes) -> None:
    """Write one file so that it is there whole or not at all.

    Raises
    ------
    BadInput
        If the folder is missing or not writable, or the disk is full.
    """
    write_files(path.parent, {path.name: data})


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write several files into one folder; none appears unless all could be written.

    Raises
    ------
    BadInput
        As :func:`write_file`.
    """
    remove_abandoned(folder)
    written: dict[str, str] = {}
    name = ""
    try:
        for name in files:
            _refuse_special(folder / name)
        for name, data in files.items():
            handle, temporary = new_temporary(folder)
            written[name] = temporary
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o666 & ~_umask())
        for name, temporary in written.items():
            os.replace(temporary, folder / name)
        _sync_folder(folder)
    except OSError as error:
        raise BadInput(
            f"cannot write: {error.strerror or error}", source=str(folder / name)
        ) from None
    finally:  # after an interrupt too; the renamed ones are gone
        for temporary in written.values():
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def write_with_claims(
    folder: Path, files: Mapping[str, bytes], claims: Callable[[], Mapping[str, bytes]]
) -> None:
    """Write files, and with them those that say what is proven.

    Raises
    ------
    BadInput
        As :func:`write_file`.
    Contradiction
        If what the latter say contradicts itself; then the others are written without them.
    """
    try:
        more = claims()
    except Contradiction as error:
        write_files(folder, files)
        error.kept = str(folder)
        raise
    write_files(folder, {**files, **more})


def prepare_folder(folder: Path) -> None:
    """Create a folder and make sure that files can be created in it.

    Raises
    ------
    BadInput
        If not.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _probe(folder)
    except OSError as error:
        raise BadInput(
            f"cannot write into this folder: {error.strerror or error}", source=str(folder)
        ) from None


def require_writable(path: Path) -> None:
    """Pass if a file could be written now: known before work, not after it.

    Raises
    ------
    BadInput
        As :func:`write_file`.
    """
    try:
        with contextlib.suppress(FileNotFoundError):
            path.lstat()  # a name that is too long, or below a file
        _refuse_special(path)
        _probe(path.parent)
    except OSError as error:
        raise BadInput(f"cannot write: {error.strerror or error}", source=str(path)) from None


def _probe(folder: Path) -> None:
    """Create a file in a folder and remove it."""
    handle, probe = new_temporary(folder)
    os.close(handle)
    os.unlink(probe)


def _refuse_special(target: Path) -> None:
    """Renaming onto a directory fails; onto ``/dev/null`` it would succeed and replace it."""
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "Not a regular file")


def _umask() -> int:
    """The process's file mode mask (reading it means setting it for a moment)."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not every file system can
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
