"""The two sums by which windows and whole models count memory.

What an event takes at its start, and what another op has taken and freed if it is before the event.
"""

from __future__ import annotations

from collections.abc import Iterator

from ortools.sat.python import cp_model

from pipesat.solver.model.literals import Literal, Sum, conjunction
from pipesat.solver.model.pair_choices import PairChoices
from pipesat.solver.model.variants import R, Running


def taken_at(event: R, pairs: PairChoices[R]) -> Iterator[tuple[Sum, Literal]]:
    """Yield what an event takes at its start, partners included, and on which condition.

    As a pair, an op that takes no time alone holds what it takes while the pair runs.
    """
    takes = [variant for variant in event.variants if variant.taken]
    if len(takes) == 1 and len(event.variants) > 1:
        yield _with_partners(Sum(takes[0].taken), event, pairs), takes[0].chosen
    elif takes:
        total = Sum(0)
        for variant in takes:
            total.add(variant.taken, variant.chosen)
        yield _with_partners(total, event, pairs), event.present
    for variant in event.variants:
        if variant.memory.at_start > variant.taken:
            for choice, _, _ in pairs.partners(event):
                if choice.runs(event) == variant.op:
                    total = Sum(variant.memory.at_start)
                    yield _with_partners(total, event, pairs), choice.literal


def _with_partners(total: Sum, event: R, pairs: PairChoices[R]) -> Sum:
    for choice, partner, op in pairs.partners(event):
        (variant,) = (variant for variant in partner.variants if variant.op == op)
        total.add(variant.memory.at_start, choice.literal)
    return total


def changed_by(cp: cp_model.CpModel, x: Running, before: Literal) -> Iterator[tuple[int, Literal]]:
    """Yield what something has changed in sum if it is ``before`` an event."""
    *others, last = x.variants
    yield last.memory.net, before
    for variant in others:
        more = variant.memory.net - last.memory.net
        if more and before is not False:
            yield more, conjunction(cp, variant.chosen, before)
