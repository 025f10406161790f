"""``pipesat profile``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from pipesat.cli.arguments import AsJson, DeviceName, OutputFile, SplitName, Timeout
from pipesat.cli.exits import end_of_run, one_line


class StyleName(StrEnum):
    """Which family of decoders."""

    gpt = "gpt"
    llama = "llama"


class DtypeName(StrEnum):
    """torch's types of weights and activations."""

    float64 = "float64"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


def _list_configs(wanted: bool) -> None:
    """Print the named configurations and leave."""
    if wanted:
        from pipesat.cli.profile_report import print_configs

        print_configs()
        raise typer.Exit


_Size = Annotated[
    int | None, typer.Option(metavar="N", min=1, max=1 << 20, show_default="the configuration's")
]


def profile(
    context: typer.Context,
    output: OutputFile,
    config: Annotated[
        str, typer.Option(metavar="NAME", help="Built-in decoder of a published model's shape.")
    ] = "tiny",
    listed: Annotated[
        bool,
        typer.Option(
            "--list-configs",
            callback=_list_configs,
            is_eager=True,
            help="List the configurations and their sources, and exit.",
        ),
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            show_default="the built-in decoder",
            help="Your own: a function that returns layers, microbatch and loss in a dict.",
        ),
    ] = None,
    style: Annotated[StyleName | None, typer.Option(show_default="the configuration's")] = None,
    layers: _Size = None,
    width: _Size = None,
    heads: _Size = None,
    kv_heads: _Size = None,
    feed_forward: _Size = None,
    vocabulary: _Size = None,
    length: _Size = None,
    sequences: Annotated[
        int,
        typer.Option("--batch", metavar="N", min=1, max=1 << 20, help="Sequences per microbatch."),
    ] = 1,
    device: Annotated[DeviceName, typer.Option(help="Where to measure.")] = DeviceName.cpu,
    dtype: Annotated[
        DtypeName | None, typer.Option(show_default="float32, or your model's own")
    ] = None,
    stages: Annotated[
        str, typer.Option(metavar="N[,N...]", help="Measure the stages of these cuts as a whole.")
    ] = "",
    split: Annotated[
        SplitName, typer.Option("--cut", help="How these cuts are made.")
    ] = SplitName.even,
    samples: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, help="Microbatches that count.")
    ] = 10,
    warmup: Annotated[
        int,
        typer.Option("--warm-up", metavar="N", min=0, max=10_000, help="Microbatches before them."),
    ] = 3,
    threads: Annotated[
        int, typer.Option(metavar="N", min=1, max=1024, help="Threads of CPU ops.")
    ] = 1,
    checkpoint: Annotated[
        bool, typer.Option("--checkpoint", help="Checkpoint all but the first and last layer.")
    ] = False,
    modes: Annotated[
        bool, typer.Option("--measure-modes", help="Measure memory modes, too: recompute, offload.")
    ] = False,
    compile_: Annotated[
        str,
        typer.Option(
            "--compile",
            metavar="BACKEND",
            show_default="none",
            help="Compile these layers: inductor, aot_eager, ...",
        ),
    ] = "",
    links: Annotated[
        bool,
        typer.Option("--measure-links", help="Measure delays between two local gloo ranks too."),
    ] = False,
    name: Annotated[str, typer.Option(help="For tables and pictures.")] = "",
    timeout: Timeout = 600.0,
    as_json: AsJson = False,
) -> None:
    r"""Measure F, B, W, BW and memory of your model's layers.

    Needs the extra: pip install 'pipesat[torch]'.
    """
    del listed
    from pipesat.cli.console import print_json
    from pipesat.cli.interrupts import Interrupts
    from pipesat.cli.profile_report import print_profile
    from pipesat.core.errors import RunFailed
    from pipesat.profile.file import write_document
    from pipesat.workflows.profiles import profile as measure

    _refuse_unused(context, stages, model)
    sizes = {
        "style": style and style.value,
        "layers": layers,
        "width": width,
        "heads": heads,
        "kv_heads": kv_heads,
        "feed_forward": feed_forward,
        "vocabulary": vocabulary,
    }
    with Interrupts() as interrupts:
        try:
            measured = measure(
                config,
                model=model,
                sizes=sizes,
                length=length,
                sequences=sequences,
                dtype=dtype.value if dtype else None,
                links=links,
                timeout=timeout,
                stop=interrupts.stop,
                name=name or (model or config),
                device=device.value,
                samples=samples,
                warmup=warmup,
                threads=threads,
                stages=_counts(stages),
                splits=[split.value],
                checkpoint=checkpoint,
                modes=modes,
                compile=compile_,
            )
        except RunFailed as error:
            end_of_run(error, interrupts.exit_code)
    write_document(output, measured)
    if as_json:
        print_json(measured.model_dump())
    else:
        print_profile(measured)
        typer.echo(one_line(f"written to {output}"))


def _refuse_unused(context: typer.Context, stages: str, model: str | None) -> None:
    from pipesat.cli.options import refuse_given

    if not stages:
        refuse_given(context, ["split"], "only cuts of --stages are made in some way")
    if model is not None:
        refuse_given(
            context, ["config", "sequences"], "this is of the built-in decoder, not of --model"
        )


def _counts(text: str) -> list[int]:
    from pipesat.cli.costs import numbers
    from pipesat.cli.options import refuse_repeated
    from pipesat.core.errors import BadInput

    if not text:
        return []
    values = numbers("--stages", text)
    listed = [values] if isinstance(values, int) else values
    refuse_repeated("--stages", listed, text)
    if min(listed) < 1:
        raise BadInput("expected numbers of at least 1", where="--stages", value=text)
    return listed
