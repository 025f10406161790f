"""A job shop as a CP-SAT model."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ortools.sat.python import cp_model

from pipesat.core.errors import Fault
from pipesat.parts.shop import Plan, Rows, Shop, rows_by_start, timed
from pipesat.solver.model.times import unit_for


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
