"""The two questions, as users ask them: the best plan of layers, and which schedule to take."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipesat.core.amounts import factor, in_unit, one_in_unit, rate
from pipesat.core.arguments import public, require_once
from pipesat.core.errors import require, said_of
from pipesat.core.settings import (
    Amount,
    Chunks,
    Devices,
    Microbatches,
    RecomputeChoice,
    Runtime,
    Seconds,
    Seed,
    Target,
    Tokens,
    Workers,
)
from pipesat.core.torch_releases import release_for
from pipesat.problem.geometry import PlacementChoice
from pipesat.schedule.schedule import Objective
from pipesat.schedule.solving import Deadline, EitherStop, Listener, study

if TYPE_CHECKING:  # what a question needs is imported once it is asked: help is for reading
    from pipesat.advise.files import Advice
    from pipesat.advise.plan import Plan
    from pipesat.layers.layer import Layers
    from pipesat.layers.profile.profile_file import Profile

QUICK: Final = 20.0
"""Seconds with ``quick``."""
_SEARCHING: Final = 0.92  # of the time limit; then rows are timed again, checked and shown
_TIMED_AGAIN: Final = 0.97


@public
@study()
def plan(
    layers: Layers | str | Path,
    devices: Devices,
    microbatches: Microbatches,
    *,
    memory: int | str | Sequence[int | str] | None = None,
    speed: float | str | Sequence[float | str] | None = None,
    reserve: int | str = 0,
    placement: PlacementChoice = "chain",
    chunks: Sequence[Chunks] = (),
    latency: Amount = 0,
    bandwidth: float | Fraction | str | None = None,
    overlap: str | None = None,
    recompute: RecomputeChoice = "never",
    layouts: Sequence[str] = (),
    compare: bool = True,
    target: Target | None = None,
    version: str | None = None,
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
    speed
        How fast devices are, one each or one for all. Each time of a layer becomes
        ``ceil(time / speed)`` there; ``None``: 1.
    reserve
        Memory that every device keeps free for fragments and communication buffers: none unless
        given, where ``advise`` keeps 5 %. It is rounded up to whole memory units, on top of the
        layers' own ``reserve``.
    placement
        Where stages may lie. With ``any``, all three are tried.
    chunks
        Stages per device of a loop, as many shapes as values; ``None``: 2.
    latency
        Delay of every link, in time units.
    bandwidth
        Size units per time unit that links carry: 50, 0.5 or 1/3; ``None``: unlimited.
    overlap
        Allow pairs of F and BW of one device, which take NUM/DEN of both.
    recompute
        Which stages may compute activations again.
    layouts
        A split to compare with, can be repeated: Megatron-LM's string, or a .json file of module
        names per stage.
    compare
        Compare with the even and the balanced split, in each placement.
    target
        Plan only what this runtime runs: whole backwards on the first stage and where stages
        recompute, all others split or none where it must be so; ``None``: any order. See
        :func:`for_runtime`.

    Raises
    ------
    Infeasible
        If no partition of any shape fits into memory.
    BadInput
        If a value is wrong, or the layers cannot be cut so.
    """
    from pipesat.advise.comparison import compared
    from pipesat.advise.model_source import delay_of, hand_of, with_reserve
    from pipesat.advise.plan import concluded
    from pipesat.advise.plan_search import Search
    from pipesat.advise.question import Question
    from pipesat.advise.splits import for_runtime, in_each_way, shapes_to_try, shipped_by
    from pipesat.core.strict_json import read_json
    from pipesat.layers.from_profile import layers_of_document
    from pipesat.layers.pipeline import Pipeline, speed_of
    from pipesat.layers.stages import with_buffers
    from pipesat.runtimes import released
    from pipesat.solver.options import SolveOptions

    source = ""
    if isinstance(layers, str | Path):
        source, path = str(layers), Path(layers)
        layers = layers_of_document(read_json(path), path)
    require_once("chunks", chunks)
    require_once("layouts", layouts)
    unit = layers.memory_unit
    layers = with_reserve(layers, one_in_unit("reserve", reserve, unit, free=True))
    require(
        recompute == "never" or layers.recomputable,
        f"no layer has costs with recomputation, which recompute={recompute} needs: "
        'give some layers the key "recompute"',
        source=source,
        where="layers",
    )
    capacity = None if memory is None else in_unit("memory", memory, unit, limit=True)
    delay = delay_of(latency, bandwidth, layers)
    some = Pipeline(
        devices=devices,
        microbatches=microbatches,
        memory=capacity,
        delay=delay,
        overlap=None if overlap is None else factor("overlap", overlap),
        speed=speed_of(speed, devices),
    )
    some = replace(some, memory=some.capacities)  # refuses a list of another length
    with said_of(source):
        some = with_buffers(some, layers, release_for(target, version))
        shapes, left_out = shapes_to_try(layers, some, placement, chunks)
    if target is not None:
        layers, shapes = for_runtime(layers, shapes, target)
        shapes = in_each_way(layers, shapes, target)
    hand = [hand_of(text, layers, shapes[0]) for text in layouts]
    beside = shipped_by(target, shapes[0])
    release = released(target, version)
    question = Question(layers, some, tuple(shapes), recompute, objective, release=release)
    deadline = Deadline(time_limit, EitherStop(stop))
    options = SolveOptions(objective=objective, workers=workers, seed=seed)
    search = Search(question, options, deadline, listener)
    rows = compared(search, hand, beside, plain=compare)
    return concluded(search, rows, left_out.items())


@public
@study()
def advise(
    model: Layers | Profile | str | Path,
    devices: Devices,
    microbatches: Microbatches,
    *,
    gpu: str | None = None,
    shape: str | Mapping[str, Any] | None = None,
    length: Tokens | None = None,
    batch: Tokens = 1,
    tensor_parallel: Tokens = 1,
    overlap: str | None = None,
    memory: int | str | None = None,
    speed: float | str | Sequence[float | str] | None = None,
    reserve: int | str | None = None,
    target: Runtime = "torch",
    version: str | None = None,
    latency: Amount = 0,
    bandwidth: float | Fraction | str | None = None,
    tokens: Tokens | None = None,
    copy_bandwidth: float | Fraction | str | None = None,
    quick: bool = False,
    time_limit: Seconds = 75.0,
    workers: Workers | None = None,
    seed: Seed = 0,
    listener: Listener | None = None,
    stop: threading.Event | None = None,
    note: Callable[[str], None] | None = None,
) -> Advice:
    """Answer which schedule, split and memory for this model, in one table and a few lines.

    Parameters
    ----------
    model
        A layers or profile file (JSON), or the name of a published model as llama3-8b, with
        its ``gpu``: costs are estimated. Or what was read from such a file.
    devices
        Pipeline ranks.
    microbatches
        Microbatches.
    gpu
        For a published model: a100, h100, h200, b200, l40s or mi300x. Memory and links are its own
        if they are not given.
    shape
        For a published model: sizes of it and its run that differ, as layers=64,width=5120: style
        (gpt or llama), layers, width, heads, kv_heads, feed_forward, vocabulary.
    length
        For a published model: tokens per sequence; ``None``: the model's.
    batch
        For a published model: sequences per microbatch.
    tensor_parallel
        For a published model: GPUs that share every layer.
    overlap
        Allow pairs of F and BW of one device, which take NUM/DEN of both: schedules that overlap
        the communication of one with the compute of the other are compared too.
    memory
        Capacity of a device, as 40GiB, or a number in the file's memory unit; ``None``: the GPU's,
        else unlimited.
    speed
        How fast devices are, one each or one for all. Each time of a layer becomes
        ``ceil(time / speed)`` there; ``None``: 1.
    reserve
        Memory that stays free for fragments and communication buffers, rounded up to whole memory
        units; ``None``: 5 %, where ``plan`` keeps none.
    target
        The runtime it is for: marks what runs there today.
    latency
        Delay of every link, in time units.
    bandwidth
        Size units per time unit that links carry; ``None``: 70 % of the GPU's, unlimited with a
        file.
    tokens
        For a file: tokens of a microbatch, to show tokens per second; ``None``: unknown.
    copy_bandwidth
        What a device copies to the host per second, as 20GiB: shows what offloading would bring;
        ``None``: nothing is offloaded. Or a number of memory units per time unit.
    quick
        Answer within 20 seconds.
    time_limit
        Seconds until the answer. What was not done by then, it names.
    note
        Called with what is to be said before the search: that costs are an estimate.

    Raises
    ------
    Infeasible
        If no partition fits into memory, even recomputing.
    BadInput
        If a value is wrong.

    Examples
    --------
    >>> advice = pipesat.advise("tiny", gpu="h100", devices=2, microbatches=4, memory="1GiB")
    >>> print(advice)
    >>> advice.save("advice")
    """
    from pipesat.advise.advice_table import shown_rows
    from pipesat.advise.advising import advised
    from pipesat.advise.estimate_ends import ends_of
    from pipesat.advise.files import Advice, with_knobs
    from pipesat.advise.model_source import asked, require_fit, require_units
    from pipesat.advise.plan import concluded
    from pipesat.compare.model_costs import given
    from pipesat.layers.pipeline import speed_of
    from pipesat.layers.stages import with_buffers
    from pipesat.runtimes import released
    from pipesat.solver.options import SolveOptions

    require(
        gpu is None or tokens is None,
        "a published model has them: expected `length` and `batch`",
        where="tokens",
        value=tokens,
    )
    whole = Deadline(min(QUICK, time_limit) if quick else time_limit, EitherStop(stop))
    sizes = {"shape": shape, "length": length, "batch": batch, "tensor_parallel": tensor_parallel}
    known = given(model, gpu, sizes)
    if known.layers.estimate and note is not None:
        note(f"pipesat: all costs are an estimate: {known.layers.estimate}")
    if gpu is not None:
        require_units(memory=memory, reserve=reserve)
    unit = known.layers.memory_unit
    if memory is not None:
        known = known._replace(memory=one_in_unit("memory", memory, unit, limit=True))
    if bandwidth is not None:
        known = known._replace(bandwidth=rate("bandwidth", bandwidth), within=False)
    if tokens is not None:
        known = known._replace(tokens=tokens)
    free = None if reserve is None else one_in_unit("reserve", reserve, unit, free=True)
    pairs = None if overlap is None else factor("overlap", overlap)
    question = asked(known, devices, microbatches, free, latency, pairs, target, copy_bandwidth)
    pipeline = with_buffers(question.pipeline, known.layers, release_for(target, version))
    pipeline = replace(pipeline, speed=speed_of(speed, devices))
    question = replace(question, pipeline=pipeline, release=released(target, version))
    require_fit(question)
    deadline = Deadline(_SEARCHING * whole.limit, whole.stop)
    options = SolveOptions(workers=workers, seed=seed)
    trials, search = advised(question, deadline, options, listener)
    over = partial(whole.past, _TIMED_AGAIN)
    ends = tuple(ends_of(question, shown_rows(trials.rows), over))
    found = concluded(search)
    rows, left = tuple(trials.rows), tuple(trials.left_out.items())
    answer = Advice(question, rows, found, left, whole.seconds, trials.settings, ends)
    return replace(with_knobs(answer), seconds=whole.seconds)
