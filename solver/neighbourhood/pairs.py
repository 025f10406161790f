"""Which free ops of a segment may run as pairs: windows make pairs, move them and open them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product

from ortools.sat.python import cp_model

from pipesat.core.ops import Pair
from pipesat.core.problem import Problem
from pipesat.core.rules import duration
from pipesat.solver.model.pair_choices import Candidate, PairChoices, add_pair_choices
from pipesat.solver.model.pairing import Gains, time_that_gains
from pipesat.solver.neighbourhood.slots import Slot


def pairs_of(
    problem: Problem, known: Gains, cp: cp_model.CpModel, slots: Sequence[Slot], latest: int
) -> PairChoices[Slot]:
    """Create a literal per pair that the slots of a segment may form, those that stand included."""
    choices = add_pair_choices(
        cp,
        _candidates(problem, known, slots),
        slots,
        latest,
    )
    for choice in choices.all:
        one, other = choice.both
        stands = _stand_as_pair(one, other) and choice.ops == (one.op, other.op)
        cp.add_hint(choice.literal, stands)
    return choices


def _candidates(problem: Problem, known: Gains, slots: Sequence[Slot]) -> Iterator[Candidate[Slot]]:
    for one, other in combinations(slots, 2):
        stand = _stand_as_pair(one, other)
        for variant, partner in product(one.variants, other.variants):
            ops = variant.op, partner.op
            if stand and ops == (one.op, other.op):
                time: int | None = duration(problem, Pair(*ops))
            else:
                time = time_that_gains(problem, known, *ops)
            if time is not None:
                yield Candidate((one, other), ops, time)


def _stand_as_pair(one: Slot, other: Slot) -> bool:
    return one.item is not None and one.item == other.item
