"""Knobs: integers that frameworks ask for and give no way to choose. Ours, and what others cost.

One table, by runtime. Each row names the release whose code was read.

*Receive rings* (NeMo AutoModel, ``recv_buffer_pool.py``). Microbatch i of stage s, counted along
the route from 0, is received into buffer i mod K of each direction, ``K = max(2, min(m, S - s +
slack))``. torch's lowering of a CSV posts a receive together with its send. The buffer is free when
the microbatch's BW or W has ended, as autograd keeps what it holds. Between stages of one rank
nothing is received: there, a buffer is free when the next stage's op has read it.

*Active stages* (torch, ``_add_unshard_reshard``). Before each cell of a rank, the weights of the
next n stages that it computes are gathered, and those of all others given back.

*Extra activations* (OLMo-core): :mod:`pipesat.heuristics.one_f_one_b_v`. *Groups and warm-up*
(Megatron-LM): :mod:`pipesat.heuristics.interleaved`; guards: :mod:`pipesat.layers.megatron`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, get_args

from pipesat.core.claims import plural
from pipesat.core.errors import NotApplicable
from pipesat.core.settings import OnTorch
from pipesat.core.showing import Table, ranges, table_of
from pipesat.core.torch_releases import Release, release_named
from pipesat.layers.megatron import CORE_VERSION, GROUP_SIZE, group_sizes, refusal
from pipesat.problem.ops import members
from pipesat.problem.problem import Problem
from pipesat.runtimes.megatron import NAME, OVERLAPPED, own_of
from pipesat.runtimes.options import Options
from pipesat.runtimes.torch.adapt import adapt
from pipesat.schedule.schedule import Order, Schedule

if TYPE_CHECKING:
    from pipesat.heuristics.settings import Takes

SUFFIX: Final = ".knobs.json"
FORMAT: Final = "pipesat.knobs/1"
_MOST_OPS: Final = 100_000  # of an order: more would take seconds
_MOST_GROUPS: Final = 8  # those that divide the number of microbatches first
_IN_TORCH: Final = 3  # active stages by default


class Knob(NamedTuple):
    """A value of a knob, with what it means for one order.

    Attributes
    ----------
    framework, knob
        The release that was read, and what the number is called there.
    value
        One number, or one per rank.
    ours
        Whether it is the value to take; the others are there to compare.
    why
        What it does.
    takes
        Makespan of the framework's own schedule with this value, what no schedule is below that
        holds as little (both in time units), and its peak (in memory units). So the value is good
        as far as times are: ``estimated``. Without them, order and framework alone prove it.
    """

    framework: str
    knob: str
    value: int | list[int]
    ours: bool
    why: str
    takes: Takes | None = None

    @property
    def record(self) -> dict[str, Any]:
        """The row of the table."""
        makespan, bound, peak = self.takes or (None, None, None)
        known = "estimated" if self.takes else "proven"
        said = {"known": known, "makespan": makespan, "bound": bound, "peak": peak}
        return {key: value for key, value in self._asdict().items() if key != "takes"} | said


Knobs: TypeAlias = Iterator[Knob]


def knobs_table(knobs: Sequence[Mapping[str, Any]], times: str, memory: str) -> Table:
    """Return rows of knobs as users see them, in units: under the name of each, ours first."""
    columns = ("value", "known", "makespan", "bound", "peak", "why")
    rows = [{column: knob[column] for column in columns} for knob in knobs]
    title = "Numbers that the framework asks for: ours, and others to compare"
    shown = table_of(rows, title, units={"makespan": times, "bound": times, "peak": memory})
    names = [[f"{knob['framework']}: {knob['knob']}"] * knob["ours"] for knob in knobs]
    lines = [line for name, row in zip(names, shown.lines, strict=True) for line in [*name, row]]
    return replace(shown, lines=lines)


def knobs_of(runtime: str, problem: Problem, schedule: Schedule, options: Options) -> Knobs:
    """Yield the knobs of a runtime for an order that it is handed so, ours first of each."""
    if len(schedule) > _MOST_OPS or runtime not in _KNOBS:
        return
    if runtime in get_args(OnTorch):
        adapted = adapt(problem, schedule, exact=options.exact)
        problem, schedule = adapted.problem, adapted.schedule
    for knob in _KNOBS[runtime]:
        with suppress(NotApplicable):
            yield from knob(problem, schedule, release_named(options.version))


def _active_stages(_: Problem, schedule: Schedule, release: Release) -> Knobs:
    name = str(release), "max_active_stages"
    rows = [[{op.stage for op in members(item)} for item in row] for row in schedule.order]
    stages = [len(set[int]().union(*row)) for row in rows]
    least = max(len(cell) for row in rows for cell in row)
    if max(stages) == 1 or not release.active_stages:
        return
    gathers = {n: [_gathered(row, n) for row in rows] for n in range(least, max(stages) + 1)}
    ours = next(n for n, found in gathers.items() if found == stages)
    yield Knob(*name, ours, True, "with FSDP, a stage's weights are gathered once a step")
    if (other := min(ours - 1, _IN_TORCH)) in gathers:
        more = max(a - b for a, b in zip(gathers[other], stages, strict=True))
        fewer = f"{ours - other} fewer {plural(ours - other, 'stage')}"
        told = f"up to {more} gathers more on a rank, for the weights of {fewer}"
        yield Knob(*name, other, False, told)


def _gathered(cells: Sequence[set[int]], most: int) -> int:
    """How often a rank gathers a stage's weights, if so many stages are active.

    The stages of a pair are gathered together: they may be one more.
    """
    count, coming, active = 0, dict[int, int](), set[int]()
    for place in reversed(range(len(cells))):
        coming |= dict.fromkeys(cells[place], place)
        last = sorted(coming.values())[:most][-1]
        later, active = active, {stage for stage, first in coming.items() if first <= last}
        count += len(later - active)
    return count + len(active)


def _receive_rings(problem: Problem, schedule: Schedule, release: Release) -> Knobs:
    name = f"NeMo AutoModel 0.7.0 on {release}", "pp_recv_buffer_pool_slack"
    if not release.keeps_buffers:
        told = "leave pp_recv_buffer_pool off: a buffer is made directly before its receive"
        yield Knob(*name, 0, True, told)
        return
    stages, m = len(problem.stages), problem.routes[0].microbatches
    clashes = ring_clashes(problem, schedule.order)

    def broken(slack: int) -> list[int]:
        return [
            place
            for place, (size, apart) in enumerate(zip(sizes(slack), clashes, strict=True))
            if size < m and any(number % size == 0 for number in apart)
        ]

    def sizes(slack: int) -> list[int]:
        return [max(2, min(m, stages - place + slack)) for place in range(stages)]

    slack = next(slack for slack in range(m + 1) if not broken(slack))
    told = (
        f"{sizes(slack)} receive buffers, stage by stage, in place of {m}: by "
        "install_recv_buffer_pool, as the option does nothing beside a CSV"
    )
    yield Knob(*name, slack, True, told)
    if slack:
        told = f"stages {broken(slack - 1)} receive into buffers in use: gradients may be wrong"
        yield Knob(*name, slack - 1, False, told)


def ring_clashes(problem: Problem, order: Order) -> list[set[int]]:
    """Per stage along the route, how far the numbers of two microbatches are apart that share time.

    A ring overwrites nothing if its size divides none of these.
    """
    line = problem.routes[0].stages
    home = [problem.stages[stage].device for stage in line]
    place_of = {stage: place for place, stage in enumerate(line)}
    rows = [deque(map(members, row)) for row in order]
    clock = 0
    done: dict[tuple[int, int, int], int] = {}
    lives: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    while any(rows):
        for rank, row in enumerate(rows):
            ops = [
                (place_of[op.stage], op.kind, 1 if op.kind == "F" else -1, op.microbatch)
                for op in (row[0] if row else ())
            ]
            if not row or any(
                kind != "W"
                and 0 <= place - way < len(line)
                and (place - way, way, number) not in done
                for place, kind, way, number in ops
            ):
                continue
            row.popleft()
            clock += 1
            for place, kind, own, number in ops:
                for way in (1, -1):
                    if (source := (place - way, way, number)) in done:
                        here = home[place - way] == rank
                        if (kind != "W" and own == way) if here else "W" in kind:
                            lives[place, way].append((done[source], clock, number))
                if kind != "W":
                    done[place, own, number] = clock
    clashes: list[set[int]] = [set() for _ in line]
    for (place, _), found in lives.items():
        live: list[tuple[int, int, int]] = []
        for start, end, number in sorted(found):
            live = [one for one in live if one[1] > start]
            clashes[place] |= {abs(number - other) for _, _, other in live}
            live.append((start, end, number))
    return clashes


def _microbatches_of_torch(problem: Problem, _: Schedule, release: Release) -> Knobs:
    home = [problem.stages[stage].device for stage in problem.routes[0].stages]
    told = "training; a log-prob pass, schedule.eval(), has to have as many"
    if release.eval_fails and any(a == b for a, b in pairwise(home)):
        told = "training; no log-prob pass: schedule.eval() raises on a V's last rank"
    m = problem.routes[0].microbatches
    yield Knob(str(release), "n_microbatches", m, True, told)


_OLMO: Final = "OLMo-core 3.0.0"


def _extra_activations(problem: Problem, *_: object) -> Knobs:
    from pipesat.heuristics.one_f_one_b_v import least_extra, pulled_ahead
    from pipesat.heuristics.settings import timed_values  # numpy, which no help needs

    name = _OLMO, "forward_pull_ahead_extra_activations"
    told = "without the file: the shortest 1F1B-V that fits, the least on each rank"
    for value, takes in timed_values(problem, pulled_ahead, [least_extra(problem)]):
        yield Knob(*name, value, True, told, takes)
    last = None
    for more, takes in timed_values(problem, pulled_ahead, range(2 * len(problem.devices) + 1)):
        if takes != last:
            yield Knob(*name, more, False, "on every rank", takes)
        last = takes


def _several(legal: Callable[[int], bool], most: int) -> str:
    """Say which numbers are legal, in whole ranges, up to about so many."""
    end = next((n for n in range(most, 2 * most) if not (legal(n - 1) and legal(n))), most)
    found = [n for n in range(1, end) if legal(n)]
    return "any" if len(found) == end - 1 else f"any of {ranges(found)}, and so on"


def _microbatches_of_olmo(problem: Problem, *_: object) -> Knobs:
    p, m = len(problem.devices), problem.routes[0].microbatches
    several = _several(lambda n: n % max(1, n // p) == 0, m + p + 1)
    told = f"the file's; a pass of another number runs its own order, for {several}"
    yield Knob(_OLMO, "num_microbatches", m, True, told)


def _groups(problem: Problem, schedule: Schedule, _: Release) -> Knobs:
    from pipesat.heuristics.interleaved import IN_GROUPS
    from pipesat.heuristics.settings import timed_values

    core = f"megatron-core {CORE_VERSION}"
    p, m = len(problem.devices), problem.routes[0].microbatches
    chunks, own = len(problem.stages) // p, own_of(problem, schedule)
    pairs, group = own is not None and own.name == OVERLAPPED, p
    if chunks > 1:
        build = IN_GROUPS[OVERLAPPED if pairs else NAME]
        sizes = sorted(group_sizes(p, m), key=lambda size: (m % size != 0, size))[:_MOST_GROUPS]
        mine = own and own.group
        found = sorted(timed_values(problem, build, sizes), key=lambda x: (x[0] != mine, x[1]))
        group = found[0][0] if found else p
        for size, takes in found:
            told = f"groups of {size}, the last one of {m % size or size}"
            yield Knob(core, GROUP_SIZE, size, size == group, told, takes)
    per_hop, first = (2, (chunks - 1) * group + pairs) if chunks > 1 else (1, 0)
    ahead = [min(per_hop * (p - 1 - rank) + first, m * chunks) for rank in range(p)]
    yield Knob(core, "num_warmup_microbatches", ahead, True, "follows, rank by rank")
    several = _several(lambda n: refusal(p, chunks, n, group) is None, m + 2 * group)
    told = f"training and log-prob passes alike: {several}"
    ours = next(n for n in count(m) if refusal(p, chunks, n, group) is None)
    yield Knob(core, "num_microbatches", ours, True, told)


_KNOBS: Final[dict[str, tuple[Callable[[Problem, Schedule, Release], Knobs], ...]]] = {
    "torch": (_active_stages, _microbatches_of_torch),
    "torchtitan": (_microbatches_of_torch,),
    "automodel": (_receive_rings, _microbatches_of_torch),
    "olmo-core": (_extra_activations, _microbatches_of_olmo),
    "megatron": (_groups,),
}
