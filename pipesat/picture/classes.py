"""Classes of microbatches in pictures: the most work has the full colours, less is lighter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipesat.core.problem import Problem
from pipesat.picture.style import TINTS


@dataclass(frozen=True)
class ClassTints:
    """``of_class[route][class]`` is the shade of a class, ``names`` are those of each shade."""

    of_class: tuple[tuple[int, ...], ...]
    names: dict[int, list[str]]

    def of(self, problem: Problem, stage: int, microbatch: int) -> int:
        """Shade of a microbatch of a stage's route; 0 where the route has no list."""
        row = self.of_class[problem.route_of[stage]]
        return row[problem.class_of(stage, microbatch)] if row else 0


def named(names: Sequence[str], most: int = 4) -> str:
    """Name the classes of one shade: ``class long``, ``classes 812, 790, 644 and 5 more``."""
    shown = ", ".join(names[:most])
    if len(names) == 1:
        return f"class {shown}"
    return f"classes {shown}" + (f" and {len(names) - most} more" if len(names) > most else "")


def class_tints(problem: Problem) -> ClassTints | None:
    """Return the shades of all classes, by the work of one microbatch; ``None`` without classes.

    Classes of equal work, on one route or on two, have one shade.
    """
    work = [
        [_work(problem, route, kind) for kind in range(len(data.definitions))]
        for route, data in enumerate(problem.routes)
    ]
    amounts = sorted({amount for row in work for amount in row}, reverse=True)
    if not amounts:
        return None
    last = max(1, len(amounts) - 1)
    tint = {a: round(rank * (TINTS - 1) / last) for rank, a in enumerate(amounts)}
    named: dict[int, dict[str, None]] = {}
    for row, route in zip(work, problem.routes, strict=True):
        for amount, definition in zip(row, route.definitions, strict=True):
            named.setdefault(tint[amount], {})[definition.name] = None
    names = {number: list(named[number]) for number in sorted(named)}
    return ClassTints(tuple(tuple(tint[amount] for amount in row) for row in work), names)


def _work(problem: Problem, route: int, kind: int) -> int:
    """Time of one microbatch's ops in the mode keep."""
    found = [problem.resulting(s, 0, kind) for s in problem.routes[route].stages]
    return sum(s.F + s.least_backward_work for s in found)
