"""``pipesat explore``: a local page, until its terminal ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipesat.cli.commands import command
from pipesat.cli.process import Interrupts
from pipesat.core.showing import Said

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked


@command(
    "explore",
    example="pipesat explore problem.json -o tried\n  pipesat explore llama3-8b --gpu h100",
    names={"source": "[PROBLEM|MODEL]", "folder": "-o/--output"},
    metavars={"gpu": "NAME", "folder": "DIR"},
    without=("ready",),
)
def explore(asked: Asked) -> int:
    """Play with a pipeline on a page in your browser.

    Change devices, microbatches, costs and memory, and see every hand-written schedule ranked and
    drawn at once. The solver runs beside them when you start it. The address of the page holds the
    whole problem.

    The page is served on 127.0.0.1 alone, and it ends with its terminal or with Ctrl-C. Without
    PROBLEM or MODEL it begins with plain numbers.
    Needs Werkzeug: pip install 'werkzeug>=3.0'.
    """
    asked.interrupts = Interrupts("what was exported stays")

    def ready(address: str) -> None:
        asked.show(Said([("Page", address), ("End", "Ctrl-C")]), {"page": address})

    asked.answer(watched=False, ready=ready)
    return asked.interrupts.exit_code
