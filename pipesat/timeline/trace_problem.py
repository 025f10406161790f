"""The problem of a trace: its stages with the costs that were seen, and the order that ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pipesat.core.amounts import in_unit
from pipesat.core.errors import BadInput
from pipesat.core.ops import Kind, Op
from pipesat.core.problem import Problem
from pipesat.files.limits import FORMAT
from pipesat.files.problem_file import parse_problem
from pipesat.timeline.steps import Steps
from pipesat.timeline.trace_costs import Classes, Costs

UNIT: Final = "MiB"
COUNTED: Final = "activations"
"""Unit of memory where none is given: one for each microbatch that a stage holds."""


class Memory(NamedTuple):
    """What a trace cannot say: capacity and static memory by device, what stages hold after F."""

    memory: str | None = None
    static: str | None = None
    held: str | None = None


def problem_of(
    costs: Costs,
    number: int,
    delay: float,
    given: Memory,
    classes: Classes | None = None,
    name: str = "",
) -> Problem:
    """Return the problem of one step, with the costs of its replica, in us.

    Without memory given, a stage holds one activation per microbatch from F to the end of its last
    backward, and a device has room for as many as its order held. Of a backward that did not run in
    both forms, the other one is not known: such a stage has only the form that ran.

    Raises
    ------
    BadInput
        If memory is given in part, or is no amount.
    """
    steps, step = costs.steps, costs.steps.steps[number]
    stages, devices = [], []
    held = given.held is not None
    holds = _each("held", given.held, len(steps.homes), up=True) if held else None
    groups = [0 if classes is None else classes.of(costs.sizes[number][m]) for m in _numbers(steps)]
    usual = max(groups, key=groups.count)
    for stage, home in enumerate(steps.homes):
        own: Any = _amounts(costs, number, stage, classes, usual)
        both = {"B", "BW"} <= own.keys()
        form = "either" if both else "split" if "B" in own else "fused"
        if form == "fused":
            own = {"B": 0, "W": own["BW"], **own}
        after = 1 if holds is None else holds[stage]
        entry: dict[str, Any] = {"device": home, **own, "backward": form}
        stages.append(entry | {"held_after_F": after, "held_after_B": after})
    if (given.memory or given.static) and not held:
        raise BadInput("expected what stages hold after F, too", where="held", value=None)
    room: Sequence[int | None] = (
        _each("memory", given.memory, steps.devices) if held else most_held(step.order)
    )
    static = _each("static", given.static or "0", steps.devices, up=True)
    for rank, (capacity, taken) in enumerate(zip(room, static, strict=True)):
        devices.append({"name": f"rank {rank}", "memory": capacity, "static": taken})
    document: dict[str, Any] = {
        "format": FORMAT,
        "name": name,
        "time_unit": "us",
        "memory_unit": UNIT if held else COUNTED,
        "microbatches": steps.microbatches
        if classes is None
        else _listed(costs, number, classes, groups, usual),
        "devices": devices,
        "stages": stages,
        "comm": {"default": round(delay)},
    }
    return parse_problem(document, "problem of the trace")


def _each(where: str, text: str | None, count: int, *, up: bool = False) -> list[Any]:
    """Return one amount per device or stage; ``None``: unlimited."""
    if text is None:
        return [None] * count
    found = in_unit(where, text, UNIT, up=up)
    values = found if isinstance(found, list) else [found] * count
    if len(values) != count:
        raise BadInput(f"expected one amount, or {count}", where=where, value=text)
    return values


def _numbers(steps: Steps) -> range:
    return range(steps.microbatches)


def _amounts(
    costs: Costs, number: int, stage: int, classes: Classes | None, group: int
) -> dict[Kind, int]:
    """Return the times of a stage's ops of one class, in us."""
    replica = costs.steps.steps[number].replica
    return {
        part[1]: round(time * (1.0 if classes is None else classes.ratios.get((part, group), 1.0)))
        for (of, part), time in costs.medians.items()
        if of == replica and part[0] == stage
    }


def _listed(
    costs: Costs, number: int, classes: Classes, groups: Sequence[int], usual: int
) -> list[dict[str, Any]]:
    """Return the list of microbatches: a class's first entry has its times, but for the usual's."""
    entries: list[dict[str, Any]] = []
    for place, group in enumerate(groups):
        name = f"class {group + 1}"
        if entries and entries[-1]["name"] == name:
            entries[-1]["count"] += 1
            continue
        entries.append({"name": name, "count": 1})
        if group != usual and group not in groups[:place]:
            entries[-1]["stages"] = {
                str(stage): _amounts(costs, number, stage, classes, group)
                for stage in range(len(costs.steps.homes))
            }
    return entries


def most_held(order: Sequence[Sequence[Op]]) -> list[int]:
    """Return the most microbatches of its stages that each device holds, from F to BW or W."""
    most = []
    for row in order:
        held = [0]
        for op in row:
            held.append(held[-1] + (op.kind == "F") - (op.kind in ("W", "BW")))
        most.append(max(held))
    return most
