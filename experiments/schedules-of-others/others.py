"""Orders as public packages make them: ``python others.py PACKAGE`` prints them as JSON.

Needs that package alone. An op is ``stage, kind, microbatch``, the kinds are F, B, W and BW.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

P, M = 4, 12
Rows = list[list[str]]


def d9d() -> Iterator[tuple[str, Rows]]:
    from d9d.pipelining.infra.schedule.program import Interleaved1F1BPipelineProgramBuilder

    rows = Interleaved1F1BPipelineProgramBuilder(1).compose(M, P)
    kind = {"F": "F", "I": "B", "B": "BW", "W": "W"}
    texts = [[re.fullmatch(r"(\d+)([FIBW])(\d+)", str(a)) for a in rows[rank]] for rank in range(P)]
    yield "1f1b", [[f"{t[1]}{kind[t[2]]}{t[3]}" for t in row if t] for row in texts]


def elf() -> Iterator[tuple[str, Rows]]:
    from elf.scheduling import schedulers

    kind = {"FORWARD": "F", "BACKWARD_INPUTS": "B", "BACKWARD_PARAMS": "W"}
    for name in ("1f1b", "zbh1", "zbh2"):
        rows: Rows = [[] for _ in range(P)]
        for op in getattr(schedulers, f"generate_{name}_schedule")([*range(P)], M):
            if (what := op.op.name) in kind:
                rows[op.rank].append(f"{op.block_id}{kind[what]}{op.mb_id}")
        yield name, rows


def spectrax() -> Iterator[tuple[str, Rows]]:
    from spectrax.runtime import schedules

    kind = {"fwd": "F", "bwd": "BW", "bwd_i": "B", "bwd_w": "W"}
    for name in ("Std1F1B", "ZeroBubbleH1"):
        made = getattr(schedules, name)(M)
        grid, rows = made.build(P), [[] for _ in range(P)]
        for slot in grid:
            for stage, action in enumerate(slot):
                if action is not None:
                    rows[stage].append(f"{stage}{kind[action.phase.value]}{action.microbatch}")
        yield f"{name}, which promises {made.peak_activations(P)}", rows


def paddle() -> Iterator[tuple[str, Rows]]:
    from paddle.distributed.passes import new_pass

    def rows(name: str, m: int, chunks: int) -> Rows:
        found: Rows = []
        for rank in range(P):
            own = {"pp_degree": P, "pp_stage": rank, "vpp_degree": chunks, "num_micro_batches": m}
            jobs = new_pass(f"pipeline_scheduler_{name}", own)._create_job_list()
            found.append([])
            for job in jobs:
                said = re.fullmatch(r"(forward|backward)(_[bw])?(\d*)", job.type())
                if said:
                    kind = "F" if said[1] == "forward" else (said[2] or "_BW")[1:].upper()
                    stage = int(said[3] or 0) * P + rank
                    found[-1].append(f"{stage}{kind}{job.micro_batch_id()}")
        return found

    yield "ZBH1", rows("ZBH1", M, 1)
    yield "VPP", rows("VPP", M, 2)
    yield "VPP, m = p", rows("VPP", P, 2)


def deepspeed() -> Iterator[tuple[str, Rows]]:
    from deepspeed.runtime.pipe.schedule import DualPipeVSchedule

    rows: Rows = []
    for rank in range(P):
        rows.append([])
        for step in DualPipeVSchedule(M, P, rank).steps():
            for command in step:
                if (name := type(command).__name__) in ("ForwardPass", "BackwardPass"):
                    phase, number = divmod(command.kwargs["buffer_id"], M)
                    stage = 2 * P - 1 - rank if phase else rank
                    rows[-1].append(f"{stage}{'F' if name == 'ForwardPass' else 'BW'}{number}")
    yield f"DualPipeV, with {DualPipeVSchedule(M, P, 0).num_pipe_buffers()} buffers", rows


def torch() -> Iterator[tuple[str, Rows]]:
    from torch.distributed.pipelining.schedules import Schedule1F1B

    bare: Any = Schedule1F1B.__new__(Schedule1F1B)
    bare._num_stages, bare._n_microbatches = P, M
    order = bare._get_pipeline_order()
    texts = [[re.fullmatch(r"(\d+)([FB])(\d+)", str(a)) for a in order[rank]] for rank in range(P)]
    kind = {"F": "F", "B": "BW"}
    yield (
        "Schedule1F1B.pipeline_order",
        [[f"{t[1]}{kind[t[2]]}{t[3]}" for t in row if t] for row in texts],
    )


PACKAGES: dict[str, Callable[[], Iterator[tuple[str, Rows]]]] = {
    function.__name__: function for function in (d9d, elf, spectrax, paddle, deepspeed, torch)
}

if __name__ == "__main__":
    print(json.dumps([*PACKAGES[sys.argv[1]]()]))
