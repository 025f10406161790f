"""An order made fit for torch: only what is needed, each change named."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeVar

from pipesat.core.checker import check
from pipesat.core.errors import NotApplicable
from pipesat.core.metrics import peak_memory
from pipesat.core.microbatch_order import permuted
from pipesat.core.ops import Copy, Item, Op, Pair, members
from pipesat.core.problem import Problem
from pipesat.core.schedule import Order, Schedule
from pipesat.core.timing import retime, time_order

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
    if len(problem.routes) > 1:
        raise NotApplicable(
            f"{title} runs one route of stages, this problem has {len(problem.routes)}"
        )
    for device, stages in enumerate(problem.stages_on):
        if not stages:
            raise NotApplicable(
                f"{title} needs a stage on every rank, {problem.device_name(device)} has none"
            )


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


def _forward_first(item: Item) -> Item:
    if isinstance(item, Pair) and item.second.kind == "F":
        return Pair(item.second, item.first)
    return item


def _as_torch_writes(schedule: Schedule, entering: tuple[int, ...]) -> Schedule:
    """Return a schedule with torch's numbers of its microbatches, and the F of every pair first."""
    label = {old: new for new, old in enumerate(entering)}

    def named(what: _Named) -> _Named:
        return what._replace(microbatch=label[what.microbatch])

    def written(item: Item) -> Item:
        return _forward_first(Pair(*map(named, item)) if isinstance(item, Pair) else named(item))

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
    return tuple(
        op.microbatch for item in row for op in members(item) if op.stage == last and op.kind == "F"
    )


def whole_first_backward(problem: Problem, order: Order) -> Schedule | None:
    """Replace B and W of the first stage by BW, at B's place or at W's, whichever is better.

    Of two that are as long, at B's; of two, the one that is valid. ``None``: nothing to replace.
    """
    first = problem.routes[0].stages[0]
    if not problem.stages[first].may_fuse or not any(
        op.stage == first and op.kind == "B"
        for row in order
        for item in row
        for op in members(item)
    ):
        return None
    options = []
    for kept, dropped in (("B", "W"), ("W", "B")):
        rows = []
        for row in order:
            items = [
                item
                for item in row
                if not (isinstance(item, Op) and item.stage == first and item.kind == dropped)
            ]
            rows.append(
                tuple(
                    item._replace(kind="BW")
                    if isinstance(item, Op) and item.stage == first and item.kind == kept
                    else item
                    for item in items
                )
            )
        options.append(time_order(problem, tuple(rows)))
    better, other = sorted(options, key=lambda timed: timed.makespan)
    return better if _fits(problem, better) or not _fits(problem, other) else other


def _fits(problem: Problem, schedule: Schedule) -> bool:
    if problem.order != "free":
        return not check(problem, schedule)
    peaks = zip(problem.devices, peak_memory(problem, schedule), strict=True)
    return all(device.memory is None or peak <= device.memory for device, peak in peaks)


def _adjacent_fused(problem: Problem, now: Schedule) -> Schedule | None:
    """Fuse adjacent B and W of every stage, or stage by stage, where nothing gets worse.

    ``None``: there are none, or it does.
    """
    order, found = now.order, None
    stages = {
        stage for stage, data in enumerate(problem.stages) if data.may_fuse
    } & _stages_with_adjacent(order)
    if not stages:
        return None
    now = retime(problem, now)
    size = sum(map(len, order)) * len(problem.stages)
    attempts = [stages]
    if size <= _MOST_OPS_FOR_STAGEWISE_FUSING:
        attempts += [{stage} for stage in sorted(stages)]
    for attempt in attempts:
        candidate = _fused_on(order, attempt)
        timed = time_order(problem, candidate)
        if timed.makespan <= now.makespan and timed.span <= now.span and not check(problem, timed):
            order, now, found = candidate, timed, timed
            if attempt == stages:
                break
    return found


def _stages_with_adjacent(order: Order) -> set[int]:
    return {
        a.stage
        for row in order
        for a, b in pairwise(row)
        if isinstance(a, Op) and _is_backward_and_its_w(a, b)
    }


def _is_backward_and_its_w(a: Item, b: Item) -> bool:
    return (
        isinstance(a, Op)
        and isinstance(b, Op)
        and (a.kind, b.kind) == ("B", "W")
        and (a.stage, a.microbatch) == (b.stage, b.microbatch)
    )


def _fused_on(order: Order, stages: set[int]) -> Order:
    rows = []
    for row in order:
        items: list[Item] = []
        for item in row:
            if (
                items
                and isinstance(item, Op)
                and item.stage in stages
                and _is_backward_and_its_w(items[-1], item)
            ):
                items[-1] = item._replace(kind="BW")
            else:
                items.append(item)
        rows.append(tuple(items))
    return tuple(rows)
