"""Plans of parts: a panel per op or pair, a row per stream, a bar per part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pipesat.core.claims import against
from pipesat.picture.both_formats import blank_figure, figure_of, png_and_svg
from pipesat.picture.lettering import fitted, text_width
from pipesat.picture.style import FAINT_INK, FILL, INK, INK_ON, MEANING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pipesat.parts.answer import ChunkOp, LeastTime, PairTimes
    from pipesat.parts.shop import Job

MOST_PANELS: Final = 12
_WIDTH: Final = 13.0  # inches
_POINTS: Final = 72 * (_WIDTH - 1.2)  # that a panel is wide, about
_SIZE: Final = 7.5  # of the names in bars
_ROW: Final = 0.8  # of the distance between two streams


def pictures_of(found: PairTimes, shown: Sequence[tuple[ChunkOp, ...]]) -> dict[str, bytes]:
    """Draw the plans of ops and pairs on one time scale; return the files ``png`` and ``svg``.

    At most :data:`MOST_PANELS` of them; the title says how many more there are. Of two ops, the
    second one's parts are hatched.
    """
    return png_and_svg(lambda: _figure(found, shown))


def figure_of_parts(found: PairTimes, shown: Sequence[tuple[ChunkOp, ...]]) -> Figure:
    """Draw the plans of :func:`pictures_of`."""
    return figure_of(lambda: _figure(found, shown))


def _figure(found: PairTimes, shown: Sequence[tuple[ChunkOp, ...]]) -> Figure:
    drawn = shown[:MOST_PANELS]
    plans = [found.together[ops] if len(ops) == 2 else found.alone[ops[0]] for ops in drawn]
    streams = len(found.parts.streams)
    height = 0.9 + len(drawn) * (0.75 + 0.36 * streams)
    figure = blank_figure(_WIDTH, height)
    panels = figure.subplots(max(1, len(drawn)), 1, sharex=True, squeeze=False)[:, 0]
    longest = max((plan.plan.length for plan in plans), default=0)
    for axes, ops, plan in zip(panels, drawn, plans, strict=False):
        _panel(axes, found, ops, plan, longest)
    unit = f" ({found.parts.time_unit})" if found.parts.time_unit else ""
    panels[-1].set_xlabel(fitted(f"time{unit}", 400, 10), parse_math=False)
    more = f" ({len(shown) - len(drawn)} more)" if len(shown) > len(drawn) else ""
    figure.suptitle(f"Parts on streams{more}", x=0.01, ha="left", weight="bold")
    _legend(figure, plans)
    return figure


def _panel(
    axes: Axes, found: PairTimes, ops: tuple[ChunkOp, ...], plan: LeastTime, longest: int
) -> None:
    for job, start in zip(plan.shop.jobs, plan.plan.starts, strict=True):
        _bar(axes, job, start, longest)
    names = [fitted(name, 80, 9) for name in found.parts.streams]
    axes.set_yticks(range(len(names)), names, fontsize=9, parse_math=False)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, max(1, longest))
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.axvline(plan.plan.length, color=INK, linewidth=1)
    axes.set_title(
        fitted(_title(found, ops, plan), _POINTS, 10), loc="left", fontsize=10, parse_math=False
    )


def _title(found: PairTimes, ops: tuple[ChunkOp, ...], plan: LeastTime) -> str:
    length, standing = plan.plan.length, plan.standing
    text = f"{found.name(ops)}: {length:,}"
    if len(ops) == 2:
        in_turn = found.in_turn((ops[0], ops[1]))
        text += f", {against(length, in_turn, f'{in_turn:,} in turn')}"
    return text + f" ({standing.verdict})"


def _bar(axes: Axes, job: Job, start: int, longest: int) -> None:
    axes.broken_barh(
        [(start, job.time)],
        (job.stream - _ROW / 2, _ROW),
        facecolor=FILL[job.kind],
        edgecolor="white",
        linewidth=0.6,
        hatch="///" if job.member else None,
    )
    width = _POINTS * job.time / max(1, longest) - 3
    fits = (n for n in (f"{job.name} {job.layer}", job.name) if text_width(n, _SIZE) < width)
    if name := next(fits, ""):
        box = {"facecolor": FILL[job.kind], "edgecolor": "none", "pad": 0.8}
        axes.text(
            start + job.time / 2,
            job.stream,
            name,
            ha="center",
            va="center",
            fontsize=_SIZE,
            color=INK_ON[job.kind],
            parse_math=False,
            bbox=box if job.member else None,
        )


def _legend(figure: Figure, plans: Sequence[LeastTime]) -> None:
    from matplotlib.patches import Patch

    kinds = {job.kind for plan in plans for job in plan.shop.jobs}
    handles = [Patch(facecolor=FILL[k], label=MEANING[k]) for k in FILL if k in kinds]
    if any(job.member for plan in plans for job in plan.shop.jobs):
        hatched = {"facecolor": "white", "edgecolor": FAINT_INK, "hatch": "///"}
        handles.append(Patch(**hatched, label="the second op of a pair"))  # type: ignore[arg-type]
    figure.legend(handles=handles, loc="outside upper right", ncols=len(handles), frameon=False)
