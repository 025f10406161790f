"""Train with NeMo AutoModel's ring of receive buffers, in orders for which it refuses itself.

``python receive_ring.py``: downloads the package into a temporary folder and takes its one module
that makes the ring, which needs torch alone (up to 2.14). Every order runs on gloo ranks of this
machine: without a ring, with the smallest that pipesat proves enough, and with one buffer less.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

PACKAGE = "nemo-automodel==0.7.0"
MODULE = "nemo_automodel/components/distributed/pipelining/recv_buffer_pool.py"
WIDTH, ROWS = 64, 4
SLOWER = 0.02  # seconds before every op, per rank before this one
ORDERS = (
    *(("chain", 4, 12, name) for name in ("1f1b", "eager-1f1b", "zb-h1", "gpipe")),
    *(("loop", 2, 12, name) for name in ("interleaved-1f1b", "interleaved-zb")),
    *(("vee", 2, 12, name) for name in ("v-half", "zb-v", "1f1b-v")),
)


def delay(stage: PipelineStage, name: str, seconds: float) -> None:
    """Let a stage be late: what it receives comes as early as it can."""
    run = getattr(stage, name)

    def later(*args: Any, **kwargs: Any) -> Any:
        time.sleep(seconds)
        return run(*args, **kwargs)

    setattr(stage, name, later)


def trained(rank: int, asked: dict[str, Any]) -> None:
    """Run one step as a rank, and keep the gradients and the bytes of receive buffers."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=asked["port"])
    dist.init_process_group("gloo", rank=rank, world_size=asked["ranks"])
    if asked["slack"] is not None:
        assert runpy.run_path(asked["module"])["install_recv_buffer_pool"](asked["slack"])
    home, m = asked["home"], asked["microbatches"]
    mine = [stage for stage, device in enumerate(home) if device == rank]
    torch.manual_seed(0)
    models = [
        torch.nn.Sequential(
            torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, WIDTH)
        )
        for _ in home
    ]
    data, target = torch.randn(2, m * ROWS, WIDTH)
    stages = [PipelineStage(models[s], s, len(home), torch.device("cpu")) for s in mine]
    for stage in stages:
        for name in ("forward", "backward", "backward_weight"):
            delay(stage, f"{name}_one_chunk", SLOWER * rank)
    runtime = _PipelineScheduleRuntime(
        stages, n_microbatches=m, loss_fn=torch.nn.functional.mse_loss, scale_grads=False
    )
    runtime._load_csv(asked["csv"])
    whole = {"target": target} if len(home) - 1 in mine else {}
    runtime.step(*([data] if 0 in mine else []), **whole)
    held = {
        info.buffer.data_ptr(): info.buffer.nbytes
        for stage in stages
        for infos in (*stage.args_recv_info.values(), *stage.grad_recv_info.values())
        for info in infos
        if getattr(info, "buffer", None) is not None
    }
    grads = [p.grad for s in mine for p in models[s].parameters()]
    torch.save((grads, sum(held.values())), f"{asked['csv']}.{rank}")
    dist.barrier()
    dist.destroy_process_group()


def stepped(asked: dict[str, Any], slack: int | None) -> tuple[list[torch.Tensor], list[int]]:
    """Gradients of all ranks, and each one's bytes of receive buffers."""
    given = asked | {"slack": slack, "port": str(29600 + os.getpid() % 2000)}
    processes.spawn(trained, (given,), nprocs=asked["ranks"])
    found = [torch.load(f"{asked['csv']}.{rank}") for rank in range(asked["ranks"])]
    return [grad for grads, _ in found for grad in grads], [held for _, held in found]


def main() -> None:
    import pipesat

    folder = Path(tempfile.mkdtemp())
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(folder)]
    subprocess.run([*pip, PACKAGE], check=True)
    (wheel,) = folder.glob("*.whl")
    module = zipfile.ZipFile(wheel).extract(MODULE, folder)
    print("| order | ranks, stages, m | slack | receive buffers by rank, KiB | gradients |")
    print("|---|---|--:|---|---|")
    for placement, p, m, name in ORDERS:
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        made: pipesat.Problem = getattr(pipesat.Problem, placement)(
            devices=p, microbatches=m, F=2, B=2, W=1
        )
        file = folder / f"{placement}-{name}.yaml"
        exported = pipesat.export(made, name, "automodel", file, version="2.13")
        knobs = [k for k in exported.knobs if k["knob"] == "pp_recv_buffer_pool_slack"]
        home = [made.stages[stage].device for stage in made.routes[0].stages]
        csv = str(exported.path.with_suffix(".csv"))
        asked = {"csv": csv, "ranks": p, "microbatches": m, "home": home, "module": module}
        expected, _ = stepped(asked, None)
        for slack in (None, *(knob["value"] for knob in knobs)):
            grads, held = stepped(asked, slack)
            same = all(map(torch.equal, grads, expected))
            row = [name, f"{p}, {len(home)}, {m}", "none" if slack is None else str(slack)]
            row += [", ".join(f"{size / 1024:g}" for size in held), "equal" if same else "WRONG"]
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
