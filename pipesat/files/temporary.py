"""Temporary files whose names say whose they are, so that those of a killed process can go."""

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


def new_temporary(folder: Path) -> tuple[int, str]:
    """Create a file of this process in a folder; return its handle and path."""
    here, pid = _machine(), os.getpid()
    return tempfile.mkstemp(prefix=f".pipesat.{here}-{pid}-{_started(pid)}.", dir=folder)


def remove_abandoned(folder: Path) -> None:
    """Remove the temporary files of processes of this machine that are gone."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            found = _NAME.fullmatch(entry.name)
            if found and found[1] == _machine() and not _runs(int(found[2]), int(found[3])):
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)


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
