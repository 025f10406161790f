"""The exact solver: a problem, and schedules to start from, in; the best schedule and a proof out.

The only package that imports ortools.
"""

from __future__ import annotations

from pipesat.solver.driver import solve, usable_cores

__all__ = ["solve", "usable_cores"]
