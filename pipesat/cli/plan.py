"""``pipesat plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipesat.cli.command import command

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.plan.answer import Plan


@command(
    "plan",
    example="pipesat plan layers.json --devices 8 --microbatches 32 --memory 40GiB",
    names={"latency": "--link-delay", "target": "--for"},
    metavars={"memory": "CAP[,CAP...]", "reserve": "AMOUNT", "bandwidth": "X"},
    follow={"memory": ("reserve",), "placement": ("chunks",), "latency": ("bandwidth",)},
    output="DIR",
)
def plan(asked: Asked) -> int:
    """Cut layers into stages, place and order them, together.

    Ends early when nothing better can exist. The answer has a bound over all partitions.

    Writes plan.json, plan.png, plan.svg, layout.txt, and all that `solve` writes into DIR. Ctrl-C
    keeps the best plan so far.
    """
    from pipesat.plan.document import plan_document

    found: Plan = asked.answer(lambda found, folder, lines: found.save(folder, lines))
    asked.show(found, lambda: plan_document(found, asked.written))
    return asked.end(contradictions=found.contradictions)
