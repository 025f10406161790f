"""The verdict on an order under every rule, held against the exhaustive simulator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pipesat
from pipesat.core.timing import time_order
from pipesat.files.problem_file import parse_problem
from pipesat.hangs.machine import RULES
from tests.support.hang_oracle import (
    Outcome,
    is_a_cycle,
    programs,
    programs_of_steps,
    simulate,
)
from tests.support.orders import order_of


class Judged(NamedTuple):
    """What the simulator found under a rule, and what the verdict has wrong."""

    rule: str
    outcome: Outcome
    wrong: list[str]


def judged(doc: dict[str, Any], rows: list[list[str]]) -> Iterator[Judged]:
    """Judge a valid order under every rule; try the safe order and the buffers that it names."""
    problem = parse_problem(doc)
    schedule = time_order(problem, order_of(*map(" ".join, rows)))
    for rule in RULES:
        buffers = int(rule == "graph")
        acts = programs(doc, rows, buffers)
        true = simulate(acts, rule)
        said = pipesat.check(problem, schedule, runtime=rule).document()
        wrong = [] if true.hangs == true.always else ["some interleavings hang, others do not"]
        if said["hangs"] != true.hangs:
            wrong.append(f"hangs: {true.hangs}")
        if true.crossed > bool(said["crossed"]) or bool(said["crossed"]) > (
            true.crossed or true.hangs  # behind a hang, messages never meet
        ):
            wrong.append(f"crossed: {true.crossed}")
        if said["safe"] != (not true.hangs and not true.crossed):
            wrong.append(f"safe: {not said['safe']}")
        if true.hangs and not is_a_cycle(doc, acts, true.stuck, said["cycle"]):
            wrong.append(f"no cyclic wait: {said['cycle']}")
        safe = simulate(programs_of_steps(doc, said["safe_steps"]), rule)
        if safe.hangs or safe.crossed:
            wrong.append(f"not a safe order: {said['safe_steps']}")
        least = said["buffers"] or 0
        if (least > 1) != (rule == "graph" and true.hangs):
            wrong.append(f"buffers: {least}")
        if least > 1:
            enough, fewer = (simulate(programs(doc, rows, n), rule) for n in (least, least - 1))
            wrong += [f"least buffers: {least}"] if enough.hangs or not fewer.hangs else []
        yield Judged(rule, true, wrong)
