"""A sheet of pixels to draw on: matplotlib's Agg canvas, one axes whose unit is the pixel.

No pyplot and no user settings: a picture is the same on every machine, with or without a display.
"""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.patches import Rectangle
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from matplotlib.transforms import Affine2D

from pipesat.picture.chart import Chart
from pipesat.picture.lettering import font
from pipesat.picture.style import INK

if TYPE_CHECKING:
    from matplotlib.backend_bases import RendererBase
    from numpy.typing import NDArray

Point = tuple[float, float]


class _Pixels(Artist):
    """An image that is copied pixel by pixel: matplotlib's own image artists resample."""

    def __init__(self, pixels: NDArray[np.uint8], x: int, y_from_below: int) -> None:
        super().__init__()
        self.pixels, self.at = pixels, (x, y_from_below)
        self.set_zorder(-1)

    def draw(self, renderer: RendererBase) -> None:
        """Copy the pixels."""
        opaque = np.full((*self.pixels.shape[:2], 4), 255, dtype=np.uint8)
        opaque[..., :3] = self.pixels[::-1]  # Agg counts y upwards
        renderer.draw_image(renderer.new_gc(), *self.at, opaque)


class Canvas:
    """``width`` x ``height`` pixels, white; x runs to the right, y downwards."""

    def __init__(self, width: int, height: int) -> None:
        self.height = height
        self.figure = Chart(figsize=(width / 72, height / 72), dpi=72, facecolor="white")
        self.figure.set_layout_engine("none")
        self.agg = FigureCanvasAgg(self.figure)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_axis_off()
        self.axes.set_xlim(0, width)
        self.axes.set_ylim(height, 0)
        self.titles: dict[str, str] = {}

    def text(
        self,
        at: Point,
        text: str,
        size: float,
        *,
        bold: bool = False,
        colour: str = INK,
        align: Literal["left", "center", "right"] = "left",
    ) -> None:
        """Write one line whose capitals are centred on ``at``'s height."""
        # the baseline is placed here: centring each text's own box would make lines dance
        self.axes.text(
            at[0],
            at[1] + 0.365 * size,
            text,
            ha=align,
            va="baseline",
            color=colour,
            fontproperties=font(size, bold),
            parse_math=False,
            usetex=False,
        )

    def rectangle(self, at: Point, size: Point, fill: str, outline: str | None = None) -> None:
        """Draw a rectangle from its upper left corner."""
        self.axes.add_patch(
            Rectangle(at, *size, facecolor=fill, edgecolor=outline or "none", linewidth=1)
        )

    def entitle(self, artist: Artist, title: str) -> None:
        """Give an artist the text that an SVG viewer shows where the mouse points at it."""
        mark = f"titled-{len(self.titles)}"
        artist.set_gid(mark)
        self.titles[mark] = "".join(c if c.isprintable() else "?" for c in title)

    def lines(
        self,
        lines: Sequence[tuple[Point, Point]],
        colour: str,
        width: float,
        dashes: tuple[float, float] | None = None,
    ) -> None:
        """Draw straight lines, dashed (on, off) if wanted."""
        style = "solid" if dashes is None else (0.0, dashes)
        self.axes.add_collection(
            LineCollection(lines, colors=colour, linewidths=width, linestyles=[style]),
            autolim=False,
        )

    def dots(self, points: Sequence[Point], size: float, colour: str = INK) -> None:
        """Draw dots with a white rim."""
        xs, ys = zip(*points, strict=True) if points else ((), ())
        self.axes.plot(
            xs,
            ys,
            "o",
            markersize=size,
            markerfacecolor=colour,
            markeredgecolor="white",
            markeredgewidth=1,
            scalex=False,
            scaley=False,
        )

    def image(self, pixels: NDArray[np.uint8], at: tuple[int, int]) -> None:
        """Put pixels (rows x columns x 3) one to one with a corner at ``at``, below all else."""
        self.figure.add_artist(_Pixels(pixels, at[0], self.height - at[1] - pixels.shape[0]))

    def stamp(
        self, text: str, size: float, colour: str, points: Sequence[Point], *, turned: bool
    ) -> None:
        """Write one text at many points (pen positions): a single artist, so thousands are fast.

        ``turned``: from the bottom to the top.
        """
        path: Path = TextPath((0, 0), text, size=size, prop=font(size))
        if turned:
            path = path.transformed(Affine2D().rotate_deg(90))
        self.axes.add_collection(
            PathCollection(
                [path],
                facecolors=[colour],
                edgecolors="none",
                linewidths=0,
                offsets=points,
                offset_transform=self.axes.transData,
                transform=Affine2D(),  # not IdentityTransform: SVG shifts it where points are few
            ),
            autolim=False,
        )

    def png(self) -> bytes:
        """Return the sheet as a PNG file, marked as 144 dots per inch."""
        stream = io.BytesIO()
        options = {"dpi": (144, 144), "compress_level": 4}
        self.agg.print_png(  # type: ignore[no-untyped-call]
            stream, metadata={"Software": None}, pil_kwargs=options
        )
        return stream.getvalue()

    def svg(self) -> bytes:
        """Return the sheet as an SVG file whose texts are paths, the same on every machine."""
        from matplotlib import rc_context
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        stream = io.BytesIO()
        fixed = {"svg.hashsalt": "pipesat", "svg.fonttype": "path", "path.simplify": False}
        with rc_context(fixed):  # type: ignore[arg-type]
            FigureCanvasSVG(self.figure).print_svg(  # type: ignore[no-untyped-call]
                stream, metadata={"Date": None, "Creator": None}
            )
        drawn = stream.getvalue()
        for mark, title in self.titles.items():
            begin = f'<g id="{mark}">'.encode()
            text = html.escape(title, quote=False).encode("ascii", "xmlcharrefreplace")
            drawn = drawn.replace(begin, begin + b"<title>" + text + b"</title>", 1)
        return drawn
