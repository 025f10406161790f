"""Orders for runtimes in Python: what each file says first, and the adapter below its data."""

from __future__ import annotations

from typing import Final

from pipesat.runtimes.programs import program, read_back
from pipesat.runtimes.runtime import Runtime

# An order for AMD Primus: an algorithm in the place of a built-in one.
#
# Primus, commit fd1eeabb (v26.5.1): a table of nodes per rank, sends and receives among them. The
# launcher takes no name but its own, and both the V and the layers that split their weights'
# gradient know schedules by name, so the order takes a built-in one's place. Data are handed out in
# the order of execution, so the first and the last stage run forwards alike, by number. A combined
# node leaves the weights' gradient for a W of its own, so it pairs an F with a B.
#
# Sends and receives of one time step are posted together, and before that step's compute: the steps
# are those of a run in which every op takes one. So both ends post the same ones in the same order.

_PRIMUS_NOTE: Final = (
    "import the file before Primus builds its pipeline, with patch_primus_pipeline: true and "
    "pp_algorithm as the file says"
)
_PRIMUS_HEADER: Final = """It takes the place of the built-in {algorithm}. Import it before
training starts, in a patch of phase before_train say, and set

    patch_primus_pipeline: true
    pp_algorithm: {algorithm}
    overlap_moe_expert_parallel_comm: {combined}
    overlap_grad_reduce: false
    overlap_param_gather: false
    offload: false

It assumes: {ranks} pipeline ranks, {chunks} stage(s) per rank, {microbatches} microbatches; layers
that hand their weights' gradient to WGradRunningCache where a backward is split (Transformer Engine
and Megatron's own do; Primus-Turbo's only under the names zero-bubble and zbv-formatted).
"""
_PRIMUS_ADAPTER: Final = r"""
import re

from primus.core.pipeline_parallel.scheduler import schedule_table_factory
from primus.core.pipeline_parallel.scheduler.algorithms.base import PipelineScheduleAlgo
from primus.core.pipeline_parallel.scheduler.scheduler_node import FuncType, SchedulerNode

OP = re.compile(r"(\d+)([FBW]+)(\d+)")
ROWS = [[OP.findall(item) for item in row.split()] for row in ORDER["rows"]]
HOMES = ORDER["placement"]
AT = {stage: (rank, HOMES[:stage].count(rank)) for stage, rank in enumerate(HOMES)}
STAGE = {at: stage for stage, at in AT.items()}


class Pipesat(PipelineScheduleAlgo):
    def __init__(self, pp_size, vpp_size, micro_batches, offload=False, **options):
        super().__init__(pp_size, vpp_size, micro_batches)
        wanted = len(ROWS), len(HOMES) // len(ROWS), ORDER["microbatches"]
        if (pp_size, vpp_size, micro_batches, offload) != (*wanted, False):
            raise ValueError(f"expected ranks, chunks, microbatches {wanted}, and no offload")

    def last_pp_stage_rank(self):
        return HOMES[-1]

    def direction_map(self, rank, chunk, func_type):
        ahead = 1 if func_type == FuncType.F else -1
        before, after = (AT.get(STAGE[rank, chunk] + by, (None, None)) for by in (-ahead, ahead))
        receive, send = (FuncType.RF, FuncType.SF) if ahead > 0 else (FuncType.RB, FuncType.SB)
        chunks = {"recv_from_chunk": before[1], "send_to_chunk": after[1]}
        return {"prev": (before[0], receive), "next": (after[0], send), **chunks}

    def generate_schedule_table(self):
        table, left, step = [[] for _ in ROWS], [row[::-1] for row in ROWS], 0
        done = {(-1, "F", str(number)) for number in range(self.micro_batches)}
        while any(left):  # every rank runs its next item a step after all that it waits for
            ready = [rank for rank, row in enumerate(left) if row and runs(row[-1], done)]
            for rank, ops in [(rank, left[rank].pop()) for rank in ready]:
                done |= {(int(stage), kind[0], number) for stage, kind, number in ops}
                nodes = [SchedulerNode(FuncType[k], int(m), AT[int(s)][1], {}) for s, k, m in ops]
                for node in nodes:
                    node.args |= {"combined_group": [*map(str, nodes)]} if nodes[1:] else {}
                    for late, on, one in [(0, rank, node), *self.messages(rank, node)]:
                        one.args["time_step"] = step + late
                        table[on].append((step + late, 1 - late, one))
            step += 1
        return [[node for *_, node in sorted(row, key=lambda entry: entry[:2])] for row in table]

    def messages(self, rank, node):
        at = rank, node.mini_batch, node.chunk, node.func_type
        found = self.generate_send_recv_nodes_comm_pair(*at) if node.func_type != FuncType.W else []
        return [(1, *there) for there in found if there]


def runs(ops, done):
    last = str(len(HOMES) - 1)
    before = {"F": (-1, "F"), "W": (0, "B"), "B": (1, "B"), "BW": (1, "B")}
    by = [(0, "F") if stage == last and kind[0] == "B" else before[kind] for stage, kind, _ in ops]
    return all((int(op[0]) + ahead, what, op[2]) in done for op, (ahead, what) in zip(ops, by))


schedule_table_factory.pp_algorithm_map["{algorithm}"] = Pipesat
"""

# An order for d9d: a program builder under a configuration of its own.
#
# d9d 0.24.0: a program is a list of actions per rank, from which ``add_communication_ops`` derives
# sends and receives. ``compose`` is called once for every number of microbatches that a step has,
# so a configuration has an order for each. A microbatch is received in a buffer of its own shape.
# A rank holds stages in a loop or a V. Its ``ComposeAction`` runs its members one after the other
# and sends after both, so no pair is written. The first stage does nothing in its input half and
# all in its weight half, as torch does.

_D9D_NOTE: Final = (
    "hand it to d9d in Python: import the file, then "
    "build_schedule(..., schedule_config=PipesatSchedule()); a configuration file cannot name it"
)
_D9D_HEADER: Final = """A configuration file of d9d cannot name it, so give it in Python:

    from {stem} import PipesatSchedule
    build_schedule(..., schedule_config=PipesatSchedule())

If steps differ in microbatches, give the ORDER of a file for each: PipesatSchedule(other.ORDER).

It assumes: {ranks} pipeline ranks, {microbatches} microbatches, stages in a {style}; that a whole
backward takes as long as the problem says (d9d splits backwards in eager autograd, without
activation checkpointing and torch.compile, as torch does).
"""
_D9D_ADAPTER: Final = r'''
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
    """The schedule_config that stands for this order, and for others of other microbatches."""

    def __init__(self, *others):
        self.orders = {order["microbatches"]: order for order in (*others, ORDER)}


@PIPELINE_PROGRAM_REGISTRY.register_program(PipesatSchedule)
class PipesatProgram(PipelineProgramBuilder):
    num_stages_per_rank = ORDER["stages"] // len(ORDER["rows"])
    topology_style = ScheduleStyle("{style}")

    def __init__(self, config):
        self.orders = config.orders

    def compose(self, num_microbatches, pp_size):
        wanted = [(number, len(order["rows"])) for number, order in self.orders.items()]
        if (num_microbatches, pp_size) not in wanted:
            raise ValueError(f"expected microbatches, ranks of {wanted}")
        order = self.orders[num_microbatches]
        stages = order["stages"]
        homes = build_stage_to_host_rank_topology(pp_size, stages, self.topology_style)
        if [homes[stage] for stage in range(stages)] != order["placement"]:
            raise ValueError(f"d9d places stages otherwise: {homes}")
        actions = {rank: [*map(action, row.split())] for rank, row in enumerate(order["rows"])}
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

# An order for JaxPP: a schedule class for ``treduce``.
#
# JaxPP 0.9.2, commit cf9e3862: tasks per rank, whose transfers it derives from the data that they
# pass on. Split backwards are a property of the whole schedule. The first stage's two halves are
# one task there, so its W directly follows its B. Gradients are added up in the order of the
# numbers. A ``FusedTask`` is one compiled unit: whether its members overlap is up to XLA.

_JAXPP_NOTE: Final = (
    "hand it to JaxPP: jaxpp.treduce(function, batch, schedule=Pipesat()) with Pipesat of this "
    "file, and mark the ends of its stages in the model"
)
_JAXPP_HEADER: Final = """Give it to JaxPP, in a function that mpmd_jit_with_loop compiles:

    from {stem} import Pipesat
    losses, gradients = jaxpp.treduce(function, batch, schedule=Pipesat())

It assumes: {ranks} MPMD groups, {microbatches} microbatches, {stages} stages that mark_stage_end
ends; that a pair takes as long as the problem says (JAXPP_DISABLE_SCHEDULE_TASK_FUSION unset: it is
one compiled unit, whose members XLA may overlap).
"""
_JAXPP_ADAPTER: Final = r"""
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

# An order for ELF: a scheduler.
#
# ELF 0.1.0 (package elf-pipeline): a list of operations for all ranks, to which it adds sends and
# receives. Every backward is a B and a W. W does what layers of its class LayerDW have put off, B
# all the rest. The first stage reads data, and the last one losses, in the order of execution,
# whatever the number: so both run by number. Its options recompute a whole stage within B
# (``full_fwd``), F before W (``activations_bwd``), or F and B before W (``full_bwd``).

#
# ELF makes groups of neighbouring stages' ranks for one stage a rank. With several, as in a loop or
# at the turn of a V, the file's class makes its own: one for both ends, and none within a rank.

_ELF_NOTE: Final = (
    "hand it to ELF: import the file, then Pipeline(parts) with Pipeline of this file, in place of "
    "ELF's own"
)
_ELF_HEADER: Final = """It has ELF's pipeline, with this order. On every rank, parts are the
stages of that rank:

    from elf.zb_utils import replace_layer_with_layer_dw
    from {stem} import Pipeline

    for part in parts:
        replace_layer_with_layer_dw(part)  # else its W does nothing, and B all
    pipe = Pipeline(parts)
    pipe(inputs, targets, loss_fn, split_size=samples_per_microbatch)

It assumes: {ranks} pipeline ranks, {microbatches} microbatches (split_size may be a list of so many
numbers of samples), stages one after the other on ranks {placement}; no memory_budget, which would
choose what recomputes once more; that a whole backward takes as long, and holds as much, as its B
and its W in turn. A stage whose first layer is a Linear cannot recompute: ELF 0.1.0 raises "already
set".
"""
_ELF_ADAPTER: Final = r"""
import re

import elf
import torch
from elf.scheduling.ilp import RematScheduler
from elf.scheduling.schedulers import FixedSchedule

OP = re.compile(r"(\d+)([FBW]+)(\d+)")
STAGES = ORDER["stages"]
OPTIONS = {
    "recompute": "full_fwd",
    "drop after B": "activations_bwd",
    "keep the input only": "full_bwd",
}


def schedule(placement, n_micro_batches):
    first = min(placement)  # of this replica
    wanted = ORDER["placement"], ORDER["microbatches"]
    if ([rank - first for rank in placement], n_micro_batches) != wanted:
        raise ValueError(f"expected placement, microbatches {wanted}")
    ops = [OP.fullmatch(op).groups() for row in ORDER["rows"] for op in row.split()]
    order = [(one, int(stage), int(m)) for stage, kind, m in ops for one in kind.lower()]
    modes = {*ORDER.get("modes", ())}
    flags = {
        option: [
            [(stage, m, name) in modes for m in range(n_micro_batches)]
            for stage in range(STAGES)
        ]
        for name, option in OPTIONS.items()
    }
    return RematScheduler(FixedSchedule({"order": order}), flags)(placement, n_micro_batches)


class Pipeline(elf.Pipeline):
    def __init__(self, parts, **options):
        own = {"partitioner": False, "placement": ORDER["placement"], "scheduler": schedule}
        super().__init__(parts, **own | options)

    def _init_p2p_process_groups(self, signatures):
        groups = {stage: tuple({"fwd": {}, "bwd": {}} for _ in "rs") for stage in range(STAGES)}
        cuda = torch.cuda.is_available()
        device = torch.device("cuda", torch.cuda.current_device()) if cuda else None
        for stage, signature in enumerate(signatures):
            for source in sorted({*signature.get_all_sources()} - {None}):
                ranks = [self.placement[source], self.placement[stage]]
                for way, send, receive in [("fwd", source, stage), ("bwd", stage, source)]:
                    if len({*ranks}) == 2:  # one group for both ends
                        group = torch.distributed.new_group(ranks, device_id=device)
                        groups[receive][0][way][send] = groups[send][1][way][receive] = group
        return groups
"""

# An order for OLMo-core: a subclass of its schedule, in that one's place.
#
# OLMo-core 3.0.0 (package ai2-olmo-core): a table of slots per rank. In each slot a rank looks at
# its neighbours' entries too, and receives what they send in that slot. So an op lies in a later
# slot than what it waits for. A backward takes two slots, and sends in the first. Steps of another
# number of microbatches (evaluation, its dry run) keep the built-in order.

_OLMO_NOTE: Final = (
    "import the file before OLMo-core builds its pipeline, and set the schedule as the file says"
)
_OLMO_HEADER: Final = """It takes the place of {base}. Import it before the train module is built,
and set

    pp_config=TransformerPipelineParallelConfig(
        degree={ranks},
        schedule=PipelineScheduleType.{schedule},
        use_custom_stage_implementation=True,
    )

It assumes: {ranks} pipeline ranks of two stages each, in a {style}; {microbatches} microbatches a
step (global_batch_size / rank_microbatch_size / data-parallel ranks).
forward_pull_ahead_extra_activations has no effect on it.
"""
_OLMO_ADAPTER: Final = r"""
import re

from olmo_core.train.train_module.transformer.pipeline import pipeline_schedule as olmo

OP = re.compile(r"(\d+)([FBW]+)(\d+)")
LAST = ORDER["stages"] - 1


class Pipesat(olmo.{base}):
    def reset_n_microbatches(self, n_microbatches):
        self._n_microbatches = n_microbatches
        if n_microbatches == ORDER["microbatches"]:
            self.configure_pipeline_order()  # any number will do
        else:
            super().reset_n_microbatches(n_microbatches)

    def configure_pipeline_order(self):
        if self._n_microbatches != ORDER["microbatches"]:
            return super().configure_pipeline_order()  # an evaluation, say
        homes = [self.stage_index_to_group_rank[stage] for stage in range(self._num_stages)]
        if homes != ORDER["placement"]:
            raise ValueError(f"expected stages on ranks {ORDER['placement']}, got {homes}")
        self.pipeline_order_source = "pipesat"
        self.pipeline_order = olmo.pad_to_max_length(table())


def table():
    left, ended = [row.split()[::-1] for row in ORDER["rows"]], {None: 0}
    rows = {rank: [] for rank in range(len(left))}
    while any(left):  # every op is in the first slot after what it waits for
        for rank, row in rows.items():
            while left[rank] and waits_for(left[rank][-1]) in ended:
                op = left[rank].pop()
                stage, kind, number = OP.fullmatch(op).groups()
                row += [None] * (ended[waits_for(op)] - len(row))
                halves = [olmo.FORWARD]
                if kind == "BW":
                    halves = [olmo.FULL_BACKWARD, olmo.FULL_BACKWARD_CONT]
                row += [olmo.PipelineAction(int(stage), half, int(number)) for half in halves]
                ended[op] = len(row)
    return rows


def waits_for(op):
    stage, kind, number = OP.fullmatch(op).groups()
    if kind == "F":
        return f"{int(stage) - 1}F{number}" if int(stage) else None
    return f"{int(stage) + 1}BW{number}" if int(stage) < LAST else f"{stage}F{number}"


olmo.{base} = Pipesat
"""

RUNTIMES: Final = (
    Runtime(
        "primus",
        "AMD Primus",
        "v26.5.1 (commit fd1eeabb)",
        "primus_order.py",
        program(_PRIMUS_HEADER, _PRIMUS_ADAPTER, _PRIMUS_NOTE),
        read_back,
        first_whole=False,
        pairs=(("B", "F"),),
        number_order="FBW",
    ),
    Runtime(
        "d9d",
        "d9d",
        "0.24.0",
        "d9d_order.py",
        program(_D9D_HEADER, _D9D_ADAPTER, _D9D_NOTE),
        read_back,
        pairs=(),
        shapes="own",
    ),
    Runtime(
        "jaxpp",
        "JaxPP",
        "0.9.2 (commit cf9e3862)",
        "jaxpp_order.py",
        program(_JAXPP_HEADER, _JAXPP_ADAPTER, _JAXPP_NOTE),
        read_back,
        all_or_none=True,
        pairs=None,
        any_placement=True,
        number_order="FBW",
    ),
    Runtime(
        "elf",
        "ELF",
        "0.1.0",
        "elf_order.py",
        program(_ELF_HEADER, _ELF_ADAPTER, _ELF_NOTE),
        read_back,
        first_whole=False,
        pairs=(),
        any_placement=True,
        number_order="FB",
        modes=("recompute", "drop after B", "keep the input only"),
    ),
    Runtime(
        "olmo-core",
        "OLMo-core",
        "3.0.0",
        "olmo_core_order.py",
        program(_OLMO_HEADER, _OLMO_ADAPTER, _OLMO_NOTE),
        read_back,
        first_whole=False,
        pairs=(),
        splits=False,
        chunks=2,
        shapes="one",
    ),
)
