"""An order for JaxPP: a schedule class for ``treduce``.

JaxPP 0.9.2, commit cf9e3862: tasks per rank, whose transfers it derives from the data that they
pass on. Split backwards are a property of the whole schedule. The first stage's two halves are one
task there, so its W directly follows its B. Gradients are added up in the order of the numbers. A
``FusedTask`` is one compiled unit: whether its members overlap is up to XLA.
"""

from __future__ import annotations

from typing import Final

from pipesat.export.programs import program
from pipesat.export.runtime import Runtime

NOTE: Final = (
    "hand it to JaxPP: jaxpp.treduce(function, batch, schedule=Pipesat()) with Pipesat of this "
    "file, and mark the ends of its stages in the model"
)
HEADER: Final = """Give it to JaxPP, in a function that mpmd_jit_with_loop compiles:

    from {stem} import Pipesat
    losses, gradients = jaxpp.treduce(function, batch, schedule=Pipesat())

It assumes: {ranks} MPMD groups, {microbatches} microbatches, {stages} stages that mark_stage_end
ends; that a pair takes as long as the problem says (JAXPP_DISABLE_SCHEDULE_TASK_FUSION unset: it is
one compiled unit, whose members XLA may overlap).
"""
ADAPTER: Final = r"""
import re
from dataclasses import dataclass

from jaxpp.schedules import BaseSchedule, FusedTask, Task
from jaxpp.types import MpmdIdx, TaskType

OP = re.compile(r"(\d+)([FBW]+)(\d+)")
ROWS = [[OP.findall(item) for item in row.split()] for row in ORDER["rows"]]
SPLIT = any(kind == "B" for row in ROWS for item in row for _, kind, _ in item)
WHOLE = ["BWD_I", "BWD_W"] if SPLIT else ["BWD"]  # all backwards alike
TYPES = {"F": ["FWD"], "B": ["BWD_I"], "W": ["BWD_W"], "BW": WHOLE}


@dataclass(eq=True, frozen=True)
class Pipesat(BaseSchedule):
    num_stages: int = ORDER["stages"]

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "is_partial_bwd", SPLIT)

    def get_mpmd_idx(self, stage_id):
        return MpmdIdx(ORDER["placement"][stage_id])

    def tasks(self, n_mubatches):
        if n_mubatches != ORDER["microbatches"]:
            raise ValueError(f"expected {ORDER['microbatches']} microbatches")
        return [[task for item in row for task in tasks_of(item)] for row in ROWS]


def tasks_of(item):
    tasks = [
        Task.make(int(stage), int(microbatch), TaskType[name])
        for stage, kind, microbatch in item
        for name in TYPES[kind]
    ]
    return tasks if len(item) == 1 else [FusedTask(tasks)]
"""
RUNTIME: Final = Runtime(
    "jaxpp",
    "JaxPP",
    "0.9.2 (commit cf9e3862)",
    "jaxpp_order.py",
    program(HEADER, ADAPTER, NOTE),
    all_or_none=True,
    pairs=None,
    any_placement=True,
    number_order=True,
)
