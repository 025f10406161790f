"""Bounds where microbatches differ and ops may pair: what devices run around one that passes.

As :mod:`pipesat.bounds.passing`, with the items of :mod:`pipesat.bounds.paired_device`: the ops of
a long microbatch, alone or in a pair, cut the time of each device into parts, and each part is as
long as its items. docs/proofs/bounds.md derives the rows (*With pairs*, of those that pass).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise, product

from pipesat.bounds.counting import Programme, WeightedSum
from pipesat.bounds.device_terms import Crossing
from pipesat.bounds.devices import way_of
from pipesat.bounds.own_ways import pass_of
from pipesat.bounds.paired import MOST_RUNS, least_times_of_each_class
from pipesat.bounds.paired_device import (
    Item,
    PairedDevice,
    RunGroup,
    Runs,
    held_by_kind,
    left,
    runs_on,
)
from pipesat.core.claims import Bound
from pipesat.core.grouping import grouped
from pipesat.problem.ops import KINDS, Kind
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Objective

_MOST_VARIABLES = 10_000, 4_000  # for the first, and for the last and branching: a second
_OWN = -1  # the class of the one that passes

_Rows = Mapping[tuple[RunGroup, Kind], WeightedSum]


def paired_passing_bounds(problem: Problem, objective: Objective) -> Iterator[Bound]:
    """Yield a bound for the first and the last microbatch of the class with the longest way.

    For a single route of several classes, where every pair has exactly one forward.
    """
    for source, (programme,) in paired_passing_programmes(problem, objective):
        small = len(programme.costs) <= _MOST_VARIABLES[-1]
        yield Bound(programme.least_cost() if small else programme.relaxed_cost(), source)


def paired_passing_programmes(
    problem: Problem, objective: Objective
) -> Iterator[tuple[str, list[Programme]]]:
    """Yield the arguments and their programmes, of which the least cost is a bound."""
    (route, *others) = problem.routes
    counts = Counter(route.classes)
    every = [len(runs_on(problem, device)) for device in range(len(problem.devices))]
    if others or len(counts) < 2 or max(every) > MOST_RUNS:
        return
    alone = least_times_of_each_class(problem)
    own = max(sorted(counts), key=lambda of: pass_of(alone[of], route.stages).length)
    source = f"closed form: counts with pairs around one of {route.definitions[own].name}"
    for earlier, most in zip(sorted({0, counts[own] - 1}), _MOST_VARIABLES, strict=False):
        passing = _PairedPassing(problem, alone, own, earlier)
        if passing.size > most or not passing.applies:
            return
        passing.build(absolute=objective == "makespan")
        yield source, [passing.programme]


class _PairedPassing:
    """The programme around one microbatch of a class, of which ``earlier`` others come before."""

    def __init__(self, problem: Problem, alone: Sequence[Problem], own: int, earlier: int) -> None:
        self.problem, self.alone, self.earlier = problem, alone, earlier
        (self.route,) = problem.routes
        self.own, self.counts = own, Counter(self.route.classes)
        self.stages = [*self.route.stages, *reversed(self.route.stages)]
        self.turn, self.programme = len(self.route.stages), Programme()
        self.passes = {of: pass_of(alone[of], self.route.stages) for of in self.counts}

    @cached_property
    def homes(self) -> dict[int, PairedDevice]:
        """By device, the items that it may run, those of the one that passes apart."""
        found = {}
        for device, stages in enumerate(self.problem.stages_on):
            runs = list[Runs]()
            for run in runs_on(self.problem, device):
                if run.of_class == self.own:
                    runs.append(run._replace(of_class=_OWN, number=1))
                    run = run._replace(number=run.number - 1)  # noqa: PLW2901
                runs += [run] if run.number else []
            if stages:
                found[device] = PairedDevice(self.problem, device, alike=False, runs=runs)
        return found

    @cached_property
    def items(self) -> dict[int, dict[Item, int]]:
        """By device, its items and their times; of ops that take as long in several modes, one."""
        found = {}
        for device, home in self.homes.items():
            first = {one: alike[0] for alike in self.alike[device] for one in alike}
            place = {one: number for number, one in enumerate(first)}
            found[device] = {
                tuple(sorted((first[one] for one in item), key=place.__getitem__)): time
                for item, time in home.items.items()
            }
        return found

    @cached_property
    def alike(self) -> dict[int, list[list[tuple[RunGroup, Kind]]]]:
        """By device, ops of a stage, class and kind that take equally long, each in its mode."""
        found = {}
        for device, home in self.homes.items():
            alone = (item[0] for item in home.items if len(item) == 1)
            keys = (
                ((g.stage, g.of_class, kind, getattr(g.data, kind), g.stated), (g, kind))
                for g, kind in alone
            )
            found[device] = list(grouped(keys).values())
        return found

    @property
    def size(self) -> int:
        """About the number of the programme's variables."""
        return sum(
            len(items) * (2 * len(self._on(device)) + 1) for device, items in self.items.items()
        )

    @property
    def applies(self) -> bool:
        """Whether every pair has exactly one forward."""
        pairs = (item for home in self.homes.values() for item in home.items if len(item) == 2)
        return all(sum(kind == "F" for _, kind in pair) == 1 for pair in pairs)

    @cached_property
    def _horizon(self) -> int:
        """All microbatches one after the other take no longer."""
        work = sum(home.one_after_the_other for home in self.homes.values())
        links = (
            self.problem.link_of_class(s, of, t)
            for s, t in pairwise(self.route.stages)
            for of in self.route.classes or ()
        )
        return work + sum(link.F + link.B for link in links if link)

    def build(self, *, absolute: bool) -> None:
        """Write all rows; ``absolute`` if every device's work ends within what is asked for."""
        variable = self.programme.variable
        self.end = variable(1, self._horizon)
        self.start = [variable(0, self._horizon) for _ in self.stages]
        self.length = dict[int, WeightedSum]()
        self.at = dict[int, tuple[_Rows, _Rows]]()  # by op, what has run before its item, and with
        self.before = {of: variable(0, n - (of == self.own)) for of, n in self.counts.items()}
        classes, given = self.route.classes or (), self.problem.order == "given"
        own = [number for number, of in enumerate(classes) if of == self.own][self.earlier]
        for of, before in self.before.items():
            if given or of == self.own:
                self.programme.equals({before: 1}, classes[:own].count(of))
        self.splits = [*self.before.values()] if self.problem.order != "free" else []
        self.programme.splits = self.splits
        for device, home in self.homes.items():
            ops = [n for n, stage in enumerate(self.stages) if stage in self._on(device)]
            self._device(home, ops, ends=absolute or not ops[0])
        for op in range(len(self.stages) - 1):
            way = WeightedSum({self.start[op + 1]: 1, self.start[op]: -1}) - self.length[op]
            self.programme.at_least(way, int(self.passes[self.own].delays[op + 1]))
            self._pass_together(op)

    def _pass_together(self, op: int) -> None:
        """What others run of two ops in a row from the start of one that passes to its next one.

        On the devices of both: who has run the later one has run the other before, and who runs
        both in between does so after the one that passes, one after the other.
        """
        devices = [self.problem.stages[stage].device for stage in self.stages]
        time = WeightedSum({self.start[op + 1]: 1, self.start[op]: -1}) - self.length[op]
        own = int(self.passes[self.own].delays[op + 1])
        for one, way in enumerate(pairwise(devices)):
            for of in self.counts:
                if way == (devices[op + 1], devices[op]):
                    first, second = self._run(one, of, op + 1, 0), self._run(one + 1, of, op, 1)
                    self.programme.at_least(first - second, 0)
                if way == (devices[op], devices[op + 1]) and way[0] != way[1]:
                    both = self._run(one + 1, of, op + 1, 0) - self._run(one, of, op, 1)
                    other = self.passes[of]
                    delay = min(own, int(other.delays[one + 1]))
                    self.programme.at_least(time - both * int(other.times[one + 1]), delay)

    def _run(self, op: int, of: int, event: int, after: int) -> WeightedSum:
        """How many of a class have run an op before an op of the one that passes, or with it."""
        kinds: tuple[Kind, ...] = ("F",) if op < self.turn else ("B", "BW")
        home = self.homes[self.problem.stages[self.stages[op]].device]
        return self._sum(home, self.at[event][after], self.stages[op], of, *kinds)

    def _ways(self, home: PairedDevice) -> list[Crossing]:
        (chunks,) = self.problem.chunks_on[home.device].values()
        return [way_of(self.alone[of], self.alone[of], chunks) for of in self.counts]

    def _on(self, device: int) -> Sequence[int]:
        return self.problem.stages_on[device]

    def _device(self, home: PairedDevice, ops: Sequence[int], *, ends: bool) -> None:
        """Rows of a device: its ``ops`` of the one that passes, and the parts between them."""
        at_least, times = self.programme.at_least, self.items[home.device]
        phases = list[dict[Item, int]]()  # parts and, between two of them, the item of an op
        for number in range(2 * len(ops) + 1):
            phases.append(
                {
                    item: self.programme.variable(0, min(group.ops for group, _ in item))
                    for item in times
                    if self._may_run(item, number, ops)
                }
            )
        run = [self._counted(home, phase) for phase in phases]
        done = [
            {member: _sum(one[member] for one in run[:number]) for member in run[0]}
            for number in range(len(phases) + 1)
        ]
        lengths = [WeightedSum((x, times[item]) for item, x in one.items()) for one in phases]
        for at, op in enumerate(ops):
            self.length[op] = lengths[2 * at + 1]
            self.programme.equals(dict.fromkeys(phases[2 * at + 1].values(), 1), 1)
        self._run_every_op(home, done[-1], phases)
        for now in done[1:]:
            self._follow(home, now)
        for at, op in enumerate(ops):
            now = done[2 * at + 1]
            self.at[op] = now, done[2 * at + 2]
            self._keep_order(home, op, now)
            if all(times[item] for item in phases[2 * at + 1]):
                self._fit(home, run[2 * at + 1], now)
            forward = op < self.turn
            others = phases[: 2 * at + 1] if forward else phases[2 * at + 2 :]
            self._come_or_go(op, times, phases[2 * at + 1], others)
        for one, following in pairwise(ops):
            self._hold(home, one, following, ops)
        start = [self.start[op] for op in ops]
        least = self._ways(home)
        at_least({start[0]: 1}, _least(least, "begin"))
        at_least(WeightedSum({start[0]: 1}) - lengths[0], _least(least, "begin"))
        for at, (one, following) in enumerate(pairwise(start)):
            between = WeightedSum({following: 1, one: -1})
            at_least(between - lengths[2 * at + 1] - lengths[2 * at + 2], 0)
        last = WeightedSum({self.end: 1, start[-1]: -1}) - lengths[-2]
        early = {i: x for i, x in phases[-1].items() if any(kind != "W" for _, kind in i)}
        row = last - WeightedSum((x, times[item]) for item, x in early.items())
        at_least(row, _least(least, "end"))
        if ends:
            at_least(last - lengths[-1], 0)

    def _come_or_go(
        self,
        op: int,
        times: Mapping[Item, int],
        item: Mapping[Item, int],
        others: Iterable[Mapping[Item, int]],
    ) -> None:
        """Count the ways, there and home, of whom an op meets, and of others beyond its item.

        Of who comes before a forward of the one that passes, and of who comes after its backward:
        those with a way at least as long as some op's run one after the other, the first of them
        not before that way.
        """
        start, at_least = WeightedSum({self.start[op]: 1}), self.programme.at_least
        rows = start, WeightedSum({self.end: 1}) - start - self.length[op]
        for home, row in enumerate(rows):
            met = {
                x: max(self._way(*one)[home] for one in self._ops(own)) for own, x in item.items()
            }
            at_least(row - met, 0)
        beyond = (
            (one, (x, times[other]))
            for phase in others
            for other, x in phase.items()
            for one in self._ops(other)
            if one[0] != _OWN
        )
        home, longer, met = op >= self.turn, self.programme.variable(0, 0), {}
        for one, run in sorted(grouped(beyond).items(), key=lambda x: -self._way(*x[0])[home]):
            met |= dict(run)
            some = self.programme.variable(0, 1)
            self.splits.append(some)
            most = self.counts[one[0]] - (one[0] == self.own)
            at_least({some: most} | dict.fromkeys(dict(run), -1), 0)
            at_least({some: 1, longer: -1}, 0)
            at_least(rows[home] - met - {some: self._way(*one)[home]}, 0)
            longer = some

    def _ops(self, item: Item) -> list[tuple[int, int]]:
        """Members of an item but W's: class, and op on its way."""
        members = ((g.of_class, self._op(g.stage, kind)) for g, kind in item)
        return [(of, op) for of, (op, kind) in members if kind != "W"]

    def _way(self, of: int, op: int) -> tuple[int, int]:
        """Least times of a class from the route's first F to an op, and from its end on."""
        times, delays, _ = self.passes[self.own if of == _OWN else of]
        there, back = sum(times[:op]) + sum(delays[: op + 1]), sum(times[op + 1 :])
        return int(there), int(back + sum(delays[op + 1 :]))

    def _may_run(self, item: Item, number: int, ops: Sequence[int]) -> bool:
        """Whether an item may run in a part, or with an op: of the one that passes, that alone."""
        own = [self._op(group.stage, kind) for group, kind in item if group.of_class == _OWN]
        weights = [op for op, kind in own if kind == "W"]
        passing = [op for op, kind in own if kind != "W"]
        if len(own) > 1 or any(op not in ops[: number // 2] for op in weights):
            return False
        return passing == [ops[number // 2]] if number % 2 else not passing

    def _op(self, stage: int, kind: Kind) -> tuple[int, Kind]:
        """The op on a microbatch's way that is of a stage and kind, or that a W hangs on."""
        place = self.route.stages.index(stage)
        return (place if kind == "F" else 2 * self.turn - 1 - place), kind

    def _counted(self, home: PairedDevice, phase: Mapping[Item, int]) -> _Rows:
        """How many of each op run in a phase; its items have one of several of equal times."""
        found = {(group, kind): WeightedSum() for group in home.groups for kind in KINDS}
        for item, x in phase.items():
            for member in item:
                found[member] += {x: 1}
        for alike in self.alike[home.device]:
            if len(alike) > 1 and (total := found[alike[0]]):
                for group, kind in alike:
                    found[group, kind] = WeightedSum({self.programme.variable(0, group.ops): 1})
                self.programme.equals(_sum(found[one] for one in alike) - total, 0)
        return found

    def _run_every_op(
        self, home: PairedDevice, done: _Rows, phases: Sequence[Mapping[Item, int]]
    ) -> None:
        total = grouped(((g.stage, g.of_class), done[g, "F"]) for g in home.groups)
        numbers = {(group.stage, group.of_class): group.ops for group in home.groups}
        alone = {(s, f): WeightedSum() for s in self._on(home.device) for f in (True, False)}
        for group in home.groups:
            back = done[group, "B"] + done[group, "BW"]
            self.programme.equals(back - done[group, "F"], 0)
            self.programme.equals(done[group, "B"] - done[group, "W"], 0)
        for key, rows in total.items():
            self.programme.equals(_sum(rows), numbers[key])
        for phase in phases:
            for item, x in phase.items():
                if len(item) == 1 and item[0][1] != "W":
                    alone[item[0][0].stage, item[0][1] == "F"] += {x: 1}
        for row in alone.values():  # the first forward and the last backward of the route
            self.programme.at_least(row, 1)

    def _follow(self, home: PairedDevice, later: _Rows) -> None:
        """Who has run an op has done those before it; in an item, before that."""
        for group in home.groups:
            back = later[group, "B"] + later[group, "BW"]
            self.programme.at_least(later[group, "F"] - back, 0)
            self.programme.at_least(later[group, "B"] - later[group, "W"], 0)
        for low, top in pairwise(self.problem.chunks_on[home.device][0]):
            for of in {group.of_class for group in home.groups}:
                f = [self._sum(home, later, s, of, "F") for s in (low, top)]
                b = [self._sum(home, later, s, of, "B", "BW") for s in (low, top)]
                self.programme.at_least(f[0] - f[1], 0)
                self.programme.at_least(b[1] - b[0], 0)

    def _sum(
        self, home: PairedDevice, done: _Rows, stage: int, of: int, *kinds: Kind
    ) -> WeightedSum:
        groups = [g for g in home.groups if (g.stage, g.of_class) == (stage, of)]
        return _sum(done[group, kind] for group in groups for kind in kinds)

    def _keep_order(self, home: PairedDevice, op: int, now: _Rows) -> None:
        """As many come before the one that passes at all its ops, where the order says so."""
        kinds: tuple[Kind, ...] = ("F",) if op < self.turn else ("B", "BW")
        for of, before in self.before.items():
            alike = of == self.own and not (op and self.problem.has_modes)
            if self.problem.order != "free" or alike:
                row = self._sum(home, now, self.stages[op], of, *kinds)
                self.programme.equals(row - {before: 1}, 0)

    def _fit(self, home: PairedDevice, run: _Rows, now: _Rows) -> None:
        """What is held while an item runs, which takes time, fits."""
        slack = self.problem.devices[home.device].slack
        if slack is None:
            return
        held = WeightedSum()
        for group in home.groups:
            rest, w = left(group.data), group.data.held_after_B
            held += (now[group, "F"] - now[group, "B"] - now[group, "BW"]) * rest
            held += (now[group, "B"] - now[group, "W"]) * w
        for (group, kind), row in run.items():
            before = {"F": 0, "W": group.data.held_after_B}.get(kind, left(group.data))
            held += row * (held_by_kind(group.data)[kind] - before)
        self.programme.at_most(held, slack)

    def _hold(self, home: PairedDevice, one: int, following: int, ops: Sequence[int]) -> None:
        """From one of its ops to the next, there is memory for those who come and go meanwhile.

        Each in the parts of its stay from one op on the device to the next.
        """
        slack = self.problem.devices[home.device].slack
        if slack is None:
            return
        least = {
            key: min(held)
            for key, held in grouped(
                ((g.stage, g.of_class), left(g.data)) for g in home.groups
            ).items()
        }

        def held(of: int, op: int) -> int:
            stages = (self.stages[f] for f in ops if f <= op < 2 * self.turn - 1 - f)
            return sum(least.get((stage, of), 0) for stage in stages)

        length = WeightedSum({self.start[following]: 1, self.start[one]: -1})
        row = length * (slack - held(_OWN, one))
        if one >= self.turn:
            row = row - self.length[one] * least[self.stages[one], _OWN]
        for (first, last), (of, most) in product(pairwise(ops), self.counts.items()):
            times, delays = self.passes[of].times, self.passes[of].delays
            begin, end = first + (first >= self.turn), last + (last >= self.turn)
            stay = int(sum(times[begin:end]) + sum(delays[first + 1 : last + 1]))
            through = self.programme.variable(0, most)
            number = self._run(last, of, following, 0) - self._run(first, of, one, 0)
            self.programme.at_least(WeightedSum({through: 1}) - number, 0)
            row = row - WeightedSum({through: stay * held(of, first)})
        self.programme.at_least(row, 0)


def _least(ways: Sequence[Crossing], name: str) -> int:
    return min(int(getattr(way, name)) for way in ways)


def _sum(rows: Iterable[WeightedSum]) -> WeightedSum:
    return sum(rows, WeightedSum())
