"""An order for AMD Primus: an algorithm in the place of a built-in one.

Primus, commit fd1eeabb (v26.5.1): a table of nodes per rank, sends and receives among them. The
launcher takes no name but its own, and both the V and the layers that split their weights' gradient
know schedules by name, so the order takes a built-in one's place. Data are handed out in the order
of execution, so the first and the last stage run forwards alike, by number. A combined node leaves
the weights' gradient for a W of its own, so it pairs an F with a B.

Sends and receives of one time step are posted together, and before that step's compute: the steps
are those of a run in which every op takes one. So both ends post the same ones in the same order.
"""

from __future__ import annotations

from typing import Final

from pipesat.export.programs import program
from pipesat.export.runtime import Runtime

NOTE: Final = (
    "import the file before Primus builds its pipeline, with patch_primus_pipeline: true and "
    "pp_algorithm as the file says"
)
HEADER: Final = """It takes the place of the built-in {algorithm}. Import it before
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
ADAPTER: Final = r"""
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
RUNTIME: Final = Runtime(
    "primus",
    "AMD Primus",
    "v26.5.1 (commit fd1eeabb)",
    "primus_order.py",
    program(HEADER, ADAPTER, NOTE),
    first_whole=False,
    pairs=(("B", "F"),),
    number_order=True,
)
