"""From what a search has found to the plan: the best, and the proofs that hold of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.choose.candidates import Candidate, Flags
from pipesat.choose.comparison import SplitRow
from pipesat.choose.plan import Plan, all_candidates
from pipesat.choose.search import Findings
from pipesat.core.checker import check
from pipesat.core.claims import Bound, Standing, tenable
from pipesat.core.errors import Fault
from pipesat.core.ops import Item, Op, Pair, Unreadable, members
from pipesat.core.problem import Problem
from pipesat.core.progress import doing
from pipesat.core.result import Result
from pipesat.core.schedule import Objective, Schedule
from pipesat.layers.layer import Layers
from pipesat.layers.stages import problem_with_recompute


@doing("checking the answer")
def answer(
    known: Findings,
    rows: Sequence[SplitRow],
    left_out: Sequence[tuple[str, str]],
    *,
    seconds: float,
    seed: int,
    workers: int,
    versions: Mapping[str, str],
) -> Plan:
    """Put together what a search has found.

    A proof that a checked schedule refutes is dropped, and all others with it; the schedules stay.

    """
    chosen, bound = known.best, known.bound
    contradictions = tuple(dict.fromkeys([*known.contradictions, *_refuted(known, rows)]))
    if contradictions:
        bound = None
    result = None
    if chosen is not None:
        proofs = [] if contradictions else [chosen.bound, *([] if bound is None else [bound])]
        problem, schedule = chosen.problem, chosen.schedules[0]
        if known.question.space.free:
            problem, schedule = with_modes(known.question.layers, chosen)
            if proofs:  # what is proven of these stages as they recompute says nothing of others
                of_all = known.bound_of(chosen.shape_number)
                proofs = [bound_with_modes(problem, of_all, known.question.objective)]
        own = max(proofs, key=lambda proof: proof.value, default=None)
        value = chosen.value(known.question.objective)
        result = Result(
            problem=problem,
            status=Standing(value, None if own is None else own.value, of="this partition").status,
            objective=known.question.objective,
            schedule=schedule,
            bound=own,
            baseline=chosen.baseline,
            wall_s=seconds,
            seed=seed,
            workers=workers,
            versions=dict(versions),
            history=chosen.history,
        )
    return Plan(known, chosen, result, bound, tuple(rows), tuple(left_out), seconds, contradictions)


def _refuted(known: Findings, rows: Sequence[SplitRow]) -> Iterator[str]:
    """Every proof that a checked schedule refutes, in words."""
    for candidate in all_candidates(known, rows):
        yield from tenable(candidate.value(known.question.objective), candidate.bound)[1]
    yield from tenable(known.value, known.bound)[1]


def with_modes(layers: Layers, candidate: Candidate) -> tuple[Problem, Schedule]:
    """Return a candidate's partition with recomputing as a mode, and its best schedule there.

    Each op runs as long and holds as much as in the candidate's own problem, in which what
    recomputes is part of the stages' amounts.

    Raises
    ------
    Fault
        If the checker disagrees.
    """
    problem = problem_with_recompute(layers, candidate.partition, candidate.shape)
    schedule = _in_modes(candidate.schedules[0], candidate.flags)
    if violations := check(problem, schedule):
        raise Fault(f"with recomputing as a mode, a plan is not valid: {violations[0]}")
    return problem, schedule


def bound_with_modes(problem: Problem, of_all: Bound | None, objective: Objective) -> Bound:
    """What no schedule of the problem is below: its closed forms, or what holds of all splits."""
    own = closed_form_bound(problem, objective)
    return own if of_all is None or of_all.value < own.value else of_all


def _in_modes(schedule: Schedule, flags: Flags) -> Schedule:
    def op_of(op: Op) -> Op:
        return op._replace(mode=int(flags[op.stage]))

    def item_of(item: Item | Unreadable) -> Item | Unreadable:
        if isinstance(item, Pair):
            return Pair(*map(op_of, members(item)))
        return op_of(item) if isinstance(item, Op) else item

    rows = (tuple(t._replace(item=item_of(t.item)) for t in row) for row in schedule.devices)
    return replace(schedule, devices=tuple(rows))
