"""What is asked, from what users give.

Arguments become one question in the layers' units; what is wrong with one is said of it by name.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Final

from pipesat.advise.bounds import why_nothing_fits
from pipesat.advise.comparison import Hand
from pipesat.advise.plan_search import require_possible
from pipesat.advise.question import Question
from pipesat.compare.model_costs import Given
from pipesat.core.amounts import amount, bytes_of, rate, seconds_of, time_text
from pipesat.core.errors import BadInput, require, said_of
from pipesat.core.settings import RecomputeChoice, Runtime
from pipesat.core.showing import sentences
from pipesat.core.strict_json import read_json
from pipesat.layers.layer import Layers
from pipesat.layers.layout import (
    layout_of_partition,
    parse_layout,
    partition_of_layout,
    partition_of_names,
    without_letter,
)
from pipesat.layers.megatron import partition_of_pattern
from pipesat.layers.pipeline import Delay, Pipeline, link_delay
from pipesat.layers.rules import check_partition

_MOST_AMOUNT: Final = 10**12
_OF_A_MACHINE: Final = 8  # GPUs of most
RESERVED: Final = Fraction(1, 20)
"""Of the memory, kept free unless a reserve is given."""


def with_reserve(layers: Layers, reserve: int | None, memory: int | None = None) -> Layers:
    """Return layers with a reserve on top of their own; ``None``: 5 % of the memory."""
    if reserve is None:
        reserve = 0 if memory is None else ceil(RESERVED * memory)
    require(
        memory is None or reserve <= memory,
        f"expected 0 to {memory}, the memory",
        where="reserve",
        value=reserve,
    )
    require(
        0 <= reserve <= _MOST_AMOUNT - layers.reserve,
        f"expected 0 or more, with the layers' own {layers.reserve} at most 10^12",
        where="reserve",
        value=reserve,
    )
    return replace(layers, reserve=layers.reserve + reserve)


def require_units(**amounts: int | str | None) -> None:
    """Refuse bare numbers where no file says what they are of."""
    for name, text in amounts.items():
        if isinstance(text, str) and text.strip().isdecimal() and int(text):
            raise BadInput(
                f"expected an amount with its unit, as {text.strip()}GiB", where=name, value=text
            )


def copy_rate(given: float | Fraction | str, layers: Layers) -> Fraction:
    """Return memory units per time unit; a text is an amount per second."""
    where, second = "copy_bandwidth", seconds_of(layers.time_unit)
    if not isinstance(given, str):
        return rate(where, given)
    each = bytes_of(layers.memory_unit)
    if second is None or each is None:
        raise BadInput(
            f"units of seconds and bytes are needed, the layers have {layers.time_unit!r} "
            f"and {layers.memory_unit!r}",
            where=where,
            value=given,
        )
    copied = amount(where, given) / each * second
    require(copied, "expected more than 0", where=where, value=given)
    return copied


def asked(
    known: Given,
    devices: int,
    microbatches: int,
    reserve: int | None,
    latency: int,
    overlap: tuple[int, int] | None,
    runtime: Runtime,
    copy_bandwidth: float | Fraction | str | None,
) -> Question:
    """Return the question of an advice; what stays free is taken off the memory."""
    layers, memory = known.layers, known.memory
    kept = with_reserve(layers, reserve, memory).reserve - layers.reserve
    free = not latency and known.bandwidth is None
    pipeline = Pipeline(
        devices=devices,
        microbatches=microbatches,
        memory=None if memory is None else memory - kept,
        delay=link_delay(latency, known.bandwidth),
        overlap=overlap,
    )
    rate = None if copy_bandwidth is None else copy_rate(copy_bandwidth, layers)
    choice: RecomputeChoice = "choose" if memory is not None and layers.recomputable else "never"
    question = Question(layers, pipeline, (), choice, "makespan", runtime, kept)
    links = "links are taken as free" if free else _links_text(known, latency)
    return replace(question, tokens=known.tokens, copy_rate=rate, links=links)


def _links_text(known: Given, latency: int) -> str:
    """Say what is assumed of links that cost something; whose they are if no one said."""
    layers, carries = known.layers, ""
    second, size = seconds_of(layers.time_unit), bytes_of(layers.size_unit)
    if known.bandwidth is not None and second and size:
        carries = f"carry {float(known.bandwidth * size / second / 10**9):.3g} GB/s and "
    elif known.bandwidth is not None:
        carries = f"carry {float(known.bandwidth):g} size units per time unit and "
    text = f"links are taken to {carries}add {time_text(latency, layers.time_unit)}"
    if not known.within:
        return text
    n = layers.tensor_parallel
    fills = f", and {n} GPUs of a layer fill most machines" if n >= _OF_A_MACHINE else ""
    slower = f"between machines they are slower{fills}: give link delay and bandwidth"
    return sentences([f"{text}, as within a machine", slower])


def require_fit(question: Question) -> None:
    """Pass unless memory surely cannot hold a layer, or all of them: no search is needed then.

    Raises
    ------
    Infeasible
        With the layer, and what it needs.
    BadInput
        If the layers can be cut for no placement.
    """
    asked = question.searched()
    why_not = {shape: why_nothing_fits(question.layers, shape) for shape in asked.shapes}
    require_possible(asked, {shape: why for shape, why in why_not.items() if why})


def delay_of(latency: int, bandwidth: float | Fraction | str | None, layers: Layers) -> Delay:
    """Return the delay of links; what no problem can state is refused."""
    delay = link_delay(latency, None if bandwidth is None else rate("bandwidth", bandwidth))
    longest = max(delay(layer.output) for layer in layers.layers)
    require(
        longest <= _MOST_AMOUNT,
        f"a transfer would take {longest} time units, expected at most 10^12",
        where="latency" if bandwidth is None else "bandwidth",
        value=latency if bandwidth is None else str(bandwidth),
    )
    return delay


def hand_of(text: str, layers: Layers, some: Pipeline) -> Hand:
    """Return a layout as a partition; its number of stages says in which shape."""
    name, in_file = text, text.endswith(".json")
    with said_of(text if in_file else ""):
        if in_file:
            partition = partition_of_names(read_json(Path(text)), layers)
            if without_letter(layers) is None:
                name = layout_of_partition(layers, partition).text
        elif layers.hybrid:
            partition = partition_of_pattern(text, layers)
        else:
            found = parse_layout(text, devices=some.devices)
            partition, name = partition_of_layout(found, layers), found.text
        chunks, rest = divmod(len(partition), some.devices)
        require(
            rest == 0,
            f"{len(partition)} stages, expected a multiple of {some.devices}, the devices",
            value=text,
        )
        shape = replace(some, placement="loop", chunks=chunks)
        shape = replace(some, placement="chain") if chunks == 1 else shape
        check_partition(layers, partition, shape.homes)
        return f"layout {name}", shape, partition
