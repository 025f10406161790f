"""The verdict on an order under every rule, held against the exhaustive simulator."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import pipesat
from pipesat.problem.ops import parse_item
from pipesat.problem.problem_file import parse_problem
from pipesat.runtimes.hangs.step_lists import RULES, WORDS
from pipesat.runtimes.hangs.verdict import verdict
from pipesat.runtimes.steps import RankStep, compute_kind
from pipesat.schedule.timing import time_order
from tests.oracle.hangs import (
    Outcome,
    Step,
    is_a_cycle,
    posted_anyhow,
    posted_late,
    programs,
    random_order,
    random_problem,
    simulate,
)
from tests.support.orders import order_of


class Judged(NamedTuple):
    """What the simulator found under a rule, and what the verdict has wrong."""

    rule: str
    outcome: Outcome
    wrong: list[str]


def judged(doc: dict[str, Any], rows: list[list[str]], rng: Random | None) -> Iterator[Judged]:
    """Judge a valid order under every rule; try the safe order and the buffers that it names.

    With ``rng``, its sends and receives do not stand at their ops, but anyhow.
    """
    problem = parse_problem(doc)
    schedule = time_order(problem, order_of(*map(" ".join, rows)))
    late = posted_late(doc, rows)
    steps = late if rng is None else posted_anyhow(late, rng)
    for rule in RULES:
        acts = programs(doc, steps, int(rule == "graph"))
        true = simulate(acts, rule)
        if rng is None:
            said = pipesat.check(problem, schedule, runtime=rule).document()
        else:
            given = tuple(tuple(map(_given, row)) for row in steps)
            said = verdict(problem, schedule, rule, given).document()
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
        safe = simulate(programs(doc, said["safe_steps"]), rule)
        if safe.hangs or safe.crossed:
            wrong.append(f"not a safe order: {said['safe_steps']}")
        if rule == "graph" and true.hangs:
            enough = [n for n in range(2, 5) if not simulate(programs(doc, steps, n), rule).hangs]
            if said["buffers"] != min(enough, default=None):  # at most 4 microbatches
                wrong.append(f"buffers: {enough}")
        elif said["buffers"] is not None:
            wrong.append("buffers")
        yield Judged(rule, true, wrong)


def _given(step: Step) -> RankStep:
    item = parse_item(step["op"])
    kinds = {word: kind for kind, word in WORDS.items()}
    return RankStep(kinds.get(step["step"]) or compute_kind(item), item, step["peer"])


def wrong_of_seed(seed: int) -> list[str]:
    """Judge a random order of a random problem; of every other one, steps stand anyhow."""
    rng = Random(seed)
    shape, doc = random_problem(rng, listed=seed % 3 == 2)
    rows = random_order(doc, rng)
    found = judged(doc, rows, rng if seed % 2 else None)
    return [f"{shape}, {one.rule}: {what}" for one in found for what in one.wrong]
