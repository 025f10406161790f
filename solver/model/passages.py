"""Passages: one microbatch on one stage where memory counts over time, and what it holds when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ortools.sat.python import cp_model

from pipesat.problem.ops import PHASES
from pipesat.problem.variants import Variant
from pipesat.solver.model.alternatives import COPIES, Choice, Literal, Part, Running, has


def lengths(variant: Variant) -> dict[Part, int]:
    """Time of each part that a variant has."""
    times = variant.forward, variant.backward, variant.weight, variant.out, variant.back
    parts = zip((*PHASES, *COPIES), times, strict=True)
    return {part: time for part, time in parts if has(variant, part)}


class Holding(NamedTuple):
    """``amount`` is held from a part's start plus ``offset`` to another's start plus ``length``."""

    begin: Part
    offset: int
    end: Part
    length: int
    amount: int


def holdings(variant: Variant) -> list[Holding]:
    """What a microbatch in a variant holds when; nothing of amount 0."""
    v = variant
    if v.alone:
        return [Holding("F", 0, "F", v.forward, v.held)] if v.held else []
    found = [
        Holding("F", 0, "B", v.backward, v.rest),
        Holding("F", 0, "O", v.out, v.copied),
        Holding("L", 0, "B", v.backward, v.copied),
        Holding("B", 0, "B", v.backward, v.most - v.held),
        Holding("B", v.backward, "W", v.weight, v.after),
    ]
    return [holding for holding in found if holding.amount]


@dataclass(eq=False)
class Passage:
    """Variants and tasks of a (stage, microbatch): O, L and W are there if some variant has them.

    The alternatives of a copy are the ops that it belongs to.
    """

    choice: Choice
    tasks: dict[Part, Running] = field(default_factory=dict)

    @property
    def chosen(self) -> Mapping[Variant, Literal]:
        """Whether it runs in each variant."""
        return self.choice.chosen

    def runs_in(self, mode: int) -> cp_model.LinearExprT:
        """Whether it runs in a mode, as a sum."""
        return sum(chosen for variant, chosen in self.chosen.items() if variant.mode == mode)
