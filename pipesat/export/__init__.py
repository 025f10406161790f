"""What a schedule can be exported to: one format, one function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pipesat.errors import Fault
from pipesat.export.torch.adapt import adapt
from pipesat.export.torch.hazards import hazards_text
from pipesat.export.torch.write import torch_csv
from pipesat.export.trace import expected_in_trace, ops_in_trace, trace_bytes
from pipesat.memory import peak_memory
from pipesat.problem import Problem
from pipesat.schedule import Schedule


@dataclass(frozen=True)
class Exported:
    """A file's content, what belongs beside it (by suffix), and what its user has to know."""

    data: bytes
    beside: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


Exporter: TypeAlias = Callable[[Problem, Schedule], Exported]


def export_trace(problem: Problem, schedule: Schedule) -> Exported:
    """Return a trace for Perfetto, parsed back and compared op by op.

    Raises
    ------
    Fault
        If the trace does not say what the schedule says.
    """
    data = trace_bytes(problem, schedule)
    if ops_in_trace(data) != expected_in_trace(problem, schedule):
        raise Fault("the exported trace does not have the schedule's ops")
    return Exported(data)


def export_png(problem: Problem, schedule: Schedule) -> Exported:
    """Return a Gantt chart."""
    from pipesat.picture.gantt import gantt_png  # matplotlib is slow to import

    title = f"{problem.name or 'schedule'}\nmakespan {schedule.makespan:,}, span {schedule.span:,}"
    return Exported(gantt_png(problem, schedule, title=title))


def export_torch_csv(problem: Problem, schedule: Schedule) -> Exported:
    """Return torch's ``compute_only`` CSV, with its hazards beside it.

    Where the order had to be changed for torch, the notes say how, and what it costs.

    Raises
    ------
    NotApplicable
        If torch cannot run it: several routes, a device without stages, a capacity exceeded.
    """
    adapted = adapt(problem, schedule)
    notes = list(adapted.changes)
    if notes:
        peaks = peak_memory(problem, adapted.schedule)
        notes.append(
            f"torch's order: makespan {adapted.schedule.makespan} (was {schedule.makespan}), "
            f"peak memory {max(peaks)}"
        )
    return Exported(
        torch_csv(problem, adapted.schedule).encode(),
        {".hazards.txt": hazards_text(problem, adapted.schedule).encode()},
        tuple(notes),
    )


EXPORTERS: Final[dict[str, Exporter]] = {
    "png": export_png,
    "torch-csv": export_torch_csv,
    "trace": export_trace,
}
