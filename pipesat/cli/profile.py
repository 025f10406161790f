"""``pipesat profile``."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from pipesat.cli.arguments import AsJson, DeviceName, OutputFile, SplitName, Timeout
from pipesat.cli.exits import CHECK_FAILED, one_line
from pipesat.core.claims import plural

if TYPE_CHECKING:
    from pipesat.profile.file import MeasuredCostsModel, Profile


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
    if not wanted:
        return
    from pipesat.cli.table import Column, print_table
    from pipesat.profile.shapes import SHAPES

    heads = ["name", "style", "layers", "width", "heads", "kv\nheads", "feed-\nforward"]
    heads += ["words", "length", "source"]
    columns = [Column(head, number=head not in ("name", "style", "source")) for head in heads]
    lines = []
    for name, entry in SHAPES.items():
        s = entry.shape
        sizes = (s.layers, s.width, s.heads, s.kv_heads, s.feed_forward, s.vocabulary)
        lines.append((name, s.style, *map(str, sizes), str(entry.length), entry.source))
    print_table(columns, lines, wrap_last=True)
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
        int, typer.Option(metavar="N", min=1, max=1 << 20, help="Sequences per microbatch.")
    ] = 1,
    device: Annotated[DeviceName, typer.Option(help="Where to measure.")] = DeviceName.cpu,
    dtype: Annotated[
        DtypeName | None, typer.Option(show_default="float32, or your model's own")
    ] = None,
    stages: Annotated[
        str, typer.Option(metavar="N[,N...]", help="Measure the stages of these cuts as a whole.")
    ] = "",
    split: Annotated[SplitName, typer.Option(help="How these cuts are made.")] = SplitName.even,
    samples: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, help="Microbatches that count.")
    ] = 10,
    warmup: Annotated[
        int, typer.Option(metavar="N", min=0, max=10_000, help="Microbatches before them.")
    ] = 3,
    threads: Annotated[
        int, typer.Option(metavar="N", min=1, max=1024, help="Threads of CPU ops.")
    ] = 1,
    checkpoint: Annotated[
        bool, typer.Option("--checkpoint", help="Checkpoint all but the first and last layer.")
    ] = False,
    modes: Annotated[
        bool,
        typer.Option("--modes", help="Measure memory modes, too: recompute, offload."),
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
        bool, typer.Option("--links", help="Measure delays between two local gloo ranks too.")
    ] = False,
    name: Annotated[str, typer.Option(help="For tables and pictures.")] = "",
    timeout: Timeout = 600.0,
    as_json: AsJson = False,
) -> None:
    r"""Measure F, B, W, BW and memory of a real model's layers and stages.

    Needs the extra: pip install 'pipesat\[torch]'.
    """
    del listed
    from pipesat.cli.console import print_json
    from pipesat.cli.interrupts import Interrupts
    from pipesat.cli.options import refuse_given
    from pipesat.core.errors import RunFailed
    from pipesat.profile.file import write_document
    from pipesat.workflows.profiles import profile as measure

    if not stages:
        refuse_given(context, ["split"], "only cuts of --stages are made in some way")
    if model is not None:
        refuse_given(
            context, ["config", "sequences"], "this is of the built-in decoder, not of --model"
        )
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
            typer.echo(f"pipesat: error: {one_line(str(error))}", err=True)
            for line in error.log:
                typer.echo(f"  {one_line(line)}", err=True)
            raise typer.Exit(interrupts.exit_code or CHECK_FAILED) from None
    write_document(output, measured)
    if as_json:
        print_json(measured.model_dump())
    else:
        _print_table(measured)
        typer.echo(one_line(f"written to {output}"))


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


def _print_table(measured: Profile) -> None:
    from pipesat.cli.table import Column, print_table

    heads = ("F", "B", "W", "BW", "(B + W)\n/ BW", "held\nafter F", "held\nafter B")
    columns = [
        Column("", number=False),
        *map(Column, heads),
        Column("largest\ntransient", spare=2),
        Column("spread\nof F", spare=1),
    ]
    counts = {kind: sum(x.kind == kind for x in measured.layers) for kind in measured.kinds}
    rows = [
        _row(kind if counts[kind] == 1 else f"{kind} ({counts[kind]} of them)", costs)
        for kind, costs in measured.kinds.items()
    ]
    for stage in measured.stages:
        begin, end = stage.layers
        rows.append(_row(f"layers {begin} to {end - 1}", stage.costs))
    e = measured.environment
    typer.echo(
        one_line(
            f"{e.device_name}, {e.dtype}, torch {e.torch}, "
            f"{e.threads} {plural(e.threads, 'thread')}; "
            "medians in us, spread from the 10th to the 90th percentile"
        )
    )
    print_table(columns, rows)
    for reason in dict.fromkeys(c.no_split for c in measured.kinds.values() if c.no_split):
        whose = ", ".join(kind for kind, c in measured.kinds.items() if c.no_split == reason)
        typer.echo(one_line(f"no B and W of {whose}: {reason}"))
    for tied in measured.tied:
        typer.echo(one_line(f"{tied.name} is shared by layers {tied.layers}"))
    if measured.links is not None:
        delays = ", ".join(f"{x.delay.median:.0f} us for {x.bytes} B" for x in measured.links.sizes)
        typer.echo(one_line(f"links ({measured.links.backend}): {delays}"))


def _row(name: str, costs: MeasuredCostsModel) -> tuple[str, ...]:
    from pipesat.core.amounts import readable

    split = costs.B is not None and costs.W is not None
    b = costs.B.median if costs.B else 0.0
    w = costs.W.median if costs.W else 0.0
    whole = costs.BW.median
    return (
        name,
        f"{costs.F.median:.0f}",
        f"{b:.0f}" if split else "-",
        f"{w:.0f}" if split else "-",
        f"{whole:.0f}",
        f"{(b + w) / whole:.2f}" if split and whole else "-",
        readable(costs.held_after_F),
        readable(costs.held_after_B) if split else "-",
        readable(max(costs.transient.model_dump().values())),
        f"{costs.F.low:.0f} to {costs.F.high:.0f}",
    )
