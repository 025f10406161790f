"""When the k-th backward of a device can start.

Microbatches come to a device one after another, at the pace of the slowest device on their way. So
its first backwards are spread: it can make no more pairs meanwhile. Between the starts of two of
its first backwards run only the backwards between them in rank, alone or in pairs. So a device
idles, or runs forwards alone, while backwards come to it slowly. docs/proofs/bounds.md has the
argument ("Ranks").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

from pipesat.bounds.devices import line_of, passages, places_of
from pipesat.bounds.paired_device import Count, Item, PairedDevice, Ways
from pipesat.problem.ops import PHASE_OF, Kind, Op
from pipesat.problem.problem import Problem, Stage
from pipesat.problem.rules import time_together


@dataclass
class RankTimes:
    """Earliest starts of the first backwards of devices, by rank, from the route's first F on.

    ``least`` is the problem with the least times that ops can last, ``first_backward`` every
    device's earliest start of a backward.
    """

    problem: Problem
    least: Problem
    first_backward: Sequence[int]

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
        ops = [Op(s, kind, 0) for s in stages for kind in PHASE_OF]
        return any(
            time_together(self.problem, one, other) is not None
            for one, other in combinations_with_replacement(ops, 2)
            if (one.kind == "F") == (other.kind == "F") and "W" not in (one.kind, other.kind)
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

    def _backward(self, place: int, k: int, since: int) -> int:
        """Earliest start of a stage's k-th backward: k microbatches have passed all others.

        ``since``: the first place that is looked at.
        """
        found = [self._begin_backward(place)]
        for _, places in self._passages:
            low, top = places[0], places[-1]
            if low < since:
                continue
            end = self._out[low] + k * sum(self._f[x] for x in places)
            found.append(end + self._begin_backward(place) - self._out[top] - self._f[top])
            if low > place:
                work = k * sum(self._b[x] for x in places)
                back = self._in[low] - self._in[place] - self._b[low]
                found.append(self._begin_backward(top) + work + back)
        return max(found)

    def _begin_backward(self, place: int) -> int:
        """Earliest start of a place's backward of one microbatch that enters at the origin."""
        return self._out[-1] + self._in[-1] - self._in[place]


_MOST_RANKS = 9  # later ones hardly come slower than a device makes pairs
_RANKS_APART = 0.5  # of the pairs that a device can make, where memory does not keep phases apart


def most_ranks(home: PairedDevice) -> int:
    """How many first backwards are looked at.

    As many as devices, within reason, if memory is sure to let the last of these start before the
    last forward has ended; else so few that other schedules have few pairs.
    """
    devices = sum(map(bool, home.problem.stages_on))
    kept_apart = _kept_apart(home)
    few = int(_RANKS_APART * sum(group.ops for group in home.groups)) // 2
    return max(1, min(_MOST_RANKS, devices, kept_apart if kept_apart > 1 else few))


def _kept_apart(home: PairedDevice) -> int:
    """How many first backwards surely start before the last forward has ended, by memory.

    If it ends before the k-th backward starts, all forwards have run by then, and k - 1 backwards
    at most: what is left is held.
    """
    slack = home.problem.devices[home.device].slack
    least = min(home.problem.stages[g.stage].held_after_F for g in home.groups)
    if slack is None or least <= 0:
        return 0
    return sum(group.ops for group in home.groups) - slack // least


def least_length_by_ranks(home: PairedDevice, ways: Ways, backwards: Sequence[int]) -> int:
    """Least time from a device's first op until the end that counts; 0 if nothing is known.

    ``backwards``: earliest starts of the first backwards, from the device's first op on. Either the
    last of them starts before the last forward has ended, or few ops run in pairs, or every forward
    runs before any backward, and none does.
    """
    by_rank = _length(home, ways, backwards)
    if len(backwards) > _kept_apart(home):
        by_rank = min(by_rank, _length(home, ways, most_pairs=len(backwards) - 1))
    behind = ways._replace(after_forward=0, own=ways.after_backward)
    rest = Count(home, behind, apart=False).programme.relaxed_cost() - ways.after_forward
    least = sum(ways[:3]) + min(max(by_rank, _length(home, ways)), rest)
    return least if least <= sum(ways[:3]) + home.one_after_the_other else 0


def _length(
    home: PairedDevice, ways: Ways, backwards: Sequence[int] = (), most_pairs: int | None = None
) -> int:
    """Least time beyond that of the ways, where a forward runs beside or after a backward."""
    count = Count(home, ways, apart=True)
    _split(count, backwards, ways.until_backward)
    _fit_both_members(count)
    if most_pairs is not None:
        both = {x: 1 for item, x in count.between.items() if _has_both(item)}
        count.programme.at_most(both, most_pairs)
    return count.programme.relaxed_cost() if backwards else count.programme.least_cost()


def _split(count: Count, backwards: Sequence[int], known: int) -> None:
    """Take phases from the one between: each up to the start of the next backward in rank."""
    left = {item: {variable: 1} for item, variable in count.between.items()}
    row = {count.beyond_ways[0]: 1}
    for start in backwards[1:]:
        few: dict[int, int] = {}
        for item, of_item in left.items():
            variable = count.programme.variable(0, count.programme.most[count.between[item]])
            of_item[variable] = -1
            row |= {variable: count.home.items[item]}
            few[variable] = sum(kind in ("B", "BW") for _, kind in item)
        count.programme.at_most(few, 1)
        row |= {count.programme.variable(1, start): 1}  # idle
        count.programme.at_least(row, start - known)
    for of_item in left.values():
        count.programme.at_least(of_item, 0)


def _fit_both_members(count: Count) -> None:
    """Leave memory for the forward of the first pair with a backward, and of the last one's.

    Until the first of the pairs in which a forward takes and its partner frees, only items without
    forwards have freed anything; after the last, only forwards without such a partner have taken.
    Without such a pair both rows hold of the first item with a forward.
    """
    home = count.home
    stages = [home.problem.stages[group.stage] for group in home.groups]
    slack = home.problem.devices[home.device].slack
    if slack is None or any(s.held_after_B > s.held_after_F or not s.F for s in stages):
        return
    kinds = {item: {kind for _, kind in item} for item in count.between}
    freeing = {i: x for i, x in count.between.items() if "F" not in kinds[i]}
    taking = {i: x for i, x in count.between.items() if kinds[i] == {"F"}}
    least = min(s.held_after_F for s in stages)
    count.programme.at_most(count.taken(count.before) - count.freed(freeing), slack - least)
    partners = [op for i in kinds if i not in freeing and i not in taking for op in i]
    kept = (_kept(home.problem.stages[g.stage], kind) for g, kind in partners if kind != "F")
    count.programme.at_most(count.held_after() - count.taken(taking), slack - min([least, *kept]))


def _kept(data: Stage, kind: Kind) -> int:
    """What an op holds while it runs, beyond what may be left of it then."""
    a, w = data.held_after_F, data.held_after_B
    return {"B": a - w, "W": w}.get(kind, a)


def _has_both(item: Item) -> bool:
    kinds = {kind for _, kind in item}
    return "F" in kinds and not kinds.isdisjoint(("B", "BW"))
