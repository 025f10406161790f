"""Text in pictures: measured in pixels, shortened to fit, safe for any name.

All sizes are in pixels; figures have 72 dots per inch, so that a point is a pixel. matplotlib's own
DejaVu Sans is used by its path: neither the user's settings nor the installed fonts change a
picture.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.font_manager import FontProperties


def font(size: float, bold: bool = False) -> FontProperties:
    """Return the font at a size in pixels."""
    from matplotlib.font_manager import FontProperties

    return FontProperties(fname=_font_file(bold), size=size)


def text_width(text: str, size: float, bold: bool = False) -> float:
    """Width of a text in pixels, as Agg draws it."""
    if not text:
        return 0.0
    measure = _renderer().get_text_width_height_descent
    width, _, _ = measure(text, font(size, bold), ismath=False)  # type: ignore[no-untyped-call]
    return float(width)


def fitted(text: str, room: float, size: float, bold: bool = False) -> str:
    """Return ``text`` made drawable and, if wider than ``room`` pixels, shortened in its middle.

    Both ends stay, because a title ends with the figures and device names differ at their ends.
    Line breaks become spaces, characters that the font lacks become question marks.
    """
    known = _characters(bold)
    text = "".join(c if ord(c) in known else "?" for c in " ".join(text.split()))
    most = int(8 * room / size) + 2  # no room for more: measuring very long names takes time
    if len(text) <= most and text_width(text, size, bold) <= room:
        return text
    low, high = 0, min(len(text), most)  # characters kept, by binary search
    while low < high:
        kept = (low + high + 1) // 2
        if text_width(_without_middle(text, kept), size, bold) <= room:
            low = kept
        else:
            high = kept - 1
    return _without_middle(text, low)


def _without_middle(text: str, kept: int) -> str:
    head = (kept + 1) // 2
    return text[:head] + "…" + text[len(text) - (kept - head) :]


@cache
def _renderer() -> RendererAgg:
    from matplotlib.backends.backend_agg import RendererAgg

    return RendererAgg(1, 1, 72)  # type: ignore[no-untyped-call]


@cache
def _font_file(bold: bool) -> Path:
    import matplotlib as mpl

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return Path(mpl.get_data_path()) / "fonts" / "ttf" / name


@cache
def _characters(bold: bool) -> frozenset[int]:
    from matplotlib.font_manager import get_font

    return frozenset(get_font(str(_font_file(bold))).get_charmap())
