"""The figures of a schedule: makespan, span, bubbles, memory over time."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from campaign.judge.amounts import KEEP, Stage
from campaign.judge.reading import KINDS, Pipe
from campaign.judge.timed import Op, Slot, Timed


def makespan(timed: Timed) -> int:
    return max((slot.end for row in timed.rows for slot in row), default=0)


def span(timed: Timed) -> int:
    return max(
        (max(s.end for s in row) - min(s.start for s in row) for row in timed.rows if row),
        default=0,
    )


def value(timed: Timed, objective: str) -> int:
    return makespan(timed) if objective == "makespan" else span(timed)


def amounts_of(pipe: Pipe, timed: Timed, stage: int, microbatch: int) -> Stage:
    """What the problem says of a microbatch in the mode that the schedule gives it."""
    return pipe.modes(stage, microbatch)[timed.modes.get((stage, microbatch), KEEP)]


def useful(pipe: Pipe, slot: Slot) -> int:
    """Time of an op or pair, at most what it takes with all members in keep."""
    keep = [pipe.modes(op.stage, op.microbatch)[KEEP] for op in slot.ops]
    if len(slot.ops) == 1:
        least: int | None = getattr(keep[0], slot.ops[0].kind)
    else:
        one, other = slot.ops
        least = pipe.pair_time(one[:2], other[:2], *keep)
    assert least is not None
    return min(slot.end - slot.start, least)


def bubbles(pipe: Pipe, timed: Timed) -> dict[str, Fraction | None]:
    """Return the bubble of the makespan and of the span; a pair counts once, copies do not."""
    loads = [sum(useful(pipe, slot) for slot in row) for row in timed.rows]
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


def mode_counts(pipe: Pipe, timed: Timed) -> dict[str, int]:
    """How many (stage, microbatch) run in which mode; modes of no stage are left out."""
    names = dict.fromkeys(name for rows in pipe.ways for name in rows[0])
    counts = dict.fromkeys([KEEP, *names], 0)
    counts[KEEP] = sum(len(route) * microbatches for route, microbatches in pipe.routes)
    for name in timed.modes.values():
        counts[name] += 1
        counts[KEEP] -= 1
    return counts


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
        data = amounts_of(pipe, timed, op.stage, op.microbatch)
        fused = timed.where.get(Op(op.stage, "BW", op.microbatch))
        back = (fused or timed.where[Op(op.stage, "B", op.microbatch)])[0]
        if data.copies is None:
            hold(data.held_F, places[0].start, back.start)
        else:
            out = timed.copy_of("O", op.stage, op.microbatch)
            load = timed.copy_of("L", op.stage, op.microbatch)
            assert out is not None
            assert load is not None
            hold(data.held_F, places[0].start, out.end)
            hold(data.copies[2], out.end, load.start)
            hold(data.held_F, load.start, back.start)
        most = max(data.held_F, data.held_x)
        if fused is not None:
            hold(most, back.start, back.end)
            continue
        weights = timed.where[Op(op.stage, "W", op.microbatch)][0]
        hold(max(most, data.held_B), back.start, back.end)
        hold(data.held_B, back.end, weights.end)
    held = pipe.static[device]
    for time in sorted(changes):
        held += changes[time]
        yield time, held


def peaks(pipe: Pipe, timed: Timed) -> list[int]:
    """Most memory that each device holds."""
    return [max(held for _, held in levels(pipe, timed, d)) for d in range(pipe.devices)]
