"""From what a search has found to the plan: the best, and the proofs that hold of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pipesat.core.claims import Standing, require_best, tenable
from pipesat.core.doing import doing
from pipesat.core.errors import Contradiction
from pipesat.core.result import Result
from pipesat.plan.answer import Plan
from pipesat.plan.candidate import Candidate
from pipesat.plan.comparison import SplitRow
from pipesat.plan.findings import Findings
from pipesat.plan.with_modes import bound_with_modes, with_modes

if TYPE_CHECKING:
    pass


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
            lower_bound=own,
            baseline=chosen.baseline,
            wall_s=seconds,
            seed=seed,
            workers=workers,
            versions=dict(versions),
            history=chosen.history,
        )
    return Plan(known, chosen, result, bound, tuple(rows), tuple(left_out), seconds, contradictions)


def _all_candidates(known: Findings, rows: Sequence[SplitRow]) -> list[Candidate]:
    return [*known.candidates, *(row.candidate for row in rows if row.candidate is not None)]


def require_consistent(plan: Plan) -> None:
    """Raise ``Contradiction`` unless flags obey the choice and the best is the best."""
    known, space = plan.known, plan.question.space
    for candidate in _all_candidates(known, plan.rows):
        allowed = space.settled(candidate.shape, candidate.partition, candidate.recompute)
        if allowed != candidate.recompute:
            raise Contradiction(
                f"recomputation is {space.choice}, but stages of {candidate.proposed_by} have "
                f"{candidate.recompute}, expected {allowed}"
            )
    found = ((c.proposed_by, c.value(known.question.objective)) for c in known.candidates)
    require_best("the plan", known.value, found)


def _refuted(known: Findings, rows: Sequence[SplitRow]) -> Iterator[str]:
    """Every proof that a checked schedule refutes, in words."""
    for candidate in _all_candidates(known, rows):
        yield from tenable(candidate.value(known.question.objective), candidate.bound)[1]
    yield from tenable(known.value, known.bound)[1]
