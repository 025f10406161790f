"""Every rule that a schedule can break, restated from the definition of a valid schedule."""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

from campaign.judge.differing import (
    copy_counts,
    copy_rules,
    copy_ties,
    mode_rules,
    order_rules,
)
from campaign.judge.reading import Pipe
from campaign.judge.timed import Op, Slot, Timed, op_text, read_timed
from campaign.judge.values import amounts_of, levels


def broken_rules(pipe: Pipe, sha256: str, document: Any) -> list[str]:
    """Return what is wrong with a schedule document; nothing if it is valid."""
    timed, wrong = read_timed(document, pipe.devices)
    if wrong:
        return [f"form: {what}" for what in wrong]
    if document.get("problem_sha256") != sha256:
        return ["digest: of another problem"]
    wrong = [*mode_rules(pipe, timed)] or [*_counts(pipe, timed), *copy_counts(pipe, timed)]
    if wrong:
        return wrong
    return [
        *_lengths(pipe, timed),
        *copy_rules(pipe, timed),
        *_members(pipe, timed),
        *_lists(timed),
        *_waits(pipe, timed),
        *order_rules(pipe, timed),
        *_ties(pipe, timed),
        *_memory(pipe, timed),
    ]


def _counts(pipe: Pipe, timed: Timed) -> Iterator[str]:
    """Exactly F and either {B, W} or {BW}, on the stage's device."""
    wanted: set[Op] = set()
    for route, microbatches in pipe.routes:
        for s in route:
            for m in range(microbatches):
                stage = amounts_of(pipe, timed, s, m)
                fused = Op(s, "BW", m) in timed.where
                if fused and not stage.may_fuse:
                    yield f"backward: stage {s} may not fuse"
                if not fused and not stage.may_split:
                    yield f"backward: stage {s} may not split"
                kinds = ("F", "BW") if fused else ("F", "B", "W")
                wanted.update(Op(s, kind, m) for kind in kinds)
    for op in wanted - timed.where.keys():
        yield f"missing: {op_text(op)}"
    for op, places in timed.where.items():
        if op not in wanted:
            yield f"extra: {op_text(op)}"
        elif len(places) > 1:
            yield f"twice: {op_text(op)}"
        elif places[0].device != pipe.stages[op.stage].device:
            yield f"device: {op_text(op)}"


def _lengths(pipe: Pipe, timed: Timed) -> Iterator[str]:
    for row in timed.rows:
        for slot in row:
            if slot.start < 0:
                yield f"start: {_text(slot)} starts before 0"
            length = length_of(pipe, timed, slot)
            if isinstance(length, str):
                yield length
            elif slot.end - slot.start != length:
                yield f"duration: {_text(slot)} lasts {slot.end - slot.start}, not {length}"


def length_of(pipe: Pipe, timed: Timed, slot: Slot) -> int | str:
    """Duration of an op or a pair, or why it may not run."""
    amounts = [amounts_of(pipe, timed, op.stage, op.microbatch) for op in slot.ops]
    if len(slot.ops) == 1:
        return int(getattr(amounts[0], slot.ops[0].kind))
    one, other = slot.ops
    if (one.stage, one.microbatch) == (other.stage, other.microbatch):
        return f"pair: {_text(slot)} is of one stage and microbatch"
    time = pipe.pair_time(one[:2], other[:2], *amounts)
    return f"pair: {_text(slot)}, which the problem does not allow" if time is None else time


def _members(pipe: Pipe, timed: Timed) -> Iterator[str]:
    """Members as written: as listed, of one kind the lower microbatch first, by FB the F first."""
    for row in timed.rows:
        for slot in row:
            if len(slot.ops) == 2:
                one, other = slot.ops
                if one[:2] == other[:2]:
                    right = one.microbatch < other.microbatch
                elif (one[:2], other[:2]) in pipe.pairs or (other[:2], one[:2]) in pipe.pairs:
                    right = (one[:2], other[:2]) in pipe.pairs
                else:  # by FB, or not allowed at all, which is said elsewhere
                    right = pipe.pair is None or other.kind != "F"
                if not right:
                    yield f"members: {_text(slot)} has its members in the wrong order"


def _lists(timed: Timed) -> Iterator[str]:
    """Sorted by (start, end), no overlap; that puts no op of length 0 strictly inside another."""
    for device, row in enumerate(timed.rows):
        for before, after in pairwise(row):
            if (before.start, before.end) > (after.start, after.end):
                yield f"listing: {_text(before)} before {_text(after)} on device {device}"
        in_time = sorted(row, key=lambda slot: (slot.start, slot.end))
        for before, after in pairwise(in_time):
            if after.start < before.end:
                yield f"overlap: {_text(before)} and {_text(after)} on device {device}"


def inputs(pipe: Pipe, timed: Timed) -> Iterator[tuple[Op, Op, int]]:
    """Every (op, op that waits for it, delay)."""
    for route, microbatches in pipe.routes:
        for m in range(microbatches):

            def backward(s: int, m: int = m) -> Op:
                fused = Op(s, "BW", m)
                return fused if fused in timed.where else Op(s, "B", m)

            for here, there in pairwise(route):
                forth, back = pipe.delay_of(here, there, m)
                yield Op(here, "F", m), Op(there, "F", m), forth
                yield backward(there), backward(here), back
            yield Op(route[-1], "F", m), backward(route[-1]), 0
            for s in route:
                if backward(s).kind == "B":
                    yield Op(s, "B", m), Op(s, "W", m), 0


def _waits(pipe: Pipe, timed: Timed) -> Iterator[str]:
    for before, after, delay in inputs(pipe, timed):
        ready, start = timed.where[before][0].end + delay, timed.where[after][0].start
        if start < ready:
            yield f"input: {op_text(after)} starts at {start}, its input is there at {ready}"


def _ties(pipe: Pipe, timed: Timed) -> Iterator[str]:
    """Lists are in order of execution: run in turn, they never wait for each other in a circle."""
    graph: TopologicalSorter[tuple[Any, ...]] = TopologicalSorter()
    for device, row in enumerate(timed.rows):
        for position in range(1, len(row)):
            graph.add((device, position), (device, position - 1))
    for before, after, _ in inputs(pipe, timed):
        one, other = timed.where[before][0], timed.where[after][0]
        if one[:2] != other[:2]:
            graph.add(other[:2], one[:2])
        else:
            yield f"pair: {op_text(after)} waits for its own partner"
    for one, other in copy_ties(pipe, timed):
        graph.add(other, one)
    try:
        graph.prepare()
    except CycleError as error:
        yield f"listing: the lists wait for each other at {error.args[1]}"


def _memory(pipe: Pipe, timed: Timed) -> Iterator[str]:
    for device, capacity in enumerate(pipe.memory):
        if capacity is None:
            continue
        over = [(at, held) for at, held in levels(pipe, timed, device) if held > capacity]
        if over:
            yield f"memory: device {device} holds {over[0][1]} of {capacity} from {over[0][0]} on"


def _text(slot: Slot) -> str:
    words = [op_text(op) for op in slot.ops]
    return words[0] if len(words) == 1 else f"({'+'.join(words)})"
