"""Every rule of the contract, asked of a schedule's times, for all its ops at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise, product
from typing import Literal

import numpy as np

from pipesat.check.check_memory import Copies, memory_violations
from pipesat.check.check_ops import (
    BACKWARDS,
    CheckedOps,
    OpColumn,
    crowded,
    in_turn,
    integers,
    one_at_a_time,
    plain,
    restated_delay,
)
from pipesat.core.arrays import Ints
from pipesat.core.errors import Violation
from pipesat.problem.ops import KINDS, Copy, Item, Op, Unreadable, members
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Schedule


def violations_of(problem: Problem, schedule: Schedule) -> list[Violation]:
    """Return every violation: what :func:`pipesat.check.checker.check` promises."""
    devices = len(problem.devices)
    if len(schedule.devices) != devices:
        rule = "one per device (empty if it has no ops)"
        text = f"{len(schedule.devices)} device lists, expected {devices}, {rule}"
        return [Violation("device", text)]
    if schedule.copies and len(schedule.copies) != devices:
        text = f"{len(schedule.copies)} lists of copies, expected {devices}, one per device"
        return [Violation("device", text)]
    ops = CheckedOps(problem, schedule)
    violations = [*ops.violations(), *ops.modes_differ(), *_completeness(problem, ops)]
    for device in crowded(ops.starts, ops.ends, ops.devices):
        row, where = schedule.devices[device], f"on {problem.device_name(device)}"
        violations += [*in_turn(device, row, where), *one_at_a_time(device, row, where)]
    waits = CheckedWaits(problem, ops)
    violations += [*waits.violations(), *waits.pairs_that_wait()]
    copies = Copies(problem, ops, schedule)
    violations += copies.violations()
    ties = impossible_ties(problem, ops, copies, waits.at_once(copies))
    violations += [Violation("order", text, None, time) for time, text in ties]
    violations += memory_violations(problem, ops, copies)
    violations += _turns(problem, schedule)
    return violations


def _completeness(problem: Problem, ops: CheckedOps) -> Iterator[Violation]:
    """Every (stage, microbatch) has F and either B and W, or BW, as `backward` allows."""
    has_f, has_b, has_w, has_bw = ops.number >= 0
    allowed = ops.of_cells(OpColumn.backward)
    split = has_b & has_w & ~has_bw & (allowed != BACKWARDS.index("fused"))
    fused = has_bw & ~has_b & ~has_w & (allowed != BACKWARDS.index("split"))
    alone = ~(has_b | has_w | has_bw)
    backward = np.where(allowed == BACKWARDS.index("none"), alone, split | fused)
    for cell in np.flatnonzero(~(has_f & backward)):
        yield from _incomplete(problem, ops, int(cell))


def _incomplete(problem: Problem, ops: CheckedOps, cell: int) -> Iterator[Violation]:
    """Say what a (stage, microbatch) lacks, or has too much."""
    f, b, w, bw = (ops.op(cell, kind) for kind in KINDS)
    has_f, has_b, has_w, has_bw = map(ops.has, (f, b, w, bw))
    stage = problem.stages[f.stage]
    allowed = BACKWARDS[ops.of_cells(OpColumn.backward)[cell]]
    where = f"on {problem.device_name(stage.device)}"
    missing = [] if has_f else [str(f)]
    if allowed == "none":
        for op in [b] * has_b + [w] * has_w + [bw] * has_bw:
            text = f"{op} {where}, but stage {f.stage} has no backward"
            yield Violation("kind", text, stage.device, ops.time(op)[0])
    elif has_bw:
        for op in [b] * has_b + [w] * has_w:
            text = f"{op} {where}, but {bw} already is the whole backward"
            yield Violation("kind", text, stage.device, ops.time(op)[0])
        if allowed == "split":
            text = f"{bw} {where}, but stage {f.stage} allows only B and W"
            yield Violation("kind", text, stage.device, ops.time(bw)[0])
    elif allowed == "fused" and (has_b or has_w):
        text = f"{b if has_b else w} {where}, but stage {f.stage} allows only BW"
        yield Violation("kind", text, stage.device)
        return
    elif has_b or has_w or allowed == "split":
        missing += [str(b)] * (not has_b) + [str(w)] * (not has_w)
    else:
        missing.append(str(bw) if allowed == "fused" else f"{bw} (or {b} and {w})")
    for text in missing:
        yield Violation("missing", f"{text} {where} is missing", stage.device)


class CheckedWaits:
    """Who waits for what: by number, an op, one that it waits for, and the delay of that input.

    Missing ops are left out: they are reported as missing.
    """

    def __init__(self, problem: Problem, ops: CheckedOps) -> None:
        self.problem, self.ops = problem, ops
        rows = [row for rows in (self._of_routes(), self._of_slices()) for row in rows]
        _, b, w, _ = range(len(KINDS))
        rows.append((ops.number[w], ops.number[b], np.zeros_like(ops.number[b])))
        later, source, delay = (np.concatenate(column) for column in zip(*rows, strict=True))
        there = (later >= 0) & (source >= 0)
        self.later, self.source, self.delay = later[there], source[there], delay[there]

    def _of_routes(self) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Forwards along the edges of routes, backwards against them, the last after their F."""
        ops = self.ops
        forward, backward = self._phases()
        for route in self.problem.routes:
            numbers = np.arange(route.microbatches)
            leads = {src for src, _ in route.edges}
            for src, dst in route.edges:
                here, there = ops.offset[src] + numbers, ops.offset[dst] + numbers
                yield forward[there], forward[here], self._delays((src, dst), "F")
                if self._has_backward(src):
                    yield backward[here], backward[there], self._delays((src, dst), "B")
            for stage in route.stages:
                if stage not in leads and self._has_backward(stage):
                    own = ops.offset[stage] + numbers
                    yield backward[own], forward[own], np.zeros_like(own)

    def _of_slices(self) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Within a sequence, forwards ascend and backwards descend, on every stage."""
        forward, backward = self._phases()
        for route in self.problem.routes:
            numbers = np.arange(route.microbatches)
            for stage in route.stages if route.slices > 1 else ():
                earlier = self.ops.offset[stage] + numbers[(numbers + 1) % route.slices != 0]
                none = np.zeros_like(earlier)
                yield forward[earlier + 1], forward[earlier], none
                if self._has_backward(stage):
                    yield backward[earlier], backward[earlier + 1], none

    def _phases(self) -> tuple[Ints, Ints]:
        """Number of each cell's forward, and of its backward, B or BW."""
        f, b, _, bw = self.ops.number
        return f, np.where(b >= 0, b, bw)

    def _has_backward(self, stage: int) -> bool:
        return self.problem.stages[stage].backward != "none"

    def _delays(self, hop: tuple[int, int], direction: Literal["F", "B"]) -> Ints:
        """Delay of an edge's data for each microbatch of its route: alike within a class."""
        route = self.problem.routes[self.problem.route_of[hop[0]]]
        classes = np.array(route.classes or [0] * route.microbatches)
        own, first = np.unique(classes, return_index=True)
        found = np.zeros(1 + own.max(initial=0), dtype=object)
        for of_class, number in zip(own.tolist(), first.tolist(), strict=True):
            found[of_class] = restated_delay(self.problem, hop, direction, number)
        return integers(found[classes].tolist())

    def violations(self) -> Iterator[Violation]:
        """Nothing starts before its inputs have arrived."""
        ops = self.ops
        late = np.flatnonzero(ops.start[self.later] < ops.end[self.source] + self.delay)
        for at in late[np.argsort(self.later[late], kind="stable")].tolist():
            op, needed = ops.ops[self.later[at]], ops.ops[self.source[at]]
            times = (ops.start[self.later[at]], ops.end[self.source[at]], self.delay[at])
            start, end, delay = map(int, times)
            travel = f" and takes {delay} to arrive" if delay else ""
            text = (
                f"{op} starts at {start}, but its input {needed} ends at {end}{travel}: "
                f"not before {end + delay}"
            )
            yield Violation("input", text, self.problem.stages[op.stage].device, start)

    def pairs_that_wait(self) -> Iterator[Violation]:
        """Neither member of a pair waits for the other, directly or through other ops."""
        ops = self.ops
        pairs = np.flatnonzero(ops.entry[:-1] == ops.entry[1:])
        slices = np.array([self.problem.routes[r].slices for r in self.problem.route_of])
        stage = ops.stage_of[ops.cell]
        routes = np.array(self.problem.route_of)[stage]
        sequence = ops.microbatch_of[ops.cell] // slices[stage]
        own = [column[pairs] == column[pairs + 1] for column in (routes, sequence)]
        pairs = pairs[np.all(own, axis=0)]
        if not len(pairs):
            return
        by_op = np.argsort(self.later, kind="stable")
        begin = np.searchsorted(self.later[by_op], np.arange(len(ops.ops) + 1))
        sources = self.source[by_op]
        for at in pairs.tolist():
            for here, there in ((at, at + 1), (at + 1, at)):
                if ops.cell[here] == ops.cell[there]:
                    continue  # reported as a pair of one stage and microbatch
                seen, ahead = {here}, [here]
                while ahead and there not in seen:
                    one = ahead.pop()
                    new = {*sources[begin[one] : begin[one + 1]].tolist()} - seen
                    seen |= new
                    ahead += new
                if there in seen:
                    pair, start, _ = ops.timed[ops.entry[at]]
                    text = f"{pair}: {ops.ops[here]} waits for {ops.ops[there]}"
                    device = int(ops.devices[ops.entry[at]])
                    yield Violation("kind", f"{text}, so they cannot run as one", device, start)

    def at_once(self, copies: Copies) -> dict[Op | Copy, list[Op | Copy]]:
        """What each op of length zero waits for, and each copy and what waits for it."""
        ops = self.ops
        sources: dict[Op | Copy, list[Op | Copy]] = defaultdict(list)
        for at in np.flatnonzero(ops.start[self.later] == ops.end[self.later]).tolist():
            later, source = ops.ops[self.later[at]], ops.ops[self.source[at]]
            sources[plain(later)].append(plain(source))
        for later_one, earlier in copies.waits():
            sources[later_one].append(earlier)
        return sources


def _turns(problem: Problem, schedule: Schedule) -> Iterator[Violation]:
    """Where microbatches are a list: the order in which stages run forwards, and backwards."""
    if problem.order == "free":
        return
    turns: dict[tuple[int, bool], list[list[int]]] = defaultdict(list)  # (stage, backward)
    for _, timed in schedule:
        here: dict[tuple[int, bool], list[int]] = {}  # of a pair maybe two, in either order
        for op in members(timed.item) if not isinstance(timed.item, Unreadable) else ():
            if op.kind != "W":
                here.setdefault((op.stage, op.kind != "F"), []).append(op.microbatch)
        for key, microbatches in here.items():
            turns[key].append(microbatches)
    for route in problem.routes:
        if route.classes is None:
            continue
        place = {number: number for number in range(route.microbatches // route.slices)}
        against = "of the numbers"
        if problem.order == "same":
            rows = [(s, back) for s in route.stages for back in (False, True)]
            place = _one_order(turns, rows, route.slices)
            against = f"of stage {route.stages[0]}'s forwards"
        for stage, backward in product(route.stages, (False, True)):
            in_row = partial(_place_in_row, place, route.slices, backward)
            row = [
                [m for m in together if m // route.slices in place]
                for together in turns[stage, backward]
            ]
            for earlier, later in pairwise(filter(None, row)):
                before, after = max(earlier, key=in_row), min(later, key=in_row)
                if in_row(after) < in_row(before):
                    what = "backward" if backward else "forward"
                    text = (
                        f"stage {stage} runs the {what} of microbatch {before} before that of "
                        f"{after}, against the order {against}"
                    )
                    yield Violation("sequence", text, problem.stages[stage].device)
                    break


def _place_in_row(
    place: Mapping[int, int], slices: int, backward: bool, microbatch: int
) -> tuple[int, int]:
    """Where a microbatch stands in a stage's row: its sequence's place, then its slice's."""
    sequence, number = divmod(microbatch, slices)
    return place[sequence], -number if backward else number


def _one_order(
    turns: Mapping[tuple[int, bool], list[list[int]]], rows: list[tuple[int, bool]], slices: int
) -> dict[int, int]:
    """Each sequence's place in the order of the first row; rows after it order its pairs.

    A sequence stands where its first slice does. Without slices, that is a microbatch.
    """
    if slices > 1:
        first = [m for two in turns[rows[0]] for m in sorted(two) if not m % slices]
        return {m // slices: at for at, m in enumerate(first)}
    place: dict[int, int] = {}
    later: dict[int, set[int]] = defaultdict(set)  # of two in a pair: what others run after it
    for row in rows[1:]:
        seen: dict[int, int] = {m: at for at, two in enumerate(turns[row]) for m in two}
        for first in turns[rows[0]]:
            if len(first) == 2 and all(m in seen for m in first):
                one, other = sorted(first, key=seen.__getitem__)
                if seen[one] < seen[other]:
                    later[one].add(other)
    for first in turns[rows[0]]:
        ordered = sorted(first)
        if len(ordered) == 2 and ordered[0] in later[ordered[1]]:
            ordered.reverse()
        place |= {m: len(place) + at for at, m in enumerate(ordered)}
    return place


def impossible_ties(
    problem: Problem,
    ops: CheckedOps,
    copies: Copies,
    waits: Mapping[Op | Copy, Sequence[Op | Copy]],
) -> Iterator[tuple[int, str]]:
    """Yield ``(time, complaint)`` for every instant whose items could not run as they are listed.

    ``waits`` has what each op and copy waits for, without the ops' modes. On one device or through
    several: what is listed before something else cannot wait for it.
    """
    instants: dict[int, list[tuple[str, Item | Copy]]] = defaultdict(list)
    for entry in np.flatnonzero(ops.starts == ops.ends).tolist():
        item, start, _ = ops.timed[entry]
        if not isinstance(item, Unreadable):
            instants[start].append((problem.device_name(int(ops.devices[entry])), item))
    for device, row in enumerate(copies.schedule.copies):
        name = f"the copies of {problem.device_name(device)}"
        for copy, start, end in row:
            if start == end and not isinstance(copy, Unreadable):
                instants[start].append((name, copy))
    for time, listed in sorted(instants.items()):
        if len(listed) > 1 and (complaint := _complaint(listed, waits)):
            yield time, f"no order of execution at {time}: {complaint}"


def _complaint(
    listed: Sequence[tuple[str, Item | Copy]], waits: Mapping[Op | Copy, Sequence[Op | Copy]]
) -> str:
    """Why these items of one instant cannot run as they are listed; ``""`` if they can."""
    reasons: dict[tuple[Item | Copy, Item | Copy], str] = {}  # (earlier, later)
    last: dict[str, Item | Copy] = {}
    homes = {op: item for _, item in listed for op in _parts(item)}
    for name, item in listed:
        if name in last:
            reasons[last[name], item] = f"{item} is listed after {last[name]} on {name}"
        last[name] = item
        for op in _parts(item):
            for source in waits.get(op, ()):
                if source in homes:
                    reasons[homes[source], item] = f"{item} waits for {homes[source]}"
    graph: TopologicalSorter[Item | Copy] = TopologicalSorter()
    for earlier, later in reasons:
        graph.add(later, earlier)
    try:
        graph.prepare()
    except CycleError as error:
        cycle: list[Item | Copy] = error.args[1]
        return ", ".join(reasons[pair] for pair in pairwise(cycle))
    return ""


def _parts(item: Item | Copy) -> tuple[Op | Copy, ...]:
    """A copy, or the ops of an item, without their modes."""
    if isinstance(item, Copy):
        return (item,)
    return tuple(map(plain, members(item)))
