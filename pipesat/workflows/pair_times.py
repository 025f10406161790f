"""Times of ops and pairs from their parts, each proven as far as the time allows."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pipesat.core.arguments import public
from pipesat.core.errors import BadInput
from pipesat.core.progress import doing
from pipesat.core.settings import Seconds, Seed, Workers
from pipesat.parts.parts import Parts

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.parts.answer import LeastTime, Ops, PairTimes
    from pipesat.parts.parts import Plan


@public
def pair_times(
    parts: Parts | str | Path,
    *,
    into: Problem | None = None,
    by: Literal["time", "factor"] = "time",
    time_limit: Seconds = 60.0,
    workers: Workers | None = None,
    seed: Seed = 0,
    deterministic: bool = False,
    stop: threading.Event | None = None,
) -> PairTimes:
    """Find how long every op, and every two ops of stages on one device, take at least.

    Parameters
    ----------
    parts
        The parts of every op: a file (JSON), or what was read from one.
    into
        Write this problem with the times of the parts, ready to solve: the answer's ``problem``.
        It has the same stages.
    by
        Write pairs by time, or by factor of what their two ops take alone, rounded up: for
        microbatches that differ and stages that recompute.
    time_limit
        Seconds for all of them. A time that is not proven by then has a bound below it, and is the
        length of a plan that exists.
    deterministic
        One result for one seed, whatever the load: one thread, limits in solver time.
    workers
        Threads of CP-SAT; ``None``: the cores it may use.

    Raises
    ------
    BadInput
        If the problem has other stages, or a time is more than a problem file may have.
    Contradiction
        If a proof contradicts a checked plan.
    """
    from pipesat.core.ops import KINDS
    from pipesat.core.usable_cores import usable_cores
    from pipesat.parts.answer import (
        ChunkOp,
        PairTimes,
        into_problem,
        require_same_stages,
        twos_to_time,
    )
    from pipesat.parts.file import read_parts
    from pipesat.solver.job_shop import least_time
    from pipesat.solver.run.clock import Clock

    parts = parts if isinstance(parts, Parts) else read_parts(parts)
    if into is not None:
        require_same_stages(parts, into)
        if into.has_lists and by == "time":
            wanted = "expected factor: microbatches that are a list take no pairs by time"
            raise BadInput(wanted, where="by", value=by)
    ended = stop or threading.Event()
    clock = Clock(time_limit, deterministic, ended.is_set)
    threads = 1 if deterministic else workers or usable_cores()
    streams = len(parts.streams)
    single = [ChunkOp(chunk, kind) for chunk in sorted({*parts.stages}) for kind in KINDS]
    twos = twos_to_time(parts)
    left = count = len(single) + len(twos)

    def search(ops: Sequence[ChunkOp], members: Sequence[LeastTime]) -> LeastTime:
        nonlocal left
        chunks = [(parts.chunks[op.chunk], op.kind) for op in ops]
        share, left = clock.part(clock.left / left, ended.is_set), left - 1
        with doing(f"times of ops and pairs, {count - left} of {count}"):
            return least_time(
                streams,
                chunks,
                [_in_turn(streams, members)] if members else [],
                max((m.bound for m in members), key=lambda b: b.value, default=None),
                clock=share,
                workers=threads,
                seed=seed,
            )

    alone = {op: search([op], []) for op in single}
    together: dict[Ops, LeastTime] = {two: search(two, [alone[op] for op in two]) for two in twos}
    found = PairTimes(parts, alone, together, by=by)
    return found if into is None else replace(found, problem=into_problem(found, into))


def _in_turn(streams: int, members: Sequence[LeastTime]) -> Plan:
    """The plan of two ops that run one after the other."""
    from pipesat.parts.parts import Plan

    one, other = members
    jobs, length = len(one.shop.jobs), one.plan.length
    rows = tuple(
        one.plan.rows[s] + tuple(jobs + n for n in other.plan.rows[s]) for s in range(streams)
    )
    starts = (*one.plan.starts, *(length + start for start in other.plan.starts))
    return Plan(rows, starts, length + other.plan.length)
