"""``pipesat pairs``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from pipesat.cli.exits import one_line

if TYPE_CHECKING:
    from pipesat.parts.answer import ChunkOp, PairTimes
    from pipesat.parts.parts import Parts


_OF_PARTS = (
    "parts",
    "into",
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
    """Find how long ops, and pairs of ops, take from their parts on streams, each with a proof.

    Writes the stages' F, B, W, BW and overlap.pairs of a problem into FILE. Ctrl-C ends the search;
    times that are not proven to be the least by then are those of the best orders so far.
    """
    from pipesat.cli.console import print_json
    from pipesat.cli.interrupts import Interrupts
    from pipesat.cli.pairs_report import print_pair_times
    from pipesat.files.atomic import write_file

    if from_trace is not None:
        _write_parts(context, from_trace, mapping, output)
        return
    source = _require_parts(context, parts, picture)
    with Interrupts() as interrupts:
        from pipesat.files.problem_file import parse_problem, read_problem
        from pipesat.files.problem_text import problem_text
        from pipesat.parts.file import read_parts
        from pipesat.parts.into_problem import into_problem, require_same_stages
        from pipesat.workflows.pair_times import pair_times

        data = read_parts(source)
        problem = None if into is None else read_problem(into)
        if problem is not None:
            require_same_stages(data, problem, str(into))
        shown = [_ops(text, data) for text in draw or ()]
        found = pair_times(
            data,
            time_limit=time_limit,
            workers=workers,
            seed=seed,
            deterministic=deterministic,
            stop=interrupts.stop,
        )
        document = found.document()
        if problem is not None:
            document = into_problem(found, problem)
            parse_problem(document, f"{into} with the times of {parts}")
        files = {output: problem_text(document).encode()}
        if picture is not None:
            files[picture] = _drawn(found, shown, picture)
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
    from pipesat.parts.trace import parts_of_trace, read_mapping

    refuse_given(context, _OF_PARTS, "--from-trace writes a parts file and nothing else")
    if mapping is None:
        raise BadInput("--from-trace needs it: which annotations are which parts", where="--map")
    found = parts_of_trace(trace, read_mapping(mapping))
    write_file(output, found.text.encode())
    for note in found.notes:
        typer.echo(one_line(note), err=True)
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


def _ops(text: str, parts: Parts) -> tuple[ChunkOp, ...]:
    """Read ``0F+0BW`` or ``0BW``."""
    from pipesat.core.errors import BadInput
    from pipesat.core.ops import parse_kind
    from pipesat.parts.answer import ChunkOp, in_order

    wrong = "expected an op kind as 0BW, or two of one device as 0F+0BW"
    found = []
    for word in text.split("+"):
        try:
            stage, kind = parse_kind(word)
        except ValueError:
            raise BadInput(wrong, where="--draw", value=text) from None
        if stage >= len(parts.stages):
            raise BadInput(wrong, where="--draw", value=text)
        found.append((stage, ChunkOp(parts.stages[stage], kind)))
    if len(found) > 2 or len({parts.devices[stage] for stage, _ in found}) > 1:
        raise BadInput(wrong, where="--draw", value=text)
    ops = [op for _, op in found]
    return in_order(*ops) if len(ops) == 2 else (ops[0],)


def _drawn(found: PairTimes, shown: list[tuple[ChunkOp, ...]], path: Path) -> bytes:
    from pipesat.parts.picture import pictures_of

    every = shown or [two for two in found.together if found.saves(two)] or [*found.together]
    return pictures_of(found, every)[path.suffix[1:]]
