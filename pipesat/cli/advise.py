"""``pipesat advise``."""

from __future__ import annotations

import os.path
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipesat.cli.arguments import (
    MOST_AMOUNT,
    MOST_MICROBATCHES,
    MOST_TOKENS,
    AsJson,
    Latency,
    OutputFolder,
    Seed,
    Workers,
    seconds,
)
from pipesat.core.amounts import rate
from pipesat.core.errors import BadInput

if TYPE_CHECKING:
    from fractions import Fraction

    from pipesat.layers.layer import Layers
    from pipesat.parts.parts import Parts

_MODEL = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_NOT_TAKEN = {
    "lengths": "advise takes microbatches that are alike: pipesat problem new --lengths makes a "
    "problem of lengths, pipesat balance and solve answer for it",
}
_QUICK = 20.0  # seconds
_WRITING = 0.2  # of the time limit, and no more than these seconds: to write files
_LONGEST_WRITING = 6.0
_OF_A_CONFIG = ("gpu", "length", "batch", "tensor_parallel")


def _not_taken(name: str) -> Callable[[str | None], None]:
    """Refuse an option that other commands have, and name the command that answers."""

    def refuse(value: str | None) -> None:
        if value is not None:
            raise BadInput(_NOT_TAKEN[name], where=f"--{name}", value=value)

    return refuse


class RuntimeName(StrEnum):
    """Where the schedule is to run."""

    torch = "torch"
    torchtitan = "torchtitan"
    automodel = "automodel"
    megatron = "megatron"


def advise(
    context: typer.Context,
    devices: Annotated[
        int, typer.Option(metavar="P", min=1, max=4096, help="Pipeline ranks.", show_default=False)
    ],
    microbatches: Annotated[
        int,
        typer.Option(
            metavar="M", min=1, max=MOST_MICROBATCHES, help="Microbatches.", show_default=False
        ),
    ],
    costs: Annotated[
        Path | None,
        typer.Argument(
            metavar="COSTS",
            help="Layers, profile or parts file (JSON); or --config.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A published model, with costs estimated for --gpu: profile --list-configs.",
            show_default="none",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="a100, h100, h200, b200, l40s, mi300x.",
            show_default="none",
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="CAP",
            help="Capacity of a device, as 40GiB; of a file also in its memory unit.",
            show_default="the GPU's",
        ),
    ] = None,
    reserve: Annotated[
        str | None,
        typer.Option(
            metavar="AMOUNT",
            help="Of it, what stays free for fragments and communication buffers.",
            show_default="5 %",
        ),
    ] = None,
    runtime: Annotated[
        RuntimeName, typer.Option("--for", help="Where it is to run.")
    ] = RuntimeName.torch,
    length: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=MOST_TOKENS,
            help="With --config: tokens per sequence.",
            show_default="the model's",
        ),
    ] = None,
    batch: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, max=MOST_TOKENS, help="With --config: sequences per microbatch."
        ),
    ] = 1,
    tensor_parallel: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, max=MOST_TOKENS, help="With --config: GPUs that share a layer."
        ),
    ] = 1,
    tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=MOST_AMOUNT,
            help="With a file: tokens of a microbatch, for tokens per second.",
            show_default="unknown",
        ),
    ] = None,
    _lengths: Annotated[
        str | None, typer.Option("--lengths", hidden=True, callback=_not_taken("lengths"))
    ] = None,
    parts: Annotated[
        Path | None,
        typer.Option(
            metavar="PARTS",
            help="Parts of a transformer layer on streams (JSON): pairs of ops are searched too.",
            show_default="no pairs",
        ),
    ] = None,
    latency: Latency = 0,
    bandwidth: Annotated[
        str | None,
        typer.Option(
            metavar="X",
            help="Size units per time unit that links carry.",
            show_default="the GPU's, 70 % of it; of a file unlimited",
        ),
    ] = None,
    copy_bandwidth: Annotated[
        str | None,
        typer.Option(
            metavar="AMOUNT",
            help="Per second, that a device copies to the host, as 20GiB: shows what offloading "
            "would bring.",
            show_default="nothing is offloaded",
        ),
    ] = None,
    output: OutputFolder = None,
    quick: Annotated[bool, typer.Option("--quick", help="An answer in 20 s.")] = False,
    time_limit: Annotated[
        float,
        typer.Option("--time-limit", metavar="S", callback=seconds, help="Seconds in all."),
    ] = 75.0,
    workers: Workers = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """One question, one answer: which schedule, split and memory, and what it gains.

    Compares 1F1B, interleaved, zero bubble and DualPipeV with our search, marks what the runtime
    can run today, and says what is proven. Writes configuration, order, report and the commands
    that repeat each part into DIR. Ctrl-C keeps the best so far.
    """
    from pipesat.cli.console import print_json, stderr
    from pipesat.cli.costs import memory_amount
    from pipesat.cli.exits import prepared, refuse_contradictions
    from pipesat.cli.interrupts import Interrupts
    from pipesat.cli.naming import naming
    from pipesat.cli.options import refuse_given
    from pipesat.cli.progress import Progress
    from pipesat.cli.table import print_answer
    from pipesat.core.doing import doing

    if config is None:
        refuse_given(context, _OF_A_CONFIG, "only --config asks for an estimate")
    else:
        if costs is not None:
            raise BadInput("a file or --config, not both", where="COSTS", value=str(costs))
        refuse_given(context, ("tokens",), "--config has it: --length and --batch")
    began, limit = time.monotonic(), min(_QUICK, time_limit) if quick else time_limit
    progress = Progress(stderr(), limit=limit)
    with Interrupts() as interrupts, progress, prepared(output):
        from pipesat.advise.files import save_advice
        from pipesat.advise.study import advise as run
        from pipesat.core.solving import LEAST_SECONDS

        carried = None if bandwidth is None else rate("--bandwidth", bandwidth)
        if config is None:
            with doing("reading costs"):
                given = _read(costs, carried, tokens)
        else:
            given = _estimated(config, gpu, length, batch, tensor_parallel, carried)
            _require_units({"--memory": memory, "--reserve": reserve})
        data, paired = given.layers, _parts_of(given, parts)
        capacity = given.memory if memory is None else _capacity(memory, data)
        kept = None if reserve is None else memory_amount("--reserve", reserve, data)
        copied = None if copy_bandwidth is None else _copy_rate(copy_bandwidth, data)
        if data.estimate:
            progress.note(f"pipesat: all costs are an estimate: {data.estimate}")
        left = limit - (time.monotonic() - began)
        if output is not None:
            left -= min(_WRITING * limit, _LONGEST_WRITING)
        with naming(costs or Path(config or "")):
            found = run(
                data,
                devices,
                microbatches,
                parts=paired,
                memory=capacity,
                reserve=kept,
                runtime=runtime.value,
                latency=latency,
                bandwidth=given.bandwidth,
                tokens=given.tokens,
                copy_rate=copied,
                origin=given.origin,
                time_limit=max(LEAST_SECONDS, left),
                workers=workers,
                seed=seed,
                listener=progress,
                stop=interrupts.stop,
            )
        if output is not None:
            with doing("writing files"):
                save_advice(found, output, progress.lines)
    if as_json:
        from pipesat.advise.commands import commands

        print_json(found.document([*commands(found)]))
    else:
        print_answer(found, [("Written to", str(output or ""))])
    refuse_contradictions(found.contradictions, output)
    raise typer.Exit(interrupts.exit_code)


@dataclass(frozen=True)
class _Given:
    """Layers, and what is known of the machine and the microbatches besides."""

    layers: Layers
    memory: int | None
    bandwidth: Fraction | None
    tokens: int | None
    origin: str = ""
    parts: Parts | None = None


def _parts_of(given: _Given, path: Path | None) -> Parts | None:
    """Parts of a layer: those of ``--parts``, or of a parts file given for the costs."""
    from pipesat.parts.file import read_parts

    if path is None:
        return given.parts
    if given.parts is not None:
        raise BadInput("COSTS has parts already", where="--parts", value=str(path))
    return read_parts(path)


def _require_units(amounts: Mapping[str, str | None]) -> None:
    """Refuse bare numbers where no file says what they are of."""
    for option, text in amounts.items():
        if text is not None and text.strip().isdecimal() and int(text):
            expected = f"expected an amount with its unit, as {text.strip()}GiB"
            raise BadInput(expected, where=option, value=text)


def _capacity(memory: str, layers: Layers) -> int:
    """One capacity of all devices."""
    from pipesat.cli.costs import memory_amounts

    several = memory_amounts("--memory", memory, layers)
    if isinstance(several, list):
        raise BadInput("expected one for all devices", where="--memory", value=memory)
    return several


def _read(costs: Path | None, bandwidth: Fraction | None, tokens: int | None) -> _Given:
    """Layers of a layers file, a profile, or a parts file, and its parts."""
    from pipesat.advise.pairs import layers_of_parts
    from pipesat.files.strict_json import read_json
    from pipesat.layers.file import LARGEST_FILE
    from pipesat.layers.from_profile import layers_of_document
    from pipesat.parts.file import parse_parts

    if costs is None:
        raise BadInput(
            "expected a layers, profile or parts file, or --config with --gpu", where="COSTS"
        )
    if _MODEL.fullmatch(str(costs)) and not os.path.exists(costs):
        raise BadInput(
            f"a model is measured first: pipesat profile --model {costs} -o profile.json, then "
            "pipesat advise profile.json",
            where="COSTS",
            value=str(costs),
        )
    document = read_json(costs, LARGEST_FILE)
    kind = document.get("format") if isinstance(document, dict) else None
    if kind == "pipesat.problem/1":
        raise BadInput(
            "a problem is cut already: pipesat compare answers for it, advise takes layers",
            source=str(costs),
        )
    if kind == "pipesat.parts/1":
        own = parse_parts(document, str(costs))
        return _Given(layers_of_parts(own), None, bandwidth, tokens, parts=own)
    return _Given(layers_of_document(document, costs), None, bandwidth, tokens)


def _copy_rate(text: str, layers: Layers) -> Fraction:
    """Memory units per time unit, from an amount per second."""
    from fractions import Fraction

    from pipesat.core.amounts import SECONDS, amount

    second = SECONDS.get(layers.time_unit)
    if second is None:
        expected = f"a time unit of seconds is needed, the layers have {layers.time_unit!r}"
        raise BadInput(expected, where="--copy-bandwidth", value=text)
    each = amount("memory_unit", f"1{layers.memory_unit}")
    rate = Fraction(amount("--copy-bandwidth", text), each) * Fraction(str(second))
    if not rate:
        raise BadInput("expected more than 0", where="--copy-bandwidth", value=text)
    return rate


def _estimated(
    config: str,
    gpu: str | None,
    length: int | None,
    batch: int,
    tensor_parallel: int,
    bandwidth: Fraction | None,
) -> _Given:
    """Costs of a published model by the roofline; memory and links are the GPU's."""
    from fractions import Fraction

    from pipesat.layers.roofline import LIKELY
    from pipesat.profile.gpus import named_gpu
    from pipesat.profile.shapes import named_shape
    from pipesat.workflows.from_profile import estimate_layers

    if gpu is None:
        raise BadInput("--config needs a --gpu to estimate its costs for", where="gpu")
    each = length or named_shape(config).length
    device = named_gpu(gpu)
    layers = estimate_layers(config, gpu, length=each, batch=batch, tensor_parallel=tensor_parallel)
    carried = Fraction(str(device.link_bandwidth * LIKELY.traffic)) * 1000  # 10^9/s: bytes per us
    words = f"pipesat problem estimate --config {config} --gpu {gpu} --length {each}"
    return _Given(
        layers,
        device.memory // 2**20,
        carried if bandwidth is None else bandwidth,
        each * batch,
        f"{words} --batch {batch} --tensor-parallel {tensor_parallel}",
    )
