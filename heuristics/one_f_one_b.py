"""Chains whose backwards are whole: GPipe, 1F1B, and 1F1B with a deeper warm-up or with pairs."""

from __future__ import annotations

from pipesat.heuristics.registry import published
from pipesat.heuristics.shared.rows import chain_schedule
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Schedule


@published("1f1b", placement="chain", source="Narayanan et al., ICML 2021")
def one_f_one_b(problem: Problem) -> Schedule:
    """``min(p - 1 - d, m)`` warm-up forwards on rank d, then F and BW in turn, then the other BWs.

    Holds ``min(p - d, m)`` activations on rank d; bubble ``(p - 1)(F + BW)`` on a uniform chain
    without delays, as GPipe's.

    Raises
    ------
    NotApplicable
        Unless every device holds exactly one stage of one route.
    """
    return chain_schedule(problem, "1f1b", lambda rank: rank.whole(rank.warm_up(1)))


@published("gpipe", placement="chain", source="Huang et al., NeurIPS 2019")
def gpipe(problem: Problem) -> Schedule:
    """All forwards, then all backwards, both in microbatch order (as torch's ScheduleGPipe).

    Holds m activations per device; bubble ``(p - 1)(F + BW)`` on a uniform chain without delays.

    Raises
    ------
    NotApplicable
        Unless every device holds exactly one stage of one route.
    """
    return chain_schedule(problem, "gpipe", lambda rank: rank.whole(len(rank.forwards)))


@published("eager-1f1b", placement="chain", source="Zhuang et al., MLSys 2023")
def eager_1f1b(problem: Problem) -> Schedule:
    """1F1B with ``min(2 (p - 1 - d), m)`` warm-up forwards on rank d: delays hide behind them.

    Holds ``min(2 (p - d) - 1, m)`` activations on rank d. On a uniform chain with a delay c of at
    most half a microbatch's ``F + BW``, only fill and drain wait for transfers: makespan
    ``m (F + BW) + (p - 1)(F + BW + 2 c)``.

    Raises
    ------
    NotApplicable
        Unless every device holds exactly one stage of one route.
    """
    return chain_schedule(problem, "eager-1f1b", lambda rank: rank.whole(rank.warm_up(2)))


@published(
    "1f1b-overlapped",
    placement="chain",
    pairs=True,
    source="PP-Schedule-Visualization, 2025",
)
def overlapped_1f1b(problem: Problem) -> Schedule:
    """``min(2 (p - 1 - d) + 1, m)`` warm-up forwards on rank d, then pairs of F and BW.

    Both members of a pair need their inputs at its start and hand on their outputs at its end, so
    the way to the next rank and back takes two pairs: hence the warm-up of eager 1F1B, and one more
    because the last rank cannot pair a microbatch with itself. Holds ``min(2 (p - d), m)``
    activations on rank d; makespan ``p (F + BW) + (m - 1) P`` on a uniform chain without delays, P
    being a pair's time. Where the problem or the stage knows no pairs, their members run one after
    the other.

    Raises
    ------
    NotApplicable
        Unless every device holds exactly one stage of one route.
    """
    return chain_schedule(
        problem, "1f1b-overlapped", lambda rank: rank.in_pairs(rank.warm_up(2, extra=1))
    )
