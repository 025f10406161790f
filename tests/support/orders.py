"""Orders written in a line per device, and random ones."""

from __future__ import annotations

from random import Random

from pipesat.problem.ops import Op, parse_item
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Order


def order_of(*rows: str) -> Order:
    return tuple(tuple(parse_item(text) for text in row.split()) for row in rows)


def random_order(problem: Problem, chance: Random) -> Order:
    """Modes and kinds at random, ops in an order that respects what waits for what; one route."""
    modes = {}
    for stage in range(len(problem.stages)):
        one = chance.choice(problem.modes_of(stage))
        for m in range(problem.microbatches[stage]):
            other = chance.choice(problem.modes_of(stage))
            modes[stage, m] = one if problem.mode_choice == "stage" else other
    chains: list[list[Op]] = []
    for m in range(problem.microbatches[0]):
        forwards = [Op(s, "F", m, modes[s, m]) for s in range(len(problem.stages))]
        chain = list(forwards)
        for op in reversed(forwards):
            data = problem.amounts(op.stage, m, op.mode)
            fused = chance.random() < 0.5 if data.may_split and data.may_fuse else data.may_fuse
            chain += [op._replace(kind=k) for k in (["BW"] if fused else ["B", "W"])]  # type: ignore[arg-type]
        chains.append(chain)
    rows: list[list[Op]] = [[] for _ in problem.devices]
    while any(chains):
        op = chance.choice([chain for chain in chains if chain]).pop(0)
        rows[problem.stages[op.stage].device].append(op)
    return tuple(map(tuple, rows))
