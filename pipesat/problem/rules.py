"""The rules of a schedule, each said once: durations, what an op waits for, memory changes.

Timing, heuristics, the solver, metrics and exporters all ask these functions, per op or per item
(two ops run together). The checker alone does not: it restates the rules from given times, so that
a mistake here cannot hide.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple, TypeAlias, cast

from pipesat.problem.ops import PHASE_OF, Event, Item, Op, Pair, Phase, members, with_ops
from pipesat.problem.problem import Problem, once
from pipesat.problem.stage import Offload
from pipesat.problem.variants import variant_of


def duration(problem: Problem, item: Item) -> int:
    """Time of an op or a pair, in time units. A pair may be shorter than its members.

    Raises
    ------
    ValueError
        If the item is a pair of kinds that may not pair.
    """
    if not isinstance(item, Pair):
        return _answers(problem, item).duration
    time = time_together(problem, *item)
    if time is None:
        raise ValueError(f"{item}: {why_no_pair(problem, item)}")
    return time


def pair_time(problem: Problem, a: Op, b: Op) -> int | None:
    """Time of two ops that run as one, in time units; ``None`` if they may not.

    They may not if their kinds may not, if they are of one stage and microbatch, or if one waits
    for the other, directly or through other ops.
    """
    if a[::2] == b[::2] or waits_for(problem, a, b) or waits_for(problem, b, a):
        return None
    return time_together(problem, a, b)


def time_together(problem: Problem, a: Op, b: Op) -> int | None:
    """Time of two ops that run as one, whichever microbatches they are of; ``None`` if none may."""
    overlap = problem.overlap
    if overlap is None or problem.stages[a.stage].device != problem.stages[b.stage].device:
        return None
    if (a.mode or b.mode) and overlap.entry(a[:2], b[:2]) in overlap.times:
        as_stated = (not op.mode or offload_of(problem, op) is not None for op in (a, b))
        if not all(as_stated):  # a time is of the stages' own ops, beside which copies may run
            return None
    alone, other = _answers(problem, a).duration, _answers(problem, b).duration
    return overlap.time(a[:2], b[:2], alone, other)


def why_no_pair(problem: Problem, pair: Pair) -> str:
    """Why two ops may not pair whose kinds may not."""
    if problem.overlap is None:
        return "this problem has no overlapped pairs"
    a, b = pair
    if problem.stages[a.stage].device != problem.stages[b.stage].device:
        return f"stages {a.stage} and {b.stage} lie on different devices"
    kinds = f"{a.stage}{a.kind} and {b.stage}{b.kind}"
    if problem.overlap.entry(a[:2], b[:2]) in problem.overlap.times:
        return f"`overlap` has a pair of {kinds} by `time`, for keep and offload modes alone"
    return f"`overlap` has no pair of {kinds}"


def waits_for(problem: Problem, op: Op, other: Op) -> bool:
    """Whether an op waits for another one, directly or through other ops, in every schedule.

    Forwards follow the edges of a route, backwards turn them, and the last stages' backwards wait
    for their forwards. Within a sequence, forwards ascend and backwards descend, so a backward
    waits for all slices of what is before a last stage that it leads to. Each W hangs on its own B,
    and nothing waits for it.
    """
    slices = problem.slices_of[op.stage]
    if other.kind == "W" or op.microbatch // slices != other.microbatch // slices:
        return False
    if problem.route_of[op.stage] != problem.route_of[other.stage]:
        return False
    if op.kind == "F":
        sooner = other.kind == "F" and other.microbatch <= op.microbatch
        return sooner and op.event != other.event and leads_to(problem, other.stage, op.stage)
    if other.kind == "F":
        last = last_stages(problem, op.stage)
        return any(leads_to(problem, other.stage, stage) for stage in last)
    later = other.microbatch >= op.microbatch
    apart = op.kind == "W" or op.event != other.event
    return later and apart and leads_to(problem, op.stage, other.stage)


def leads_to(problem: Problem, stage: int, other: int) -> bool:
    """Whether there is a way along edges from a stage to another of its route, or to itself."""
    if problem.route(stage).graph is None:
        return problem.place_of[stage] <= problem.place_of[other]
    return bool(_ways(problem, problem.route_of[stage])[stage] >> problem.place_of[other] & 1)


def last_stages(problem: Problem, stage: int) -> tuple[int, ...]:
    """Stages without an edge to another that a stage leads to."""
    route = problem.route(stage)
    if route.graph is None:
        return route.stages[-1:]
    return tuple(s for s in route.stages if not problem.after[s] and leads_to(problem, stage, s))


@once
def _ways(problem: Problem, route: int) -> dict[int, int]:
    """By stage of a route, a set of places of stages, as bits: where its edges lead, and itself."""
    found: dict[int, int] = {}
    for stage in reversed(problem.routes[route].stages):
        found[stage] = 1 << problem.place_of[stage]
        for after in problem.after[stage]:
            found[stage] |= found[after]
    return found


def in_order(problem: Problem, pair: Pair) -> Pair:
    """Return a pair with its members in the order in which files have them.

    That of the listed entry; of two ops of one stage and kind the lower microbatch first; of a pair
    by factor the F first. A pair that is not allowed stays as it is.
    """
    first, second = pair
    if first[:2] == second[:2]:
        turned = second.microbatch < first.microbatch
    elif problem.overlap is not None and (entry := problem.overlap.entry(first[:2], second[:2])):
        turned = entry[0] != first[:2]
    else:
        turned = problem.overlap is not None and (first.kind, second.kind) == ("BW", "F")
    return Pair(second, first) if turned else pair


Source: TypeAlias = tuple[tuple[int, Phase], int]
"""A stage's forwards or backwards, and how long what they make travels."""


class Awaited(NamedTuple):
    """What an op waits for: the end of an event, and ``delay`` after it."""

    event: Event
    delay: int


def inputs_of(problem: Problem, op: Op) -> tuple[Awaited, ...]:
    """Return what an op waits for besides its device; nothing for the F of a first stage.

    F waits for F of every stage with an edge to its own; a last stage's backward for its own F; any
    other backward for those of the stages that its own has an edge to; W for its own B; all of the
    same microbatch. Of slices, F waits for that of the slice before it in its sequence, a backward
    for that of the slice after it, of the same stage. Delays are 0 within a device.
    """
    stage, kind, microbatch, _ = op
    found = tuple(
        Awaited((*source, microbatch), delay) for source, delay in sources_of(problem, op)
    )
    slices = problem.slices_of[stage]
    if slices == 1 or kind == "W":
        return found
    other, phase = (microbatch - 1, "F") if kind == "F" else (microbatch + 1, "B")
    if other // slices != microbatch // slices:
        return found
    return (*found, Awaited((stage, cast(Phase, phase), other), 0))


def sources_of(problem: Problem, op: Op) -> tuple[Source, ...]:
    """Return the stages and phases of its own microbatch that an op waits for, and the delays."""
    return _answers(problem, op).sources


class MemoryChange(NamedTuple):
    """Memory that an op takes at its start and gives back at its end (both >= 0 or so signed)."""

    at_start: int
    at_end: int

    @property
    def net(self) -> int:
        """What is held more when the op has ended than before it started."""
        return self.at_start + self.at_end


def memory_change(problem: Problem, item: Item) -> MemoryChange:
    """Memory change of an item, in memory units.

    What an op holds is said by :class:`pipesat.problem.variants.Variant`. A pair takes at its start
    what its members take at theirs, and frees at its end what they free.
    """
    if not isinstance(item, Pair):
        return _answers(problem, item).memory
    one, other = (memory_change(problem, op) for op in item)
    return MemoryChange(one.at_start + other.at_start, one.at_end + other.at_end)


def offload_of(problem: Problem, op: Op) -> Offload | None:
    """Times and amount of an op's copies; ``None`` where its microbatch is not offloaded.

    While it is copied out, held_after_F is held, and again from the start of the copy back; in
    between only ``held``.
    """
    return problem.amounts(op.stage, op.microbatch, op.mode).offload if op.mode else None


def copied_amount(problem: Problem, op: Op) -> int:
    """Memory that an op's copy out sets free at its end and the copy back takes at its start."""
    amounts = problem.amounts(op.stage, op.microbatch, op.mode)
    return 0 if amounts.offload is None else amounts.held_after_F - amounts.offload.held


def memory_in_order(problem: Problem, item: Item) -> MemoryChange:
    """Memory change of an item where copies count as done at once: they cost time, not memory.

    What an offloaded F sets free it frees at its end, and its backward takes it again at its start.
    No schedule holds less, so this says which orders may fit; :mod:`pipesat.schedule.copies` when.
    """
    change = memory_change(problem, item)
    if not problem.has_modes:
        return change
    start, end = change
    for op in members(item):
        if op.mode and op.kind != "W":
            copied = copied_amount(problem, op)
            start, end = (start, end - copied) if op.kind == "F" else (start + copied, end)
    return MemoryChange(start, end)


def kept(item: Item) -> Item:
    """Return the same item in the mode keep."""
    return with_ops(item, lambda op: op._replace(mode=0) if op.mode else op)


def one_of_each(problem: Problem) -> Iterator[Op]:
    """Yield one op of every stage, kind, class and mode: what holds of these ops holds of all."""
    for stage in range(len(problem.stages)):
        classes = problem.route(stage).classes
        first = {0: 0} if classes is None else {c: m for m, c in reversed([*enumerate(classes)])}
        for kind, microbatch, mode in product(PHASE_OF, first.values(), problem.modes_of(stage)):
            yield Op(stage, kind, microbatch, mode)


class _Answers(NamedTuple):
    """All that the rules say of an op on its own."""

    duration: int
    memory: MemoryChange
    sources: tuple[Source, ...]


def _answers(problem: Problem, op: Op) -> _Answers:
    """Look an op up; those of a stage, kind, class and mode are alike.

    In a plain problem, those of a stage and kind: this is where timing spends its time.
    """
    known: _Answers | None = problem.answers.get(op[:2])
    if known is not None:
        return known
    key: tuple[int | str, ...] = op[:2]
    if not problem.plain:
        key = (op.stage, op.kind, problem.class_of(op.stage, op.microbatch), op.mode)
        known = problem.answers.get(key)
    if known is None:
        known = problem.answers[key] = _work_out(problem, op)
    return known


def _work_out(problem: Problem, op: Op) -> _Answers:
    data = problem.amounts(op.stage, op.microbatch, op.mode)
    v = variant_of(data, op.mode, split=op.kind != "BW")

    def delay(src: int, dst: int) -> int:
        return link_delay(problem, src, "F" if op.kind == "F" else "B", op.microbatch, dst)

    sources: list[Source] = []
    if op.kind == "F":
        sources = [((one, "F"), delay(one, op.stage)) for one in problem.before[op.stage]]
        freed = 0 if data.has_backward else -v.held
        return _Answers(v.forward, MemoryChange(v.held, freed), tuple(sources))
    if op.kind == "W":
        return _Answers(v.weight, MemoryChange(0, -v.after), (((op.stage, "B"), 0),))
    sources = [((one, "B"), delay(op.stage, one)) for one in problem.after[op.stage]]
    change = MemoryChange(v.most - v.held, v.after - v.most)
    return _Answers(v.backward, change, tuple(sources) or (((op.stage, "F"), 0),))


def link_delay(
    problem: Problem, stage: int, direction: Phase, microbatch: int = 0, after: int | None = None
) -> int:
    """Delay of a microbatch between a stage and ``after``, else the next one of a chain.

    ``F`` forward, ``B`` backward; where microbatches are alike, number 0 stands for all.
    """
    link = problem.link(stage, microbatch, after)
    if link is None:  # the route's last stage, or the two stages share a device
        return 0
    return link.F if direction == "F" else link.B


def round_trip(problem: Problem, stage: int) -> int:
    """Least time from the end of a stage's F to the start of its backward: out and back again.

    Of microbatch 0, in the mode keep. Worked out for all stages of a route at once, from its end:
    thousands of them are asked for.
    """
    if ("round trip", stage) not in problem.answers:
        time = 0
        for here in reversed(problem.route(stage).stages):
            time += link_delay(problem, here, "F") + link_delay(problem, here, "B")
            problem.answers["round trip", here] = time
            amounts = problem.amounts(here, 0)
            time += amounts.F + amounts.shortest_backward
    found: int = problem.answers["round trip", stage]
    return found
