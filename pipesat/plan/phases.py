"""The short phases of a search, in the order of :func:`pipesat.plan.plan.run_plan`.

Whatever has a bound at or above the best value is passed over: it cannot be better.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from pipesat.core.errors import BadInput, Infeasible
from pipesat.core.progress import doing
from pipesat.core.solving import LEAST_SECONDS
from pipesat.layers.rules import neighbours
from pipesat.plan.bounds import shape_bound
from pipesat.plan.candidate import Candidate
from pipesat.plan.findings import Findings
from pipesat.plan.proposals import Proposal, proposals
from pipesat.plan.search import Search

_SURVIVORS: Final = 8  # in the first round of solves
_ROUNDS: Final = 4
_FINALISTS: Final = 2
_FOR_FINALISTS: Final = 0.1  # of the time that is left, for each
_MOVED: Final = 0.7  # of what is left after a pass, kept for listing and solves
_REST: Final = 0.5  # for solves


@dataclass(frozen=True)
class Reach:
    """How far one pass over the phases looks, and which shares of the time limit end them."""

    width: int = 4  # candidates whose neighbours are looked at
    most_listed: int = 4000  # partitions of a shape below the best value
    proposing: float = 0.25
    moving: float = 0.4
    listing: float = 0.55

    def farther(self, left: float) -> Reach:
        """Return the next pass's; ``left`` is the share of the limit that it starts with."""
        moving = 1 - _MOVED * left
        return Reach(4 * self.width, 4 * self.most_listed, moving, moving, 1 - _REST * left)


@doing("bounding all splits")
def bound_shapes(known: Findings) -> None:
    """Bound every shape over all of its partitions.

    Raises
    ------
    Infeasible
        If no partition of any shape fits into memory.
    BadInput
        If the only shape's flags and ties leave no partition.
    """
    question = known.question
    for state in known.states:
        try:
            state.bound = shape_bound(question.layers, state.shape, question.objective)
        except (BadInput, Infeasible) as error:
            if isinstance(error, BadInput) and len(known.states) == 1:
                raise
            state.why_not = str(error)
    known.require_possible()


@doing("proposing splits")
def propose(search: Search, reach: Reach) -> None:
    """Evaluate what exact programmes propose under several stand-ins, of all shapes in turn."""
    known = search.known
    streams = [_proposed(known, number) for number, s in enumerate(known.states) if not s.why_not]
    for row in zip_longest(*streams):
        for candidate in row:
            if candidate is not None and known.beatable(candidate.bound.value):
                search.evaluate(candidate, 1)
            if known.best is not None and search.deadline.past(reach.proposing):
                return


def _proposed(known: Findings, number: int) -> Iterator[Candidate | None]:
    question = known.question
    for proposal in proposals(question.space, question.shapes[number], question.objective):
        yield known.consider(number, *proposal)


@doing("moving layers")
def move(search: Search, reach: Reach) -> None:
    """Move one layer of the best, or toggle one stage's recomputation, while it helps."""
    known = search.known
    while not search.deadline.past(reach.moving):
        ordered = sorted((c for c in known.candidates if c.schedules), key=known.promise)
        pending = next((c for c in ordered[: reach.width] if not c.expanded), None)
        bound = known.bound
        if pending is None or not known.beatable(0 if bound is None else bound.value):
            return
        _expand(search, pending, reach)


def _expand(search: Search, candidate: Candidate, reach: Reach) -> None:
    """Evaluate the neighbours, those of least bound first; stop at the first better one."""
    known = search.known
    before, around = known.value, []
    for proposal in _around(known, candidate):
        near = known.consider(candidate.shape_number, *proposal)
        if near is not None and near.effort == 0 and known.beatable(near.bound.value):
            around.append(near)
        if search.deadline.past(reach.moving):
            return
    for near in sorted(around, key=known.promise):
        if known.beatable(near.bound.value):
            search.evaluate(near, 1)
        if search.deadline.past(reach.moving) or known.value != before:
            return
    candidate.expanded = True


def _around(known: Findings, candidate: Candidate) -> Iterator[Proposal]:
    question, name = known.question, candidate.proposed_by.removesuffix(", moved") + ", moved"
    if all(candidate.partition):
        for partition in neighbours(question.layers, candidate.partition, candidate.shape):
            yield Proposal(partition, candidate.recompute, name)
    for flags in question.space.flips(candidate.partition, candidate.recompute):
        yield Proposal(candidate.partition, flags, name)


@doing("improving the best splits")
def polish(search: Search) -> None:
    """Make every hand-written schedule of the two most promising partitions."""
    for candidate in search.known.unresolved()[:_FINALISTS]:
        search.evaluate(candidate, 2, _FOR_FINALISTS * search.deadline.left)


@doing("searching orders of the best splits")
def solve_survivors(search: Search) -> None:
    """Solve the most promising in rounds: ever fewer of them, ever more time for each."""
    known, deadline = search.known, search.deadline
    width, rounds = _SURVIVORS, _ROUNDS
    while deadline.left > LEAST_SECONDS and (chosen := known.unresolved()[:width]):
        for place, candidate in enumerate(chosen):
            if deadline.left <= LEAST_SECONDS:
                return
            if known.beatable(candidate.bound.value):
                search.solve(candidate, deadline.left / (rounds * (len(chosen) - place)))
        width, rounds = max(1, width // 2), max(1, rounds - 1)
