"""The phase that lists all partitions which closed forms leave below the best value."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Final

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.core.errors import BadInput
from pipesat.core.progress import doing
from pipesat.layers.split import FORBIDDEN, LARGEST_COST
from pipesat.layers.stages import problem_of_split
from pipesat.plan.bounds import flags_below, partitions_below
from pipesat.plan.cheapest_layers import cheapest
from pipesat.plan.findings import Findings
from pipesat.plan.phases import Reach
from pipesat.plan.search import Search

_MOST_CHOICES: Final = 32  # of recomputation, of one partition


@doing("listing splits")
def list_all(search: Search, reach: Reach) -> None:
    """List every partition that closed forms leave below the best value, where they are few.

    Raises
    ------
    Infeasible
        If that shows that none fits into memory.
    """
    known = search.known
    if known.value is None:
        _rule_out(search, reach)
    for number, state in enumerate(known.states):
        value = known.value
        if state.bound is None or value is None or not known.beatable(state.bound.value):
            continue
        if (state.listed is None or value > state.listed) and _listed(search, reach, number, value):
            state.listed = value
    for candidate in known.unresolved():
        if search.deadline.past(reach.listing):
            return
        if candidate.effort == 0 and known.beatable(candidate.bound.value):
            search.evaluate(candidate, 1)


def _rule_out(search: Search, reach: Reach) -> None:
    """Without any schedule yet: find the shapes in which none of all partitions fits."""
    known = search.known
    for number, state in enumerate(known.states):
        if state.why_not or known.candidates_of(number):
            continue
        if not _listed(search, reach, number, LARGEST_COST):
            continue
        if not state.unsolved and not known.candidates_of(number):
            state.why_not = "no partition fits into memory: every one was looked at"
    known.require_possible()


def _listed(search: Search, reach: Reach, number: int, value: int) -> bool:
    """Make candidates of all partitions below a value; whether that was possible."""
    known = search.known
    question, state = known.question, known.states[number]
    found = partitions_below(question.layers, state.shape, question.objective, value)
    if found is None:
        return False
    rest: list[int] = []
    count = 0
    for partition in found:
        if count >= reach.most_listed or search.deadline.past(reach.listing):
            return False
        if partition is None:
            continue
        count += 1
        choices = _choices(known, number, partition, value)
        if choices is None:
            rest.append(_least_of(known, number, partition))
            continue
        for flags in choices:
            known.consider(number, partition, flags, "one of all")
    state.rest = rest
    return True


def _choices(
    known: Findings, number: int, partition: tuple[range, ...], value: int
) -> Iterator[tuple[bool, ...]] | None:
    """Which flags may be below a value; ``None`` if they are too many to try."""
    question = known.question
    if not question.space.free:
        return iter([()])
    shape = question.shapes[number]
    allowed = flags_below(question.layers, shape, question.objective, partition, value)
    return None if prod(map(len, allowed)) > _MOST_CHOICES else product(*allowed)


def _least_of(known: Findings, number: int, partition: tuple[range, ...]) -> int:
    """A bound for all choices of recomputation on a partition."""
    question = known.question
    own = question.own_bound(number, partition).value
    if not known.beatable(own):
        return own
    try:
        least = problem_of_split(cheapest(question.layers), partition, question.shapes[number])
    except BadInput:  # tied layers on two devices
        return FORBIDDEN
    return max(own, closed_form_bound(least, question.objective).value)
