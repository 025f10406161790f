"""What a device of routes runs: parts of variants, those of one op, of BW, or of a pair at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, combinations_with_replacement
from typing import NamedTuple

import numpy as np

from pipesat.core.arrays import Ints
from pipesat.kernels.arrays import NONE
from pipesat.kernels.device_states import COPY
from pipesat.problem.ops import Op
from pipesat.problem.problem import Problem, once
from pipesat.problem.rules import time_together
from pipesat.problem.variants import Variant
from pipesat.solver.model.pairing import gains, useful_variants

F, B, W = range(3)


class Leg(NamedTuple):
    """A part of a variant; ``held`` while it runs, ``then`` until the next one; its op, if any."""

    kind: int
    resource: int
    time: int
    held: int
    then: int
    op: Op | None = None


class ModeLegs(NamedTuple):
    """What a microbatch runs in a mode, one after the other, and BW, if B and W may be one."""

    mode: int
    legs: Sequence[Leg]
    fused: Leg | None


@once
def rows_of(problem: Problem, stage: int) -> list[ModeLegs]:
    """What a stage runs, by mode."""
    found = dict[int, ModeLegs]()
    channels = problem.devices[problem.stages[stage].device].copy_channels
    for x in useful_variants(problem, stage, 0, gains(problem)):
        legs = _legs(stage, x, channels)
        known = found.get(x.mode)
        found[x.mode] = known._replace(fused=legs[-1]) if known else ModeLegs(x.mode, legs, None)
    return [*found.values()]


def _legs(stage: int, x: Variant, channels: int) -> list[Leg]:
    """What a microbatch runs in a variant, one after the other."""
    op = Op(stage, "F", 0, x.mode)
    backward = op._replace(kind="B" if x.split else "BW")
    found = [Leg(F, 0, x.forward, x.held, x.held, op)]
    if x.offloads:
        back = Leg(COPY, channels, x.back, x.held, x.held)
        found += [Leg(COPY, 1, x.out, x.held, x.rest), back]
    found.append(Leg(B, 0, x.backward, x.most, x.after, backward))
    return found + [Leg(W, 0, x.weight, x.after, 0, op._replace(kind="W"))] * x.split


def all_legs(rows: Iterable[ModeLegs]) -> list[Leg]:
    """All parts of rows, BW too."""
    return [leg for row in rows for leg in (*row.legs, row.fused) if leg is not None]


def pairs_of(problem: Problem, legs: Sequence[Leg]) -> dict[tuple[Op | None, Op | None], int]:
    """Times of the pairs of a device that gain something, in either order of the two."""
    found = dict[tuple[Op | None, Op | None], int]()
    ops = [(leg.op, leg.time) for leg in legs if leg.op]
    for (one, alone), (other, then) in combinations_with_replacement(ops, 2):
        time = time_together(problem, one, other)
        if time is not None and time < alone + then:
            found[one, other] = found[other, one] = time
    return found


def backwards(rows: Sequence[ModeLegs]) -> list[ModeLegs]:
    """The rows as they look from the end: what is held between two parts stays that."""
    found = []
    for row in rows:
        then = [0, *(part.then for part in row.legs[:-1])]
        legs = [part._replace(then=x) for part, x in zip(row.legs, then, strict=True)]
        found.append(row._replace(legs=legs[::-1]))
    return found


class AtOnce(NamedTuple):
    """What runs at once, for how long: one or two members, each with its parts."""

    time: int
    members: list[tuple[Leg, list[int]]]

    @property
    def parts(self) -> list[int]:
        """All that it is made of."""
        return [number for _, numbers in self.members for number in numbers]


class Numbers:
    """Parts of a device's rows, numbered one after the other, and what runs at once."""

    def __init__(
        self, rows: Sequence[Sequence[ModeLegs]], pairs: Mapping[tuple[Op | None, Op | None], int]
    ) -> None:
        self.flat, self.stages = list[Leg](), list[int]()
        self.before, self.then, self.layers = list[int](), list[int](), list[int]()
        self.variants: list[list[dict[int, int]]] = [[] for _ in rows]  # by stage: kind to number
        self.runs = list[AtOnce]()
        for stage, row in ((stage, row) for stage, own in enumerate(rows) for row in own):
            parts = [*enumerate(row.legs, len(self.flat))]
            numbers = [number for number, _ in parts]
            self.flat += row.legs
            self.stages += [stage] * len(parts)
            self.before += [NONE, *numbers[:-1]]
            self.then += [*numbers[1:], NONE]
            longest = max(len(other.legs) for other in rows[stage])
            self.layers += [1] * (len(parts) - 1) + [1 + longest - len(parts)]
            self.runs += [AtOnce(part.time, [(part, [number])]) for number, part in parts]
            of = {part.kind: number for number, part in parts}
            if row.fused:
                self.runs.append(AtOnce(row.fused.time, [(row.fused, sorted((of[B], of[W])))]))
            self.variants[stage].append(of)
        for one, other in combinations(self.runs, 2):
            time = pairs.get((one.members[0][0].op, other.members[0][0].op))
            if time is not None:
                self.runs.append(AtOnce(time, one.members + other.members))

    def left(self, orders: Iterable[Sequence[int]]) -> tuple[Ints, Ints]:
        """What parts that have started add to the time that is left; that of a stage's microbatch.

        Either by several counts: what runs at once takes at least the sum of its parts' shares.
        """
        shares = np.unique([self._shares(order) for order in orders], axis=0)
        whole = [[[x[[*of.values()]].sum() for of in own] for own in self.variants] for x in shares]
        least = np.array([[min(own) for own in by_stage] for by_stage in whole])
        added = -shares
        for stage, own in enumerate(self.variants):
            for variant, of in enumerate(own):
                of_it = [by_stage[stage][variant] for by_stage in whole]
                added[:, min(of.values())] += of_it - least[:, stage]
        return added, least

    def _shares(self, order: Sequence[int]) -> list[int]:
        """Kinds have as much as is left, one after the other: the last ones maybe less than 0."""
        found = [0] * len(self.flat)
        known = {number for number, part in enumerate(self.flat) if part.kind == COPY}
        rest = sorted(set(range(len(found))) - known, key=lambda n: order.index(self.flat[n].kind))
        for number in rest:
            known.add(number)
            found[number] = min(
                run.time - sum(found[n] for n in run.parts)
                for run in self.runs
                if number in run.parts and known.issuperset(run.parts)
            )
        return found
