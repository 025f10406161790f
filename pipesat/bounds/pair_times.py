"""What pairs of ops leave certain: the least times of ops, and the least work of a microbatch."""

from __future__ import annotations

from dataclasses import replace

from pipesat.core.ops import KINDS, OpKind
from pipesat.core.problem import Problem
from pipesat.core.rules import pair_time_of_kinds


def with_least_times(problem: Problem) -> Problem:
    """Return the problem with the least time that every op can last, alone or in a listed pair.

    A relaxation for arguments that add up times of single ops: in any valid schedule an op lasts at
    least this long. A pair by factor is never shorter than a member.
    """
    if problem.overlap is None or not problem.overlap.times:
        return problem
    stages = []
    for number, stage in enumerate(problem.stages):
        least = {
            kind: min([getattr(stage, kind), *_pair_times(problem, (number, kind))])
            for kind in KINDS
        }
        stages.append(replace(stage, **least))
    return replace(problem, stages=tuple(stages))


def least_work(problem: Problem, stage: int) -> int:
    """Twice the least compute time that a microbatch's ops on a stage can take.

    An op takes its time alone, or shares that of a pair: at least half the time of its shortest
    pair, so any schedule's busy time is at least the sum of these over its ops.
    """
    data = problem.stages[stage]
    f, b, w, bw = (
        min([2 * getattr(data, kind), *_pair_times(problem, (stage, kind))]) for kind in KINDS
    )
    ways = ([b + w] if data.may_split else []) + ([bw] if data.may_fuse else [])
    least: int = f + min(ways)
    return least


def _pair_times(problem: Problem, op: OpKind) -> list[int]:
    """Times of all pairs of which an op of this kind can be a member."""
    device = problem.stages[op[0]].device
    partners: list[OpKind] = [(s, kind) for s in problem.stages_on[device] for kind in KINDS]
    times = (pair_time_of_kinds(problem, op, partner) for partner in partners)
    return [time for time in times if time is not None]
