"""The hand-written schedules of a problem: one by name, all with their lines, the best orders."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pipesat.core.arguments import public
from pipesat.core.errors import BadInput, NotApplicable
from pipesat.core.timing import time_order
from pipesat.workflows.rows import ScheduleRow, row_of

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Objective, Order, Schedule
    from pipesat.heuristics.registry import Published

_SLOW = {"v-auto"}  # seconds, where others take milliseconds
_USUAL: Final = {"1f1b": "1F1B", "interleaved-1f1b": "interleaved 1F1B"}
_MOST_OPS: Final = 100_000


@public
def baseline(
    name: str, problem: Problem, microbatches: str = "given", group: int | None = None
) -> Schedule:
    """Return one hand-written schedule, timed as early as possible; it may exceed memory.

    Parameters
    ----------
    microbatches
        The order in which microbatches that differ enter: ``given``, ``descending``, ``ascending``
        or ``both-ends`` (small ones first and last).
    group
        Microbatches per group of ``interleaved-1f1b`` and ``interleaved-overlapped``, Megatron-LM's
        ``microbatch_group_size_per_vp_stage``; ``None``: one per device.

    Raises
    ------
    BadInput
        If there is no baseline or order of that name, or it has no groups of a size to choose.
    NotApplicable
        If it does not fit the problem's placement.
    """
    from pipesat.heuristics import BASELINES
    from pipesat.heuristics.microbatch_orders import RULES, entered_by, permutation_by

    if name not in BASELINES:
        raise BadInput(f"expected one of {', '.join(BASELINES)}", where="baseline", value=name)
    if microbatches not in RULES:
        text = f"expected one of {', '.join(RULES)}"
        raise BadInput(text, where="microbatches", value=microbatches)
    permutation = permutation_by(problem, microbatches)
    entry = BASELINES[name] if group is None else _in_groups(name, group)
    return entered_by(entry, problem, microbatches, permutation).on(problem)


def in_words(text: str, problem: Problem) -> tuple[str, Problem, str, int | None]:
    """Return what :func:`baseline` takes, from ``NAME[, groups of N][, RULE]``.

    Raises
    ------
    BadInput
        If it says something else.
    """
    from pipesat.heuristics import BASELINES
    from pipesat.heuristics.microbatch_orders import RULES

    said = re.fullmatch(r"([^,]*)(?:, ?groups of ([1-9][0-9]{0,6}))?(?:, ?([^,]*))?", text)
    if said is None or said[1] not in BASELINES:
        expected = f"no such file, and no schedule's name: expected one of {', '.join(BASELINES)}"
        raise BadInput(expected, where="SCHEDULE", value=text)
    if (rule := said[3] or "given") not in RULES:
        raise BadInput(f"expected one of {', '.join(RULES)}", where="SCHEDULE", value=text)
    return said[1], problem, rule, None if said[2] is None else int(said[2])


def _in_groups(name: str, group: int) -> Published:
    from pipesat.heuristics import BASELINES
    from pipesat.heuristics.interleaved import NAME, OVERLAPPED, in_overlapped_groups, interleaved

    builds: dict[str, Callable[..., Schedule]] = {
        NAME: interleaved,
        OVERLAPPED: in_overlapped_groups,
    }
    if name not in builds:
        text = f"only {' and '.join(builds)} have groups of a size to choose, {name} has none"
        raise BadInput(text, where="group", value=group)
    source = f"{name}, groups of {group}"
    return replace(BASELINES[name], build=partial(builds[name], group=group, source=source))


def baselines() -> Mapping[str, Published]:
    """Return all hand-written schedules by name, with their placements and sources.

    Call one with a problem to build it; :func:`pipesat.compare` builds all that apply.
    """
    from pipesat.heuristics import BASELINES

    return BASELINES


def hand_written(
    problem: Problem, objective: Objective
) -> Iterator[tuple[ScheduleRow, Schedule | None]]:
    """Yield a row per baseline, and its schedule timed for the objective, valid or not.

    Where microbatches differ, another row has the best order of microbatches by a rule, if that is
    better than the order given.
    """
    from pipesat.heuristics import BASELINES
    from pipesat.heuristics.microbatch_orders import GIVEN, entered_by, permutations

    orders = permutations(problem)
    for name, function in BASELINES.items():
        try:
            made = {
                rule: entered_by(function, problem, rule, permutation)
                for rule, permutation in orders.items()
            }
        except NotApplicable as error:
            yield ScheduleRow(name, why_not=str(error)), None
            continue
        rows = {rule: row_of(_named(name, rule), problem, s) for rule, s in made.items()}
        best = min(
            rows,
            key=lambda rule: (not rows[rule].valid, rows[rule].value(objective), rule != GIVEN),
        )
        for rule in dict.fromkeys((GIVEN, best)):
            named = _named(name, rule)
            yield rows[rule], time_order(problem, made[rule].order, objective, named)


def hand_written_for(
    problem: Problem, target: str | None, objective: Objective
) -> list[tuple[ScheduleRow, Schedule | None]]:
    """Return a row per baseline as it runs in a runtime, with its schedule, as above.

    Where the runtime runs one of several problems, the better row of each.
    """
    from pipesat.workflows.solve import problems_for

    found: dict[str, tuple[ScheduleRow, Schedule | None]] = {}
    for one in problems_for(problem, target):
        for row, schedule in hand_written(one, objective):
            kept, _ = found.get(row.name, (None, None))
            if kept is None or _worth(row, objective) < _worth(kept, objective):
                found[row.name] = row, schedule
    return [*found.values()]


def _worth(row: ScheduleRow, objective: Objective) -> tuple[bool, float]:
    value = row.value(objective)
    return not row.valid, math.inf if value is None else value


def usual(problem: Problem, objective: Objective) -> tuple[str, int | None] | None:
    """Return what most runs use today, and its value: 1F1B, in a loop interleaved 1F1B.

    It has no value if it exceeds memory. ``None``: neither exists here, or breaks another rule, or
    the problem is too large for a look.
    """
    from pipesat.core.checker import check

    if problem.op_count > _MOST_OPS:
        return None
    for name, shown in _USUAL.items():
        try:
            made = baseline(name, problem)
        except NotApplicable:
            continue
        timed = time_order(problem, made.order, objective, name)
        broken = {violation.rule for violation in check(problem, timed)}
        value = None if broken else timed.value(objective)
        return (shown, value) if broken <= {"memory"} else None
    return None


def _named(name: str, rule: str) -> str:
    return name if rule == "given" else f"{name}, {rule}"


def best_orders(problem: Problem, objective: Objective, most: int) -> dict[str, Order]:
    """Return different orders of the best ``most`` hand-written schedules that fit, by name."""
    found: dict[Order, tuple[int, str]] = {}
    for row, schedule in hand_written(problem, objective) if most else ():
        if schedule is not None and row.valid:
            found.setdefault(schedule.order, (schedule.value(objective), row.name))
    best = sorted(found, key=lambda order: found[order][0])[:most]
    return {found[order][1]: order for order in best}


def published() -> dict[str, Callable[[Problem], Schedule]]:
    """Return the published schedules by name, the slow one last; list scheduling is ours."""
    from pipesat.heuristics import BASELINES, LIST_SCHEDULING

    names = [name for name in BASELINES if name != LIST_SCHEDULING]
    return {name: BASELINES[name] for name in sorted(names, key=lambda name: name in _SLOW)}
