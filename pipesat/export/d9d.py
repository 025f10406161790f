"""An order for d9d: a program builder under a configuration of its own.

d9d 0.16.0, commit f155a8d: a program is a list of actions per rank, from which
``add_communication_ops`` derives sends and receives. A rank holds stages in a loop or a V. Its
``ComposeAction`` runs its members one after the other and sends after both, so no pair is written.
The first stage does nothing in its input half and all in its weight half, as torch does.
"""

from __future__ import annotations

from typing import Final

from pipesat.export.programs import program
from pipesat.export.runtime import Runtime

NOTE: Final = (
    "hand it to d9d in Python: import the file, then "
    "build_schedule(..., schedule_config=PipesatSchedule()); a configuration file cannot name it"
)
HEADER: Final = """A configuration file of d9d cannot name it, so give it in Python:

    from {stem} import PipesatSchedule
    build_schedule(..., schedule_config=PipesatSchedule())

It assumes: {ranks} pipeline ranks, {microbatches} microbatches, stages in a {style}; that a whole
backward takes as long as the problem says (d9d splits backwards in eager autograd, without
activation checkpointing and torch.compile, as torch does).
"""
ADAPTER: Final = r'''
import re

from d9d.pipelining.factory.registry import PIPELINE_PROGRAM_REGISTRY
from d9d.pipelining.infra.schedule.component.program import (
    PipelineProgramBuilder,
    ScheduleStyle,
    add_communication_ops,
    build_stage_to_host_rank_topology,
)
from d9d.pipelining.infra.schedule.component.runtime import (
    BackwardFullInputComputeAction,
    BackwardWeightComputeAction,
    ForwardComputeAction,
)

OP = re.compile(r"(\d+)([FBW]+)(\d+)")


class PipesatSchedule:
    """The schedule_config that stands for this order."""


@PIPELINE_PROGRAM_REGISTRY.register_program(PipesatSchedule)
class PipesatProgram(PipelineProgramBuilder):
    num_stages_per_rank = ORDER["stages"] // len(ORDER["rows"])
    topology_style = ScheduleStyle("{style}")

    def __init__(self, config=None):
        pass

    def compose(self, num_microbatches, pp_size):
        wanted = ORDER["microbatches"], len(ORDER["rows"])
        if (num_microbatches, pp_size) != wanted:
            raise ValueError(f"expected microbatches, ranks {wanted}")
        stages = ORDER["stages"]
        homes = build_stage_to_host_rank_topology(pp_size, stages, self.topology_style)
        if [homes[stage] for stage in range(stages)] != ORDER["placement"]:
            raise ValueError(f"d9d places stages otherwise: {homes}")
        actions = {rank: [*map(action, row.split())] for rank, row in enumerate(ORDER["rows"])}
        return add_communication_ops(actions, stage_to_rank=homes, num_stages=stages)


def action(op):
    stage, kind, microbatch = OP.fullmatch(op).groups()
    at = int(stage), int(microbatch)
    if kind == "F":
        return ForwardComputeAction(*at)
    if kind == "W":
        return BackwardWeightComputeAction(*at)
    return BackwardFullInputComputeAction(*at, full_backward=kind == "BW")
'''
RUNTIME: Final = Runtime(
    "d9d", "d9d", "0.16.0", "d9d_order.py", program(HEADER, ADAPTER, NOTE), pairs=()
)
