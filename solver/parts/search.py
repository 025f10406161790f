"""From a job shop and plans of it to the best plan found and what is proven of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

from ortools.sat.python import cp_model

from pipesat.core.claims import Bound, tenable
from pipesat.core.errors import Contradiction, Fault
from pipesat.core.ops import Kind
from pipesat.parts.answer import LeastTime
from pipesat.parts.bounds import one_stream_bound, quick_plans
from pipesat.parts.parts import Chunk
from pipesat.parts.shop import Plan, Shop, fault_of, shop_of, timed
from pipesat.solver.parts.blocks import blocks_of, repeated
from pipesat.solver.parts.model import build
from pipesat.solver.run.clock import Clock
from pipesat.solver.run.incumbent import NOTHING
from pipesat.solver.run.runner import FOUND, PROOFS, Runner, proven_bound

_BY_ARITHMETIC = "a stream and the longest chains around its parts"
_WAIT = 0.1  # seconds between two looks at whether to stop


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
        best, bound = _searched(shop, best, bound, Runner(clock, workers), seed)
    if fault := fault_of(shop, best):
        raise Fault(f"a plan of parts breaks a rule: {fault}")
    _, wrong = tenable(best.length, bound)
    if wrong:
        raise Contradiction(wrong[0])
    return LeastTime(shop, best, bound)


def _searched(
    shop: Shop, best: Plan, bound: Bound, runner: Runner, seed: int
) -> tuple[Plan, Bound]:
    model = build(shop, best, bound.value)
    with _interrupting(runner):
        solver, status = runner.solve(model.cp, limit=runner.clock.left, seed=seed)
    if status in FOUND:
        found = timed(shop, model.rows(solver))
        if found is not None and found.length < best.length:
            best = found
    if status in (cp_model.INFEASIBLE, cp_model.MODEL_INVALID):
        raise Contradiction("CP-SAT calls a job shop infeasible of which a checked plan exists")
    proven = model.unit * proven_bound(solver)
    return best, max(bound, Bound(proven, PROOFS), key=lambda b: b.value)


@contextlib.contextmanager
def _interrupting(runner: Runner) -> Iterator[None]:
    """End the solve under way once the clock is over, or told to stop."""
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(runner, done.wait), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _watch(runner: Runner, wait: Callable[[float], bool]) -> None:
    while not wait(_WAIT):
        if runner.clock.over:
            runner.interrupt()
