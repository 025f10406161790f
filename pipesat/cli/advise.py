"""``pipesat advise``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pipesat.cli.command import command
from pipesat.cli.commands import settings
from pipesat.core.errors import BadInput

if TYPE_CHECKING:
    from pipesat.advise.advice import Advice
    from pipesat.cli.asked import Asked

_WRITING = 0.2  # of the time limit, and no more than these seconds: to write files
_LONGEST_WRITING = 6.0


def _lengths(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Name the commands that answer for microbatches that differ."""
    del ctx, param
    if value is not None:
        text = (
            "advise takes microbatches that are alike: pipesat problem new --lengths makes a "
            "problem of lengths, pipesat balance and solve answer for it"
        )
        raise BadInput(text, where="--lengths", value=value)


_LENGTHS = click.Option(["--lengths"], hidden=True, expose_value=False, callback=_lengths)


@command(
    "advise",
    example="pipesat advise llama3-8b --gpu h100 --devices 8 --microbatches 32",
    names={"latency": "--link-delay", "target": "--for"},
    without=("quick",),
    metavars={
        "model": "MODEL",
        "gpu": "NAME",
        "memory": "CAP",
        "reserve": "AMOUNT",
        "bandwidth": "X",
        "copy_bandwidth": "AMOUNT",
    },
    follow={
        "shape": ("length", "batch", "tensor_parallel", "tokens"),
        "memory": ("reserve", "copy_bandwidth"),
        "latency": ("bandwidth",),
    },
    extra=(settings("shape", "Sizes of a published model."), _LENGTHS),
    output="DIR",
)
def advise(asked: Asked) -> int:
    """Recommend a schedule for your model and GPUs.

    MODEL is a published model, with --gpu, or a file of measured costs. Compares 1F1B, interleaved,
    zero bubble and DualPipeV with our search, marks what the runtime can run today, and says what
    is proven.

    Writes configuration, order, report and the commands that repeat each part into DIR. Ctrl-C
    keeps the best so far.
    """
    from pipesat.advise.files import commands, save_advice
    from pipesat.core.solving import LEAST_SECONDS

    writing = 0.0 if asked.output is None else min(_WRITING * asked.limit, _LONGEST_WRITING)
    left = max(LEAST_SECONDS, asked.limit - writing)
    found: Advice = asked.answer(save_advice, time_limit=left)
    asked.show(found, lambda: found.document([*commands(found)]))
    return asked.end(contradictions=found.contradictions)
