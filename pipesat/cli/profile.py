"""``pipesat profile``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from pipesat.cli.asked import listing
from pipesat.cli.commands import command
from pipesat.cli.options import settings
from pipesat.core.showing import Said, table_of

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.profile.file import Profile


def _configurations() -> Said:
    from pipesat.profile.published import SHAPES

    rows = [
        {"name": name} | asdict(one.shape) | {"length": one.length, "source": one.source}
        for name, one in SHAPES.items()
    ]
    return Said(shown=[table_of(rows)])


_LISTED = listing("--list", "List the configurations and their sources, and exit.", _configurations)


@command(
    "profile",
    example="pipesat profile --config tiny --shape batch=4 --samples 20 -o profile.json",
    metavars={
        "config": "NAME",
        "model": "MODULE:FUNCTION",
        "shape": "KEY=VALUE[,...]",
        "compile": "BACKEND",
    },
    follow={
        "device": ("dtype", "threads", "compile", "checkpoint"),
        "samples": ("warm_up", "timeout"),
        "stages": {"cut": "split"},
        "measure": {"modes": "measure_modes", "links": "measure_links"},
    },
    extra=(_LISTED, settings("measure", "Measure these, too.")),
    output="FILE",
)
def profile(asked: Asked) -> None:
    """Measure F, B, W, BW and memory of your model's layers.

    Needs PyTorch: pip install 'torch>=2.13'.
    """
    from pipesat.profile.file import write_document

    measured: Profile = asked.answer()
    write_document(asked["output"], measured)
    asked.show(measured, measured.model_dump)
