"""The commands advise, solve, plan, frontier and balance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipesat.cli.asked import read_problem
from pipesat.cli.commands import command
from pipesat.cli.exits import CHECK_FAILED, note

if TYPE_CHECKING:
    from pipesat.advise.files import Advice
    from pipesat.advise.plan import Plan
    from pipesat.cli.asked import Asked
    from pipesat.compare.frontier.frontiers import Frontiers
    from pipesat.compare.frontier.least_memory import LeastMemory
    from pipesat.compare.order_rows import MicrobatchOrders
    from pipesat.compare.result import Result


_WRITING = 0.2  # of the time limit, and no more than these seconds: to write files
_LONGEST_WRITING = 6.0


@command(
    "advise",
    example="pipesat advise llama3-8b --gpu h100 --devices 8 --microbatches 32",
    names={"latency": "--link-delay", "target": "--for"},
    without=("quick",),
    metavars={
        "model": "MODEL",
        "gpu": "NAME",
        "shape": "KEY=VALUE[,...]",
        "memory": "CAP",
        "reserve": "AMOUNT",
        "bandwidth": "X",
        "copy_bandwidth": "AMOUNT",
        "overlap": "NUM/DEN",
    },
    follow={
        "shape": ("length", "batch", "tensor_parallel", "tokens"),
        "memory": ("reserve", "copy_bandwidth"),
        "latency": ("bandwidth",),
        "target": ("version",),
    },
    output="DIR",
)
def advise(asked: Asked) -> int:
    """Recommend a schedule for your model and GPUs.

    MODEL is a published model, with --gpu, or a file of measured costs. Compares 1F1B, interleaved,
    zero bubble and DualPipeV with our search, marks what the runtime can run today, and says what
    is proven.

    Writes configuration, order, report and every row of the table into DIR. Ctrl-C keeps the best
    so far.
    """
    from pipesat.schedule.solving import LEAST_SECONDS

    writing = 0.0 if asked.output is None else min(_WRITING * asked.limit, _LONGEST_WRITING)
    left = max(LEAST_SECONDS, asked.limit - writing)
    found: Advice = asked.answer(
        lambda found, folder, lines: found.save(folder, lines), time_limit=left
    )
    asked.show(found, found.document)
    return asked.end(contradictions=found.contradictions)


@command(
    "solve",
    example="pipesat solve problem.json -o solved --time-limit 30",
    names={"target": "--for"},
    without=("schedules", "known_bound"),
    follow={"target": ("version",)},
    output="DIR",
)
def solve(asked: Asked) -> int:
    """Find the best schedule, with a proof of how good it is.

    Writes schedule.json, result.json, problem.json, gantt.png, trace.json, solver.log and, where
    torch can run it, schedule.csv with its hazards into DIR. With --for, that runtime's file too.

    Ends early when the schedule is proven optimal. Ctrl-C keeps the best schedule so far.
    """
    from pipesat.compare.result_folder import write_result_folder

    result: Result = asked.answer(
        lambda found, folder, lines: write_result_folder(folder, found, lines)
    )
    written = asked.written
    told = "" if written is None else written.told
    document = lambda: result.document(None if written is None else written.schedule)  # noqa: E731
    asked.show(result, document, [("Note", told)])
    return asked.end(result)


@command(
    "plan",
    example="pipesat plan layers.json --devices 8 --microbatches 32 --memory 40GiB",
    names={"latency": "--link-delay", "target": "--for"},
    metavars={
        "memory": "CAP[,CAP...]",
        "reserve": "AMOUNT",
        "bandwidth": "X",
        "overlap": "NUM/DEN",
    },
    follow={
        "memory": ("reserve",),
        "placement": ("chunks",),
        "latency": ("bandwidth",),
        "layouts": ("compare",),
        "target": ("version",),
    },
    output="DIR",
)
def plan(asked: Asked) -> int:
    """Cut layers into stages, place and order them, together.

    Ends early when nothing better can exist. The answer has a bound over all partitions.

    Writes plan.json, plan.png, .svg, .pdf, layout.txt, and all that `solve` writes into DIR. Ctrl-C
    keeps the best plan so far.
    """
    found: Plan = asked.answer(lambda found, folder, lines: found.save(folder, lines))
    asked.show(found, lambda: found.document(asked.written))
    return asked.end(contradictions=found.contradictions)


@command(
    "frontier",
    also={"--within": "min_memory"},
    example="pipesat frontier problem.json --caps points=8 -o curve",
    names={"target": "--for", "placements": "--placement"},
    metavars={"caps": "CAP[,CAP...]", "within": "SHARE"},
    follow={"caps": {"points": "count"}, "target": ("version",)},
    output="DIR",
)
def frontier(asked: Asked) -> int:
    """Show how step time depends on memory, with bounds.

    Every device gets the same capacity, from the smallest with which a schedule exists to where
    more buys nothing. The file's own is among them if all devices have the same. Hand-written
    schedules stand beside the curve, as if memory were unlimited.

    With --within, one capacity in place of the curve: the smallest that is enough, with what is
    proven.

    Writes frontier.json, .csv, .png, .svg, .pdf, and a problem and a schedule per capacity into
    DIR. Ctrl-C keeps the curve so far.
    """
    if "within" in asked.given:
        asked = asked.instead("--within")
    found: Frontiers | LeastMemory = asked.answer(lambda found, folder, _: found.save(folder))
    asked.show(found, lambda: found.document(asked.output))
    return asked.end(contradictions=found.contradictions)


@command(
    "balance",
    example="pipesat balance problem.json --schedule 1f1b -o balanced\n"
    "  pipesat balance p.json --lengths l.json --reference 4096 --replicas 8 -o out",
    without=("deterministic",),
    metavars={"lengths": "FILE", "quadratic": "Q"},
    output="DIR",
)
def balance(asked: Asked) -> int:
    """Find the best order for microbatches whose lengths vary, or the best deal to replicas.

    Shows the best order beside the given one, descending, ascending and small at both ends, under
    each hand-written schedule, with a bound that no schedule goes below. The schedules stay as they
    are, and the problem's own order is ignored.

    With --replicas: which sequence goes to which replica and microbatch, in which order, beside
    what frameworks do, with a bound that no assignment goes below.

    Writes assignment.json, and of one replica problem.json, the problem in this order, into DIR.
    solve takes it and may change the schedule, too.
    """
    from pipesat.compare.replicas.assignment import Assignment
    from pipesat.problem.microbatch_list import MOST_CLASSES

    found: MicrobatchOrders | Assignment = asked.answer(
        lambda answer, folder, _: answer.save(folder),
        problem=read_problem(asked["problem"], MOST_CLASSES * (asked["replicas"] or 1)),
    )
    fits = found.value if isinstance(found, Assignment) else found.best
    asked.output = None if fits is None else asked.output  # else nothing was written
    asked.show(found, found.document)
    if fits is None:
        what = "assignment was found that fits into memory and tokens"
        if not isinstance(found, Assignment):
            what = "schedule fits into memory in any order tried"
        note(f"pipesat: no {what}")
    return asked.interrupts.exit_code or (CHECK_FAILED if fits is None else 0)
