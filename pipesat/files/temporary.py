"""Temporary folders whose names say whose they are, so that those of a killed process can go."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import socket
import tempfile
from pathlib import Path
from typing import Final

_NAME: Final = re.compile(r"\.pipesat\.([0-9a-f]{8})-([0-9]{1,10})-([0-9]{1,20})\..+")


def new_temporary_folder(folder: Path) -> Path:
    """Create a folder of this process in a folder."""
    here, pid = _machine(), os.getpid()
    return Path(tempfile.mkdtemp(prefix=f".pipesat.{here}-{pid}-{_started(pid)}.", dir=folder))


def remove_abandoned(folder: Path) -> None:
    """Remove the temporary folders of processes of this machine that are gone."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            found = _NAME.fullmatch(entry.name)
            if found and found[1] == _machine() and not _runs(int(found[2]), int(found[3])):
                remove_flat(entry.path)


def remove_flat(folder: str | Path) -> None:
    """Remove a folder of files, with one open file (``shutil.rmtree`` takes two), if it can."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)


@functools.cache
def _machine() -> str:
    """Token of what process ids belong to: the host, and the container on it."""
    space = ""
    with contextlib.suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")
    return hashlib.sha256(f"{socket.gethostname()} {space}".encode()).hexdigest()[:8]


def _runs(pid: int, started: int) -> bool:
    """Whether the process of this id is still the one that started then."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # another user's
        pass
    return started == 0 or _started(pid) in (started, 0)


def _started(pid: int) -> int:
    """When a process started, in ticks since the machine did; 0 where that is not known."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        return int(text.rpartition(")")[2].split()[19])  # the name before may have parentheses
    except (OSError, ValueError, IndexError):
        return 0
