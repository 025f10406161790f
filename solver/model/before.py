"""Memory counted by literals "this is before that", in whole models and in windows.

Two sums: what an event takes at its start, and what another op has taken and freed if it is before
the event.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, cast

from ortools.sat.python import cp_model

from pipesat.solver.model.alternatives import Literal, PairChoices, R, Running, Sum, conjunction


class Before(ABC, Generic[R]):
    """``before(x, event)``: x ends by the start of the event, or else x ends after it.

    What runs on one device does not overlap, so in the second case x starts by the end of the event
    or later, unless both take no time, or run as a pair: then neither is before the other.
    """

    def __init__(self, cp: cp_model.CpModel, choices: PairChoices[R]) -> None:
        self.cp, self.choices = cp, choices
        self.known: dict[tuple[int, int], Literal] = {}

    def __call__(self, x: R, event: R) -> Literal:
        """Return the literal, or what it is known to be."""
        if x is event:
            return True
        key = (id(x), id(event))
        if key not in self.known:
            fixed = self.fixed(x, event)
            if fixed is None:
                self._create(x, event)
            else:
                self.known[key] = fixed
        return self.known[key]

    @abstractmethod
    def fixed(self, x: R, event: R) -> Literal | None:
        """What is known beforehand."""

    @abstractmethod
    def link(self, x: R, event: R, literal: cp_model.IntVar) -> None:
        """Say what follows from other literals of the same chains."""

    def share(self, x: R, event: R) -> bool:  # noqa: ARG002
        """Whether both may take no time, and so run in one instant."""
        return False

    def _create(self, x: R, event: R) -> None:
        cp, together = self.cp, self.choices.together(x, event)
        literal = cp.new_bool_var("")
        self.known[id(x), id(event)] = literal
        cp.add(x.end <= event.start).only_enforce_if(literal)
        for pair in together:
            cp.add_implication(pair, ~literal)
        if x.present is True:
            share = self.share(x, event)
            after = event.start < x.end if share else event.end <= x.start
            cp.add(after).only_enforce_if(~literal, *(~pair for pair in together))
            if not (share or together):
                self.known[id(event), id(x)] = cast(Literal, ~literal)
            elif not share:
                self._one_of_three(x, event, literal, together)
        else:  # an absent one frees nothing
            cp.add_implication(literal, x.present)
        self.link(x, event, literal)

    def _one_of_three(
        self, x: R, event: R, literal: cp_model.IntVar, together: list[cp_model.IntVar]
    ) -> None:
        """Either is before the other, or they run as a pair."""
        turned = self.known.get((id(event), id(x)), self.fixed(event, x))
        if turned is not None:
            self.cp.add_exactly_one([literal, turned, *together])


def taken_at(event: R, pairs: PairChoices[R]) -> Iterator[tuple[Sum, Literal]]:
    """Yield what an event takes at its start, partners included, and on which condition.

    As a pair, an op that takes no time alone holds what it takes while the pair runs.
    """
    takes = [one for one in event.alternatives if one.taken]
    if len(takes) == 1 and len(event.alternatives) > 1:
        yield _with_partners(Sum(takes[0].taken), event, pairs), takes[0].chosen
    elif takes:
        total = Sum(0)
        for one in takes:
            total.add(one.taken, one.chosen)
        yield _with_partners(total, event, pairs), event.present
    for one in event.alternatives:
        if one.memory.at_start > one.taken:
            for choice, _, _ in pairs.partners(event):
                if choice.runs(event) == one.op:
                    total = Sum(one.memory.at_start)
                    yield _with_partners(total, event, pairs), choice.literal


def _with_partners(total: Sum, event: R, pairs: PairChoices[R]) -> Sum:
    for choice, partner, op in pairs.partners(event):
        (one,) = (one for one in partner.alternatives if one.op == op)
        total.add(one.memory.at_start, choice.literal)
    return total


def changed_by(cp: cp_model.CpModel, x: Running, before: Literal) -> Iterator[tuple[int, Literal]]:
    """Yield what something has changed in sum if it is ``before`` an event."""
    *others, last = x.alternatives
    yield last.memory.net, before
    for one in others:
        more = one.memory.net - last.memory.net
        if more and before is not False:
            yield more, conjunction(cp, one.chosen, before)
