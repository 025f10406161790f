"""An order as a runtime will run it: only what is needed is changed, each change named."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pipesat.check.checker import check
from pipesat.core.claims import plural
from pipesat.core.errors import Deadlock, NotApplicable, require_applicable
from pipesat.problem.ops import Item, Op, Pair, members, with_ops
from pipesat.problem.plain_problems import without_modes
from pipesat.problem.problem import Problem
from pipesat.problem.rules import in_order, pair_time
from pipesat.runtimes.runtime import Runtime
from pipesat.runtimes.torch.adapt import each, whole_first_backward
from pipesat.schedule.microbatch_order import in_number_order
from pipesat.schedule.schedule import Order, Schedule, ops_in
from pipesat.schedule.timing import time_order


class AsRun(NamedTuple):
    """The schedule that a runtime runs, timed again, and what was changed to get there."""

    schedule: Schedule
    changes: tuple[str, ...]


def as_run(problem: Problem, schedule: Schedule, runtime: Runtime) -> AsRun:
    """Return a schedule as a runtime runs it; unchanged if it can run as it is.

    1. Where it needs microbatches in the order of their numbers, and they are alike: so they run.
    2. Pairs that it does not run as one: an F and a BW become an F and a B and then W, if it runs
       those as one and the problem has their time; else members run in turn.
    3. Where the first stage's backward is whole: BW, or a W directly after its B.
    4. Where all other stages split backwards or none, and these do both: whole ones alone are
       split. Where no backward is split: they are whole.
    """
    runtime.require_of(problem, schedule)
    changes: list[str] = []
    order = schedule.order
    renumbers = bool(runtime.number_order) and not schedule.modes and without_modes(problem).alike
    if renumbers:
        order = _ws_by_number(in_number_order(schedule).order, runtime)
    renamed = order != schedule.order
    first = problem.routes[0].stages[0]
    order, count = _without_pairs(problem, order, runtime, first)
    if count:
        changes.append(f"{count} {plural(count, 'pair')} that it does not run as one put in turn")
    if runtime.first_whole and any(op[:2] == (first, "B") for op in ops_in(order)):
        whole = _whole_first(problem, order, first)
        if whole != order:  # not so where each W follows its B already
            order = whole
            changes.append("the first stage's backward whole")
    if runtime.all_or_none:
        order, change = _all_or_none(problem, order, first, runtime)
        changes += change
    if not runtime.splits and is_split(order):
        order = each(order, _whole)
        changes.append("all backwards whole")
    if renumbers:  # once more: whole backwards may have been split
        numbered, order = order, _ws_by_number(order, runtime)
        if renamed or order != numbered:
            changes.insert(0, "microbatches renumbered: each stage runs them in order")
    _require_by_number(order, runtime)
    if not changes:
        return AsRun(schedule, ())
    now = time_order(problem, order, source=schedule.source)
    if violations := check(problem, now):
        raise NotApplicable(
            f"{runtime.title} would run it so ({'; '.join(changes)}), and that is not valid: "
            f"{violations[0]}"
        )
    return AsRun(now, tuple(changes))


def _ws_by_number(order: Order, runtime: Runtime) -> Order:
    """Let the k-th W of every stage be that of its k-th B, which has ended by then, if need be."""
    if "W" not in runtime.number_order:
        return order
    split: dict[int, Iterator[int]] = {}
    for op in ops_in(order):
        if op.kind == "B" and op.stage not in split:
            same = (o.microbatch for o in ops_in(order) if o[:2] == op[:2])
            split[op.stage] = iter([*same])

    def named(op: Op) -> Op:
        return op._replace(microbatch=next(split[op.stage])) if op.kind == "W" else op

    return each(order, lambda item: [with_ops(item, named)])


def _require_by_number(order: Order, runtime: Runtime) -> None:
    """Pass if every stage runs by number what the runtime runs so."""
    last: dict[tuple[int, str], int] = {}
    for op in ops_in(order):
        key = op.stage, op.event[1]
        if key[1] in runtime.number_order and op.microbatch < last.get(key, -1):
            says = f'solve with target="{runtime.name}" (--for {runtime.name})'
            if op.kind == "W":
                says = 'say "backward": "fused" where microbatches differ'
            raise NotApplicable(
                f"{runtime.title} needs each stage's ops of a kind by microbatch number, and {op} "
                f"comes after {key[0]}{key[1]}{last[key]}: {says}"
            )
        last[key] = op.microbatch


def _without_pairs(
    problem: Problem, order: Order, runtime: Runtime, first: int
) -> tuple[Order, int]:
    """Put the members of pairs in turn that a runtime does not run as one; return how many."""

    def apart(item: Item) -> bool:
        if not isinstance(item, Pair):
            return False
        own = runtime.first_whole and any(o.stage == first and o.kind in ("B", "W") for o in item)
        return own or not runtime.runs_pair(*(op.kind for op in item))

    def found(item: Item) -> Iterable[Item]:
        if not apart(item):
            return [item]
        one, two = sorted(members(item), key=lambda op: op.kind != "F")
        if (one.kind, two.kind) == ("F", "BW") and runtime.runs_pair("B", "F"):
            half = two._replace(kind="B")
            if pair_time(problem, one, half) is not None:
                return [in_order(problem, Pair(one, half)), two._replace(kind="W")]
        return [one, two]

    return each(order, found), sum(apart(item) for row in order for item in row)


def _whole_first(problem: Problem, order: Order, first: int) -> Order:
    if (whole := whole_first_backward(problem, order)) is not None:
        return whole.order

    def found(item: Item) -> list[Item]:
        if not (isinstance(item, Op) and item.stage == first and item.kind in ("B", "W")):
            return [item]
        return [item, item._replace(kind="W")] if item.kind == "B" else []

    return each(order, found)


def _all_or_none(
    problem: Problem, order: Order, first: int, runtime: Runtime
) -> tuple[Order, list[str]]:
    """Split all backwards or none, which is shorter, and say so; whole ones in pairs may stay."""

    def split(item: Item) -> list[Item]:
        if not isinstance(item, Op) or item.kind != "BW" or item.stage == first:
            return [item]
        return [item._replace(kind="B"), item._replace(kind="W")]

    if not is_split(order):
        return order, []
    found = []
    for change, name in ((split, "split"), (_whole, "whole")):
        made = each(order, change)
        if made == order:
            return order, []
        with contextlib.suppress(ValueError, Deadlock):
            timed = time_order(problem, made)
            if not check(problem, timed):
                found.append((timed.makespan, name, made))
    require_applicable(
        found,
        f"{runtime.title} splits all backwards or none, and neither is valid here: solve with "
        f'target="{runtime.name}" (--for {runtime.name})',
    )
    _, name, made = min(found)
    return made, [f"all backwards {name}, as it splits all or none"]


def _whole(item: Item) -> list[Item]:
    """Return an item with a whole backward in the place of B, and no W."""
    if isinstance(item, Op) and item.kind == "W":
        return []
    return [with_ops(item, lambda op: op._replace(kind="BW" if op.kind == "B" else op.kind))]


def is_split(order: Order) -> bool:
    """Whether any backward is split."""
    return any(op.kind == "B" for op in ops_in(order))


def by_place(problem: Problem, order: Order) -> Order:
    """Return an order whose stage k is the k-th of the route."""
    place = problem.place_of
    return each(order, lambda i: [with_ops(i, lambda op: op._replace(stage=place[op.stage]))])
