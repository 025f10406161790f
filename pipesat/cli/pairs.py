"""``pipesat problem pairs``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipesat.cli.arguments import (
    AsJson,
    Deterministic,
    OutputFile,
    Seed,
    TimeLimit,
    Workers,
    writable,
)
from pipesat.cli.exits import note, one_line


class PairsByName(StrEnum):
    """How pairs are written."""

    time = "time"
    factor = "factor"


_OF_PARTS = (
    "parts",
    "into",
    "by",
    "picture",
    "draw",
    "time_limit",
    "workers",
    "seed",
    "deterministic",
    "as_json",
)


def pairs(
    context: typer.Context,
    output: OutputFile,
    parts: Annotated[
        Path | None, typer.Argument(metavar="PARTS", help="Parts file (JSON).", show_default=False)
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(
            "--into",
            metavar="PROBLEM",
            show_default="none",
            help="Write this problem with the times of the parts, ready to solve.",
        ),
    ] = None,
    by: Annotated[
        PairsByName,
        typer.Option(
            "--as",
            help="Write pairs by time, or by factor of what their two ops take alone, rounded up: "
            "for microbatches that differ and stages that recompute.",
        ),
    ] = PairsByName.time,
    picture: Annotated[
        Path | None,
        typer.Option(
            "--picture",
            metavar="FILE",
            show_default="none",
            callback=writable,
            help="Draw the streams, a .png or .svg.",
        ),
    ] = None,
    draw: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OPS",
            show_default="every pair that saves time",
            help="What to draw: 0F+0BW, or 0BW alone; repeatable.",
        ),
    ] = None,
    from_trace: Annotated[
        Path | None,
        typer.Option(
            "--from-trace",
            metavar="TRACE",
            show_default="none",
            help="Write a parts file instead, from a trace of torch's profiler.",
        ),
    ] = None,
    mapping: Annotated[
        Path | None,
        typer.Option(
            "--map",
            metavar="MAPPING",
            show_default="none",
            help="Which annotations of the trace are which parts (JSON).",
        ),
    ] = None,
    time_limit: TimeLimit = 60.0,
    workers: Workers = None,
    seed: Seed = 0,
    deterministic: Deterministic = False,
    as_json: AsJson = False,
) -> None:
    """Find how long pairs of ops take, from their parts.

    Writes the stages' F, B, W, BW and overlap.pairs of a problem into FILE. Ctrl-C ends the search;
    times that are not proven to be the least by then are those of the best orders so far.
    """
    from pipesat.cli.console import print_json, stderr
    from pipesat.cli.interrupts import Interrupts
    from pipesat.cli.naming import naming
    from pipesat.cli.pairs_report import print_pair_times
    from pipesat.cli.progress import Progress
    from pipesat.core.doing import doing
    from pipesat.files.atomic import write_file

    if from_trace is not None:
        _write_parts(context, from_trace, mapping, output)
        return
    source = _require_parts(context, parts, picture)
    with Interrupts() as interrupts, Progress(stderr()):
        from pipesat.cli.reading import read_problem
        from pipesat.files.problem_text import problem_text
        from pipesat.parts.answer import ops_of_text
        from pipesat.parts.file import read_parts
        from pipesat.parts.picture import pictures_of
        from pipesat.workflows.pair_times import pair_times

        data = read_parts(source)
        problem = None if into is None else read_problem(into)
        for text in draw or ():
            ops_of_text(text, data)  # refused before the search
        with naming(into or source):
            found = pair_times(
                data,
                into=problem,
                by=by.value,
                time_limit=time_limit,
                workers=workers,
                seed=seed,
                deterministic=deterministic,
                stop=interrupts.stop,
            )
        document = found.document() if found.problem is None else found.problem.document
        files = {output: problem_text(document).encode()}
        if picture is not None:
            with doing("drawing"):
                drawn = pictures_of(found, found.to_draw(draw or ()))
            files[picture] = drawn[picture.suffix[1:]]
    for path, data_of in files.items():
        write_file(path, data_of)
    if as_json:
        print_json(found.document() | {"times": found.claims()})
    else:
        print_pair_times(found)
        if problem is not None and problem.overlap is not None:
            typer.echo(one_line(f"the overlap that {into} had is replaced"))
        for path in files:
            typer.echo(one_line(f"written to {path}"))
    raise typer.Exit(interrupts.exit_code)


def _write_parts(context: typer.Context, trace: Path, mapping: Path | None, output: Path) -> None:
    from pipesat.cli.options import refuse_given
    from pipesat.core.errors import BadInput
    from pipesat.files.atomic import write_file
    from pipesat.parts.trace import parts_of_trace

    refuse_given(context, _OF_PARTS, "--from-trace writes a parts file and nothing else")
    if mapping is None:
        raise BadInput("--from-trace needs it: which annotations are which parts", where="--map")
    found = parts_of_trace(trace, mapping)
    write_file(output, found.text.encode())
    for text in found.notes:
        note(text)
    typer.echo(one_line(f"parts written to {output}"))


def _require_parts(context: typer.Context, parts: Path | None, picture: Path | None) -> Path:
    """Refuse options that say nothing without others; return the parts file."""
    from pipesat.cli.options import refuse_given
    from pipesat.core.errors import BadInput

    refuse_given(context, ["mapping"], "only a trace has annotations: --from-trace TRACE")
    if parts is None:
        raise BadInput("expected a parts file, or --from-trace TRACE --map MAPPING", where="PARTS")
    if picture is None:
        refuse_given(context, ["draw"], "expected --picture FILE with it")
    elif picture.suffix not in (".png", ".svg"):
        expected = "expected a name that ends in .png or .svg"
        raise BadInput(expected, where="--picture", value=str(picture))
    return parts
