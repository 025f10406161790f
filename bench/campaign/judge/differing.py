"""Rules of microbatches that differ and of memory modes: orders, modes, copies."""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise, product
from typing import Any

from campaign.judge.amounts import KEEP
from campaign.judge.reading import Pipe
from campaign.judge.timed import Copy, Op, Timed
from campaign.judge.values import amounts_of


def order_rules(pipe: Pipe, timed: Timed) -> Iterator[str]:
    """Every stage of a route that is a list runs F's and backwards as `order` says.

    Two in one pair count as in either order. All stages have one order if what they say of it does
    not go round in a circle.
    """
    if pipe.order == "free":
        return
    for number, (_, microbatches) in enumerate(pipe.routes):
        if pipe.classes[number] is None:
            continue
        graph: TopologicalSorter[int] = TopologicalSorter()
        for turns in turns_of(pipe, timed, number):
            given = [m for together in turns for m in sorted(together)]
            if pipe.order == "given" and given != [*range(microbatches)]:
                yield f"order: {turns} on route {number} is not that of the numbers"
            for before, after in pairwise(turns):
                for one, other in product(before, after):
                    graph.add(other, one)
        try:
            graph.prepare()
        except CycleError as error:
            yield f"order: the stages of route {number} say {error.args[1]}"


def turns_of(pipe: Pipe, timed: Timed, number: int) -> Iterator[list[list[int]]]:
    """Yield which microbatches each stage of a route runs in turn, forward and then backward."""
    for s, kinds in product(pipe.routes[number][0], (("F",), ("B", "BW"))):
        row = timed.rows[pipe.stages[s].device]
        found = ([op for op in slot.ops if op.stage == s and op.kind in kinds] for slot in row)
        yield [[op.microbatch for op in ops] for ops in found if ops]


def microbatch_order(pipe: Pipe, timed: Timed) -> list[list[int]]:
    """Per route, the microbatches by the first stage's F's; of a pair as other rows have them."""
    order = []
    for number in range(len(pipe.routes)):
        first, *others = turns_of(pipe, timed, number)
        place = [{m: at for at, ops in enumerate(turns) for m in ops} for turns in others]
        same = pipe.order == "same" and pipe.classes[number] is not None
        found: list[int] = []
        for ops in first:
            turned = same and len(ops) == 2 and any(p[min(ops)] > p[max(ops)] for p in place)
            found += sorted(ops, reverse=turned)
        order.append(found)
    return order


def mode_rules(pipe: Pipe, timed: Timed) -> Iterator[str]:
    """Modes are those of their stages, of all microbatches alike where the problem says so."""
    for (s, m), name in timed.modes.items():
        if s not in pipe.route_of or m >= pipe.routes[pipe.route_of[s]][1]:
            yield f"mode: there is no microbatch {m} of stage {s}"
        elif name == KEEP or name not in pipe.modes(s, m):
            yield f"mode: stage {s} has no mode {name!r} to list"
    if pipe.mode_choice == "stage":
        for route, microbatches in pipe.routes:
            for s in route:
                found = {timed.modes.get((s, m), KEEP) for m in range(microbatches)}
                if len(found) > 1:
                    yield f"mode: stage {s} runs in {sorted(found)}"


def copy_counts(pipe: Pipe, timed: Timed) -> Iterator[str]:
    """Exactly one O and one L of each offloaded (stage, microbatch), on its device."""
    wanted = set()
    for route, microbatches in pipe.routes:
        for s in route:
            for m in range(microbatches):
                if amounts_of(pipe, timed, s, m).copies is not None:
                    wanted |= {(s, kind, m) for kind in "OL"}
    seen = set()
    for device, row in enumerate(timed.copies):
        for copy in row:
            if copy[:3] in seen:
                yield f"copy: {_text(copy)} twice"
            elif copy[:3] not in wanted:
                yield f"copy: {_text(copy)} is of no offloaded microbatch"
            elif pipe.stages[copy.stage].device != device:
                yield f"copy: {_text(copy)} on another device"
            seen.add(copy[:3])
    for key in sorted(wanted - seen):
        yield f"copy: {key} is missing"


def copy_rules(pipe: Pipe, timed: Timed) -> Iterator[str]:
    """Lengths, one at a time on every channel, after F and O, before the backward."""
    for device, row in enumerate(timed.copies):
        for before, after in pairwise(row):
            if before[3:] > after[3:]:
                yield f"listing: {_text(before)} before {_text(after)} on device {device}"
        for channel in channels(pipe, device, row):
            for before, after in pairwise(sorted(channel, key=lambda copy: copy[3:])):
                if after.start < before.end:
                    yield f"channel: {_text(before)} and {_text(after)} on device {device}"
        for copy in row:
            yield from _of_copy(pipe, timed, copy)


def _of_copy(pipe: Pipe, timed: Timed, copy: Copy) -> Iterator[str]:
    copies = amounts_of(pipe, timed, copy.stage, copy.microbatch).copies
    assert copies is not None
    if copy.start < 0:
        yield f"start: {_text(copy)} starts before 0"
    if copy.end - copy.start != copies["OL".index(copy.kind)]:
        yield f"duration: {_text(copy)} lasts {copy.end - copy.start}"
    forward, back = _ends(timed, copy)
    if copy.kind == "O":
        if copy.start < forward:
            yield f"copy: {_text(copy)} starts before its F has ended"
        return
    out = timed.copy_of("O", copy.stage, copy.microbatch)
    assert out is not None
    if copy.start < out.end:
        yield f"copy: {_text(copy)} starts before its copy out has ended"
    if back < copy.end:
        yield f"copy: the backward starts before {_text(copy)} has ended"


def channels(pipe: Pipe, device: int, row: list[Copy]) -> list[list[Copy]]:
    """Copies of each channel of a device."""
    if pipe.channels[device] == 1:
        return [row]
    return [[copy for copy in row if copy.kind == kind] for kind in "OL"]


def copy_ties(pipe: Pipe, timed: Timed) -> Iterator[tuple[Any, Any]]:
    """What has to come before what, copies among the ops; nodes as places of lists."""
    for device, row in enumerate(timed.copies):
        for channel in channels(pipe, device, row):
            for before, after in pairwise(channel):
                yield before[:3], after[:3]
        for copy in row:
            if copy.kind == "O":
                yield _place(timed, copy, "F"), copy[:3]
                yield copy[:3], (copy.stage, "L", copy.microbatch)
            else:
                kind = "BW" if Op(copy.stage, "BW", copy.microbatch) in timed.where else "B"
                yield copy[:3], _place(timed, copy, kind)


def _place(timed: Timed, copy: Copy, kind: str) -> tuple[int, int]:
    return timed.where[Op(copy.stage, kind, copy.microbatch)][0][:2]


def _ends(timed: Timed, copy: Copy) -> tuple[int, int]:
    """End of the F and start of the backward of a copy's microbatch."""
    kind = "BW" if Op(copy.stage, "BW", copy.microbatch) in timed.where else "B"
    forward = timed.where[Op(copy.stage, "F", copy.microbatch)][0]
    return forward.end, timed.where[Op(copy.stage, kind, copy.microbatch)][0].start


def _text(copy: Copy) -> str:
    return f"{copy.stage}{copy.kind}{copy.microbatch}"
