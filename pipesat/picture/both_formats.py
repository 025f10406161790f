"""A figure as PNG and SVG, the same bytes whatever the user's matplotlib settings are."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI: Final = 130


def blank_figure(width: float, height: float) -> Figure:
    """Return a figure of so many inches, whose parts are laid out by themselves."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from pipesat.picture.chart import Chart

    figure = Chart(figsize=(width, height), layout="constrained", dpi=DPI)
    FigureCanvasAgg(figure)
    return figure


def figure_of(draw: Callable[[], Figure]) -> Figure:
    """Draw a figure, the same whatever the user's matplotlib settings are."""
    import matplotlib as mpl
    import matplotlib.style

    same_everywhere = matplotlib.style.context("default", after_reset=True)
    with same_everywhere, mpl.rc_context({"svg.hashsalt": "pipesat"}):
        return draw()


def png_and_svg(draw: Callable[[], Figure]) -> dict[str, bytes]:
    """Draw a figure; return its files: ``png``, and ``svg`` with drawn texts."""
    import matplotlib as mpl
    import matplotlib.style

    files = {}
    same_everywhere = mpl.style.context("default", after_reset=True)
    with same_everywhere, mpl.rc_context({"svg.hashsalt": "pipesat"}):
        figure = draw()
        metadata: dict[str, dict[str, Any]] = {"png": {"Software": None}, "svg": {"Date": None}}
        for kind, about in metadata.items():
            stream = io.BytesIO()
            figure.savefig(stream, format=kind, dpi=DPI, metadata=about)
            files[kind] = stream.getvalue()
    return files
