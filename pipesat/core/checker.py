"""The independent checker: whether a schedule, as it stands in a file, keeps every rule.

It restates the rules of the contract from the given times alone. It shares no code with the timing
of orders, with :mod:`pipesat.core.rules` or with the solver's model: a fault there shows here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise, product

from pipesat.core.arguments import public
from pipesat.core.check_memory import Copies, memory_violations
from pipesat.core.check_ops import Ops, in_turn, one_at_a_time, restated_delay
from pipesat.core.errors import Violation
from pipesat.core.ops import Copy, Item, Op, Pair, Unreadable, members
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule

__all__ = ["Violation", "check"]


@public
def check(problem: Problem, schedule: Schedule) -> list[Violation]:
    """Return every violation; an empty list means that the schedule is valid. O(n log n).

    Parameters
    ----------
    problem
        The problem (a JSON file).
    schedule
        The schedule: a file, a folder that a solve wrote, or the name of a hand-written schedule.
    """
    devices = len(problem.devices)
    if len(schedule.devices) != devices:
        rule = "one per device (empty if it has no ops)"
        text = f"{len(schedule.devices)} device lists, expected {devices}, {rule}"
        return [Violation("device", text)]
    if schedule.copies and len(schedule.copies) != devices:
        text = f"{len(schedule.copies)} lists of copies, expected {devices}, one per device"
        return [Violation("device", text)]
    ops = Ops(problem)
    violations = [v for device, timed in schedule for v in ops.add(device, timed)]
    violations += ops.modes_differ()
    violations += _completeness(problem, ops)
    for device, row in enumerate(schedule.devices):
        where = f"on {problem.device_name(device)}"
        violations += [*in_turn(device, row, where), *one_at_a_time(device, row, where)]
    waits = _waits(problem, ops)
    violations += _inputs(problem, ops, waits)
    violations += _pairs_that_wait(schedule, waits)
    copies = Copies(problem, ops, schedule)
    violations += copies.violations()
    sources: dict[Op | Copy, list[Op | Copy]] = {op: [x] for op, (x, _) in waits.items()}
    for later, earlier in copies.waits():
        sources.setdefault(later, []).append(earlier)
    ties = impossible_ties(problem, schedule, sources)
    violations += [Violation("order", text, None, time) for time, text in ties]
    violations += memory_violations(problem, ops, copies)
    violations += _turns(problem, schedule)
    return violations


def _completeness(problem: Problem, ops: Ops) -> Iterator[Violation]:
    """Every (stage, microbatch) has F and either B and W, or BW, as `backward` allows."""
    for number, stage in enumerate(problem.stages):
        allowed: str = stage.backward
        for microbatch in range(problem.microbatches[number]):
            if stage.modes:
                allowed = ops.amounts(Op(number, "F", microbatch)).backward
            f, b, w, bw = (Op(number, kind, microbatch) for kind in ("F", "B", "W", "BW"))
            has_b, has_w, has_bw = b in ops.times, w in ops.times, bw in ops.times
            where = f"on {problem.device_name(stage.device)}"
            missing = [] if f in ops.times else [str(f)]
            if has_bw:
                for op in [b] * has_b + [w] * has_w:
                    text = f"{op} {where}, but {bw} already is the whole backward"
                    yield Violation("kind", text, stage.device, ops.times[op][0])
                if allowed == "split":
                    text = f"{bw} {where}, but stage {number} allows only B and W"
                    yield Violation("kind", text, stage.device, ops.times[bw][0])
            elif allowed == "fused" and (has_b or has_w):
                text = f"{b if has_b else w} {where}, but stage {number} allows only BW"
                yield Violation("kind", text, stage.device)
                continue
            elif has_b or has_w or allowed == "split":
                missing += [str(b)] * (not has_b) + [str(w)] * (not has_w)
            else:
                choice = str(bw) if allowed == "fused" else f"{bw} (or {b} and {w})"
                missing.append(choice)
            for text in missing:
                yield Violation("missing", f"{text} {where} is missing", stage.device)


def _waits(problem: Problem, ops: Ops) -> dict[Op, tuple[Op, int]]:
    """Return each op's input, if it has one that is there, and the delay until it arrives."""
    waits = {}
    for op in ops.times:
        stage, kind, microbatch, _ = op
        needed: Op | None
        delay = 0
        if kind == "W":
            needed = Op(stage, "B", microbatch)
        elif kind == "F":
            before = problem.previous[stage]
            if before is None:
                continue
            needed = Op(before, "F", microbatch)
            delay = restated_delay(problem, (before, stage), "F", microbatch)
        else:
            after = problem.next[stage]
            if after is None:
                needed = Op(stage, "F", microbatch)
            else:
                needed = ops.backward(after, microbatch)
                delay = restated_delay(problem, (stage, after), "B", microbatch)
        if needed in ops.times:
            waits[op] = needed, delay
    return waits


def _inputs(problem: Problem, ops: Ops, waits: Mapping[Op, tuple[Op, int]]) -> Iterator[Violation]:
    """Nothing starts before its input has arrived. Missing inputs are reported as missing."""
    for op, (needed, delay) in waits.items():
        start, end = ops.times[op][0], ops.times[needed][1]
        if start < end + delay:
            travel = f" and takes {delay} to arrive" if delay else ""
            text = (
                f"{op} starts at {start}, but its input {needed} ends at {end}{travel}: "
                f"not before {end + delay}"
            )
            yield Violation("input", text, problem.stages[op.stage].device, start)


def _pairs_that_wait(schedule: Schedule, waits: Mapping[Op, tuple[Op, int]]) -> Iterator[Violation]:
    """Neither member of a pair waits for the other, directly or through other ops."""
    for device, timed in schedule:
        if not isinstance(timed.item, Pair):
            continue
        for op, other in (timed.item, timed.item[::-1]):
            need = op
            while op.microbatch == other.microbatch and need in waits and need != other:
                need = waits[need][0]
            if need == other != op:
                text = f"{timed.item}: {op} waits for {other}, so they cannot run as one"
                yield Violation("kind", text, device, timed.start)


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
        place = {microbatch: microbatch for microbatch in range(route.microbatches)}
        against = "of the numbers"
        if problem.order == "same":
            place = _one_order(turns, [(s, back) for s in route.stages for back in (False, True)])
            against = f"of stage {route.stages[0]}'s forwards"
        for stage, backward in product(route.stages, (False, True)):
            row = [[m for m in together if m in place] for together in turns[stage, backward]]
            for earlier, later in pairwise(filter(None, row)):
                before, after = (
                    max(earlier, key=place.__getitem__),
                    min(later, key=place.__getitem__),
                )
                if place[after] < place[before]:
                    what = "backward" if backward else "forward"
                    text = (
                        f"stage {stage} runs the {what} of microbatch {before} before that of "
                        f"{after}, against the order {against}"
                    )
                    yield Violation("sequence", text, problem.stages[stage].device)
                    break


def _one_order(
    turns: Mapping[tuple[int, bool], list[list[int]]], rows: list[tuple[int, bool]]
) -> dict[int, int]:
    """Each microbatch's place in the order of the first row; rows after it order its pairs."""
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
    problem: Problem, schedule: Schedule, waits: Mapping[Op | Copy, Sequence[Op | Copy]]
) -> Iterator[tuple[int, str]]:
    """Yield ``(time, complaint)`` for every instant whose items could not run as they are listed.

    ``waits`` has what each op and copy waits for, without the ops' modes. On one device or through
    several: what is listed before something else cannot wait for it.
    """
    instants: dict[int, list[tuple[str, Item | Copy]]] = defaultdict(list)
    for device, row in enumerate(schedule.devices):
        name = problem.device_name(device)
        for item, start, end in row:
            if start == end and not isinstance(item, Unreadable):
                instants[start].append((name, item))
    for device, copies in enumerate(schedule.copies):
        name = f"the copies of {problem.device_name(device)}"
        for copy, start, end in copies:
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
    return tuple(op._replace(mode=0) if op.mode else op for op in members(item))
