"""An order made fit for torch: only what is needed, each change named."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pipesat.check.checker import check
from pipesat.core.errors import NotApplicable, require_applicable
from pipesat.problem.ops import Copy, Item, Op, Pair, members, with_ops
from pipesat.problem.plain_problems import require_chains
from pipesat.problem.problem import Problem
from pipesat.schedule.microbatch_order import permuted
from pipesat.schedule.schedule import Order, Schedule, ops_in
from pipesat.schedule.timing import retime, time_order

_Named = TypeVar("_Named", Op, Copy)
_MOST_OPS_FOR_STAGEWISE_FUSING = 2_000_000  # ops times stages: beyond, all or nothing


@dataclass(frozen=True)
class Adapted:
    """The schedule that torch will run, timed again, and what was changed to get there.

    ``problem`` is the problem with its microbatches in the order of ``entering``: torch's number j
    is the problem's own ``entering[j]``. It matters where microbatches differ.
    """

    schedule: Schedule
    problem: Problem
    entering: tuple[int, ...]
    changes: tuple[str, ...] = field(default=())


def adapt(problem: Problem, schedule: Schedule, *, exact: bool = False) -> Adapted:
    """Return the schedule as torch can run it; unchanged if it can run as it is.

    1. Relabel microbatches so that the last stage's forwards run in order (torch reads losses by
       microbatch, but stores them by execution).
    2. Write the first stage's backward whole, as BW: torch does nothing in its I and all in its W.
    3. Fuse a B directly followed by its own W where neither makespan nor memory gets worse: torch's
       split backward has overhead.

    The F of a pair comes first, as torch writes it; that is no change. ``exact``: 2
    and 3 are left out, an order that needs 1 is refused.
    """
    require_torch_pipeline(problem)
    _require_torch_pairs(schedule.order)
    entering = _last_forwards(problem, schedule.order)
    if exact and not problem.has_lists:  # else a file beside it has the microbatches' own numbers
        _require_in_order(entering)
    changes: list[str] = []
    numbered, written = permuted(problem, [entering]), _as_torch_writes(schedule, entering)
    if problem.order != "free":  # the one order of every stage is that of torch's numbers
        numbered = replace(numbered, order="given")
    problem = numbered
    now = written
    if entering != tuple(range(len(entering))):
        changes.append("microbatches relabelled so that the last stage's forwards run in order")
    elif written.order == schedule.order:
        now = written = schedule
    if not exact:
        whole = whole_first_backward(problem, written.order)
        if whole is not None:
            now = whole
            changes.append("the first stage's backward written whole (torch's B)")
        fused = _adjacent_fused(problem, now)
        if fused is not None:
            now = fused
            changes.append("each B directly followed by its own W fused where that costs nothing")
    if now is schedule:
        return Adapted(schedule, problem, entering)
    if now is written or any(now.copies):  # else it has been timed already
        now = retime(problem, now)  # its copies stay what they are
    if violations := check(problem, now):
        raise NotApplicable(f"torch's order of this schedule is not valid: {violations[0]}")
    return Adapted(replace(now, source=schedule.source), problem, entering, tuple(changes))


def require_torch_pipeline(problem: Problem, title: str = "torch") -> None:
    """Pass if torch, or another of that name, can run a pipeline of this shape."""
    require_chains(problem, title)
    require_applicable(
        len(problem.routes) == 1,
        f"{title} runs one route of stages, this problem has {len(problem.routes)}",
    )
    for device, stages in enumerate(problem.stages_on):
        require_applicable(
            stages, f"{title} needs a stage on every rank, {problem.device_name(device)} has none"
        )


def each(order: Order, change: Callable[[Item], Iterable[Item]]) -> Order:
    """Return an order with what a change makes of every item in its place."""
    return tuple(tuple(new for item in row for new in change(item)) for row in order)


def _require_torch_pairs(order: Order) -> None:
    others = [
        item
        for row in order
        for item in row
        if isinstance(item, Pair) and {item.first.kind, item.second.kind} != {"F", "BW"}
    ]
    if others:
        more = f" ({len(others)} such pairs)" if len(others) > 1 else ""
        raise NotApplicable(
            f"torch overlaps an F with a full backward and nothing else, and {others[0]}{more} is "
            "another pair: `pipesat solve --for torch` leaves such pairs out"
        )


def _require_in_order(entering: tuple[int, ...]) -> None:
    for number, microbatch in enumerate(entering):
        if number != microbatch:
            raise NotApplicable(
                f"the last stage runs the forward of microbatch {microbatch} where torch needs "
                f"{number}: torch reads losses by number and stores them in turn. Unless it is "
                "to be exact, microbatches are relabelled"
            )


def _as_torch_writes(schedule: Schedule, entering: tuple[int, ...]) -> Schedule:
    """Return a schedule with torch's numbers of its microbatches, and the F of every pair first."""
    label = {old: new for new, old in enumerate(entering)}

    def named(what: _Named) -> _Named:
        return what._replace(microbatch=label[what.microbatch])

    def written(item: Item) -> Item:
        own = with_ops(item, named)
        return Pair(*own[::-1]) if isinstance(own, Pair) and own.second.kind == "F" else own

    return replace(
        schedule,
        devices=tuple(
            tuple(timed._replace(item=written(timed.item)) for timed in row)  # type: ignore[arg-type]
            for row in schedule.devices
        ),
        copies=tuple(
            tuple(timed._replace(copy=named(timed.copy)) for timed in row)  # type: ignore[type-var]
            for row in schedule.copies
        ),
    )


def _last_forwards(problem: Problem, order: Order) -> tuple[int, ...]:
    last = problem.routes[0].stages[-1]
    row = order[problem.stages[last].device]
    return tuple(op.microbatch for item in row for op in members(item) if op[:2] == (last, "F"))


def whole_first_backward(problem: Problem, order: Order) -> Schedule | None:
    """Replace B and W of the first stage by BW, at B's place or at W's, whichever is better.

    Of two that are as long, at B's; of two, the one that is valid. ``None``: nothing to replace.
    """
    first = problem.routes[0].stages[0]
    splits = any(op[:2] == (first, "B") for op in ops_in(order))
    if not (problem.stages[first].may_fuse and splits):
        return None

    def whole(kept: str) -> Schedule:
        def change(item: Item) -> list[Item]:
            if not isinstance(item, Op) or item.stage != first or item.kind not in ("B", "W"):
                return [item]
            return [item._replace(kind="BW")] if item.kind == kept else []

        return time_order(problem, each(order, change))

    better, other = sorted(map(whole, ("B", "W")), key=lambda timed: timed.makespan)
    return other if check(problem, better) and not check(problem, other) else better


def _adjacent_fused(problem: Problem, now: Schedule) -> Schedule | None:
    """Fuse adjacent B and W of every stage, or stage by stage, where nothing gets worse.

    ``None``: there are none, or it does.
    """
    every = [stage for stage, data in enumerate(problem.stages) if data.may_fuse]
    found = None
    if _fused(now.order, every) == now.order:
        return None
    now = retime(problem, now)
    one_by_one = len(now) * len(problem.stages) <= _MOST_OPS_FOR_STAGEWISE_FUSING
    for stages in [every, *([stage] for stage in every if one_by_one)]:
        candidate = _fused(now.order, stages)
        if candidate == now.order:
            continue
        timed = time_order(problem, candidate)
        if timed.makespan <= now.makespan and timed.span <= now.span and not check(problem, timed):
            now = found = timed
    return found


def _fused(order: Order, stages: Collection[int]) -> Order:
    rows = []
    for row in order:
        items: list[Item] = []
        for item in row:
            is_w = isinstance(item, Op) and item.kind == "W" and item.stage in stages
            if is_w and items and items[-1] == item._replace(kind="B"):  # type: ignore[call-arg]
                items[-1] = item._replace(kind="BW")  # type: ignore[call-arg]
            else:
                items.append(item)
        rows.append(tuple(items))
    return tuple(rows)
