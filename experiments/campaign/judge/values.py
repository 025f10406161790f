"""The figures of a schedule: makespan, span, bubbles, memory over time."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from campaign.judge.reading import KINDS, Pipe
from campaign.judge.timed import Op, Timed


def makespan(timed: Timed) -> int:
    return max((slot.end for row in timed.rows for slot in row), default=0)


def span(timed: Timed) -> int:
    return max(
        (max(s.end for s in row) - min(s.start for s in row) for row in timed.rows if row),
        default=0,
    )


def value(timed: Timed, objective: str) -> int:
    return makespan(timed) if objective == "makespan" else span(timed)


def bubbles(timed: Timed) -> dict[str, Fraction | None]:
    """Return the bubble of the makespan and of the span; a pair counts once."""
    loads = [sum(slot.end - slot.start for slot in row) for row in timed.rows]
    whole, longest = makespan(timed), span(timed)
    return {
        "makespan": 1 - Fraction(sum(loads), len(loads) * whole) if whole else None,
        "span": 1 - Fraction(max(loads), longest) if longest else None,
    }


def pair_counts(timed: Timed) -> dict[str, int]:
    """How many pairs of which kinds run."""
    found: dict[str, int] = {}
    for row in timed.rows:
        for slot in row:
            if len(slot.ops) == 2:
                kinds = sorted((op.kind for op in slot.ops), key=KINDS.index)
                found["+".join(kinds)] = found.get("+".join(kinds), 0) + 1
    return found


def levels(pipe: Pipe, timed: Timed, device: int) -> Iterator[tuple[int, int]]:
    """Yield (time, what is held from it on), static memory included.

    Intervals are half-open, so all changes of one instant count together.
    """
    changes: dict[int, int] = {0: 0}

    def hold(amount: int, start: int, end: int) -> None:
        changes[start] = changes.get(start, 0) + amount
        changes[end] = changes.get(end, 0) - amount

    for op, places in timed.where.items():
        stage = pipe.stages[op.stage]
        if stage.device != device or op.kind != "F":
            continue
        fused = timed.where.get(Op(op.stage, "BW", op.microbatch))
        if fused is not None:
            hold(stage.held_F, places[0].start, fused[0].end)
            continue
        back = timed.where[Op(op.stage, "B", op.microbatch)][0]
        weights = timed.where[Op(op.stage, "W", op.microbatch)][0]
        hold(stage.held_F, places[0].start, back.start)
        hold(max(stage.held_F, stage.held_B), back.start, back.end)
        hold(stage.held_B, back.end, weights.end)
    held = pipe.static[device]
    for time in sorted(changes):
        held += changes[time]
        yield time, held


def peaks(pipe: Pipe, timed: Timed) -> list[int]:
    """Most memory that each device holds."""
    return [max(held for _, held in levels(pipe, timed, d)) for d in range(pipe.devices)]
