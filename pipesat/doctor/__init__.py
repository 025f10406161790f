"""Does pipesat work here: versions, extras, cores, memory, and a self-check of some seconds."""

from __future__ import annotations

from pipesat.core.machine import cores, memory
from pipesat.doctor.machine import cores_line, memory_line
from pipesat.doctor.packages import package_lines
from pipesat.doctor.report import Line, Report
from pipesat.doctor.self_check import self_check_lines

__all__ = ["Line", "Report", "doctor"]


def doctor() -> Report:
    """Look whether pipesat works here: versions, extras, cores, memory, and a self-check.

    Nothing is raised and nothing is left behind.

    Packages are imported, because one that is installed may still not load.
    """
    found, room = cores(), memory()
    lines = [*package_lines(), cores_line(found), memory_line(room), *self_check_lines()]
    return Report(tuple(lines), found, room)
