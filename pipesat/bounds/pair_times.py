"""The least times that ops can last, alone or in pairs: what arguments about ways count with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from pipesat.core.least import least_problem, of_each_class
from pipesat.core.ops import KINDS, PHASE_OF, Kind, OpKind
from pipesat.core.problem import Problem

_MayPair: TypeAlias = Callable[[Kind, Kind], bool]


def with_least_times(problem: Problem) -> Problem:
    """Return the problem with the least time that every op can last, alone or in a pair.

    A relaxation for arguments that add up times of single ops: in any valid schedule an op lasts at
    least this long.
    """
    return _with_times(problem, problem, lambda *_: True)


def least_times_of_each_class(problem: Problem) -> list[Problem]:
    """As :func:`with_least_times`, by class; a partner may be of any class and in any mode."""
    least = least_problem(problem)
    return [_with_times(one, least, lambda *_: True) for one in of_each_class(problem)]


def until_first_backward(problem: Problem) -> Problem:
    """As :func:`with_least_times`, for the way to and of a stage's first backward.

    The forwards on this way run before any backward of the route, so none is in a pair with one.
    """
    return _with_times(problem, problem, lambda op, partner: op != "F" or partner == "F")


def after_last_forward(problem: Problem) -> Problem:
    """As :func:`with_least_times`, for the way of the last backwards of the stages.

    When a stage's last backward starts, all forwards of the route have ended.
    """
    return _with_times(problem, problem, lambda op, partner: op == "F" or partner != "F")


def _with_times(problem: Problem, partners: Problem, may_pair: _MayPair) -> Problem:
    """Least times of a problem's ops beside those of another, which is no harder."""
    if problem.overlap is None:
        return problem
    stages = []
    for stage, data in enumerate(problem.stages):
        f, b, w, bw = (_least(problem, partners, (stage, kind), may_pair) for kind in KINDS)
        stages.append(replace(data, F=f, B=b, W=w, BW=bw))
    return replace(problem, stages=tuple(stages))


def _least(problem: Problem, partners: Problem, op: OpKind, may_pair: _MayPair) -> int:
    """Least time of an op; ``may_pair`` says which kinds of the same route count as partners."""
    stage, kind = op
    data, overlap = problem.stages[stage], problem.overlap
    alone = int(getattr(data, kind))
    times = [alone]
    for other in problem.stages_on[data.device]:
        apart = problem.route_of[other] != problem.route_of[stage]
        for partner in PHASE_OF:
            with_it = int(getattr(partners.stages[other], partner))
            time = overlap.time(op, (other, partner), alone, with_it) if overlap else None
            if time is not None and (apart or may_pair(kind, partner)):
                times.append(time)
    return min(times)
