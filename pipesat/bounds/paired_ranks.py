"""When the k-th backward of a device can start, and what must follow its k-th last forward.

Microbatches come to a device one after another, at the pace of the slowest device on their way. So
its first backwards are spread, and so are its last forwards, seen from the end: it can make no
more pairs meanwhile. Between the starts of two of its first backwards run only the backwards
between them in rank, alone or in pairs. So a device idles, or runs forwards alone, while backwards
come to it slowly. docs/proofs/bounds.md has the argument ("Ranks").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import TypeAlias

from pipesat.bounds.devices import line_of, passages, places_of
from pipesat.bounds.paired_device import Count, Item, PairedDevice, Ways
from pipesat.problem.ops import PHASE_OF, Kind
from pipesat.problem.problem import Problem, Stage
from pipesat.problem.rules import pair_time_of_kinds


@dataclass
class RankTimes:
    """Least times of the first backwards and the last forwards of devices, by rank.

    ``least`` is the problem with the least times that ops can last, ``first_backward`` every
    device's earliest start of a backward, and ``after_last_forward`` the least time to the end
    after its last forward. All times count from the route's first F on, to the end that counts.
    """

    problem: Problem
    least: Problem
    first_backward: Sequence[int]
    after_last_forward: Sequence[int]

    def __post_init__(self) -> None:
        problem, line = self.problem, line_of(self.least, 0)
        self._route = problem.routes[0].stages
        self._own = places_of(problem, self._route)
        self._passages = [*passages(problem, self._route)]
        self._f, self._b, self._out = line.forward, line.backward, line.out
        # from the start of every place's backward to that of the first place's
        self._in = [line.home[x] + own - self._b[0] for x, own in enumerate(self._b)]

    @property
    def apply(self) -> bool:
        """Whether the argument holds: one route, no two ops of a phase in a pair, all take time."""
        if len(self.problem.routes) != 1:
            return False
        timed = all(
            (s.F and (not s.may_split or (s.B and s.W)) and (not s.may_fuse or s.BW))
            for s in self.least.stages
        )
        return timed and not any(map(self._pairs_two, self.problem.stages_on))

    def _pairs_two(self, stages: Sequence[int]) -> bool:
        kinds = [(s, kind) for s in stages for kind in PHASE_OF]
        return any(
            pair_time_of_kinds(self.problem, one, other) is not None
            for one, other in combinations_with_replacement(kinds, 2)
            if (one[1] == "F") == (other[1] == "F") and "W" not in (one[1], other[1])
        )

    def backwards(self, device: int, most: int, *, own: bool = False) -> list[int]:
        """Earliest starts of a device's 1st, 2nd, ... backward, from the origin.

        ``own``: as far as they are later, too, if the device's first op is, as its own window asks.
        """
        since = self._own[device][0] if own else 0
        starts = sorted(
            self._backward(self.problem.place_of[stage], k, since)
            for stage in self.problem.stages_on[device]
            for k in range(1, min(most, self.problem.routes[0].microbatches) + 1)
        )[:most]
        return [max(start, self.first_backward[device]) for start in starts]

    def forwards(self, device: int, most: int) -> list[int]:
        """Least times from the end of a device's last, 2nd last, ... forward to the end."""
        ends = sorted(
            self._forward(self.problem.place_of[stage], k)
            for stage in self.problem.stages_on[device]
            for k in range(1, min(most, self.problem.routes[0].microbatches) + 1)
        )[:most]
        return [max(end, self.after_last_forward[device]) for end in ends]

    def _backward(self, place: int, k: int, since: int) -> int:
        """Earliest start of a stage's k-th backward: k microbatches have passed all others.

        ``since``: the first place that is looked at.
        """
        found = [self._begin_backward(place)]
        for device, places in self._passages:
            low, top = places[0], places[-1]
            if low < since:
                continue
            end = self._out[low] + k * sum(self._f[x] for x in places)
            if (over := self._over(device, k * len(places))) > 0:
                freed = self.first_backward[device] + over * self._shortest(device, self._b)
                end = max(end, freed + min(self._f[x] for x in self._own[device]))
            found.append(end + self._begin_backward(place) - self._out[top] - self._f[top])
            if low > place:
                work = k * sum(self._b[x] for x in places)
                back = self._in[low] - self._in[place] - self._b[low]
                found.append(self._begin_backward(top) + work + back)
        return max(found)

    def _forward(self, place: int, k: int) -> int:
        """Least time to the end after a stage's k-th last forward: k microbatches go on."""
        ended = self._out[place] + self._f[place]
        found = [self._begin_backward(0) + self._home(0) - ended]
        for device, places in self._passages:
            low, top = places[0], places[-1]
            work = k * sum(self._b[x] for x in places)
            rest = work + self._home(low) - self._b[low]
            if (over := self._over(device, k * len(places))) > 0:
                taken = over * self._shortest(device, self._f)
                least = self._shortest(device, self._b)
                rest = max(rest, least + taken + self.after_last_forward[device])
            found.append(self._begin_backward(top) - ended + rest)
            if low > place:
                work = k * sum(self._f[x] for x in places)
                after = self._begin_backward(0) + self._home(0) - self._out[top] - self._f[top]
                found.append(self._out[low] - ended + work + after)
        return max(found)

    def _begin_backward(self, place: int) -> int:
        """Earliest start of a place's backward of one microbatch that enters at the origin."""
        return self._out[-1] + self._in[-1] - self._in[place]

    def _home(self, place: int) -> int:
        """From the start of a place's backward until all work on the first stage has ended."""
        return self._in[place] + self.least.stages[self._route[0]].least_backward_work

    def _over(self, device: int, forwards: int) -> int:
        """How many of some forwards a device's room does not admit at once."""
        room = self.problem.devices[device].room
        least = min(self.problem.stages[self._route[x]].held_after_F for x in self._own[device])
        return 0 if room is None or least <= 0 else forwards - room // least

    def _shortest(self, device: int, times: Sequence[int]) -> int:
        return min(times[x] for x in self._own[device])


_MOST_RANKS = 9  # later ones hardly come slower than a device makes pairs
_RANKS_APART = 0.5  # of the pairs that a device can make, where memory does not keep phases apart

_Times: TypeAlias = Sequence[int]
_Row: TypeAlias = dict[int, int]


def most_ranks(home: PairedDevice) -> int:
    """How many first backwards, and last forwards, are looked at.

    As many as devices, within reason, if memory is sure to let the last of these backwards start
    before the first of these forwards has ended; else so few that other schedules have few pairs.
    """
    devices = sum(map(bool, home.problem.stages_on))
    kept_apart = _kept_apart(home) // 2
    few = int(_RANKS_APART * sum(group.ops for group in home.groups)) // 2
    return max(1, min(_MOST_RANKS, devices, kept_apart if kept_apart > 1 else few))


def _kept_apart(home: PairedDevice) -> int:
    """How many first backwards and last forwards together cannot overlap, by memory.

    If the l-th last forward ends before the k-th backward starts, all but l - 1 forwards have run
    by then, and k - 1 backwards at most: what is left is held.
    """
    room = home.problem.devices[home.device].room
    least = min(home.problem.stages[g.stage].held_after_F for g in home.groups)
    if room is None or least <= 0:
        return 0
    return sum(group.ops for group in home.groups) + 1 - room // least


def least_length_by_ranks(
    home: PairedDevice, ways: Ways, backwards: _Times, forwards: _Times
) -> int:
    """Least time from a device's first op until the end that counts; 0 if nothing is known.

    ``backwards``: earliest starts of the first backwards, from the device's first op on;
    ``forwards``: least times from the ends of the last forwards to the end that counts. Either the
    last of these backwards starts before the first of these forwards has ended, or few ops run in
    pairs, or every forward runs before any backward, and none does.
    """
    by_rank = _length(home, ways, backwards, forwards)
    ranks = len(backwards) + len(forwards)
    if ranks > _kept_apart(home):
        by_rank = min(by_rank, _length(home, ways, most_pairs=ranks - 2))
    behind = ways._replace(after_forward=0, own=ways.after_backward)
    rest = Count(home, behind, apart=False).programme.relaxed_cost() - ways.after_forward
    least = sum(ways[:3]) + min(max(by_rank, _length(home, ways)), rest)
    return least if least <= sum(ways[:3]) + home.one_after_the_other else 0


def _length(
    home: PairedDevice,
    ways: Ways,
    backwards: _Times = (),
    forwards: _Times = (),
    most_pairs: int | None = None,
) -> int:
    """Least time beyond that of the ways, where a forward runs beside or after a backward."""
    count = Count(home, ways, apart=True)
    sooner, later, longer = count.beyond_ways
    left = {item: {variable: 1} for item, variable in count.between.items()}
    way_home = ways.after_forward + ways.after_backward
    _split(count, left, backwards, ({sooner: 1}, ways.until_backward), ("B", "BW"))
    _split(count, left, forwards, ({later: 1, longer: 1}, way_home), ("F",))
    for row in left.values():
        count.programme.at_least(row, 0)
    _fit_both_members(count)
    if most_pairs is not None:
        both = {x: 1 for item, x in count.between.items() if _has_both(item)}
        count.programme.at_most(both, most_pairs)
    return count.programme.relaxed_cost() if backwards else count.programme.least_cost()


def _split(
    count: Count,
    left: Mapping[Item, _Row],
    times: _Times,
    begun: tuple[_Row, int],
    kinds: tuple[Kind, ...],
) -> None:
    """Take phases from the one between: each up to the next rank's start, or from its end on."""
    row, known = begun
    for time in times[1:]:
        few: _Row = {}
        for item, of_item in left.items():
            variable = count.programme.variable(0, count.programme.most[count.between[item]])
            of_item[variable] = -1
            row = row | {variable: count.home.items[item]}
            few[variable] = sum(kind in kinds for _, kind in item)
        count.programme.at_most(few, 1)
        row = row | {count.programme.variable(1, time): 1}  # idle
        count.programme.at_least(row, time - known)


def _fit_both_members(count: Count) -> None:
    """Leave room for the forward of the first pair with a backward, and of the last one's.

    Until the first of the pairs in which a forward takes and its partner frees, only items without
    forwards have freed anything; after the last, only forwards without such a partner have taken.
    Without such a pair both rows hold of the first item with a forward.
    """
    home = count.home
    stages = [home.problem.stages[group.stage] for group in home.groups]
    room = home.problem.devices[home.device].room
    if room is None or any(s.held_after_B > s.held_after_F or not s.F for s in stages):
        return
    kinds = {item: {kind for _, kind in item} for item in count.between}
    freeing = {i: x for i, x in count.between.items() if "F" not in kinds[i]}
    taking = {i: x for i, x in count.between.items() if kinds[i] == {"F"}}
    least = min(s.held_after_F for s in stages)
    count.programme.at_most(count.taken(count.before) - count.freed(freeing), room - least)
    partners = [op for i in kinds if i not in freeing and i not in taking for op in i]
    kept = (_kept(home.problem.stages[g.stage], kind) for g, kind in partners if kind != "F")
    count.programme.at_most(count.held_after() - count.taken(taking), room - min([least, *kept]))


def _kept(data: Stage, kind: Kind) -> int:
    """What an op holds while it runs, beyond what may be left of it then."""
    a, w = data.held_after_F, data.held_after_B
    return {"B": a - w, "W": w}.get(kind, a)


def _has_both(item: Item) -> bool:
    kinds = {kind for _, kind in item}
    return "F" in kinds and not kinds.isdisjoint(("B", "BW"))
