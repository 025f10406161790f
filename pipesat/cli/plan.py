"""``pipesat plan``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipesat.cli.arguments import (
    MOST_CHUNKS,
    MOST_MICROBATCHES,
    AsJson,
    Latency,
    Objective,
    ObjectiveName,
    OutputFolder,
    Seed,
    TargetName,
    TimeLimit,
    Workers,
)
from pipesat.placement.geometry import PlacementChoice

if TYPE_CHECKING:
    from pipesat.plan.answer import Plan


class RecomputeName(StrEnum):
    """Which stages may compute activations again."""

    never = "never"
    where_needed = "where-needed"
    choose = "choose"


def plan(
    layers: Annotated[
        Path,
        typer.Argument(metavar="LAYERS", help="Layers or profile file (JSON).", show_default=False),
    ],
    devices: Annotated[
        int, typer.Option(metavar="P", min=1, max=4096, help="Pipeline ranks.", show_default=False)
    ],
    microbatches: Annotated[
        int,
        typer.Option(
            metavar="M", min=1, max=MOST_MICROBATCHES, help="Microbatches.", show_default=False
        ),
    ],
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="CAP[,CAP...]",
            help="Capacity of every device, static memory included, one for all or one each; in "
            "the file's memory unit, or as 80GiB.",
            show_default="unlimited",
        ),
    ] = None,
    reserve: Annotated[
        str,
        typer.Option(
            metavar="AMOUNT",
            help="Of it, what every device keeps free for fragments and communication buffers.",
        ),
    ] = "0",
    placement: Annotated[
        PlacementChoice, typer.Option(help="Where stages may lie; any: all three are tried.")
    ] = "chain",
    chunks: Annotated[
        list[int] | None,
        typer.Option(
            metavar="V",
            min=1,
            max=MOST_CHUNKS,
            help="Stages per device of a loop; repeat it to try several.",
            show_default="2",
        ),
    ] = None,
    latency: Latency = 0,
    bandwidth: Annotated[
        str | None,
        typer.Option(
            metavar="X",
            help="Size units per time unit that links carry: 50, 0.5 or 1/3.",
            show_default="unlimited",
        ),
    ] = None,
    recompute: Annotated[
        RecomputeName, typer.Option(help="Which stages may compute activations again.")
    ] = RecomputeName.never,
    target: Annotated[
        TargetName | None,
        typer.Option(
            "--for",
            show_default="any order",
            help="Plan only what this runtime runs: whole backwards on the first stage and where "
            "stages recompute.",
        ),
    ] = None,
    layout: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="A split to compare with, repeatable: Megatron-LM's string, or a .json file of "
            "module names per stage.",
            show_default="none",
        ),
    ] = None,
    compare: Annotated[
        bool, typer.Option(help="Compare with the even and the balanced split.")
    ] = True,
    output: OutputFolder = None,
    time_limit: TimeLimit = 120.0,
    workers: Workers = None,
    seed: Seed = 0,
    objective: Objective = ObjectiveName.makespan,
    as_json: AsJson = False,
) -> None:
    """Cut uneven layers into stages, place and order them: all three together, with a bound.

    Writes plan.json, plan.png, plan.svg, layout.txt, and all that `solve` writes into DIR.
    Ends early when nothing better can exist. Ctrl-C keeps the best plan so far.
    """
    from pipesat.cli.console import stderr
    from pipesat.cli.costs import memory_amount, memory_amounts, rate
    from pipesat.cli.exits import prepared, refuse_contradictions
    from pipesat.cli.interrupts import Interrupts
    from pipesat.cli.naming import naming
    from pipesat.cli.options import refuse_repeated
    from pipesat.cli.progress import Progress
    from pipesat.core.doing import doing

    progress = Progress(stderr(), limit=time_limit)
    with Interrupts() as interrupts, progress, prepared(output):
        from pipesat.layers.from_profile import read_layers_or_profile
        from pipesat.workflows.plans import plan as run

        refuse_repeated("--chunks", chunks or (), chunks)
        refuse_repeated("--layout", layout or (), layout)
        data = read_layers_or_profile(layers)
        capacity = None if memory is None else memory_amounts("--memory", memory, data)
        kept_free = memory_amount("--reserve", reserve, data)
        carried = None if bandwidth is None else rate("--bandwidth", bandwidth)
        with naming(layers):
            found = run(
                data,
                devices,
                microbatches,
                memory=capacity,
                reserve=kept_free,
                placement=placement,
                chunks=chunks or (),
                latency=latency,
                bandwidth=carried,
                recompute=recompute.value,
                target=None if target is None else target.value,
                layouts=layout or (),
                compare=compare,
                objective=objective.value,
                time_limit=time_limit,
                workers=workers,
                seed=seed,
                listener=progress,
                stop=interrupts.stop,
            )
        with doing("writing files"):
            written = None if output is None else found.save(output, progress.lines)
    _report(found, output, written, as_json=as_json)
    refuse_contradictions(found.contradictions, output)
    raise typer.Exit(interrupts.exit_code)


def _report(found: Plan, output: Path | None, written: str | None, *, as_json: bool) -> None:
    from pipesat.cli.console import print_json
    from pipesat.cli.table import print_answer
    from pipesat.plan.document import plan_document

    if as_json:
        print_json(plan_document(found, written))
    else:
        print_answer(found, [("Written to", str(output or ""))])
