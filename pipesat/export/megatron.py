"""The placement alone, as Megatron-LM takes it: a layout, or a hybrid model's pattern.

Megatron-LM runs orders of its own, 1F1B or interleaved 1F1B; it has no way to load another one. Its
layout lists what every stage holds, stage by stage along the model, parted by ``|``: ``E`` the
embedding, ``t`` a transformer layer, ``L`` the loss. Stage s lies on rank s mod p. A hybrid model
has a pattern instead (:mod:`pipesat.layers.megatron`). Offloading of a schedule is set too.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Final

from pipesat.core.amounts import bytes_of
from pipesat.core.errors import NotApplicable
from pipesat.core.ops import members
from pipesat.core.problem import Problem
from pipesat.core.rules import copied_amount
from pipesat.core.schedule import Exported, Schedule
from pipesat.export.options import Options, loader_for
from pipesat.export.runtime import Runtime
from pipesat.layers.layout import MegatronLayout
from pipesat.layers.megatron import CORE_VERSION, cut_pattern, refusal


def _notes(problem: Problem, schedule: Schedule) -> Iterator[str]:
    """Yield what is not carried over, and the guard of Megatron-LM's that stops the run, if any."""
    p, m = len(problem.devices), problem.routes[0].microbatches
    refused = refusal(p, len(problem.stages) // p, m)
    own = "1f1b" if len(problem.stages) == p else "interleaved-1f1b"
    yield (
        "Only the placement is carried over, NOT the order: Megatron-LM runs its own 1F1B "
        "(interleaved with several stages per rank) with whole backwards. The schedule's makespan "
        "does not hold there"
        + ("." if refused else f"; `pipesat show PROBLEM {own}` says what does.")
    )
    yield (
        f"The number of microbatches, {m}, is not carried over either: it follows from "
        "--global-batch-size and --micro-batch-size. In a shell, quote the layout."
    )
    if any(schedule.copies):
        yield (
            "--offload-modules names what is offloaded: those that the memory modes count. Of the "
            "first microbatch, a layer of each stays"
        )
    if refused:
        yield f"WARNING: {refused} (megatron-core {CORE_VERSION})."


def export_megatron(_: Runtime, problem: Problem, schedule: Schedule, options: Options) -> Exported:
    """Return the command line arguments, one per line; the order cannot be carried over."""
    if len(problem.routes) > 1:
        raise NotApplicable(f"Megatron-LM runs one route, this problem has {len(problem.routes)}")
    loader = loader_for(problem)
    if loader.schedule_name not in ("PipelineScheduleSingle", "PipelineScheduleMulti"):
        raise NotApplicable(
            "Megatron-LM places stages in a loop (stage s on rank s mod p, equally many per rank), "
            "this problem does not"
        )
    if len(problem.devices) == 1 < len(problem.stages):
        raise NotApplicable("Megatron-LM runs several stages per rank on two ranks or more only")
    lines = (
        f"--pipeline-model-parallel-size={len(problem.devices)}",
        _layout(problem, options),
        *offload_options(problem, schedule),
    )
    text = "".join(f"{line}\n" for line in lines)
    return Exported(text.encode(), notes=tuple(_notes(problem, schedule)))


def _layout(problem: Problem, options: Options) -> str:
    layers = options.layers_of(problem)
    if options.pattern is not None:
        pattern = cut_pattern(options.pattern, len(problem.stages), layers)
        return f"--hybrid-layer-pattern={pattern}"
    if layers is None:
        raise NotApplicable(
            "the layout says how many layers each stage has: give `layers`, or let pipesat advise "
            "--for megatron choose them"
        )
    stages = ["t" * count for count in layers]
    stages[0] = "E" + stages[0]
    stages[-1] += "L"
    return f"--pipeline-model-parallel-layout={MegatronLayout(tuple(stages)).text}"


def offload_options(problem: Problem, schedule: Schedule) -> list[str]:
    """Return the options that offload what a schedule does; none if it offloads nothing.

    Megatron-LM (d98e8a64, fine_grained_activation_offload.py) offloads the share
    ``activation_offload_fraction`` of every microbatch of rank r, but all of the first ones stays
    until ``r * delta_offload_bytes_across_pp_ranks`` do: later ranks have fewer in flight. Share 1
    is what the stage's largest mode offloads.
    """
    if not any(op.mode for row in schedule.order for item in row for op in members(item)):
        return []
    unit = bytes_of(problem.memory_unit)
    if unit is None or len(problem.stages) > len(problem.devices):
        raise NotApplicable(
            "Megatron-LM's offloading is set in bytes for one stage per rank: here "
            + ("memory is in no unit of bytes" if unit is None else "ranks have several stages")
        )
    shares, exactly, least = set[Fraction](), set[Fraction](), Fraction(0)
    for rank, stage in enumerate(problem.routes[0].stages):
        moved = _offloaded(problem, schedule, stage)
        first = next((n for n, (freed, _) in enumerate(moved) if freed), len(moved))
        stays = sum(unit * most for _, most in moved[:first])
        shares |= {Fraction(freed, most) for freed, most in moved[first:]}
        if rank and first == len(moved):
            least = max(least, Fraction(stays, rank))
        elif rank or stays:
            exactly.add(Fraction(stays, rank) if rank else Fraction(-1))
    delta = max(exactly, default=least)
    if len(shares) != 1 or len(exactly) > 1 or delta < least:
        raise NotApplicable(
            "Megatron-LM offloads one share of every microbatch, but keeps the first ones: none on "
            "rank 0, r times rank 1's bytes on rank r. This schedule does otherwise"
        )
    return [
        "--fine-grained-activation-offloading",
        f"--activation-offload-fraction={float(*shares):g}",
        f"--delta-offload-bytes-across-pp-ranks={int(delta)}",
    ]


def _offloaded(problem: Problem, schedule: Schedule, stage: int) -> list[tuple[int, int]]:
    """Return what a stage's microbatches set free by copies, in turn, and what they could most."""
    found = []
    for item in schedule.order[problem.stages[stage].device]:
        for op in (op for op in members(item) if op.stage == stage and op.kind == "F"):
            ways = [op._replace(mode=1 + n) for n in range(len(problem.stages[stage].modes))]
            freed = copied_amount(problem, op)
            if op.mode and not freed:
                raise NotApplicable(
                    f"{op} is to be computed again: Megatron-LM recomputes by options of its own, "
                    "the same for every microbatch"
                )
            found.append((freed, max((copied_amount(problem, way) for way in ways), default=0)))
    return found


RUNTIME: Final = Runtime(
    "megatron",
    "Megatron-LM",
    CORE_VERSION,
    "megatron.txt",
    export_megatron,
    takes=("layers", "pattern"),
    any_order=False,
    takes_layers=True,
    built_in=("1f1b", "interleaved-1f1b", "interleaved-overlapped"),
)
