"""What stands above the plot: the title's lines, and one entry per thing that is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from pipesat.core.ops import KINDS
from pipesat.picture.boxes import UPPER, Boxes
from pipesat.picture.classes import class_tints, fill_text, named
from pipesat.picture.lettering import fitted, text_width
from pipesat.picture.style import (
    CAPACITY,
    COPY_BACK,
    COPY_OUT,
    FILL,
    HELD,
    INK,
    MEANING,
    OUTLINE,
    STATIC,
)

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.picture.canvas import Canvas, Point
    from pipesat.picture.labels import Labels
    from pipesat.picture.layout import Layout

    Draw: TypeAlias = Callable[[Canvas, Point, Point], None]

_TITLE = 1.3  # size of the title's first line, in fonts
_LINES = 3
_LINE = 1.75  # height of a line, in fonts


@dataclass(frozen=True)
class Entry:
    """One entry: ``draw(canvas, upper left corner, size)`` paints its sample."""

    draw: Draw | None
    text: str


def title_lines(title: str) -> list[str]:
    """Return the title's lines that are shown."""
    return [line for line in title.splitlines() if line.strip()][:_LINES]


def entries_of(
    problem: Problem,
    boxes: Sequence[Boxes],
    layout: Layout,
    labels: Labels | None,
    *,
    copies: bool = False,
) -> Iterator[Entry]:
    """What the legend explains: only what occurs in this picture."""
    kinds = {KINDS[kind] for row in boxes for kind in set(row.kind.tolist())}
    for kind in KINDS:
        if kind in kinds:
            yield Entry(partial(_box, FILL[kind]), MEANING[kind])
    tints = class_tints(problem)
    for tint, names in {} if tints is None else tints.names.items():
        yield Entry(partial(_shaded, tint), named(names))
    if any((row.part == UPPER).any() for row in boxes):
        yield Entry(_pair, "two halves: a pair")
    for mode in sorted({int(mode) for row in boxes for mode in set(row.mode.tolist())} - {0}):
        yield Entry(partial(_hatched, mode), _names_of_mode(problem, mode))
    if copies:
        yield Entry(partial(_box, COPY_OUT), "O copy out")
        yield Entry(partial(_box, COPY_BACK), "L copy back")
    if layout.stages > 1:
        yield Entry(partial(_ramp, layout.stages), "foot: the device's first … last stage")
    if labels is not None:
        whole = labels.lettering.whole_ops
        yield Entry(None, "7F5 = stage 7, F, microbatch 5" if whole else "numbers: microbatches")
    if layout.track:
        unit = f" ({problem.memory_unit})" if problem.memory_unit else ""
        yield Entry(partial(_box, HELD), f"memory in use{unit}")
        if any(device.static for device in problem.devices):
            yield Entry(partial(_box, STATIC), "static")
        limits = [device.memory for device in problem.devices if device.memory is not None]
        if any(limit <= layout.memory_top for limit in limits):
            yield Entry(_dashes, "capacity")
        yield Entry(_dot, "peak")


def place_entries(
    entries: Sequence[Entry], layout: Layout
) -> list[tuple[float, float, Entry, str]]:
    """Flow the entries into lines; each gets the x and y of its sample, y from the first line."""
    size, gap = layout.font, 1.6 * layout.font
    left, right = 1.2 * size, layout.width - 1.2 * size
    placed, x, y = [], left, 0.0
    for entry in entries:
        text = fitted(entry.text, right - left - 3 * size, size)
        width = (2.7 * size if entry.draw else 0.0) + text_width(text, size)
        if x > left and x + width > right:
            x, y = left, y + _LINE * size
        placed.append((x, y, entry, text))
        x += width + gap
    return placed


def header_height(
    title: str, placed: Sequence[tuple[float, float, Entry, str]], font: float
) -> int:
    """Height of everything above the plot, in pixels."""
    legend = placed[-1][1] + _LINE * font if placed else 0.0
    return round(_title_height(title, font) + legend + 1.6 * font)


def _title_height(title: str, font: float) -> float:
    lines = title_lines(title)
    return (1.4 * _TITLE + _LINE * len(lines)) * font if lines else 0.6 * font


def draw_header(
    canvas: Canvas, title: str, placed: Sequence[tuple[float, float, Entry, str]], layout: Layout
) -> None:
    """Draw the title and the legend."""
    size = layout.font
    left, room = 1.2 * size, layout.width - 2.4 * size
    y = 1.9 * size
    for number, line in enumerate(title_lines(title)):
        bold = number == 0
        height = size * (_TITLE if bold else 1)
        canvas.text((left, y), fitted(line, room, height, bold), height, bold=bold)
        y += _LINE * size * (1.1 if bold else 1)
    top = _title_height(title, size)
    box = (2.0 * size, 1.0 * size)
    for x, y, entry, text in placed:
        if entry.draw:
            entry.draw(canvas, (round(x), round(top + y)), box)
        canvas.text((x + (2.7 * size if entry.draw else 0), top + y + box[1] / 2), text, size)


def _box(colour: str, canvas: Canvas, at: Point, size: Point) -> None:
    canvas.rectangle(at, size, colour, OUTLINE)


def _shaded(tint: int, canvas: Canvas, at: Point, size: Point) -> None:
    half = (size[0] / 2, size[1])
    canvas.rectangle(at, half, fill_text("F", tint), OUTLINE)
    canvas.rectangle((at[0] + half[0], at[1]), half, fill_text("BW", tint), OUTLINE)


def _pair(canvas: Canvas, at: Point, size: Point) -> None:
    half = (size[0], size[1] / 2)
    canvas.rectangle(at, half, FILL["F"], OUTLINE)
    canvas.rectangle((at[0], at[1] + half[1]), half, FILL["BW"], OUTLINE)


def _names_of_mode(problem: Problem, mode: int) -> str:
    names = [s.modes[mode - 1].name for s in problem.stages if mode <= len(s.modes)]
    return "mode " + " or ".join(dict.fromkeys(names))


def _hatched(mode: int, canvas: Canvas, at: Point, size: Point) -> None:
    canvas.rectangle(at, size, "#ffffff", OUTLINE)
    lines = []
    for step in range(4):
        left, right = (at[0] + (step + share) * size[0] / 4 for share in (0, 1))
        if mode != 2:
            lines.append(((left, at[1] + size[1]), (right, at[1])))
        if mode >= 2:
            lines.append(((left, at[1]), (right, at[1] + size[1])))
    canvas.lines(lines, OUTLINE, 1.2)


def _ramp(stages: int, canvas: Canvas, at: Point, size: Point) -> None:
    cells = min(stages, 8)
    for cell in range(cells):
        grey = round(255 * (1 - cell / (cells - 1)))
        corner = (at[0] + cell * size[0] / cells, at[1] + 0.25 * size[1])
        canvas.rectangle(
            corner, (size[0] / cells, size[1] / 2), f"#{grey:02x}{grey:02x}{grey:02x}", INK
        )


def _dashes(canvas: Canvas, at: Point, size: Point) -> None:
    y = at[1] + size[1] / 2
    canvas.lines([((at[0], y), (at[0] + size[0], y))], CAPACITY, 2, (4, 2))


def _dot(canvas: Canvas, at: Point, size: Point) -> None:
    canvas.dots([(at[0] + size[0] / 2, at[1] + size[1] / 2)], 0.45 * size[1])
