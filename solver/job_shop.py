"""The least time of a job shop of parts, with its proof: its CP-SAT model, and long ops by blocks.

Of long ops, the best order of a few layers, again and again, is a good order of all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ortools.sat.python import cp_model

from pipesat.core.claims import Bound, tenable
from pipesat.core.errors import Contradiction, Fault
from pipesat.core.ops import Kind
from pipesat.parts.answer import LeastTime
from pipesat.parts.bounds import one_stream_bound, quick_plans
from pipesat.parts.parts import Chunk, Plan, Rows, Shop, fault_of, rows_by_start, shop_of, timed
from pipesat.solver.model.times import unit_for
from pipesat.solver.run.clock import Clock
from pipesat.solver.run.incumbent import NOTHING
from pipesat.solver.run.runner import FOUND, PROOFS, Lanes, proven_bound

MOST_JOBS = 48
"""Of a block: of so many, the best order is mostly proven within a second."""


def blocks_of(ops: Sequence[tuple[Chunk, Kind]], jobs: int) -> list[tuple[Chunk, Kind]] | None:
    """Return the ops with so few layers that they are a small shop; ``None`` if they are already.

    Parameters
    ----------
    jobs
        Of the shop of all layers.
    """
    count = -(-jobs // MOST_JOBS)
    small = [(replace(chunk, repeat=-(-chunk.repeat // count)), kind) for chunk, kind in ops]
    return None if small == list(ops) else small


def repeated(shop: Shop, small: Sequence[tuple[Chunk, Kind]], plan: Plan) -> Iterator[Plan]:
    """Yield the plan of all layers in which every block of layers runs in the order of a plan.

    A last block may have fewer layers than the plan has: it runs in what is left of its order.
    """
    number = {
        (job.member, job.kind, job.place, job.part): n
        for n, job in enumerate(shop_of(shop.streams, small).jobs)
    }
    layers = [chunk.repeat for chunk, _ in small]
    place_in_row = {n: k for row in plan.rows for k, n in enumerate(row)}

    def key(n: int) -> tuple[int, int]:
        job = shop.jobs[n]
        block, place = divmod(job.place, layers[job.member])
        return block, place_in_row[number[job.member, job.kind, place, job.part]]

    rows: list[list[int]] = [[] for _ in range(shop.streams)]
    for n, job in enumerate(shop.jobs):
        rows[job.stream].append(n)
    if (found := timed(shop, tuple(tuple(sorted(row, key=key)) for row in rows))) is not None:
        yield found


@dataclass(frozen=True)
class ShopModel:
    """The model, its start variables, and its shop: times in multiples of ``unit``.

    Times are rounded down where they are no multiples. Then an exact plan, its starts rounded down
    too, is a plan of the model: a part that begins when another has ended still does, as
    ``floor(a + b) >= floor(a) + floor(b)``. So the model's bound holds, and its order can be timed.
    """

    cp: cp_model.CpModel
    starts: list[cp_model.IntVar]
    shop: Shop
    unit: int

    def rows(self, solver: cp_model.CpSolver) -> Rows:
        """Return the order that was found."""
        return rows_by_start(self.shop, [solver.value(start) for start in self.starts])


def build(shop: Shop, plan: Plan, bound: int) -> ShopModel:
    """Return the model of plans of at most a known plan's length, which is its hint."""
    common = math.gcd(*(job.time for job in shop.jobs)) or 1
    unit = max(common, unit_for(plan.length))
    jobs = tuple(job._replace(time=job.time // unit) for job in shop.jobs)
    small = Shop(shop.streams, jobs)
    hint = timed(small, plan.rows)
    if hint is None:
        raise Fault("the parts of a plan wait for each other")
    cp = cp_model.CpModel()
    starts = [cp.new_int_var(0, hint.length - job.time, "") for job in jobs]
    intervals = [
        cp.new_fixed_size_interval_var(start, job.time, "")
        for start, job in zip(starts, jobs, strict=True)
    ]
    for stream in range(shop.streams):
        cp.add_no_overlap(
            [i for i, job in zip(intervals, jobs, strict=True) if job.stream == stream]
        )
    for start, job in zip(starts, jobs, strict=True):
        for other in job.before:
            cp.add(start >= starts[other] + jobs[other].time)
    length = cp.new_int_var(min(hint.length, bound // unit), hint.length, "")
    for start, job in zip(starts, jobs, strict=True):
        cp.add(length >= start + job.time)
    cp.minimize(length)
    for start, value in zip(starts, hint.starts, strict=True):
        cp.add_hint(start, value)
    cp.add_hint(length, hint.length)
    return ShopModel(cp, starts, small, unit)


_BY_ARITHMETIC = "a stream and the longest chains around its parts"


def least_time(
    streams: int,
    ops: Sequence[tuple[Chunk, Kind]],
    plans: Sequence[Plan] = (),
    known: Bound | None = None,
    *,
    clock: Clock,
    workers: int = 1,
    seed: int = 0,
) -> LeastTime:
    """Search for the shortest plan of one op or two, until it is proven or the clock is over.

    Parameters
    ----------
    plans
        Of the ops' shop, to start from.
    known
        What is known of the least time already.

    Raises
    ------
    Contradiction
        If a proof contradicts a checked plan.
    Fault
        If a plan breaks a rule.
    """
    shop = shop_of(streams, ops)
    given = [timed(shop, plan.rows) or plan for plan in plans]
    best = min([*given, *quick_plans(shop)], key=lambda plan: plan.length)
    arithmetic = Bound(one_stream_bound(shop), _BY_ARITHMETIC)
    bound = max(arithmetic, known or NOTHING, key=lambda b: b.value)
    if best.length > bound.value and not clock.over:
        small = blocks_of(ops, len(shop.jobs))
        if small is not None:
            part = clock.part(clock.left / 3)
            block = least_time(streams, small, clock=part, workers=workers, seed=seed)
            best = min([best, *repeated(shop, small, block.plan)], key=lambda plan: plan.length)
    if best.length > bound.value and not clock.over:
        best, bound = _searched(shop, best, bound, Lanes(clock), workers, seed)
    if fault := fault_of(shop, best):
        raise Fault(f"a plan of parts breaks a rule: {fault}")
    _, wrong = tenable(best.length, bound)
    if wrong:
        raise Contradiction(wrong[0])
    return LeastTime(shop, best, bound)


def _searched(
    shop: Shop, best: Plan, bound: Bound, lanes: Lanes, workers: int, seed: int
) -> tuple[Plan, Bound]:
    model, runner = build(shop, best, bound.value), lanes.runner(workers)
    solved: list[tuple[cp_model.CpSolver, cp_model.CpSolverStatus]] = []

    def lane() -> None:
        solved.append(runner.solve(model.cp, limit=lanes.clock.left, seed=seed))

    for failed in lanes.run([lane]):
        raise Fault(failed)
    ((solver, status),) = solved
    if status in FOUND:
        found = timed(shop, model.rows(solver))
        if found is not None and found.length < best.length:
            best = found
    if status == cp_model.INFEASIBLE:
        raise Contradiction("CP-SAT calls a job shop infeasible of which a checked plan exists")
    proven = model.unit * proven_bound(solver)
    return best, max(bound, Bound(proven, PROOFS), key=lambda b: b.value)
