"""The file for a runtime in Python: made fit, written, read back before anyone sees it."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType, ModuleType
from typing import Final

from pipesat.core.amounts import time_text
from pipesat.core.errors import BadInput, Fault, NotApplicable
from pipesat.core.ops import Pair
from pipesat.core.problem import Problem
from pipesat.core.schedule import Exported, Schedule
from pipesat.export.frameworks.options import Options
from pipesat.export.programs import d9d, jaxpp, primus
from pipesat.export.programs.as_run import AsRun, as_run, by_place, is_split
from pipesat.export.programs.file import order_in, program_text
from pipesat.export.runtimes import RUNTIMES, Runtime, is_vee

PROGRAMS: Final = MappingProxyType({"d9d": d9d, "jaxpp": jaxpp, "primus": primus})
"""What each of them is handed: its HEADER, its ADAPTER, and NOTES for who hands it over."""


def export_program(
    name: str, problem: Problem, schedule: Schedule, options: Options | None = None
) -> Exported:
    """Return the Python file of an order.

    Raises
    ------
    NotApplicable
        If the runtime cannot run it, or would need a change and must not.
    BadInput
        If an option means nothing there.
    Fault
        If the file does not read back as the order.
    """
    options = options or Options()
    for where in ("layers", "checkpointing"):
        if getattr(options, where) is not None:
            raise BadInput(f"{name} has no place for it: leave it out", where=where)
    runtime, program = RUNTIMES[name], PROGRAMS[name]
    made = as_run(problem, schedule, runtime)
    if options.exact and made.changes:
        raise NotApplicable(
            f"{runtime.title} cannot run it as it is. Unless it is to be exact, this is changed: "
            f"{'; '.join(made.changes)}"
        )
    text = _text(problem, made.schedule, runtime, program, options)
    rows = [" ".join(map(str, row)).split() for row in by_place(problem, made.schedule.order)]
    if [row.split() for row in order_in(text, name).rows] != rows:
        raise Fault("the exported order does not read back as it was")
    return Exported(
        text.encode(),
        notes=(
            *made.changes,
            *_makespans(schedule, made, runtime, problem.time_unit),
            *program.NOTES,
        ),
        changed=_changed(schedule, made, runtime),
    )


def _makespans(schedule: Schedule, made: AsRun, runtime: Runtime, unit: str) -> tuple[str]:
    pairs = sum(isinstance(item, Pair) for row in made.schedule.order for item in row)
    overlap = f", if its {pairs} pairs take what the problem says" if pairs else ""
    now, own = (time_text(one.makespan, unit) for one in (made.schedule, schedule))
    return (f"makespan as {runtime.title} runs it {now}, of this schedule {own}{overlap}",)


def _changed(schedule: Schedule, made: AsRun, runtime: Runtime) -> str:
    now, own = made.schedule.makespan, schedule.makespan
    if now == own:
        return ""
    return (
        f"the order as {runtime.title} runs it takes {now}, the schedule {own}: solve with "
        f'target="{runtime.name}" (--for {runtime.name}) for the best of the orders that it runs'
    )


def _text(
    problem: Problem, schedule: Schedule, runtime: Runtime, program: ModuleType, options: Options
) -> str:
    chunks, vee = len(problem.stages) // len(problem.devices), is_vee(problem)
    split = is_split(schedule.order)
    chain = "zero-bubble" if split else "1f1b"
    words = {
        "ranks": len(problem.devices),
        "chunks": chunks,
        "stages": len(problem.stages),
        "microbatches": problem.routes[0].microbatches,
        "style": "v" if vee else "loop",
        "algorithm": "zbv-formatted" if vee else chain if chunks == 1 else "1f1b-interleaved",
        "combined": str(any(isinstance(i, Pair) for row in schedule.order for i in row)).lower(),
        "stem": options.output.stem,
    }

    def filled(text: str) -> str:
        for key, value in words.items():
            text = text.replace(f"{{{key}}}", str(value))
        return text

    head = f"From pipesat, for {runtime.title} {runtime.release}."
    header = "\n".join([head, "", *(f"{c}\n" for c in options.comments), filled(program.HEADER)])
    return program_text(problem, schedule, runtime, header, filled(program.ADAPTER))


PROGRAM_EXPORTERS: Final = {name: partial(export_program, name) for name in PROGRAMS}
