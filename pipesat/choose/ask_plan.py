"""Layers cut, placed and ordered together, from what a user says of the machine."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipesat.core.amounts import in_unit, one_in_unit, rate
from pipesat.core.arguments import public, require_once
from pipesat.core.errors import BadInput, NotApplicable, said_of
from pipesat.core.machine import usable_cores
from pipesat.core.schedule import Objective
from pipesat.core.settings import (
    Amount,
    Chunks,
    Devices,
    Microbatches,
    RecomputeChoice,
    Seconds,
    Seed,
    Target,
    Workers,
)
from pipesat.core.solving import Deadline
from pipesat.placement.geometry import PlacementChoice

if TYPE_CHECKING:
    from pipesat.choose.phases import Hand
    from pipesat.choose.plan import Plan
    from pipesat.choose.splits import Shapes
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Schedule
    from pipesat.core.solving import Listener
    from pipesat.heuristics.list_scheduling import Policy
    from pipesat.layers.layer import Layers
    from pipesat.layers.pipeline import Delay


_MOST_AMOUNT: Final = 10**12


@public
def plan(
    layers: Layers | str | Path,
    devices: Devices,
    microbatches: Microbatches,
    *,
    memory: int | str | Sequence[int | str] | None = None,
    reserve: int | str = 0,
    placement: PlacementChoice = "chain",
    chunks: Sequence[Chunks] = (),
    latency: Amount = 0,
    bandwidth: float | Fraction | str | None = None,
    recompute: RecomputeChoice = "never",
    layouts: Sequence[str] = (),
    compare: bool = True,
    target: Target | None = None,
    objective: Objective = "makespan",
    time_limit: Seconds = 120.0,
    workers: Workers | None = None,
    seed: Seed = 0,
    listener: Listener | None = None,
    stop: threading.Event | None = None,
) -> Plan:
    """Cut uneven layers into stages, place and order them: all three together, with a bound.

    Parameters
    ----------
    layers
        The layers or profile file (JSON). Or what :func:`pipesat.read` returns.
    devices
        Pipeline ranks.
    microbatches
        Microbatches.
    memory
        Capacity of every device, static memory included, one for all or one each, in the layers'
        memory unit, or as 80GiB; ``None``: unlimited.
    reserve
        Memory that every device keeps free for fragments and communication buffers. On top of the
        layers' own ``reserve``.
    placement
        Where stages may lie. With ``any``, all three are tried.
    chunks
        Stages per device of a loop, as many shapes as values; ``None``: 2.
    latency
        Delay of every link, in time units.
    bandwidth
        Size units per time unit that links carry: 50, 0.5 or 1/3; ``None``: unlimited.
    recompute
        Which stages may compute activations again.
    layouts
        A split to compare with, can be repeated: Megatron-LM's string, or a .json file of module
        names per stage.
    compare
        Compare with the even and the balanced split.
    target
        Plan only what this runtime runs: whole backwards on the first stage and where stages
        recompute; ``None``: any order. See :func:`for_runtime`.

    Raises
    ------
    Infeasible
        If no partition of any shape fits into memory.
    BadInput
        If a value is wrong, or the layers cannot be cut so.
    """
    from pipesat.choose.candidates import Question
    from pipesat.choose.phases import run_plan
    from pipesat.choose.search import Findings, Search
    from pipesat.choose.splits import shapes_to_try
    from pipesat.layers.from_profile import read_layers_or_profile
    from pipesat.workflows.studies import solver_of, versions

    source = ""
    if isinstance(layers, str | Path):
        source, layers = str(layers), read_layers_or_profile(Path(layers))
    require_once("chunks", chunks)
    require_once("layouts", layouts)
    unit = layers.memory_unit
    capacity = None if memory is None else in_unit("memory", memory, unit)
    layers = _with_reserve(layers, one_in_unit("reserve", reserve, unit))
    _require_choice(layers, recompute, source)
    delay = _delay(latency, bandwidth, layers)
    try:
        shapes = shapes_to_try(
            layers,
            devices=devices,
            microbatches=microbatches,
            placement=placement,
            chunks=chunks,
            memory=capacity,
            delay=delay,
        )
    except BadInput as error:
        raise error.of(source) if source and not error.source else error from None
    if target is not None:
        layers, shapes = for_runtime(layers, shapes, target)
    hand = []
    for text in layouts:
        with said_of(text if text.endswith(".json") else ""):
            hand.append(_hand(text, layers, shapes))
    known = Findings(Question.of(layers, shapes.pipelines, objective, recompute))
    solver = solver_of(objective, workers, seed)  # imports, before the clock starts
    deadline = Deadline(time_limit, stop or threading.Event())
    return run_plan(
        Search(known, quick_orders, solver, deadline, listener),
        hand=hand,
        written=columns() if compare else None,
        left_out=shapes.left_out,
        seed=seed,
        workers=workers or usable_cores(),
        versions=versions(),
    )


def for_runtime(layers: Layers, shapes: Shapes, target: str) -> tuple[Layers, Shapes]:
    """Return layers and shapes whose schedules a runtime runs as they are.

    In torch the first stage's backward is whole: it does nothing in its input-gradient op and
    everything in the other. So is that of stages that recompute: split, both halves would.
    """
    from pipesat.export import RUNTIMES

    first, *rest = layers.layers
    fused = first.fused or RUNTIMES[target].first_whole
    whole = replace(layers, layers=(replace(first, fused=fused), *rest))
    pipelines = tuple(replace(shape, recompute_whole=True) for shape in shapes.pipelines)
    return whole, replace(shapes, pipelines=pipelines)


def _require_choice(layers: Layers, recompute: RecomputeChoice, source: str) -> None:
    if recompute != "never" and not layers.recomputable:
        raise BadInput(
            f"no layer has costs with recomputation, which recompute={recompute} needs: "
            'give some layers the key "recompute"',
            source=source,
            where="layers",
        )


def _with_reserve(layers: Layers, reserve: int) -> Layers:
    total = layers.reserve + reserve
    if reserve < 0 or total > _MOST_AMOUNT:
        raise BadInput(
            f"expected 0 or more, with the layers' own {layers.reserve} at most 10^12",
            where="reserve",
            value=reserve,
        )
    return replace(layers, reserve=total)


def _delay(latency: int, bandwidth: float | Fraction | str | None, layers: Layers) -> Delay:
    from pipesat.layers.pipeline import link_delay

    delay = link_delay(latency, None if bandwidth is None else rate("bandwidth", bandwidth))
    longest = max(delay(layer.output) for layer in layers.layers)
    if longest > _MOST_AMOUNT:
        raise BadInput(
            f"a transfer would take {longest} time units, expected at most 10^12",
            where="latency" if bandwidth is None else "bandwidth",
            value=latency if bandwidth is None else str(bandwidth),
        )
    return delay


def _hand(text: str, layers: Layers, shapes: Shapes) -> Hand:
    """A layout as a partition; its number of stages says in which shape."""
    from pipesat.files.strict_json import read_json
    from pipesat.layers.layout import layout_of_module_names, parse_layout, partition_of_layout
    from pipesat.layers.megatron import partition_of_pattern
    from pipesat.layers.rules import check_partition

    some = shapes.pipelines[0]
    devices = some.devices
    if layers.hybrid and not text.endswith(".json"):
        partition, name = partition_of_pattern(text, layers), text
    else:
        if text.endswith(".json"):
            found = layout_of_module_names(read_json(Path(text), 64 << 20))
        else:
            found = parse_layout(text, devices=devices)
        partition, name = partition_of_layout(found, layers), found.text
    stages = len(partition)
    if stages % devices:
        raise BadInput(
            f"{stages} stages, expected a multiple of {devices}, the devices", value=text
        )
    chunks = stages // devices
    shape = replace(some, placement="chain" if chunks == 1 else "loop", chunks=chunks)
    check_partition(layers, partition, shape.homes)
    return f"layout {name}", shape, partition


_QUICK: Final = {"chain": ("zb-h1",), "vee": ("zb-v",), "loop": ("interleaved-zb",)}
_ALL: Final = {
    "chain": ("1f1b", "zb-auto"),
    "vee": ("v-half", "v-min", "dualpipev", "v-auto"),
    "loop": ("interleaved-1f1b", "gis", "gis-h"),
}
_FILLED: Final = 2  # settings of zb-auto
SOME_SETTINGS: Final = ", some settings"
"""Ends the source of a published schedule that is the best of fewer orders than it has."""


def quick_orders(problem: Problem, effort: int) -> Iterator[Schedule]:
    """Yield a few schedules of a problem, the cheap ones first; with effort 2, published ones too.

    Which ones: measured on layers like those in examples/, they come closest to the best of all.
    """
    from pipesat.core.timing import time_order
    from pipesat.heuristics import BASELINES
    from pipesat.heuristics.list_scheduling import list_schedules
    from pipesat.heuristics.zb_auto import filled_orders
    from pipesat.placement.geometry import one_route_placement_of

    kind = one_route_placement_of(problem)
    for name in _QUICK[kind] if effort == 1 else _ALL[kind]:
        with contextlib.suppress(NotApplicable):
            yield BASELINES[name](problem)
    if effort > 1:
        return
    if kind == "chain":
        with contextlib.suppress(NotApplicable):
            for _, filled in zip(range(_FILLED), filled_orders(problem), strict=False):
                yield time_order(problem, filled.order, source=f"zb-auto{SOME_SETTINGS}")
    yield from list_schedules(problem, chosen=_policies(kind))


def _policies(kind: str) -> list[Policy]:
    from pipesat.heuristics.list_scheduling import Policy

    if kind == "chain":
        return [Policy()]
    return [Policy(0.25), Policy(1.0, pace=1.5), Policy(0.25, pace=1.25)]


def columns() -> dict[str, Callable[[Problem], Schedule]]:
    """What stands beside the best order found: 1F1B and ZB-H1, or what is like them elsewhere."""
    return {
        "1F1B": partial(_of, {"loop": "interleaved-1f1b"}, "1f1b"),
        "ZB-H1": partial(_of, {"loop": "interleaved-zb", "vee": "zb-v"}, "zb-h1"),
    }


def _of(elsewhere: dict[str, str], usual: str, problem: Problem) -> Schedule:
    from pipesat.heuristics import BASELINES
    from pipesat.placement.geometry import one_route_placement_of

    return BASELINES[elsewhere.get(one_route_placement_of(problem), usual)](problem)
