"""What a device needs at least where its ops may run in pairs, by counting them.

A device's items, alone or pairs, fall into phases: *before* the first item with a backward in it
there are forwards only; *after* the last item with a forward there is none any more, and once the
last backward has run, only weight gradients are *pending*; what lies *between* may be anything. How
many of each kind of item run in each phase is not known, but every op runs once, memory limits the
first and the last phases, and each of these lasts at least as long as a microbatch's way to the
route's ends and back. The least length over all such counts is a bound: a programme in whole
numbers (:mod:`pipesat.bounds.counting`). docs/proofs/bounds.md has the argument.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations_with_replacement, pairwise, product
from typing import NamedTuple, TypeAlias

from pipesat.bounds.counting import Programme, WeightedSum
from pipesat.bounds.devices import groups_on
from pipesat.bounds.feasibility import passes_in_an_instant
from pipesat.core.grouping import grouped
from pipesat.problem.ops import PHASE_OF, Kind
from pipesat.problem.problem import Device, Problem, Stage


class Ways(NamedTuple):
    """What lies around a device's work, in time units.

    ``until_backward``: from its first op, or time 0, to its first backward. ``after_forward``: from
    the end of its last forward to that of its last backward. ``after_backward``: from there to the
    end that counts, which weight gradients that are still pending may overrun by ``beyond``.
    ``own``: as that, but for the last backward of the route of the last forward.
    """

    until_backward: int
    after_forward: int
    after_backward: int
    own: int
    beyond: int


class Runs(NamedTuple):
    """Microbatches of a stage and class, of which some may run in a mode, with its amounts.

    ``stated``: whether a pair's time that is listed is of them.
    """

    stage: int
    of_class: int
    number: int
    data: Stage
    stated: bool = True


def runs_on(problem: Problem, device: int) -> list[Runs]:
    """Return what may run on a device: every class of a stage in every mode."""
    found = []
    for stage, of_class, number in groups_on(problem, device):
        for mode in problem.modes_of(stage):
            data = problem.resulting(stage, mode, of_class)
            stated = not mode or data.offload is not None
            found.append(Runs(stage, of_class, number, data, stated))
    return found


@dataclass(frozen=True, eq=False)
class RunGroup:
    """Stages of one route and device that are alike, pairs included; ``stage`` is one of them.

    Of one class of microbatches, of which there are ``ops`` on all of them together, in any mode;
    ``data`` has the amounts in one.
    """

    stage: int
    size: int
    route: int
    ops: int
    of_class: int
    data: Stage
    stated: bool


def held_by_kind(data: Stage) -> dict[Kind, int]:
    """Return what an op of each kind holds while it runs."""
    a, w, x = data.held_after_F, data.held_after_B, data.held_in_backward
    return {"F": a, "B": max(a, w, x), "BW": max(a, x), "W": w}


def left(data: Stage) -> int:
    """Return what a microbatch surely holds between F and backward, copied out or not."""
    return data.offload.held if data.offload else data.held_after_F


class HeldPart(NamedTuple):
    """Of what is held between F and backward, the part from ``low`` to ``high``; who holds it."""

    low: int
    high: int
    groups: Sequence[RunGroup]

    @property
    def step(self) -> int:
        """How much each of them holds of it."""
        return self.high - self.low

    def by_stage(self) -> list[list[RunGroup]]:
        """The groups, those of each stage together."""
        return _one_stage(self.groups)

    def of_weight(self, data: Stage) -> int:
        """How much of it W holds."""
        return max(0, min(self.high, data.held_after_B) - self.low)


def one_class(groups: Iterable[RunGroup]) -> list[list[RunGroup]]:
    """Return groups of one set of stages by class, each in every mode."""
    return list(grouped((group.of_class, group) for group in groups).values())


def _one_stage(groups: Iterable[RunGroup]) -> list[list[RunGroup]]:
    return list(grouped((group.stage, group) for group in groups).values())


def _number(groups: Iterable[RunGroup]) -> int:
    """How many microbatches run on a set of stages."""
    return sum(own[0].ops for own in one_class(groups))


_Member: TypeAlias = tuple[RunGroup, Kind]
Item: TypeAlias = tuple[_Member, ...]
Phase: TypeAlias = Mapping[Item, int]
_Held: TypeAlias = Callable[[Stage], int]
"""What a microbatch holds between F and backward."""


@dataclass(frozen=True)
class PairedDevice:
    """The kinds of items of one device of a problem with pairs, in which microbatches are alike.

    ``alike``: whether stages that are alike are counted together. ``runs`` has what counts instead
    where microbatches differ or have modes.
    """

    problem: Problem
    device: int
    alike: bool = True
    runs: Sequence[Runs] = ()

    def least_length(self, ways: Ways) -> int:
        """Least time until the end that counts; 0 if there is no schedule at all.

        Either some forward runs beside or after the first backward, or all run before it, and then
        none in a pair with one.
        """
        least = min(self.least(ways, apart=apart) for apart in (True, False))
        return least if least <= sum(ways[:3]) + self.one_after_the_other else 0

    def least(self, ways: Ways, *, apart: bool) -> int:
        """Return that of one of both cases."""
        # all forwards before all backwards: idling in both phases may be the same
        known = ways if apart else ways._replace(after_forward=0, own=ways.after_backward)
        count = Count(self, known, apart=apart)
        for phase in count.phases:
            sums = grouped((tuple(kind for _, kind in item), x) for item, x in phase.items())
            for variables in sums.values():
                count.programme.total(variables)
        return sum(known[:3]) + count.programme.least_cost()

    @cached_property
    def one_after_the_other(self) -> int:
        """Time of all ops, each alone, be backwards split or fused, and of all copies."""
        data = [(group.ops, group.data, group.data.offload) for group in self.groups]
        copies = sum(ops * (o.time_out + o.time_in) for ops, _, o in data if o)
        return copies + sum(ops * (each.F + each.B + each.W + each.BW) for ops, each, _ in data)

    @cached_property
    def groups(self) -> list[RunGroup]:
        """The device's stages by class and mode, those together that are alike in all of them."""
        problem = self.problem
        alone = [
            Runs(s, 0, problem.microbatches[s], problem.stages[s])
            for s in problem.stages_on[self.device]
        ]
        of = grouped(
            (s, RunGroup(s, 1, problem.route_of[s], number, of_class, data, stated))
            for s, of_class, number, data, stated in self.runs or alone
        )
        alike = (
            ((problem.route_of[s], *((g.of_class, g.ops, g.data, g.stated) for g in own)), s)
            for s, own in of.items()
        )
        sets = list(grouped(alike).values())
        if not self.alike or not all(
            self._pair_alike([of[s] for s in one], [of[t] for t in other])
            for one, other in product(sets, sets)
        ):
            sets = [[stage] for stages in sets for stage in stages]
        return [
            replace(group, size=len(s), ops=len(s) * group.ops) for s in sets for group in of[s[0]]
        ]

    @property
    def together(self) -> list[list[RunGroup]]:
        """The groups of each set of stages, of whatever class."""
        return _one_stage(self.groups)

    def _pair_alike(self, one: Sequence[list[RunGroup]], other: Sequence[list[RunGroup]]) -> bool:
        return all(
            len({self._time((a, k), (b, x)) for a, b in product(own, others)}) == 1
            for own, others in product(zip(*one, strict=True), zip(*other, strict=True))
            for k, x in product(PHASE_OF, PHASE_OF)
        )

    def _time(self, one: _Member, other: _Member) -> int | None:
        """Time of a pair of two members, by their kinds."""
        (a, k), (b, x), overlap = one, other, self.problem.overlap
        two = (a.stage, k), (b.stage, x)
        if overlap is None or not (
            (a.stated and b.stated) or overlap.entry(*two) not in overlap.times
        ):
            return None
        return overlap.time(*two, getattr(a.data, k), getattr(b.data, x))

    @cached_property
    def items(self) -> dict[Item, int]:
        """Every item that may run, with its time: ops that the stages run, alone or in pairs."""
        members = [(group, kind) for group in self.groups for kind in self._kinds(group)]
        times: dict[Item, int] = {}
        for group, kind in members:
            times[((group, kind),)] = getattr(group.data, kind)
        for one, other in combinations_with_replacement(members, 2):
            time = self._time(one, other)
            alone = one == other and one[0].ops == 1
            if time is not None and not alone and self._fits(one, other):
                times[one, other] = time
        return times

    def _fits(self, *pair: _Member) -> bool:
        """Whether there is memory for what two ops hold while they run."""
        held = sum(held_by_kind(group.data)[kind] for group, kind in pair)
        slack = self.problem.devices[self.device].slack
        return slack is None or held <= slack

    def _kinds(self, group: RunGroup) -> Iterator[Kind]:
        data = group.data
        yield "F"
        if data.may_split:
            yield "B"
            yield "W"
        if data.may_fuse:
            yield "BW"


class Count:
    """How many of each item run in each phase; if not ``apart``, there is nothing between.

    The programme's cost is what the device takes beyond the sum of the first three ``ways``.
    """

    def __init__(
        self, home: PairedDevice, ways: Ways, *, apart: bool, programme: Programme | None = None
    ) -> None:
        self.home, self.problem = home, home.problem
        self.data = {group: group.data for group in home.groups}
        self.programme = programme or Programme()
        items = home.items
        forward = [i for i in items if all(kind == "F" for _, kind in i)]
        backward = [i for i in items if all(kind != "F" for _, kind in i)]
        weights = [i for i in items if all(kind == "W" for _, kind in i)]
        self.before = self._phase(forward)
        self.between = self._phase(items, busy=True) if apart else {}
        self.after = self._phase(backward)
        self.pending = self._phase(weights)
        sooner = self._last(self.before, ways.until_backward)
        later = self._last(self.after, ways.after_forward)
        longer = self._last(self.pending, ways.after_backward + ways.beyond)
        self.beyond_ways = (sooner, later, longer)
        if ways.own > ways.after_backward:
            other = self.programme.variable(1, ways.own - ways.after_backward)
            reached = {later: 1, longer: 1, other: 1}
            self.programme.at_least(reached, ways.own - ways.after_backward)
        self._run_every_op()
        self.fit_into_memory()
        self._pair_only_so_many()
        self._keep_to_the_way()

    def weighed_by(self, problem: Problem) -> Count:
        """Return the same counts, with what is held as another problem has it."""
        return self._weighing(problem, {g: problem.stages[g.stage] for g in self.data})

    def holding(self, level: HeldPart) -> Count:
        """Return the same counts, with who holds a level as all that is held: so many at once."""
        device, held = self.home.device, dict.fromkeys(level.groups, 1)
        devices = list(self.problem.devices)
        number = (devices[device].slack or 0) // level.high
        devices[device] = Device(devices[device].name, memory=number)
        data = {
            group: replace(
                amounts,
                held_after_F=held.get(group, 0),
                held_after_B=0,
                held_in_backward=0,
                offload=None,
            )
            for group, amounts in self.data.items()
        }
        return self._weighing(replace(self.problem, devices=tuple(devices)), data)

    def _weighing(self, problem: Problem, data: dict[RunGroup, Stage]) -> Count:
        other = copy(self)
        other.problem, other.data = problem, data
        other.__dict__.pop("levels", None)
        return other

    def _phase(self, items: Iterable[Item], *, busy: bool = False) -> dict[Item, int]:
        times = self.home.items
        return {
            item: self.programme.variable(times[item] if busy else 0, self._most(item))
            for item in items
        }

    def _most(self, item: Item) -> int:
        most = min(group.ops for group, _ in item)
        return most // 2 if len(item) == 2 and item[0] == item[1] else most

    def _last(self, phase: Phase, least: int) -> int:
        """Let a phase last as long as its work; return by how much that is above ``least``."""
        times = self.time_of(phase)
        most = sum(self._most(item) * self.home.items[item] for item in phase)
        extra = self.programme.variable(1, most)
        self.programme.at_least(WeightedSum({extra: 1}) - times, -least)
        return extra

    def _count(self, *phases: Phase, **weights: int) -> dict[RunGroup, WeightedSum]:
        """Per group, the sum of these kinds' weights over the items of some phases."""
        result = {group: WeightedSum() for group in self.home.groups}
        for item, variable in _all_of(phases):
            for group, kind in item:
                result[group] += {variable: weights.get(kind, 0)}
        return result

    @property
    def phases(self) -> tuple[Phase, ...]:
        """All phases, in order of time."""
        return self.before, self.between, self.after, self.pending

    def of(self, groups: Iterable[RunGroup], phases: Iterable[Phase], *kinds: Kind) -> WeightedSum:
        """The number of ops of some groups, of some kinds, in some phases, as a row."""
        return _sum(self._count(*phases, **dict.fromkeys(kinds, 1)), groups)

    def time_of(self, phase: Phase) -> WeightedSum:
        """The time of a phase's items, as a row."""
        return WeightedSum((x, self.home.items[item]) for item, x in phase.items())

    @cached_property
    def levels(self) -> list[HeldPart]:
        """What is surely held between F and backward, cut at what it is for any group."""
        held = {
            group: left(data)
            for group, data in self.data.items()
            if not passes_in_an_instant(self.home.problem, group.stage)
        }
        heights = sorted({0, *held.values()})
        return [
            HeldPart(low, high, [group for group, most in held.items() if most >= high])
            for low, high in pairwise(heights)
        ]

    def taken(self, *phases: Phase, held: _Held = left) -> WeightedSum:
        """What the forwards of some phases take, as a row."""
        return self._weigh(phases, lambda data: {"F": held(data)})

    def freed(self, *phases: Phase, held: _Held = left) -> WeightedSum:
        """What the ops of some phases free, as a row."""
        return self._weigh(
            phases,
            lambda data: {
                "BW": held(data),
                "B": held(data) - data.held_after_B,
                "W": data.held_after_B,
            },
        )

    def held_after(self, held: _Held = left) -> WeightedSum:
        """What is held when the last forward has ended, as a row: until a backward, or until W."""
        return self.freed(self.after, self.pending, held=held)

    def _weigh(
        self, phases: Iterable[Phase], weights: Callable[[Stage], Mapping[Kind, int]]
    ) -> WeightedSum:
        each = {group: weights(data) for group, data in self.data.items()}
        row = WeightedSum()
        for item, variable in _all_of(phases):
            row += {variable: sum(each[group].get(kind, 0) for group, kind in item)}
        return row

    def _run_every_op(self) -> None:
        forwards = self._count(*self.phases, F=1)
        backwards = self._count(*self.phases, B=1, BW=1)
        left = self._count(*self.phases, B=1, W=-1)
        late = self._count(self.after, self.pending, B=-1, W=1)
        for groups in map(one_class, self.home.together):
            for own in groups:
                self.programme.equals(_sum(forwards, own), own[0].ops)
        for group in self.home.groups:
            self.programme.equals(backwards[group] - forwards[group], 0)
            self.programme.equals(left[group], 0)
            self.programme.at_least(late[group], 0)

    def fit_into_memory(self) -> None:
        """Let no instant that is known of hold more than there is memory for."""
        slack = self.problem.devices[self.home.device].slack
        if slack is None:
            return
        before, pending = (
            {item: x for item, x in phase.items() if self.home.items[item]}
            for phase in (self.before, self.pending)
        )
        self.programme.at_most(self.taken(before), slack)
        self.programme.at_most(self.freed(pending), slack)
        if all(stage.F for stage in self.data.values()):
            self.programme.at_most(self.held_after(), slack)

    def _keep_to_the_way(self) -> None:
        """A later stage's forward has an earlier stage's before it, its backward one after it.

        So the earlier stage's first forward has none of the later stage's for a partner, and its
        last backward none either.
        """
        place = self.problem.place_of
        first, last = self._count(self.before, F=1), self._count(self.after, B=1, BW=1)
        sets = [groups for groups in self.home.together if groups[0].size == 1]
        for lows, highs in product(sets, sets):
            low, high = lows[0], highs[0]
            if low.route != high.route or place[low.stage] >= place[high.stage]:
                continue
            for one, other in product(one_class(lows), one_class(highs)):
                if one[0].of_class == other[0].of_class:
                    for count in (first, last):
                        self.programme.at_least(_sum(count, one) - _sum(count, other), 0)
            for kinds in ("F",), ("B", "BW"):
                row = self._pairs_of({*lows}, {*highs}, kinds)
                self.programme.at_most(row, _number(lows) - 1)

    def _pairs_of(
        self, lows: set[RunGroup], highs: set[RunGroup], kinds: Iterable[str]
    ) -> dict[int, int]:
        """The number of pairs of two stages' ops of these kinds, as a row."""
        return {
            variable: 1
            for phase in self.phases
            for item, variable in phase.items()
            if len(item) == 2 and all(kind in kinds for _, kind in item)
            for (one, _), (other, _) in [item]
            if (one in lows and other in highs) or (one in highs and other in lows)
        }

    def _pair_only_so_many(self) -> None:
        """The first forwards and the last backwards of a route do not pair with each other's."""
        together = self.home.together
        if len({group.route for group in self.home.groups}) == 1:
            first, last = self._count(self.before, F=1), self._count(self.after, B=1, BW=1)
            for groups in together:
                for count in (first, last):
                    self.programme.at_least(_sum(count, groups), groups[0].size)
            return
        pairs = [
            (one, other, variable)
            for item, variable in self.between.items()
            if len(item) == 2
            for one, other in (item, item[::-1])
        ]
        for groups, kinds in product(together, (("F",), ("B", "BW"), ("W",))):
            others = ("B", "W", "BW") if kinds == ("F",) else ("F",)
            row = {
                variable: 1
                for one, other, variable in pairs
                if one[0] in groups and one[1] in kinds
                if other[0].route == groups[0].route and other[1] in others
            }
            self.programme.at_most(row, _number(groups) - groups[0].size)


def _sum(rows: Mapping[RunGroup, WeightedSum], groups: Iterable[RunGroup]) -> WeightedSum:
    return sum((rows[group] for group in groups), WeightedSum())


def _all_of(phases: Iterable[Phase]) -> Iterator[tuple[Item, int]]:
    return chain.from_iterable(phase.items() for phase in phases)


def by_op(
    counts: Mapping[int, Count], weight: Callable[[Count, Item], int]
) -> Mapping[tuple[RunGroup, Kind], WeightedSum]:
    """Return a row per group and kind: a weight of all items that its ops run in.

    Twice where both members are such.
    """
    found: dict[tuple[RunGroup, Kind], WeightedSum] = defaultdict(WeightedSum)
    for count in counts.values():
        for item, variable in _all_of(count.phases):
            for member in item:
                found[member] += {variable: weight(count, item)}
    return found
