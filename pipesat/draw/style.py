"""Colours of the pictures, and the shades of an op's colour.

The op kinds differ in hue for colour-blind readers (blue, orange, green, purple) and, at full
strength, in CIE lightness for grey print (about 85, 68, 48 and 29 of 100).

Classes of microbatches in pictures: the most work has the full colours, less is lighter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pipesat.problem.ops import Kind
from pipesat.problem.problem import Problem

FILL: Final[dict[Kind, str]] = {"F": "#b3daf2", "B": "#ec9a29", "W": "#187f5e", "BW": "#453781"}
LAST_CHUNK: Final[dict[Kind, str]] = {
    "F": "#62a9d9",
    "B": "#f6cf94",
    "W": "#78bfa6",
    "BW": "#958bcb",
}
"""Colour of a device's last chunk; those between the first and the last one are mixtures."""
MEANING: Final[dict[Kind, str]] = {
    "F": "F forward",
    "B": "B input gradient",
    "W": "W weight gradient",
    "BW": "BW full backward",
}
SHADES_OF_CHUNKS: Final = "shades of a colour: first to last chunk of a device"
TINTS: Final = 8
"""Shades of the classes of microbatches, 0 the full one; more classes than that share shades."""

COPY_OUT: Final = "#8c564b"
COPY_BACK: Final = "#d16ba5"
INK: Final = "#222222"
FAINT_INK: Final = "#666666"
GRID: Final = "#dddddd"
IDLE: Final = "#f1f3f5"
HELD: Final = "#d3d7de"
STATIC: Final = "#a9b0bb"
OUTLINE: Final = "#5b6472"
CAPACITY: Final = "#b2182b"
EXCESS: Final = "#e0604c"

_LIGHTEST = 0.66  # share of white in the last tint
_DARK_INK = 0.42  # luminance of a fill from which what lies on it is dark


def rgb(colour: str) -> tuple[float, float, float]:
    """``"#rrggbb"`` as three numbers from 0 to 1."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def fill(kind: Kind, chunk: float = 0.0, tint: int = 0) -> str:
    """Colour of an op: ``chunk`` runs from 0, its device's first chunk, to 1, the last one."""
    white = _LIGHTEST * tint / (TINTS - 1)
    mixed = (
        a + chunk * (b - a) for a, b in zip(rgb(FILL[kind]), rgb(LAST_CHUNK[kind]), strict=True)
    )
    return "#" + "".join(f"{round(255 * (x + white * (1 - x))):02x}" for x in mixed)


def ink_on(colour: str) -> str:
    """Colour of what is written on a fill."""
    red, green, blue = rgb(colour)
    bright = 0.2126 * red + 0.7152 * green + 0.0722 * blue >= _DARK_INK
    return "#111111" if bright else "#ffffff"


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


def mode_text(problem: Problem, mode: int) -> str:
    """Name a memory mode by its number, as the stages that have one call it."""
    names = [stage.modes[mode - 1].name for stage in problem.stages if mode <= len(stage.modes)]
    return f"mode {' or '.join(dict.fromkeys(names))}"


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
