"""Arguments and options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from pipesat.core.errors import BadInput
from pipesat.core.settings import MOST_SECONDS

ProblemFile: TypeAlias = Annotated[
    Path, typer.Argument(metavar="PROBLEM", help="Problem file (JSON).", show_default=False)
]
SCHEDULE = typer.Argument(
    metavar="SCHEDULE",
    help="Schedule file, folder of a solve, torch's CSV, or a name as compare --list has them; "
    "also as '1f1b, descending' or 'interleaved-1f1b, groups of 4'.",
    show_default=False,
)
ScheduleFile: TypeAlias = Annotated[Path, SCHEDULE]


def writable(path: Path | None) -> Path | None:
    """Refuse a file that cannot be written, before any work: the callback of every such option."""
    from pipesat.files.atomic import require_writable

    if path is not None:
        require_writable(path)
    return path


OutputFile: TypeAlias = Annotated[
    Path,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="File to write.",
        show_default=False,
        callback=writable,
    ),
]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON document, nothing else, on stdout.")
]


MOST_CHUNKS = 16384
MOST_AMOUNT = 10**12
"""Of a problem file's times and memory."""


def seconds(option: typer.CallbackParam, value: float | None) -> float | None:
    """Refuse what is not a positive number of seconds, or more than four months."""
    if value is not None and not 0 < value <= MOST_SECONDS:
        raise BadInput(
            f"expected a positive number of seconds, at most {MOST_SECONDS}",
            where=option.opts[0],
            value=value,
        )
    return value


def share(option: typer.CallbackParam, value: float | None) -> float | None:
    """Refuse what is not a share of a whole: above 0, at most 1."""
    if value is not None and not 0 < value <= 1:
        raise BadInput("expected above 0, at most 1", where=option.opts[0], value=value)
    return value


TimeLimit: TypeAlias = Annotated[
    float,
    typer.Option("--time-limit", metavar="S", callback=seconds, help="Seconds for the search."),
]
Timeout: TypeAlias = Annotated[
    float,
    typer.Option("--timeout", metavar="S", callback=seconds, help="Seconds for all processes."),
]
Workers: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        max=1024,
        show_default="cores it may use",
        help="Threads of the search.",
    ),
]
Seed: TypeAlias = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, max=2**31 - 1, help="Seed of the search.")
]
Deterministic: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--deterministic",
        help="One result for one seed, whatever the load: one thread, limits in solver time.",
    ),
]


class DeviceName(StrEnum):
    """Where a model runs."""

    cpu = "cpu"
    cuda = "cuda"


class SplitName(StrEnum):
    """How layers are cut into stages."""

    even = "even"
    balanced = "balanced"
