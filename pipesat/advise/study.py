"""From a question to an answer: rows that users know, our search, and what is proven of both."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipesat.advise.advice import Advice
from pipesat.advise.ends import ends_of
from pipesat.advise.families import shown_rows
from pipesat.advise.given import Run, given
from pipesat.advise.knobs import families_text, not_tried
from pipesat.advise.orders import chosen_of
from pipesat.advise.pairs import layer_parts, with_times
from pipesat.advise.question import RUNTIMES, Question, Runtime
from pipesat.advise.work import Work
from pipesat.core.amounts import SECONDS, amount, one_in_unit, rate
from pipesat.core.arguments import public
from pipesat.core.claims import Bound
from pipesat.core.doing import doing
from pipesat.core.errors import BadInput
from pipesat.core.settings import Seconds, Seed, Workers
from pipesat.core.solving import Deadline, Listener
from pipesat.layers.layer import Layers
from pipesat.parts.parts import Parts
from pipesat.plan.bounds import shape_bound, why_nothing_fits
from pipesat.plan.cheapest_layers import cheapest
from pipesat.plan.findings import Findings
from pipesat.plan.question import Question as PlanQuestion
from pipesat.plan.shapes import shapes_to_try
from pipesat.profile.file import Profile

if TYPE_CHECKING:
    from pipesat.plan.answer import Plan

QUICK: Final = 20.0
"""Seconds with ``quick``."""
_SEARCHING: Final = 0.92  # of the time limit; then rows are timed again, checked and shown
_TIMED_AGAIN: Final = 0.97
RESERVED: Final = Fraction(1, 20)
"""Of the memory, kept free unless a reserve is given."""
_MOST_DEVICES: Final = 4096
_MOST_AMOUNT: Final = 10**12


@public
def advise(
    model: Layers | Parts | Profile | str | Path,
    devices: int,
    microbatches: int,
    *,
    gpu: str | None = None,
    length: int | None = None,
    batch: int = 1,
    tensor_parallel: int = 1,
    parts: Parts | str | Path | None = None,
    memory: int | str | None = None,
    reserve: int | str | None = None,
    target: Runtime = "torch",
    latency: int = 0,
    bandwidth: float | Fraction | str | None = None,
    tokens: int | None = None,
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
        A published model, ``"llama3-8b"``, with its ``gpu``: costs are estimated. Or layers, a
        profile, or parts of transformer layers, or the path of such a file.
    devices, microbatches
        Pipeline ranks, and microbatches.
    gpu
        Of a published model: ``a100``, ``h100``, ``h200``, ``b200``, ``l40s``, ``mi300x``. Memory
        and links are its own if they are not given.
    length, batch
        Of a published model: tokens per sequence (``None``: the model's), sequences per microbatch.
    tensor_parallel
        Of a published model: GPUs that share every layer.
    parts
        Of one transformer layer, on streams: they say what all of them take, and what F and BW take
        together. Orders with such pairs are searched then, and nothing recomputes.
    memory
        Capacity of a device: ``"40GiB"``, or a number in the layers' memory unit; ``None``: the
        GPU's, else unlimited.
    reserve
        Of it, what stays free for fragments and buffers; ``None``: a twentieth.
    target
        ``torch``, ``torchtitan``, ``automodel`` or ``megatron``: what is marked as running today.
    latency, bandwidth
        Of every link: time units, size units per time unit.
    tokens
        Of a microbatch, for tokens per second; a published model has its own.
    copy_bandwidth
        What a device copies to the host, and as many back: ``"20GiB"`` per second, or a number of
        memory units per time unit. What offloading would bring is shown too.
    quick
        Answer within 20 seconds.
    time_limit
        Seconds until the answer, on the clock. What was not done by then, it names.
    workers, seed, listener, stop
        As of :func:`pipesat.plan`.
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
    whole = Deadline(min(QUICK, time_limit) if quick else time_limit, stop or threading.Event())
    known = given(model, Run(gpu, length, batch, tensor_parallel))
    layers = known.layers
    if layers.estimate and note is not None:
        note(f"pipesat: all costs are an estimate: {layers.estimate}")
    if gpu is not None:
        _require_units(memory=memory, reserve=reserve)
    unit = layers.memory_unit
    capacity = known.memory if memory is None else one_in_unit("memory", memory, unit, up=False)
    question = _question(
        layers,
        devices,
        microbatches,
        capacity,
        None if reserve is None else one_in_unit("reserve", reserve, unit),
        target,
        latency,
        known.bandwidth if bandwidth is None else rate("bandwidth", bandwidth),
        known.tokens if tokens is None else tokens,
    )
    own = _parts(known.parts, parts)
    if own is not None:
        of_layer = layer_parts(own)
        untimed = question.layers
        question = replace(
            question, layers=with_times(untimed, of_layer), parts=of_layer, untimed=untimed
        )
        if capacity is not None and not any(question.layers.amounts("held_after_F")):
            expected = "parts do not say what layers hold: give layers that do, and parts"
            raise BadInput(expected, where="memory", value=memory)
    if copy_bandwidth is not None:
        question = replace(question, copy_rate=_copy_rate(copy_bandwidth, layers))
    _require_room(question)
    work = Work(question, Deadline(_SEARCHING * whole.limit, whole.stop), workers, seed, listener)
    work.write()
    found = work.search()
    work.offload()
    work.complete()
    work.settle()
    chosen, over = chosen_of(work.rows), partial(whole.past, _TIMED_AGAIN)
    with doing("timing rows at the ends of the estimate's range"):
        ends = tuple(ends_of(question, shown_rows(work.rows), chosen, over))
    if over():
        work.left_out["times at the ends of the estimate's range"] = "not all in time"
    return Advice(
        question,
        tuple(work.rows),
        chosen,
        found,
        known.origin,
        tuple(work.left_out.items()),
        whole.seconds,
        None
        if found is None or chosen is None or chosen.first is None
        else _bound_of_any_layers(question, found),
        (*families_text(work.untried),),
        not_tried(work.untried, work.unbuilt),
        ends,
    )


def _parts(of_model: Parts | None, also: Parts | str | Path | None) -> Parts | None:
    from pipesat.parts.file import read_parts

    if also is None:
        return of_model
    if of_model is not None:
        raise BadInput("the model has parts already", where="parts", value=str(also))
    return also if isinstance(also, Parts) else read_parts(also)


def _require_units(**amounts: int | str | None) -> None:
    """Refuse bare numbers where no file says what they are of."""
    for name, text in amounts.items():
        if isinstance(text, str) and text.strip().isdecimal() and int(text):
            expected = f"expected an amount with its unit, as {text.strip()}GiB"
            raise BadInput(expected, where=name, value=text)


def _copy_rate(given: float | Fraction | str, layers: Layers) -> Fraction:
    """Memory units per time unit; a text is an amount per second."""
    where, second = "copy_bandwidth", SECONDS.get(layers.time_unit)
    if not isinstance(given, str):
        return rate(where, given)
    if second is None:
        expected = f"a time unit of seconds is needed, the layers have {layers.time_unit!r}"
        raise BadInput(expected, where=where, value=given)
    each = amount("memory_unit", f"1{layers.memory_unit}")
    copied = Fraction(amount(where, given), each) * second
    if not copied:
        raise BadInput("expected more than 0", where=where, value=given)
    return copied


def _require_room(question: Question) -> None:
    """Pass unless memory surely cannot hold a layer, or all of them: no search is needed then.

    Raises
    ------
    Infeasible
        With the layer, and what it needs.
    BadInput
        If the layers can be cut for no placement.
    """
    shapes = shapes_to_try(
        question.layers,
        devices=question.devices,
        microbatches=question.microbatches,
        placement="any",
        memory=question.memory,
    )
    known = Findings(PlanQuestion.of(question.layers, shapes.pipelines, recompute="choose"))
    for state in known.states:
        state.why_not = why_nothing_fits(question.layers, state.shape)
    known.require_possible()


def _bound_of_any_layers(question: Question, found: Plan) -> Bound | None:
    """What no schedule of the searched shapes is below, whichever layers recompute."""
    least = cheapest(question.layers)
    shapes = [state.shape for state in found.known.states if not state.why_not]
    bounds = [shape_bound(least, shape, "makespan") for shape in shapes]
    return min(bounds, key=lambda bound: bound.value, default=None)


def _question(
    layers: Layers,
    devices: int,
    microbatches: int,
    memory: int | None,
    reserve: int | None,
    target: Runtime,
    latency: int,
    bandwidth: Fraction | None,
    tokens: int | None,
) -> Question:
    if target not in RUNTIMES:
        raise BadInput(f"expected one of {', '.join(RUNTIMES)}", where="target", value=target)
    if not 1 <= devices <= _MOST_DEVICES:
        expected = f"expected 1 to {_MOST_DEVICES}"
        raise BadInput(expected, where="devices", value=devices)
    free = reserve
    if free is None:
        free = 0 if memory is None else ceil(RESERVED * memory)
    most = _MOST_AMOUNT if memory is None else memory
    if not 0 <= free <= most:
        what = "" if memory is None else ", the memory"
        raise BadInput(f"expected 0 to {most}{what}", where="reserve", value=free)
    return Question(
        replace(layers, reserve=layers.reserve + free),
        devices,
        microbatches,
        memory,
        free,
        latency,
        bandwidth,
        target,
        tokens,
    )
