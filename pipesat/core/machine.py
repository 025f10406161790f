"""Cores that this process may use, by the operating system and by its container."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")


@dataclass(frozen=True)
class Cores:
    """``affinity``: cores a thread may be scheduled on; ``cgroup_quota``: a container's limit.

    The quota is processor time per time, in cores; ``None`` where there is none.
    """

    machine: int | None
    affinity: int
    cgroup_quota: float | None

    @property
    def usable(self) -> int:
        """Threads that can be busy at a time, at least 1."""
        if self.cgroup_quota is None:
            return self.affinity
        return max(1, min(self.affinity, int(self.cgroup_quota)))


def cores(root: Path = ROOT) -> Cores:
    """Return the cores; ``root`` is where ``/proc`` and ``/sys`` are."""
    machine = os.cpu_count()
    if hasattr(os, "sched_getaffinity"):
        return Cores(machine, len(os.sched_getaffinity(0)), _quota(root))
    return Cores(machine, machine or 1, _quota(root))


def usable_cores() -> int:
    """Return how many busy threads this process may have: the default of every ``workers``."""
    return cores().usable


def _quota(root: Path) -> float | None:
    """Smallest quota of the process's group and of those around it."""
    quotas = []
    for folder in _groups(root):
        words = _text(folder / "cpu.max").split()  # version 2: microseconds, or max, and period
        if not words:
            quota, period = (
                _text(folder / name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            )
            words = [quota, period]
        if len(words) == 2 and all(word.isdigit() and int(word) for word in words):
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def _groups(root: Path) -> Iterator[Path]:
    """Folders of the process's control group and its ancestors, in version 2 and version 1.

    Inside a container the group's path may be that of the host, with only its end mounted: the
    mount's root, which always comes last, is then the container's own group.
    """
    base = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            mounts = [base]
        elif "cpu" in controllers.split(","):
            mounts = [base / controllers, base / "cpu"]
        else:
            continue
        for mount in mounts:
            inside = mount / path.lstrip("/")
            yield from (folder for folder in (inside, *inside.parents) if _within(folder, mount))


def _within(folder: Path, mount: Path) -> bool:
    return folder == mount or mount in folder.parents


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
