"""A matplotlib figure that a notebook shows without pyplot."""

from __future__ import annotations

from matplotlib.figure import Figure

from pipesat.picture.notebook import png_of_figure


class Chart(Figure):
    """A figure: ``savefig`` writes it, and at the end of a notebook's cell it shows itself."""

    def _repr_png_(self) -> bytes:
        return png_of_figure(self)
