"""What a schedule can be exported to: one format, one function, and the options that it takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from pipesat.core.errors import require, require_applicable
from pipesat.core.folder import json_file
from pipesat.core.names import named, spelled
from pipesat.core.torch_releases import release_for
from pipesat.problem.problem import Problem
from pipesat.runtimes import adapters, frameworks, megatron, reading
from pipesat.runtimes.knobs import FORMAT as KNOBS_FORMAT
from pipesat.runtimes.knobs import SUFFIX as KNOBS_SUFFIX
from pipesat.runtimes.knobs import knobs_of
from pipesat.runtimes.options import Options
from pipesat.runtimes.reading import Meaning, require_as_meant
from pipesat.runtimes.runtime import Runtime, restricted
from pipesat.runtimes.torch import target as torch_target
from pipesat.runtimes.trace import trace_bytes, trace_notes
from pipesat.schedule.microbatch_order import microbatch_order
from pipesat.schedule.schedule import Exported, Schedule

RUNTIMES: Final[dict[str, Runtime]] = {
    runtime.name: runtime
    for runtime in (
        torch_target.RUNTIME,
        *frameworks.RUNTIMES,
        megatron.RUNTIME,
        *adapters.RUNTIMES,
    )
}
"""The one table of runtimes: a record stands beside what writes its file."""
OLD_NAMES: Final = {
    "torch-csv": "torch",
    "nemo-automodel": "automodel",
    "megatron-layout": "megatron",
}
"""What formats were called that are a runtime's: still understood."""


def released(target: str | None, version: str | None = None) -> str | None:
    """Return a runtime with its release, as ``torch 2.15``; ``None`` without a runtime.

    Raises
    ------
    BadInput
        If a version is none that is known, or of a runtime that is not on torch.
    """
    release = release_for(target, version)
    if target is None or release is not None:
        return f"{target} on {release}".removeprefix("torch on ") if release else None
    return f"{RUNTIMES[target].title} {RUNTIMES[target].release}"


def problem_for(problem: Problem, target: str | None) -> Problem:
    """Return the problem that is to be solved for a runtime: every schedule of it runs there."""
    one, *others = problems_for(problem, target)
    require_applicable(
        not others,
        f"{target} splits all backwards but the first stage's or none, and neither is always "
        'better: say "backward": "split" or "fused" in every stage but the first',
    )
    return one


def problems_for(problem: Problem, target: str | None) -> tuple[Problem, ...]:
    """Return the problems of which one is to be chosen and solved for a runtime.

    Every schedule of each runs there, and every order that runs there is one of some of them.
    """
    if target is None:
        return (problem,)
    known = [name for name, runtime in RUNTIMES.items() if runtime.any_order]
    return restricted(problem, RUNTIMES[named("target", target, known, ", or None")])


def on_shapes(problem: Problem, target: str | None) -> str:
    """Say what a runtime makes of microbatches of several shapes; ``""``: it takes them all."""
    runtime = RUNTIMES.get(target or "")
    if runtime is None or runtime.shapes == "own" or not problem.has_lists or problem.alike:
        return ""
    own = ", ".join(f"{r.title} (--for {r.name})" for r in RUNTIMES.values() if r.shapes == "own")
    return (
        f"in {runtime.title} microbatches of several shapes are padded to one shape and take equal "
        f"times, so this is not what runs there. Each in its own shape: {own}"
    )


Exporter: TypeAlias = Callable[..., Exported]
"""Called with problem, schedule and, if there are any, :class:`Options`."""


def _export_trace(problem: Problem, schedule: Schedule) -> Exported:
    """Return a trace for Perfetto."""
    notes, means = trace_notes(problem, schedule), {"order": reading.ops_of(schedule.order)}
    return Exported(trace_bytes(problem, schedule), notes=tuple(notes), means=means)


def _export_schedule(problem: Problem, schedule: Schedule) -> Exported:
    """Return a schedule file."""
    from pipesat.schedule.schedule_file import schedule_bytes  # pydantic, which no help needs
    from pipesat.schedule.summary import figures_text

    notes, means = (figures_text(problem, schedule),), reading.schedule_means(schedule)
    return Exported(schedule_bytes(problem, schedule), notes=notes, means=means)


def _export_order(problem: Problem, schedule: Schedule) -> Exported:
    """Return the order of the microbatches as JSON: a list of indices, or one per route.

    That of the first stage's forwards: what a data loader has to hand out first, second and so on.
    """
    orders = microbatch_order(problem, schedule)
    what = orders[0] if len(orders) == 1 else orders
    told = "the microbatches' own numbers, by the first stage's forwards"
    if len(orders) > 1:
        told += "; one list per route"
    data = (json.dumps(what) + "\n").encode()
    return Exported(data, notes=(told,), means={"microbatches": orders})


class _Other(NamedTuple):
    """A file for no runtime: its name, what writes it, and what reads it back."""

    file: str
    write: Callable[[Problem, Schedule], Exported]
    read: Callable[[Problem, Exported, Options], Meaning]


_OTHERS: Final = {
    "order": _Other("order.json", _export_order, reading.read_order),
    "schedule": _Other("schedule.json", _export_schedule, reading.read_schedule_file),
    "trace": _Other("trace.json", _export_trace, reading.read_trace),
}
FILE_NAMES: Final = {name: runtime.file for name, runtime in RUNTIMES.items()} | {
    name: other.file for name, other in _OTHERS.items()
}
"""What the file is called in a folder that is given in its place."""


def _export(
    name: str, problem: Problem, schedule: Schedule, options: Options | None = None
) -> Exported:
    """Export a schedule and read the file back; options without a meaning there are refused.

    The one way to any file for another program.
    """
    options, runtime = options or Options(), RUNTIMES.get(name)
    for where in ("layers", "exact", "remark", "checkpointing", "pattern", "flags", "version"):
        known = runtime is not None and where in runtime.takes
        require(
            known or getattr(options, where) in (None, False, "", ()),
            f"{name} has no place for it: leave it out",
            where=where,
        )
    if runtime is None:
        made, read = _OTHERS[name].write(problem, schedule), _OTHERS[name].read
    else:
        made = runtime.write(runtime, problem, schedule, options)
        read = partial(runtime.read, runtime)
    require_as_meant(name, made, lambda: read(problem, made, options))
    if shapes := on_shapes(problem, name):
        made = replace(made, notes=(*made.notes, shapes))
    knobs = [knob.record for knob in knobs_of(name, problem, schedule, options)]
    if not knobs:
        return made
    file = json_file({"format": KNOBS_FORMAT, "problem": problem.sha256, "knobs": knobs})
    return replace(made, beside={**made.beside, KNOBS_SUFFIX: file}, knobs=knobs)


EXPORTERS: Final[dict[str, Exporter]] = {
    name: partial(_export, name) for name in sorted(FILE_NAMES)
}


def format_of(name: str) -> str:
    """Return what a format is called now."""
    old = spelled(name, OLD_NAMES)
    return named("to", name, EXPORTERS) if old is None else OLD_NAMES[old]
