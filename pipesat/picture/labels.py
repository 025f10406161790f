"""The number in each box: its microbatch, where it fits, upright or turned."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from matplotlib.transforms import Affine2D

from pipesat.picture.style import ink_on

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from pipesat.core.arrays import Floats

LEAST: Final = 7.0
"""Points of the smallest number: 8 pixels where a picture of 10 inches is 800 pixels wide."""

_DIGIT, _HEIGHT = 0.64, 0.73  # of the font's size
_CLEAR = 1.0  # points that stay free on both sides together
_NEARLY_ALL, _ENOUGH = 0.95, 0.5  # shares of the boxes that a lettering fits


class Lettering(NamedTuple):
    """How numbers are written: size in points, and whether from the bottom to the top."""

    size: float
    turned: bool

    def fits(self, digits: NDArray[np.int64], room: Floats) -> NDArray[np.bool_]:
        """Whether so many digits have room in boxes of a width and height in points."""
        along, across = _CLEAR + _DIGIT * self.size * digits, _CLEAR + _HEIGHT * self.size
        wide, high = room.T[::-1] if self.turned else room.T
        fits: NDArray[np.bool_] = (along <= wide) & (across <= high)
        return fits


LETTERINGS: Final = (*(Lettering(s, False) for s in (9.0, 8.0, LEAST)), Lettering(LEAST, True))


def label(
    axes: Axes, numbers: NDArray[np.int64], colour: str, centres: Floats, room: Floats
) -> None:
    """Write numbers into boxes of one colour: in the first lettering that fits nearly all.

    ``centres`` are in data units, ``room`` has width and height in points.
    """
    digits = np.char.str_len(numbers.astype(str))
    best, fitting = None, np.zeros(len(numbers), dtype=bool)
    for lettering in LETTERINGS:
        fits = lettering.fits(digits, room)
        if fits.mean() > max(_ENOUGH, fitting.mean()):
            best, fitting = lettering, fits
        if fits.mean() >= _NEARLY_ALL:
            break
    if best is None:
        return
    outlines: list[Any] = [_outline(str(n), best) for n in numbers[fitting].tolist()]
    places = axes.transData.transform(centres[fitting]) / axes.figure.dpi  # in inches
    points = [path.vertices + at for path, at in zip(outlines, places, strict=True)]
    codes = [path.codes for path in outlines]
    axes.add_artist(
        PathPatch(
            Path(np.concatenate(points), np.concatenate(codes)),
            facecolor=ink_on(colour),
            linewidth=0,
            transform=axes.figure.dpi_scale_trans,
            zorder=4,
        )
    )


@lru_cache(maxsize=4096)
def _outline(text: str, lettering: Lettering) -> Path:
    """Return a text's outline around the origin, in inches."""
    path = TextPath((0, 0), text, size=lettering.size, prop=FontProperties(family="DejaVu Sans"))
    box = path.get_extents()
    centre = Affine2D().translate(-(box.x0 + box.x1) / 2, -_HEIGHT * lettering.size / 2)
    return path.transformed(centre.rotate_deg(90 if lettering.turned else 0).scale(1 / 72))
