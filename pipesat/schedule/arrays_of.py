"""A problem and its orders as arrays, made from the rules once; arrays back to orders and times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain, pairwise, product
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from pipesat.core.errors import BadInput
from pipesat.problem.ops import KINDS, Item, Kind, Op, OpKind, Pair
from pipesat.problem.problem import Problem, once
from pipesat.problem.rules import duration, in_order, memory_in_order, offload_of, sources_of
from pipesat.schedule.schedule import Order

if TYPE_CHECKING:
    from pipesat.core.arrays import Ints
    from pipesat.kernels.arrays import Coded, ProblemArrays

_NUMBER_OF: Final = {kind: number for number, kind in enumerate(KINDS)}
_STEPS: Final[tuple[tuple[Kind, int], ...]] = ("F", -1), ("B", 1)  # to the slice awaited
_EXACT: Final = 1 << 61  # sums of times and memory, and products of times, stay below it


@once
def arrays_of(problem: Problem) -> ProblemArrays:
    """Return a problem's arrays; they are made once.

    Raises
    ------
    BadInput
        If times or memory are so large that their sums do not fit into 64 bits.
    """
    import numpy as np  # importing pipesat stays fast

    from pipesat.kernels.arrays import BY_TIME, UNLIMITED, ProblemArrays

    def ints(numbers: Iterable[int | None]) -> Ints:
        return np.array([-1 if n is None else n for n in numbers], np.int64)

    modes = 1 + max(len(stage.modes) for stage in problem.stages)
    first_cell = [*accumulate(problem.microbatches, initial=0)]
    variants: list[Ints] = []
    time: list[list[int]] = []
    taken: list[list[int]] = []
    net: list[list[int]] = []
    copied: list[bool] = []
    for stage, count in enumerate(problem.microbatches):
        classes = problem.route(stage).classes or [0] * count
        numbers = dict(zip(reversed(classes), range(count - 1, -1, -1), strict=True))
        row_of = np.zeros(1 + max(classes, default=0), np.int64)
        for of_class, number in numbers.items():  # the first microbatch of each class
            row_of[of_class] = len(time)
            for mode in range(modes):
                own = mode if mode in problem.modes_of(stage) else 0  # a row that no op has
                ops = [Op(stage, kind, number, own) for kind in KINDS]
                changes = [memory_in_order(problem, op) for op in ops]
                time.append([duration(problem, op) for op in ops])
                taken.append([change.at_start for change in changes])
                net.append([change.net for change in changes])
                copied.append(offload_of(problem, ops[0]) is not None)
        variants.append(row_of[np.array(classes, np.int64)])
    begin, source, delay = _inputs(problem, first_cell)
    pair_by, pair_num, pair_den = _pairs(problem)
    longest, most = (max(map(max, table), default=0) for table in (time, taken))
    stated = pair_by == BY_TIME
    largest = longest * int(pair_num.max(initial=1, where=~stated))
    longest = int(pair_num.max(initial=longest, where=stated))
    _refuse_large(problem, longest + int(delay.max(initial=0)), most, largest)
    return ProblemArrays(
        device=ints(stage.device for stage in problem.stages),
        previous=ints(max(stages, default=None) for stages in problem.before),
        following=ints(min(stages, default=None) for stages in problem.after),
        route=ints(problem.route_of),
        place=ints(problem.place_of),
        microbatches=ints(problem.microbatches),
        place_on_device=ints(
            problem.stages_on[data.device].index(stage) for stage, data in enumerate(problem.stages)
        ),
        first_cell=ints(first_cell),
        stage_of=np.repeat(np.arange(len(problem.stages)), problem.microbatches),
        variant_of=np.concatenate(variants),
        begin=begin,
        source=source,
        delay=delay,
        shift=2 + (modes - 1).bit_length(),
        time=np.array(time, np.int64),
        taken=np.array(taken, np.int64),
        net=np.array(net, np.int64),
        copied=np.array(copied, np.int64),
        slack=ints(
            UNLIMITED if device.slack is None else device.slack for device in problem.devices
        ),
        pair_by=pair_by,
        pair_num=pair_num,
        pair_den=pair_den,
    )


def _inputs(problem: Problem, first_cell: Sequence[int]) -> tuple[Ints, Ints, Ints]:
    """Return what forwards and backwards wait for, as :class:`ProblemArrays` has it."""
    import numpy as np

    counts: list[Ints] = []
    sources: list[Ints] = []
    delays: list[Ints] = []
    for stage, count in enumerate(problem.microbatches):
        numbers, slices = np.arange(count), problem.slices_of[stage]
        classes = problem.route(stage).classes
        of_class = np.zeros(count, np.int64) if classes is None else np.array(classes)
        _, first = np.unique(of_class, return_index=True)
        both = []
        for phase, (kind, step) in enumerate(_STEPS):
            alike = [sources_of(problem, Op(stage, kind, number)) for number in first.tolist()]
            if max((delay for own in alike for _, delay in own), default=0) >= _EXACT:
                raise too_large()
            events = [2 * (first_cell[s] + numbers) + (p == "B") for (s, p), _ in alike[0]]
            travel = [np.array([own[at][1] for own in alike]) for at in range(len(events))]
            travel = [delay[of_class] for delay in travel]
            if slices > 1:
                other = numbers + step
                inside = other // slices == numbers // slices
                events.append(np.where(inside, 2 * (first_cell[stage] + other) + phase, -1))
                travel.append(np.zeros(count, np.int64))
            shape = (count, len(events))
            both.append((np.array(events, np.int64).T.reshape(shape), np.array(travel).T))
        events_there = np.full((count, 2, max(own.shape[1] for own, _ in both)), -1)
        travels = np.zeros_like(events_there)
        for phase, (own, way) in enumerate(both):
            events_there[:, phase, : own.shape[1]] = own
            travels[:, phase, : own.shape[1]] = way.reshape(own.shape)
        there = events_there >= 0
        counts.append(there.sum(axis=2).ravel())
        sources.append(events_there[there])
        delays.append(travels[there])
    begin = np.concatenate(([0], np.cumsum(np.concatenate(counts))))
    return begin, np.concatenate(sources), np.concatenate(delays)


def _pairs(problem: Problem) -> tuple[Ints, Ints, Ints]:
    """Return how the time of two ops of a device is said, as :class:`ProblemArrays` has it."""
    import numpy as np

    from pipesat.kernels.arrays import BY_FACTOR, BY_LONGER, BY_TIME

    overlap, most = problem.overlap, 4 * max(map(len, problem.stages_on))
    shape = (len(problem.devices), most, most) if overlap else (0, 0, 0)
    by, num = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    den = np.ones(shape, np.int64)
    if overlap is None:
        return by, num, den
    for device, stages in enumerate(problem.stages_on):
        kinds: list[OpKind] = [(stage, kind) for stage in stages for kind in KINDS]
        for (p, one), (q, other) in product(enumerate(kinds), repeat=2):
            listed = overlap.entry(one, other)
            if listed is None:
                if overlap.factor is None or {one[1], other[1]} != {"F", "BW"}:
                    continue
                said = (BY_LONGER, *overlap.factor)
            elif listed in overlap.times:
                said = BY_TIME, overlap.times[listed], 1
            else:
                said = (BY_FACTOR, *overlap.factors[listed])
            by[device, p, q], num[device, p, q], den[device, p, q] = said
    return by, num, den


def _refuse_large(problem: Problem, time: int, memory: int, product: int) -> None:
    """Refuse amounts of which sums, or products with a pair's factor, may be inexact."""
    ops = 4 * sum(problem.microbatches)
    if max(time * ops, memory * ops, 2 * product) >= _EXACT:
        raise too_large()


def too_large() -> BadInput:
    """Return the error of amounts whose sums may be inexact."""
    return BadInput(
        "expected times and amounts of memory whose sums over all ops are below 2^61: "
        "choose larger units",
        where="stages",
    )


def coded(problem: Problem, order: Order) -> tuple[ProblemArrays, Coded]:
    """Return an order's codes, and the arrays that they are of.

    Those are the problem's, or of more microbatches where the order names some that it lacks.

    Raises
    ------
    ValueError
        If the order names a stage, device or mode that the problem does not have, or a microbatch
        where microbatches differ.
    """
    import numpy as np

    from pipesat.kernels.arrays import Coded

    if len(order) != len(problem.devices):
        raise ValueError(
            f"the order has {len(order)} device lists, the problem {len(problem.devices)} devices"
        )
    begin = np.cumsum([0, *map(len, order)], dtype=np.int64)
    items = [*chain.from_iterable(order)]
    ops = [item.first if isinstance(item, Pair) else item for item in items]
    seconds = {at: item.second for at, item in enumerate(items) if isinstance(item, Pair)}
    arrays, codes = _codes(problem, [*ops, *seconds.values()])
    second = np.full(len(items), -1, np.int64)
    second[[*seconds]] = codes[len(items) :]
    return arrays, Coded(codes[: len(items)], second, begin)


def _codes(problem: Problem, ops: Sequence[Op]) -> tuple[ProblemArrays, Ints]:
    import numpy as np

    if not ops:
        return arrays_of(problem), np.empty(0, np.int64)
    stages, numbers, modes = (np.array([*map(itemgetter(part), ops)]) for part in (0, 2, 3))
    kinds = np.array([_NUMBER_OF[op.kind] for op in ops])
    if (wrong := (stages < 0) | (stages >= len(problem.stages))).any():
        op = ops[int(wrong.argmax())]
        raise ValueError(f"{op}: there is no stage {op.stage}")
    most = np.array([len(stage.modes) for stage in problem.stages])
    if (wrong := (modes < 0) | (modes > most[stages])).any():
        op = ops[int(wrong.argmax())]
        raise ValueError(f"stage {op.stage} has no mode {op.mode}")
    if (numbers >= np.array(problem.microbatches)[stages]).any():
        problem = _with_named(problem, ops)
    arrays = arrays_of(problem)
    return arrays, arrays.first_cell[stages] + numbers << arrays.shift | modes << 2 | kinds


def _with_named(problem: Problem, ops: Iterable[Op]) -> Problem:
    """Return the problem with all microbatches that an order names."""
    most = [route.microbatches for route in problem.routes]
    for op in ops:
        route = problem.route_of[op.stage]
        if op.microbatch >= most[route] and problem.routes[route].classes is not None:
            raise ValueError(f"stage {op.stage} has no microbatch {op.microbatch}")
        most[route] = max(most[route], op.microbatch + 1)
    routes = zip(problem.routes, most, strict=True)
    return replace(problem, routes=tuple(replace(own, microbatches=n) for own, n in routes))


def order_of(problem: Problem, arrays: ProblemArrays, order: Coded) -> Order:
    """Return the order that codes stand for; a pair's members are as files have them."""
    begin = order.begin.tolist()
    items: list[Item] = [*_ops(arrays, order.first)]
    pairs = (order.second >= 0).nonzero()[0]
    for at, second in zip(pairs.tolist(), _ops(arrays, order.second[pairs]), strict=True):
        items[at] = in_order(problem, Pair(items[at], second))  # type: ignore[arg-type]
    return tuple(tuple(items[a:b]) for a, b in pairwise(begin))


def _ops(arrays: ProblemArrays, codes: Ints) -> Iterator[Op]:
    cells = codes >> arrays.shift
    stages = arrays.stage_of[cells]
    numbers, modes = cells - arrays.first_cell[stages], (codes & (1 << arrays.shift) - 1) >> 2
    kinds = map(KINDS.__getitem__, (codes & 3).tolist())
    return map(Op._make, zip(stages.tolist(), kinds, numbers.tolist(), modes.tolist(), strict=True))
