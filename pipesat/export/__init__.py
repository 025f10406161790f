"""What a schedule can be exported to: one format, one function, and the options that it takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, TypeAlias

from pipesat.core.errors import BadInput
from pipesat.core.microbatch_order import microbatch_order
from pipesat.core.ops import members
from pipesat.core.problem import Problem
from pipesat.core.schedule import Exported, Schedule
from pipesat.export.automodel import automodel_files, automodel_notes
from pipesat.export.megatron import export_megatron
from pipesat.export.options import Options
from pipesat.export.programs import PROGRAMS, export_program
from pipesat.export.runtimes import OLD_NAMES, RUNTIMES
from pipesat.export.torch.adapt import adapt
from pipesat.export.torch.companions import ORDER_SUFFIX
from pipesat.export.torch.csv_file import torch_csv
from pipesat.export.torch.hazards import SUFFIX as HAZARDS_SUFFIX
from pipesat.export.torch.hazards import Split, hazards_text, notes, split_in
from pipesat.export.torch.modes import SUFFIX as MODES_SUFFIX
from pipesat.export.torch.modes import modes_csv
from pipesat.export.torchtitan import torchtitan_files, torchtitan_notes
from pipesat.export.trace import trace_bytes, trace_notes

Exporter: TypeAlias = Callable[..., Exported]
"""Called with problem, schedule and, if there are any, :class:`Options`."""

FILE_NAMES: Final = {
    **{name: runtime.file for name, runtime in RUNTIMES.items()},
    "order": "order.json",
    "schedule": "schedule.json",
    "trace": "trace.json",
}
"""What the file is called in a folder that is given in its place."""


def export_trace(problem: Problem, schedule: Schedule, _: Options | None = None) -> Exported:
    """Return a trace for Perfetto."""
    return Exported(trace_bytes(problem, schedule), notes=tuple(trace_notes(problem, schedule)))


def export_torch_csv(
    problem: Problem, schedule: Schedule, options: Options | None = None
) -> Exported:
    """Return torch's ``compute_only`` CSV, with its hazards beside it.

    Where the order had to be changed for torch, the notes say how, and what it costs; and of
    overlapped pairs, what stock torch makes of them. An exact one is not changed. A remark is the
    first of the hazards.

    Raises
    ------
    NotApplicable
        If torch cannot run it: several routes, a device without stages, a capacity exceeded.
    """
    options = options or Options()
    adapted = adapt(problem, schedule, exact=options.exact)
    beside = {
        HAZARDS_SUFFIX: hazards_text(adapted.problem, adapted.schedule, options.remark).encode()
    }
    told = [*notes(problem, schedule, adapted)]
    if problem.has_lists:
        beside[ORDER_SUFFIX] = (json.dumps(adapted.entering) + "\n").encode()
        told.append(
            "microbatches differ: hand them to torch in the order of the .order.json beside it, "
            "which has their own numbers, and padded to one shape"
        )
    if modes := modes_csv(adapted.problem, adapted.schedule):
        beside[MODES_SUFFIX] = modes.encode()
        told.append(
            f"the order alone keeps every microbatch: {modes.count(chr(10)) - 1} (stage, "
            f"microbatch) run in other memory modes, listed in the file that ends in {MODES_SUFFIX}"
        )
    changed = ""
    if adapted.schedule.makespan != schedule.makespan:
        less = "less than " if adapted.schedule.makespan < schedule.makespan else ""
        changed = (
            f"torch's order takes {adapted.schedule.makespan}, {less}the schedule "
            f"{schedule.makespan}: "
            'solve with target="torch" (--for torch) for the best of the orders that torch runs'
        )
    data = torch_csv(adapted.problem, adapted.schedule).encode()
    return Exported(data, beside, tuple(told), changed)


def export_schedule(problem: Problem, schedule: Schedule, _: Options | None = None) -> Exported:
    """Return a schedule file."""
    from pipesat.files.schedule_file import schedule_bytes  # pydantic, which no help needs

    ops = sum(len(members(item)) for row in schedule.order for item in row)  # a pair is two
    told = f"{ops} ops, makespan {schedule.makespan}, span {schedule.span}"
    return Exported(schedule_bytes(problem, schedule), notes=(told,))


def export_order(problem: Problem, schedule: Schedule, _: Options | None = None) -> Exported:
    """Return the order of the microbatches as JSON: a list of indices, or one per route.

    That of the first stage's forwards: what a data loader has to hand out first, second and so on.
    """
    orders = microbatch_order(problem, schedule)
    what = orders[0] if len(orders) == 1 else orders
    told = "the microbatches' own numbers, by the first stage's forwards"
    if len(orders) > 1:
        told += "; one list per route"
    return Exported((json.dumps(what) + "\n").encode(), notes=(told,))


_FRAMEWORKS: Final = {
    "automodel": (automodel_files, automodel_notes),
    "torchtitan": (torchtitan_files, torchtitan_notes),
}


def export_framework(name: str, problem: Problem, schedule: Schedule, options: Options) -> Exported:
    """Return a framework's configuration, with the CSV and its hazards beside it.

    Each file is for a version of the framework that the notes name.

    Raises
    ------
    NotApplicable
        If torch or the framework cannot run it.
    BadInput
        If the options do not do.
    """
    split = split_in(problem, adapt(problem, schedule, exact=options.exact).schedule)
    write, notes_of = _FRAMEWORKS[name]
    first, *others = write(problem, options, split).items()
    order = export_torch_csv(problem, schedule, options)
    beside = {suffix: text.encode() for suffix, text in others} | {".csv": order.data}
    told = (*order.notes, *notes_of(problem), *_set_for(problem, options, split))
    return Exported(first[1].encode(), {**beside, **order.beside}, told, order.changed)


def _set_for(problem: Problem, options: Options, split: Split) -> Iterator[str]:
    """What a framework's fragment sets besides the schedule, or leaves to the framework."""
    m = problem.routes[0].microbatches
    yield f"a microbatch is set to one sequence, {m} to the local batch: change both together"
    if split.any:
        yield (
            "activation checkpointing is switched off there, because backwards are split: leave "
            "torch.compile off too"
        )
        yield "FSDP is told not to reshard after forwards: split backwards would lose gradients"
    if options.layers is None:
        yield (
            "without `layers` the framework cuts the model itself: measured stages may be others"
        )


_WRITERS: Final[dict[str, Exporter]] = {
    "megatron": export_megatron,
    "order": export_order,
    "schedule": export_schedule,
    "torch": export_torch_csv,
    "trace": export_trace,
    **{name: partial(export_framework, name) for name in _FRAMEWORKS},
    **{name: partial(export_program, name) for name in PROGRAMS},
}
_TAKES: Final = {
    "megatron": ("layers", "pattern"),
    "torch": ("exact", "remark"),
    **dict.fromkeys(_FRAMEWORKS, ("layers", "exact", "remark", "checkpointing")),
    **dict.fromkeys(PROGRAMS, ("exact", "remark")),
}
"""What a format can say of :class:`Options`, besides the file's name."""


def _export(
    name: str, problem: Problem, schedule: Schedule, options: Options | None = None
) -> Exported:
    """Export a schedule; options that mean nothing to the format are refused."""
    options = options or Options()
    for where in ("layers", "exact", "remark", "checkpointing", "pattern"):
        if getattr(options, where) not in (None, False, "") and where not in _TAKES.get(name, ()):
            raise BadInput(f"{name} has no place for it: leave it out", where=where)
    return _WRITERS[name](problem, schedule, options)


EXPORTERS: Final[dict[str, Exporter]] = {name: partial(_export, name) for name in sorted(_WRITERS)}


def format_of(name: str) -> str:
    """Return what a format is called now.

    Raises
    ------
    BadInput
        If there is none of this name.
    """
    known = OLD_NAMES.get(name, name)
    if known not in EXPORTERS:
        raise BadInput(f"expected one of {', '.join(EXPORTERS)}", where="to", value=name)
    return known
