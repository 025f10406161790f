"""Plans of parts: a panel per op or pair, a row per stream, a bar per part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pipesat.core.amounts import time_text
from pipesat.core.claims import against
from pipesat.picture.style import FILL, INK, MEANING, ink_on

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pipesat.parts.answer import ChunkOp, LeastTime, PairTimes

MOST_PANELS: Final = 12
_WIDTH: Final = 10.0  # inches
_SIZE: Final = 7  # of the names in bars
_LETTERS: Final = 72 * (_WIDTH - 0.6) / (0.57 * _SIZE)  # that fit into a panel's width, about
_ROW: Final = 0.8  # of the distance between two streams


def pictures_of(found: PairTimes, shown: Sequence[tuple[ChunkOp, ...]]) -> dict[str, bytes]:
    """Draw the plans of ops and pairs on one time scale; return the files by format.

    At most :data:`MOST_PANELS` of them; the title says how many more there are. Of two ops, the
    second one's parts are hatched.
    """
    from pipesat.picture.figures import files_of

    return files_of(figure_of_parts(found, shown))


def figure_of_parts(found: PairTimes, shown: Sequence[tuple[ChunkOp, ...]]) -> Figure:
    """Draw the plans of :func:`pictures_of`."""
    from pipesat.picture.figures import figure_of

    return figure_of(lambda: _figure(found, shown))


def _figure(found: PairTimes, shown: Sequence[tuple[ChunkOp, ...]]) -> Figure:
    from pipesat.picture.figures import blank_figure, in_brackets, swatch, unit_of_time

    drawn = shown[:MOST_PANELS]
    plans = [found.together[ops] if len(ops) == 2 else found.alone[ops[0]] for ops in drawn]
    more = f" ({len(shown) - len(drawn)} more)" if len(shown) > len(drawn) else ""
    height = 1.1 + len(drawn) * (0.55 + 0.3 * len(found.parts.streams))
    figure = blank_figure(_WIDTH, height, f"Parts on streams{more}")
    panels = figure.subplots(max(1, len(drawn)), 1, sharex=True, squeeze=False)[:, 0]
    longest = max((plan.plan.length for plan in plans), default=0)
    scale, unit = unit_of_time(found.parts.time_unit, longest)
    for axes, ops, plan in zip(panels, drawn, plans, strict=False):
        _panel(axes, found, ops, plan, scale, _LETTERS / max(1, longest))
        axes.set_xlim(0, max(1, longest) * scale)
    panels[-1].set_xlabel(in_brackets("time", unit), fontsize=8, parse_math=False)
    jobs = [job for plan in plans for job in plan.shop.jobs]
    handles = [swatch(FILL[k], label=MEANING[k]) for k in FILL if k in {job.kind for job in jobs}]
    if any(job.member for job in jobs):
        handles.append(swatch("white", hatch="///", label="the second op of a pair"))
    figure.legend(
        handles=handles,
        loc="outside lower left",
        ncols=max(1, len(handles)),
        frameon=False,
        fontsize=8,
    )
    return figure


def _panel(
    axes: Axes,
    found: PairTimes,
    ops: tuple[ChunkOp, ...],
    plan: LeastTime,
    scale: float,
    letters: float,
) -> None:
    """Draw a plan: a bar per part, with its name where that fits.

    ``scale`` makes times what is shown, ``letters`` have room in one time unit.
    """
    from pipesat.picture.figures import short

    for job, start in zip(plan.shop.jobs, plan.plan.starts, strict=True):
        axes.barh(
            job.stream,
            job.time * scale,
            _ROW,
            start * scale,
            facecolor=FILL[job.kind],
            edgecolor="white",
            linewidth=0.6,
            hatch="///" if job.member else None,
        )
        most = letters * job.time - 1
        fits = (n for n in (f"{job.name} {job.layer}", job.name) if len(n) <= most)
        back = {"facecolor": FILL[job.kind], "edgecolor": "none", "pad": 0.8}
        axes.text(
            (start + job.time / 2) * scale,
            job.stream,
            next(fits, ""),
            ha="center",
            va="center",
            fontsize=_SIZE,
            color=ink_on(FILL[job.kind]),
            parse_math=False,
            bbox=back if job.member else None,
        )
    names = [short(name, 16) for name in found.parts.streams]
    axes.set_yticks(range(len(names)), names, fontsize=8, parse_math=False)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="x", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.axvline(plan.plan.length * scale, color=INK, linewidth=1)
    axes.set_title(short(_title(found, ops, plan), 110), loc="left", fontsize=9, parse_math=False)


def _title(found: PairTimes, ops: tuple[ChunkOp, ...], plan: LeastTime) -> str:
    length, unit = plan.plan.length, found.parts.time_unit
    text = f"{found.name(ops)}: {time_text(length, unit)}"
    if len(ops) == 2:
        in_turn = found.in_turn((ops[0], ops[1]))
        text += f", {against(length, in_turn, f'{time_text(in_turn, unit)} in turn')}"
    return text + f" ({plan.standing.verdict})"
