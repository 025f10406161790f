"""A plan, from layers to answer: the joint search over shapes, partitions, recomputation, orders.

:func:`run_plan` calls the phases in their order; what they share is a
:class:`~pipesat.choose.search.Search`, and what they leave is
:class:`~pipesat.choose.search.Findings`, so that the search can end after any of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product, zip_longest
from math import prod
from typing import Final

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.choose.bounds import flags_below, partitions_below, shape_bound
from pipesat.choose.candidates import Candidate, Space
from pipesat.choose.comparison import PLAN, Hand, SplitRow, fill, rows_to_compare, write
from pipesat.choose.cut_terms import cheapest
from pipesat.choose.plan import Plan, concluded
from pipesat.choose.search import Findings, Search, promise
from pipesat.choose.splits import proposals
from pipesat.core.errors import BadInput, Infeasible
from pipesat.core.progress import doing
from pipesat.core.solving import LEAST_SECONDS, Deadline, Listener
from pipesat.core.split import FORBIDDEN, LARGEST_COST
from pipesat.core.usable_cores import usable_cores
from pipesat.layers.pipeline import Pipeline
from pipesat.layers.stages import problem_of_split
from pipesat.workflows.studies import solver_of, versions

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
    space = known.space
    for state in known.states:
        try:
            state.bound = shape_bound(space.layers, state.shape, space.objective)
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
    for proposal in proposals(known.space, known.space.shapes[number]):
        yield known.consider(number, *proposal)


@doing("moving layers")
def move(search: Search, reach: Reach) -> None:
    """Move one layer of the best, or toggle one stage's recomputation, while it helps."""
    known = search.known
    while not search.deadline.past(reach.moving):
        ordered = sorted((c for c in known.candidates if c.schedules), key=promise)
        pending = next((c for c in ordered[: reach.width] if not c.expanded), None)
        bound = known.bound
        if pending is None or not known.beatable(0 if bound is None else bound.value):
            return
        _expand(search, pending, reach)


def _expand(search: Search, candidate: Candidate, reach: Reach) -> None:
    """Evaluate the neighbours, those of least bound first; stop at the first better one."""
    known = search.known
    before, around = known.value, []
    name = candidate.proposed_by.removesuffix(", moved") + ", moved"
    for partition, flags in known.space.around(candidate):
        near = known.consider(candidate.shape_number, partition, flags, name)
        if near is not None and near.effort == 0 and known.beatable(near.bound.value):
            around.append(near)
        if search.deadline.past(reach.moving):
            return
    for near in sorted(around, key=promise):
        if known.beatable(near.bound.value):
            search.evaluate(near, 1)
        if search.deadline.past(reach.moving) or known.value != before:
            return
    candidate.expanded = True


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
    space, state = known.space, known.states[number]
    found = partitions_below(space.layers, state.shape, space.objective, value)
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
    space = known.space
    if not space.free:
        return iter([()])
    allowed = flags_below(space.layers, space.shapes[number], space.objective, partition, value)
    return None if prod(map(len, allowed)) > _MOST_CHOICES else product(*allowed)


def _least_of(known: Findings, number: int, partition: tuple[range, ...]) -> int:
    """A bound for all choices of recomputation on a partition."""
    space = known.space
    own = space.own_bound(number, partition)
    if not known.beatable(own):
        return own
    try:
        least = problem_of_split(cheapest(space.layers), partition, space.shapes[number])
    except BadInput:  # tied layers on two devices
        return FORBIDDEN
    return max(own, closed_form_bound(least, space.objective).value)


_FOR_COMPARISON: Final = 0.15  # of the time limit


def plan_of(
    space: Space,
    deadline: Deadline,
    listener: Listener | None,
    *,
    workers: int | None,
    seed: int,
    hand: Sequence[Hand] = (),
    beside: Sequence[Pipeline] = (),
    compare: bool = True,
    left_out: Sequence[tuple[str, str]] = (),
) -> Plan:
    """Search a space with the solver and the schedules that users know; see :func:`run_plan`."""
    solver = solver_of(space.objective, workers, seed)
    return run_plan(
        Search(Findings(space), solver, deadline, listener),
        hand=hand,
        beside=beside,
        compare=compare,
        left_out=left_out,
        seed=seed,
        workers=workers or usable_cores(),
        versions=versions(),
    )


def run_plan(
    search: Search,
    *,
    hand: Sequence[Hand] = (),
    beside: Sequence[Pipeline] = (),
    compare: bool = False,
    left_out: Sequence[tuple[str, str]] = (),
    seed: int = 0,
    workers: int = 1,
    versions: Mapping[str, str] | None = None,
) -> Plan:
    """Search within its time limit, and compare.

    Parameters
    ----------
    hand
        Splits that the plan is set beside.
    beside
        Placements that were not asked for, whose even split it is set beside as well.
    compare
        Whether it is set beside the even and the balanced split.
    left_out
        Shapes that were not tried, and why.

    Raises
    ------
    Infeasible
        If no partition of any shape fits into memory.
    BadInput
        If the only shape's flags and ties leave no partition.
    """
    known, deadline = search.known, search.deadline
    bound_shapes(known)
    reach, rows = Reach(), rows_to_compare(known, hand, beside, plain=compare)
    considered = -1
    while considered != len(known.memo):  # with time left and no proof: look farther
        first, considered = considered < 0, len(known.memo)
        propose(search, reach)
        move(search, reach)
        list_all(search, reach)
        if first and rows:
            fill(search, rows, _FOR_COMPARISON * deadline.limit)
        if first:
            polish(search)
        solve_survivors(search)
        if deadline.left <= LEAST_SECONDS or known.complete:
            break
        reach = reach.farther(deadline.left / deadline.limit)
    if rows:
        shape = known.space.shapes[0] if known.best is None else known.best.shape
        rows.append(SplitRow(PLAN, shape, known.best))
        write(search, rows[-1])
    return concluded(
        known,
        rows,
        left_out,
        seconds=deadline.seconds,
        seed=seed,
        workers=workers,
        versions=versions or {},
    )
