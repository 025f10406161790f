"""What pictures share: figures and their files, numbers in boxes, the legend.

The same bytes whatever the user's settings are. No pyplot: a figure is drawn with or without a
display, and a notebook shows it all the same.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

import matplotlib as mpl
import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from matplotlib.transforms import Affine2D
from numpy.typing import NDArray

from pipesat.core.amounts import (
    SHARE,
    bytes_of,
    rounded_down,
    rounded_up,
    seconds_of,
    significant,
)
from pipesat.core.arrays import Floats
from pipesat.core.settings import PICTURES
from pipesat.draw.device_rows import UPPER, Rows
from pipesat.draw.style import (
    CAPACITY,
    COPY_BACK,
    COPY_OUT,
    HELD,
    MEANING,
    OUTLINE,
    SHADES_OF_CHUNKS,
    STATIC,
    class_tints,
    fill,
    ink_on,
    mode_text,
    named,
)
from pipesat.problem.ops import KINDS
from pipesat.problem.problem import Problem

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
        mpl.rc_context({"svg.hashsalt": "pipesat", "pdf.fonttype": 42}),  # texts that can be found
    ):
        yield


def blank_figure(width: float, height: float, title: str = "") -> Figure:
    """Return a figure of so many inches that lays out its parts; the title is its name, too."""
    figure = Chart(figsize=(width, height), layout="constrained", dpi=DPI)
    FigureCanvasAgg(figure)
    figure.set_label(title)
    lines = [short(line, round(9 * width)) for line in title.splitlines() if line.strip()]
    if lines:  # else it would take space
        figure.suptitle(
            "\n".join(lines[:3]), x=0.01, ha="left", weight="bold", fontsize=10, parse_math=False
        )
    return figure


def figure_of(draw: Callable[[], Figure]) -> Figure:
    """Draw a figure, the same whatever the user's matplotlib settings are."""
    with own_settings():
        return draw()


def file_of(figure: Figure, kind: str) -> bytes:
    """Return a figure as a ``png``, ``svg`` or ``pdf`` file; the last two have its title."""
    about: dict[str, Any] = {"Software": None}
    if kind != "png":
        dates = {"svg": ("Date", "Creator"), "pdf": ("CreationDate", "Creator", "Producer")}
        title = short(str(figure.get_label()), 400)
        about = dict.fromkeys(dates[kind]) | ({"Title": title} if title else {})
    stream = io.BytesIO()
    with own_settings():
        figure.savefig(stream, format=kind, dpi=DPI, metadata=about)
    return stream.getvalue()


def files_of(figure: Figure, name: str) -> dict[str, bytes]:
    """Return a figure's files, ``plan.png`` and the like."""
    return {f"{name}.{kind}": file_of(figure, kind) for kind in PICTURES}


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
    second = seconds_of(unit)
    if second is None:
        return 1.0, unit
    seconds = float(second) * largest
    shown, many = ("s", 1) if seconds >= 100 else ("ms", 1000) if seconds >= 1e-3 else ("us", 10**6)
    return float(second * many), shown


def unit_of_memory(unit: str, largest: float) -> tuple[Fraction, str]:
    """Return what amounts are multiplied with, and in which unit they are then shown."""
    each = bytes_of(unit)
    if each is None:
        share = SHARE.fullmatch(unit)
        return (Fraction(1, 10 ** int(share[1])), f"{share[2]}s") if share else (Fraction(1), unit)
    names = ("B", "KiB", "MiB", "GiB", "TiB")
    power = next((n for n in range(4) if largest * each < 1000 * 1024**n), 4)
    return each / 1024**power, names[power]


def amount_text(value: int, unit: str, largest: int, within: int | None = None) -> str:
    """Return an amount of memory as it is shown beside amounts up to ``largest``, rounded up.

    What fits into a capacity, as it does itself, is never shown as more than that, rounded down.
    """
    scale, _ = unit_of_memory(unit, largest)
    if scale == 1:
        return f"{value:,}"
    texts = [significant(value * scale, 3, rounded_up)]
    if within is not None and value <= within:
        texts.append(significant(within * scale, 3, rounded_down))
    return min(texts, key=lambda text: float(text.replace(",", "")))


def in_brackets(name: str, unit: str) -> str:
    """``time (ms)``; the name alone without a unit."""
    return short(f"{name} ({unit})" if unit else name, 60)


LEAST: Final = 7.0
"""Points of the smallest number: 8 pixels where a picture of 10 inches is 800 pixels wide."""

_DIGIT, _HEIGHT = 0.64, 0.73  # of the font's size
_CLEAR = 1.0  # points that stay free on both sides together
_NEARLY_ALL, _ENOUGH = 0.95, 0.5  # shares of the boxes that a lettering fits


class Lettering(NamedTuple):
    """How numbers are written: size in points, and whether from the bottom to the top."""

    size: float
    turned: bool

    def fits(self, digits: NDArray[np.int64], space: Floats) -> NDArray[np.bool_]:
        """Whether so many digits have space in boxes of a width and height in points."""
        along, across = _CLEAR + _DIGIT * self.size * digits, _CLEAR + _HEIGHT * self.size
        wide, high = space.T[::-1] if self.turned else space.T
        return (along <= wide) & (across <= high)


LETTERINGS: Final = (*(Lettering(s, False) for s in (9.0, 8.0, LEAST)), Lettering(LEAST, True))


def label(
    axes: Axes, numbers: NDArray[np.int64], colour: str, centres: Floats, space: Floats
) -> None:
    """Write numbers into boxes of one colour: in the first lettering that fits nearly all.

    Those that it does not fit have the first of the later ones that fits them.
    ``centres`` are in data units, ``space`` has width and height in points.
    """
    digits = np.char.str_len(numbers.astype(str))
    fits = {lettering: lettering.fits(digits, space) for lettering in LETTERINGS}
    best = max(fits, key=lambda lettering: min(fits[lettering].mean(), _NEARLY_ALL))
    if fits[best].mean() > _ENOUGH:
        own = LETTERINGS[LETTERINGS.index(best) :]
        first = np.argmax([*map(fits.__getitem__, own), np.ones(len(numbers), bool)], axis=0)
        fitting = first < len(own)
        each = zip(numbers[fitting].tolist(), first[fitting].tolist(), strict=True)
        letters = PathCollection(
            [_outline(str(number), own[place]) for number, place in each],
            offsets=centres[fitting],
            offset_transform=axes.transData,
            transform=axes.figure.dpi_scale_trans,
            facecolor=ink_on(colour),
            linewidth=0,
            zorder=4,
        )
        axes.add_collection(letters, autolim=False)


@lru_cache(maxsize=4096)
def _outline(text: str, lettering: Lettering) -> Path:
    """Return a text's outline around the origin, in inches."""
    path = TextPath((0, 0), text, size=lettering.size, prop=FontProperties(family="DejaVu Sans"))
    box = path.get_extents()
    centre = Affine2D().translate(-(box.x0 + box.x1) / 2, -_HEIGHT * lettering.size / 2)
    return path.transformed(centre.rotate_deg(90 if lettering.turned else 0).scale(1 / 72))


_HATCHES: Final = ("////", "\\\\\\\\", "xxxx")


def modes_of(rows: Rows) -> list[tuple[int, str]]:
    """Return the memory modes that are not to keep, each with its hatching."""
    modes = sorted({*rows.boxes["mode"].tolist()} - {0})
    return [(mode, _HATCHES[min(mode, 3) - 1]) for mode in modes]


def draw_legend(figure: Figure, problem: Problem, rows: Rows, memory: int | None) -> None:
    """Draw the legend; ``memory`` is the largest amount shown, ``None`` where none is drawn."""
    ops, copies, held = rows.of(), len(rows.of("O", "L")) > 0, memory is not None
    chunks = min(4, max(map(len, problem.stages_on)))
    places = np.linspace(0, 1, chunks).tolist()
    tints = class_tints(problem)
    _, unit = unit_of_memory(problem.memory_unit, memory or 0)
    limits = {row.capacity for row in rows.rows if row.capacity is not None} if held else set()
    alone = limits.pop() if len(limits) == 1 else None
    limit = (
        "" if alone is None else f" {amount_text(alone, problem.memory_unit, memory or 0, alone)}"
    )
    line = Line2D([], [], color=CAPACITY, linestyle="--", linewidth=1)
    entries: list[tuple[bool, Any, str]] = [
        *(
            (
                bool((ops["kind"] == n).any()),
                [swatch(fill(kind, at)) for at in places],
                MEANING[kind],
            )
            for n, kind in enumerate(KINDS)
        ),
        (
            chunks > 1,  # F gets darker, the others lighter: at full strength they differ most
            [swatch(fill(kind, at)) for kind in ("F", "BW") for at in places],
            SHADES_OF_CHUNKS,
        ),
        *(
            (True, [swatch(fill(kind, 0, tint)) for kind in ("F", "BW")], named(names))
            for tint, names in ({} if tints is None else tints.names).items()
        ),
        (
            UPPER in ops["part"],
            [swatch(fill("F")), swatch(fill("BW"))],
            "two halves: ops that overlap",
        ),
        *((True, swatch("white", hatch=h), mode_text(problem, mode)) for mode, h in modes_of(rows)),
        (copies, swatch(COPY_OUT), "O copy out"),
        (copies, swatch(COPY_BACK), "L copy back"),
        (held, swatch(HELD), in_brackets("memory in use", unit)),
        (held and any(row.static for row in rows.rows), swatch(STATIC), "static memory"),
        (bool(limit or limits), line, f"capacity{limit}"),
    ]
    shown = [(sample, short(text, 60)) for there, sample, text in entries if there]
    samples: list[Any] = [tuple(one) if isinstance(one, list) else one for one, _ in shown]
    figure.legend(
        samples,
        [text for _, text in shown],
        loc="outside lower left",
        ncols=min(5, max(1, len(shown))),
        frameon=False,
        fontsize=8,
        handler_map={tuple: HandlerTuple(ndivide=None, pad=0)},
    )
