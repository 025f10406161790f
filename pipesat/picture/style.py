"""Colours of the Gantt chart.

The op kinds differ in hue for colour-blind readers (blue, orange, green, purple) and in CIE
lightness for grey print (about 85, 68, 48 and 29 of 100); what lies on the two dark ones is white.
"""

from __future__ import annotations

from typing import Final

from pipesat.core.ops import Kind

FILL: Final[dict[Kind, str]] = {"F": "#b3daf2", "B": "#ec9a29", "W": "#187f5e", "BW": "#453781"}
INK_ON: Final[dict[Kind, str]] = {"F": "#111111", "B": "#111111", "W": "#ffffff", "BW": "#ffffff"}
MEANING: Final[dict[Kind, str]] = {
    "F": "F forward",
    "B": "B input gradient",
    "W": "W weight gradient",
    "BW": "BW full backward",
}

COPY_OUT: Final = "#8c564b"
COPY_BACK: Final = "#d16ba5"
INK: Final = "#222222"
FAINT_INK: Final = "#666666"
GRID: Final = "#dddddd"
HELD: Final = "#d3d7de"
STATIC: Final = "#a9b0bb"
OUTLINE: Final = "#5b6472"
CAPACITY: Final = "#b2182b"
EXCESS: Final = "#e0604c"


def rgb(colour: str) -> tuple[float, float, float]:
    """``"#rrggbb"`` as three numbers from 0 to 1."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue
