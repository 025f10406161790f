"""``pipesat advise``."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

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
from pipesat.core.errors import BadInput

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
        if gpu is None:
            raise BadInput("--config needs a --gpu to estimate its costs for", where="gpu")
        refuse_given(context, ("tokens",), "--config has it: --length and --batch")
    if (model := config or costs) is None:
        text = "expected a layers, profile or parts file, or --config with --gpu"
        raise BadInput(text, where="COSTS")
    limit = min(_QUICK, time_limit) if quick else time_limit
    writing = 0.0 if output is None else min(_WRITING * limit, _LONGEST_WRITING)
    progress = Progress(stderr(), limit=limit)
    with Interrupts() as interrupts, progress, prepared(output):
        from pipesat.advise.files import save_advice
        from pipesat.advise.study import advise as run
        from pipesat.core.solving import LEAST_SECONDS

        with naming(Path(model)):
            found = run(
                model,
                devices,
                microbatches,
                gpu=gpu,
                length=length,
                batch=batch,
                tensor_parallel=tensor_parallel,
                parts=parts,
                memory=memory,
                reserve=reserve,
                target=runtime.value,
                latency=latency,
                bandwidth=bandwidth,
                tokens=tokens,
                copy_bandwidth=copy_bandwidth,
                time_limit=max(LEAST_SECONDS, limit - writing),
                workers=workers,
                seed=seed,
                listener=progress,
                stop=interrupts.stop,
                note=progress.note,
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
