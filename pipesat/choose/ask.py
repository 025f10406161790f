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

from pipesat.core.amounts import SECONDS, amount, one_in_unit, rate
from pipesat.core.arguments import public
from pipesat.core.errors import BadInput
from pipesat.core.progress import doing
from pipesat.core.settings import (
    Amount,
    Devices,
    Microbatches,
    Runtime,
    Seconds,
    Seed,
    Tokens,
    Workers,
)
from pipesat.core.solving import Deadline, Listener

if TYPE_CHECKING:  # what a question needs is imported once it is asked: help is for reading
    from pipesat.choose.advice import Advice
    from pipesat.choose.plan import Plan
    from pipesat.choose.question import Question
    from pipesat.core.claims import Bound
    from pipesat.layers.layer import Layers
    from pipesat.parts.parts import Parts
    from pipesat.profile.file import Profile

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
    devices: Devices,
    microbatches: Microbatches,
    *,
    gpu: str | None = None,
    length: Tokens | None = None,
    batch: Tokens = 1,
    tensor_parallel: Tokens = 1,
    parts: Parts | str | Path | None = None,
    memory: int | str | None = None,
    reserve: int | str | None = None,
    target: Runtime = "torch",
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
        A layers, profile or parts file (JSON), or the name of a published model as llama3-8b, with
        its ``gpu``: costs are estimated. Or what was read from such a file.
    devices
        Pipeline ranks.
    microbatches
        Microbatches.
    gpu
        For a published model: a100, h100, h200, b200, l40s or mi300x. Memory and links are its own
        if they are not given.
    length
        For a published model: tokens per sequence; ``None``: the model's.
    batch
        For a published model: sequences per microbatch.
    tensor_parallel
        For a published model: GPUs that share every layer.
    parts
        A file with the parts of one transformer layer on streams: schedules that overlap F and BW
        are searched too. The parts say what all layers take. Nothing recomputes then.
    memory
        Capacity of a device, as 40GiB, or a number in the file's memory unit; ``None``: the GPU's,
        else unlimited.
    reserve
        Memory that stays free for fragments and communication buffers; ``None``: 5 %.
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
    from pipesat.choose.advice import Advice
    from pipesat.choose.ends import ends_of
    from pipesat.choose.families import chosen_of, shown_rows
    from pipesat.choose.given import Run, given
    from pipesat.choose.knobs import families_text, not_tried
    from pipesat.choose.pairs import layer_parts, with_times
    from pipesat.choose.work import Work

    if gpu is not None and tokens is not None:
        text = "a published model has them: expected `length` and `batch`"
        raise BadInput(text, where="tokens", value=tokens)
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
        tuple(work.left_out.items()),
        whole.seconds,
        None
        if found is None or chosen is None or chosen.candidate.first is None
        else _bound_of_any_layers(question, found),
        (*families_text(work.untried),),
        not_tried(work.untried, work.unbuilt),
        ends,
    )


def _parts(of_model: Parts | None, also: Parts | str | Path | None) -> Parts | None:
    from pipesat.parts.file import read_parts
    from pipesat.parts.parts import Parts

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
    from pipesat.choose.bounds import why_nothing_fits
    from pipesat.choose.candidates import Question as PlanQuestion
    from pipesat.choose.search import Findings
    from pipesat.choose.splits import shapes_to_try

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
    from pipesat.choose.bounds import shape_bound
    from pipesat.choose.cut_terms import cheapest

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
    from pipesat.choose.question import RUNTIMES, Question

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
