"""Which number stands in which box: only where it really fits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from pipesat.core.ops import KINDS
from pipesat.picture.boxes import LOWER, UPPER, Boxes
from pipesat.picture.classes import ink_on
from pipesat.picture.lettering import text_width
from pipesat.picture.paint import strip_height

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipesat.picture.canvas import Canvas
    from pipesat.picture.layout import Layout

_CLEAR = 5  # pixels that stay free before and after a text together
_CLEAR_ABOVE = 4  # the same above and below it
_CAPITAL = 0.73  # height of a capital letter or digit, as a share of the font's size
_NEARLY_ALL, _ENOUGH = 0.95, 0.5  # shares of the boxes that a way of lettering fits


@dataclass(frozen=True)
class Lettering:
    """A way to write labels: whole op texts or microbatches only, size, upright or turned."""

    whole_ops: bool
    size: int
    turned: bool = False


@dataclass(frozen=True)
class Labels:
    """Texts with the centres of their boxes, in pixels from the plot's upper left corner."""

    lettering: Lettering
    texts: list[str]
    colours: list[str]
    centres: NDArray[np.float64]


def choose_labels(
    boxes: Sequence[Boxes], layout: Layout, makespan: int, strips: bool
) -> Labels | None:
    """Take the first lettering that fits nearly all boxes, else the best if it fits most."""
    fields = [_fields(row, layout, device, makespan, strips) for device, row in enumerate(boxes)]
    centres, room = (np.concatenate(part) for part in zip(*fields, strict=True))
    names = ("stage", "kind", "microbatch", "tint")
    stage, kind, microbatch, tint = (np.concatenate([getattr(b, n) for b in boxes]) for n in names)
    drawn = room[:, 0] > 0
    if not drawn.any():
        return None
    best, most, chosen = None, _ENOUGH, drawn
    for lettering in _letterings(whole_ops=strips):
        needed = _extent(lettering, stage, kind, microbatch)
        fits = np.logical_and(needed[:, 0] <= room[:, 0], needed[:, 1] <= room[:, 1])
        share = float(fits[drawn].mean())
        if share > most:
            best, most, chosen = lettering, share, fits
        if share >= _NEARLY_ALL:
            break
    if best is None:
        return None
    texts = [
        f"{s}{KINDS[k]}{m}" if best.whole_ops else str(m)
        for s, k, m in zip(stage[chosen], kind[chosen], microbatch[chosen], strict=True)
    ]
    colours = [
        ink_on(KINDS[k], t) for k, t in zip(kind[chosen], tint[chosen].tolist(), strict=True)
    ]
    return Labels(best, texts, colours, centres[chosen])


def _letterings(*, whole_ops: bool) -> Iterator[Lettering]:
    if whole_ops:
        yield from (Lettering(True, size) for size in (19, 17, 15, 13, 11))
    yield from (Lettering(False, size) for size in (19, 17, 15, 13, 11))
    yield from (Lettering(False, size, turned=True) for size in (17, 15, 13, 11, 10))


def _fields(
    boxes: Boxes, layout: Layout, device: int, makespan: int, strips: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Centre of each box, and its width and height, in pixels."""
    scale = (layout.right - layout.left) / max(1, makespan)
    half = (layout.lane + 1) // 2
    paired = (boxes.part == UPPER) | (boxes.part == LOWER)
    full = np.where(paired, np.where(boxes.part == UPPER, half, layout.lane - half), layout.lane)
    foot = {height: strip_height(height) if strips else 0 for height in set(full.tolist())}
    height = full - np.array([foot[h] for h in full.tolist()], dtype=np.int64)
    top = np.where(boxes.part == LOWER, half, 0) + layout.lane_top(device) - layout.top
    centres = np.column_stack([(boxes.start + boxes.end) / 2 * scale, top + height / 2])
    return centres, np.column_stack([(boxes.end - boxes.start) * scale, height.astype(np.float64)])


def _extent(
    lettering: Lettering,
    stage: NDArray[np.int64],
    kind: NDArray[np.int64],
    microbatch: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Width and height that each box needs for its label."""
    size = lettering.size
    along = _digits(microbatch) * _advance("0", size) + _CLEAR
    if lettering.whole_ops:
        kinds = np.array([sum(_advance(c, size) for c in name) for name in KINDS])
        along = along + _digits(stage) * _advance("0", size) + kinds[kind]
    across = np.full(len(along), _CAPITAL * size + _CLEAR_ABOVE)
    return np.column_stack([across, along] if lettering.turned else [along, across])


def _digits(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.searchsorted(10 ** np.arange(1, 18), numbers, side="right") + 1


@cache
def _advance(character: str, size: int) -> int:
    """Width of a character; whole pixels, so that equal labels look equal everywhere."""
    return round(text_width(character, size))


def draw_labels(canvas: Canvas, labels: Labels, at: tuple[int, int]) -> None:
    """Stamp the labels character by character: a dozen artists, however many labels."""
    size, turned = labels.lettering.size, labels.lettering.turned
    stamps: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for text, colour, (x, y) in zip(labels.texts, labels.colours, labels.centres, strict=True):
        pen = -sum(_advance(c, size) for c in text) / 2
        base = round(_CAPITAL * size) / 2
        for character in text:
            place = (x + base, y - pen) if turned else (x + pen, y + base)
            stamps[character, colour].append((at[0] + place[0], at[1] + place[1]))
            pen += _advance(character, size)
    for (character, colour), points in stamps.items():
        canvas.stamp(character, size, colour, points, turned=turned)
