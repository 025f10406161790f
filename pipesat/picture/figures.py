"""matplotlib figures and their files: the same bytes whatever the user's settings are.

No pyplot: a figure is drawn with or without a display, and a notebook shows it all the same.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import cache
from typing import Any, Final

import matplotlib as mpl
import matplotlib.style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.patches import Patch

from pipesat.core.amounts import SECONDS, SHARE, bytes_of, rounded_up, significant
from pipesat.picture.style import OUTLINE

DPI: Final = 160
"""A picture of 10 inches is then 1,600 pixels wide: sharp at the 800 that a page gives it."""


class Chart(Figure):
    """A figure that a notebook shows at the end of a cell."""

    def _repr_png_(self) -> bytes:
        return file_of(self, "png")


@contextmanager
def own_settings() -> Iterator[None]:
    """Draw with matplotlib's defaults."""
    with (
        mpl.style.context("default", after_reset=True),
        mpl.rc_context({"svg.hashsalt": "pipesat"}),
    ):
        yield


def blank_figure(width: float, height: float, title: str = "") -> Figure:
    """Return a figure of so many inches that lays out its parts; the title is its name, too."""
    figure = Chart(figsize=(width, height), layout="constrained", dpi=DPI)
    FigureCanvasAgg(figure)
    figure.set_label(title)
    lines = [short(line, round(9 * width)) for line in title.splitlines() if line.strip()]
    figure.suptitle(
        "\n".join(lines[:3]), x=0.01, ha="left", weight="bold", fontsize=10, parse_math=False
    )
    return figure


def figure_of(draw: Callable[[], Figure]) -> Figure:
    """Draw a figure, the same whatever the user's matplotlib settings are."""
    with own_settings():
        return draw()


def file_of(figure: Figure, kind: str) -> bytes:
    """Return a figure as a ``png`` or ``svg`` file; an SVG has its title as a text, too."""
    about: dict[str, Any] = {"Software": None}
    if kind == "svg":
        title = short(str(figure.get_label()), 400)
        about = {"Date": None, "Creator": None, "Title": title or None}
    stream = io.BytesIO()
    with own_settings():
        figure.savefig(stream, format=kind, dpi=DPI, metadata=about)
    return stream.getvalue()


def png_and_svg(figure: Figure) -> dict[str, bytes]:
    """Return a figure's files by format."""
    return {kind: file_of(figure, kind) for kind in ("png", "svg")}


def swatch(colour: str, **style: Any) -> Patch:
    """Return a legend's sample of an area."""
    return Patch(facecolor=colour, edgecolor=OUTLINE, linewidth=0.5, **style)


def short(text: str, most: int) -> str:
    """Return a text on one line, drawable, and without its middle if it is longer than ``most``.

    Both ends stay, because a title ends with the figures and device names differ at their ends.
    Characters that the font lacks become question marks.
    """
    text = "".join(c if ord(c) in _characters() else "?" for c in " ".join(text.split()))
    tail = max(0, most - 1) // 2
    return text if len(text) <= most else f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}"


@cache
def _characters() -> frozenset[int]:
    return frozenset(get_font(findfont("DejaVu Sans")).get_charmap())


def unit_of_time(unit: str, largest: float) -> tuple[float, str]:
    """Return what times are multiplied with, and in which unit they are then shown."""
    second = SECONDS.get(unit)
    if second is None:
        return 1.0, unit
    seconds = float(second) * largest
    shown, many = ("s", 1) if seconds >= 100 else ("ms", 1000) if seconds >= 1e-3 else ("us", 10**6)
    return float(second * many), shown


def unit_of_memory(unit: str, largest: float) -> tuple[Fraction, str]:
    """Return what amounts are multiplied with, and in which unit they are then shown."""
    if share := SHARE.fullmatch(unit):
        return Fraction(1, 10 ** int(share[1])), f"{share[2]}s"
    each = bytes_of(unit)
    if each is None:
        return Fraction(1), unit
    names = ("B", "KiB", "MiB", "GiB", "TiB")
    power = next((n for n in range(4) if largest * each < 1000 * 1024**n), 4)
    return Fraction(each, 1024**power), names[power]


def amount_text(value: int, unit: str, largest: int) -> str:
    """Return an amount of memory as it is shown beside amounts up to ``largest``, rounded up."""
    scale, _ = unit_of_memory(unit, largest)
    return f"{value:,}" if scale == 1 else significant(value * scale, 3, rounded_up)


def in_brackets(name: str, unit: str) -> str:
    """``time (ms)``; the name alone without a unit."""
    return short(f"{name} ({unit})" if unit else name, 60)
