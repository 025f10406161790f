"""Python code as a call of :mod:`pipesat.measure.processes.launch`."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def run_code(folder: Path, home: Path, code: str) -> None:
    """Run code at home, as ``python -c`` does; it knows the run's folder, and the host."""
    os.chdir(home)
    try:
        exec(code, {"os": os, "sys": sys, "folder": folder, "host": os.getppid()})
    except SystemExit as error:
        os._exit(int(error.code or 0))
