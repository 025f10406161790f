"""Rows about the first backwards and the last forwards of a device, one after another.

Between the starts of two of its first backwards run only the backwards between them in rank, alone
or in pairs; and the later of both is known not to start before some time
(:mod:`pipesat.bounds.paired_ranks`). So a device idles, or runs forwards alone, while backwards
come to it slowly. Its last forwards are the same from the end. proofs/bounds.md has the argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from pipesat.bounds.counting import add_to
from pipesat.bounds.paired_device import Count, Item, PairedDevice, Ways
from pipesat.core.ops import Kind
from pipesat.core.problem import Stage

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
    row = count.held_before()
    add_to(row, count.freed(freeing), -1)
    count.programme.at_most(row, room - least)
    partners = [op for i in kinds if i not in freeing and i not in taking for op in i]
    kept = (_kept(home.problem.stages[g.stage], kind) for g, kind in partners if kind != "F")
    row = count.held_after()
    add_to(row, count.taken(taking), -1)
    count.programme.at_most(row, room - min([least, *kept]))


def _kept(data: Stage, kind: Kind) -> int:
    """What an op holds while it runs, beyond what may be left of it then."""
    a, w = data.held_after_F, data.held_after_B
    return {"B": a - w, "W": w}.get(kind, a)


def _has_both(item: Item) -> bool:
    kinds = {kind for _, kind in item}
    return "F" in kinds and not kinds.isdisjoint(("B", "BW"))
