"""The ways in which one (stage, microbatch) may run: a mode, and its backward split or fused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, NamedTuple, TypeAlias

from pipesat.core.problem import Problem, Stage
from pipesat.solver.model.pairing import NO_GAINS, Gains, fusing_may_pay

Part: TypeAlias = Literal["F", "B", "W", "O", "L"]
"""What starts: F, the backward (B or BW), W, and the copies."""


TRIP: Final[tuple[Part, ...]] = ("F", "O", "L", "B")
"""What an offloaded microbatch runs one after the other."""


class Holding(NamedTuple):
    """``amount`` is held from a part's start plus ``offset`` to another's start plus ``length``."""

    begin: Part
    offset: int
    end: Part
    length: int
    amount: int


@dataclass(frozen=True)
class Way:
    """A mode with its amounts; ``fused``: B and W run as BW."""

    mode: int
    fused: bool
    amounts: Stage

    @property
    def backward(self) -> int:
        """Time of B or BW."""
        return self.amounts.BW if self.fused else self.amounts.B

    @property
    def weight(self) -> int:
        """Time of W; 0 where it is part of BW."""
        return 0 if self.fused else self.amounts.W

    @cached_property
    def held_in_backward(self) -> int:
        """What is held while B or BW runs."""
        s = self.amounts
        most = max(s.held_after_F, s.held_in_backward)
        return most if self.fused else max(most, s.held_after_B)

    @property
    def held_after_backward(self) -> int:
        """What is held until the end of W."""
        return 0 if self.fused else self.amounts.held_after_B

    @property
    def copied(self) -> int:
        """Memory that is free between the copies."""
        s = self.amounts
        return 0 if s.offload is None else s.held_after_F - s.offload.held

    def length(self, part: Part) -> int | None:
        """Length of a part; ``None`` if it is absent."""
        offload = self.amounts.offload
        if part == "F":
            return self.amounts.F
        if part == "B":
            return self.backward
        if part == "W":
            return None if self.fused else self.amounts.W
        if offload is None:
            return None
        return offload.time_out if part == "O" else offload.time_in

    @cached_property
    def holdings(self) -> tuple[Holding, ...]:
        """What is held when; nothing of amount 0."""
        s, back = self.amounts, self.backward
        a = s.held_after_F
        found = [
            Holding("F", 0, "B", back, a - self.copied),
            Holding("B", 0, "B", back, self.held_in_backward - a),
            Holding("B", back, "W", self.weight, self.held_after_backward),
        ]
        if s.offload is not None:
            found.append(Holding("F", 0, "O", s.offload.time_out, self.copied))
            found.append(Holding("L", 0, "B", back, self.copied))
        return tuple(holding for holding in found if holding.amount)

    @property
    def work(self) -> int:
        """Compute time of F and the whole backward."""
        return self.amounts.F + self.backward + self.weight


def ways_of(
    problem: Problem, stage: int, microbatch: int, known: Gains = NO_GAINS
) -> Iterator[Way]:
    """Yield the ways; fused ones only where splitting does not dominate them.

    ``known`` are the pairs that gain something: a BW may be fused for one.
    """
    kind = problem.class_of(stage, microbatch)
    for mode in problem.modes_of(stage):
        amounts = problem.amounts(stage, microbatch, mode)
        if amounts.may_split:
            yield Way(mode, fused=False, amounts=amounts)
        if fusing_may_pay(problem, known, stage, kind, mode):
            yield Way(mode, fused=True, amounts=amounts)
