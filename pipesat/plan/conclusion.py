"""From what a search has found to the plan: the best, and the proofs that hold of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pipesat.core.claims import Standing, tenable
from pipesat.core.progress import doing
from pipesat.core.result import Result
from pipesat.plan.answer import Plan, all_candidates
from pipesat.plan.comparison import SplitRow
from pipesat.plan.findings import Findings
from pipesat.plan.with_modes import bound_with_modes, with_modes


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
