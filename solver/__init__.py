"""The exact solver: a problem, and schedules to start from, in; the best schedule and a proof out.

The only package that models in CP-SAT.
"""

from __future__ import annotations

from pipesat.solver.driver import solve
from pipesat.solver.search_parts import SearchParts

__all__ = ["SearchParts", "solve"]
