"""The exact solver: a problem in; the best schedule and a proof of how good it is out.

The only package that models in CP-SAT. It starts from the hand-written schedules that it makes.
"""

from __future__ import annotations

from pipesat.solver.options import SearchParts, SolveOptions
from pipesat.solver.search import solve

__all__ = ["SearchParts", "SolveOptions", "solve"]
