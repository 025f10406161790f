"""Cores and memory that this process may use, by the operating system and by its container."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path("/")


def usable_cores() -> int:
    """Return how many threads can be busy at a time, at least 1: the default of every ``workers``.

    Those that a thread may be scheduled on, or fewer if the container's limit is lower.
    """
    affinity = hasattr(os, "sched_getaffinity")
    count = len(os.sched_getaffinity(0)) if affinity else os.cpu_count() or 1
    return max(1, int(min(count, quota())))


def quota(root: Path = ROOT) -> float:
    """Smallest quota, in cores, of the process's control group and of those around it.

    ``root`` is where ``/proc`` and ``/sys`` are.
    """
    quotas = [math.inf]
    for folder in _groups(root):
        words = _text(folder / "cpu.max").split()  # version 2: microseconds, or max, and period
        if not words:
            parts = ("quota", "period")
            words = [_text(folder / f"cpu.cfs_{part}_us") for part in parts]
        if len(words) == 2 and all(word.isdigit() and int(word) for word in words):
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas)


def _groups(root: Path, controller: str = "cpu") -> Iterator[Path]:
    """Folders of the process's control group and its ancestors, in version 2 and version 1.

    Inside a container the group's path may be that of the host, with only its end mounted: the
    mount's root, which always comes last, is then the container's own group.
    """
    base = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        mounts = [] if controllers else [base]
        if controller in controllers.split(","):
            mounts = [base / controllers, base / controller]
        group = PurePosixPath(path)
        for mount in mounts:
            yield from (mount / place.relative_to("/") for place in (group, *group.parents))


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def memory_left(root: Path = ROOT) -> int | None:
    """Return the bytes that the machine and the process's control groups still have.

    ``None`` if they do not say. ``root`` is where ``/proc`` and ``/sys`` are.
    """
    lines = _text(root / "proc/meminfo").splitlines()
    left = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    for folder in _groups(root, "memory"):
        for most, used in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, taken = _text(folder / most), _text(folder / used)
            if limit.isdigit() and taken.isdigit():
                stat = dict(line.split()[:2] for line in _text(folder / "memory.stat").splitlines())
                cached = int(stat.get("total_inactive_file") or stat.get("inactive_file") or 0)
                left.append(max(0, int(limit) - int(taken) + cached))
    return min(left, default=None)
