"""From a question to an answer: rows that users know, our search, and what is proven of both."""

from __future__ import annotations

import threading
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipesat.advise.advice import Advice
from pipesat.advise.ends import ends_of
from pipesat.advise.families import shown_rows
from pipesat.advise.knobs import families_text, not_tried
from pipesat.advise.orders import chosen_of
from pipesat.advise.pairs import layer_parts, layers_of_parts, with_times
from pipesat.advise.question import RUNTIMES, Question, Runtime
from pipesat.advise.work import Work
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
    layers: Layers | Parts | str | Path,
    devices: int,
    microbatches: int,
    *,
    parts: Parts | None = None,
    memory: int | None = None,
    reserve: int | None = None,
    runtime: Runtime = "torch",
    latency: int = 0,
    bandwidth: float | Fraction | None = None,
    tokens: int | None = None,
    copy_rate: float | Fraction | None = None,
    origin: str = "",
    quick: bool = False,
    time_limit: Seconds = 75.0,
    workers: Workers | None = None,
    seed: Seed = 0,
    listener: Listener | None = None,
    stop: threading.Event | None = None,
) -> Advice:
    """Answer which schedule, split and memory for these layers, in one table and a few lines.

    Parameters
    ----------
    layers
        What :func:`pipesat.read_layers` or ``layers_from_profile`` returns, or the path of a layers
        file. :func:`pipesat.plan` takes the same. Or what :func:`pipesat.read_parts` returns, of
        transformer layers alone, whose memory is unknown then.
    devices, microbatches
        Pipeline ranks, and microbatches.
    parts
        Of one transformer layer, on streams: they say what all of them take, and what F and BW take
        together. Orders with such pairs are searched then, and nothing recomputes.
    memory
        Capacity of a device in the layers' memory unit; ``None``: unlimited.
    reserve
        Of it, what stays free for fragments and buffers; ``None``: a twentieth.
    runtime
        ``torch``, ``torchtitan``, ``automodel`` or ``megatron``: what is marked as running today.
    latency, bandwidth
        Of every link: time units, size units per time unit.
    tokens
        Of a microbatch, for tokens per second.
    copy_rate
        Memory units per time unit that a device copies to the host, and as many back: what
        offloading would bring is shown too.
    origin
        The command that made the layers, to be repeated with the others.
    quick
        Answer within 20 seconds.
    time_limit
        Seconds until the answer, on the clock. What was not done by then, it names.
    workers, seed, listener, stop
        As of :func:`pipesat.plan`.

    Raises
    ------
    Infeasible
        If no partition fits into memory, even recomputing.
    BadInput
        If a value is wrong.

    Examples
    --------
    >>> layers = pipesat.estimate_layers("tiny", "h100")
    >>> advice = pipesat.advise(layers, devices=2, microbatches=4, time_limit=5)
    >>> print(advice)
    >>> advice.save("advice")
    """
    if isinstance(layers, Parts):
        parts = layers
        layers = layers_of_parts(parts)
    question = _question(
        layers, devices, microbatches, memory, reserve, runtime, latency, bandwidth, tokens
    )
    if parts is not None:
        own = layer_parts(parts)
        untimed = question.layers
        question = replace(question, layers=with_times(untimed, own), parts=own, untimed=untimed)
        if memory is not None and not any(question.layers.amounts("held_after_F")):
            expected = "parts do not say what layers hold: give layers that do, and parts"
            raise BadInput(expected, where="memory", value=memory)
    if copy_rate is not None:
        if not copy_rate > 0:
            raise BadInput("expected more than 0", where="copy_rate", value=copy_rate)
        question = replace(question, copy_rate=Fraction(str(copy_rate)))
    _require_room(question)
    whole = Deadline(min(QUICK, time_limit) if quick else time_limit, stop or threading.Event())
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
        origin,
        tuple(work.left_out.items()),
        whole.seconds,
        None
        if found is None or chosen is None or chosen.first is None
        else _bound_of_any_layers(question, found),
        (*families_text(work.untried),),
        not_tried(work.untried, work.unbuilt),
        ends,
    )


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
    layers: Layers | str | Path,
    devices: int,
    microbatches: int,
    memory: int | None,
    reserve: int | None,
    runtime: Runtime,
    latency: int,
    bandwidth: float | Fraction | None,
    tokens: int | None,
) -> Question:
    from pipesat.layers.file import read_layers

    read = layers if isinstance(layers, Layers) else read_layers(layers)
    if runtime not in RUNTIMES:
        raise BadInput(f"expected one of {', '.join(RUNTIMES)}", where="runtime", value=runtime)
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
        replace(read, reserve=read.reserve + free),
        devices,
        microbatches,
        memory,
        free,
        latency,
        None if bandwidth is None else Fraction(str(bandwidth)),
        runtime,
        tokens,
    )
