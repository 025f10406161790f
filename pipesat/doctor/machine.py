"""What the doctor says of cores and memory."""

from __future__ import annotations

from pipesat.core.machine import Cores, Memory
from pipesat.doctor.report import Line


def cores_line(cores: Cores) -> Line:
    """Return how many cores a solve takes by default, and why."""
    of = "" if cores.machine is None else f" of {cores.machine}"
    if cores.cgroup_quota is None:
        why = "no cgroup quota"
    else:
        why = f"affinity {cores.affinity}, cgroup quota {cores.cgroup_quota:g}"
    return Line("machine", "cores", "ok", f"{cores.usable}{of}; {why}")


def memory_line(memory: Memory) -> Line:
    """Return the amounts in GiB."""
    limit = "no cgroup limit"
    if memory.cgroup_limit is not None:
        limit = f"cgroup limit {_gib(memory.cgroup_limit)}"
    text = f"{_gib(memory.available)} free of {_gib(memory.total)}; {limit}"
    return Line("machine", "memory", "ok", text)


def _gib(amount: int | None) -> str:
    return "unknown" if amount is None else f"{amount / (1 << 30):.1f} GiB"
