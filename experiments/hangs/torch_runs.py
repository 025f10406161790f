"""Random orders of sends and receives, really run by torch's runtime on gloo, against `edge-fifo`.

    python experiments/hangs/torch_runs.py [RUNS] [FIRST_SEED]

gloo has one queue per pair of ranks and direction, without tags as torch calls it. Two ranks, two
or four stages as a chain, loop or V, full backwards. Every gradient is compared with one process. A
run that is not over after ten seconds counts as a hang. The table goes into README.md.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from tables import put  # noqa: E402
from torch.distributed.pipelining import PipelineStage  # noqa: E402
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime  # noqa: E402

from pipesat.core.timing import time_order  # noqa: E402
from pipesat.files.problem_file import parse_problem  # noqa: E402
from pipesat.hangs.verdict import posted_in, verdict  # noqa: E402
from tests.support.hang_oracle import Step, posted_anyhow, posted_late, random_order  # noqa: E402
from tests.support.orders import order_of  # noqa: E402

WIDTH, SECONDS = 4, 10.0
PLACES = ([0, 1], [0, 1, 0, 1], [0, 1, 1, 0])
KINDS = ("safe", "crossed", "hangs")


def module(stage: int) -> torch.nn.Module:
    torch.manual_seed(stage)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH, dtype=torch.float64), torch.nn.Tanh())


def loss(out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return ((out - target) ** 2).sum()


def data(microbatches: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(99)
    return tuple(torch.randn(microbatches, WIDTH, dtype=torch.float64) for _ in range(2))  # type: ignore[return-value]


def rank_runs(rank: int, folder: str, home: list[int], microbatches: int) -> None:
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo"}
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    modules = {s: module(s) for s, here in enumerate(home) if here == rank}
    device = torch.device("cpu")
    stages = [PipelineStage(one, s, len(home), device) for s, one in modules.items()]
    runtime = _PipelineScheduleRuntime(
        stages, n_microbatches=microbatches, loss_fn=loss, scale_grads=False
    )
    runtime._load_csv(f"{folder}/order.csv", format="compute_comms")
    inputs, target = data(microbatches)
    given = (inputs,) if home[0] == rank else ()
    last = {"target": target, "losses": []} if home[-1] == rank else {}
    runtime.step(*given, **last)
    grads = {s: [p.grad for p in one.parameters()] for s, one in modules.items()}
    torch.save(grads, f"{folder}/rank{rank}.pt")
    os._exit(0)


def right(folder: str, home: list[int], microbatches: int) -> bool:
    modules = [module(s) for s in range(len(home))]
    inputs, target = data(microbatches)
    for x, y in zip(inputs.split(1), target.split(1), strict=True):
        loss(torch.nn.Sequential(*modules)(x), y).backward()
    for rank in range(2):
        for s, grads in torch.load(f"{folder}/rank{rank}.pt", weights_only=True).items():
            wanted = [p.grad for p in modules[s].parameters()]
            if not all(torch.allclose(a, b) for a, b in zip(grads, wanted, strict=True)):
                return False
    return True


def ran(folder: str, home: list[int], microbatches: int) -> str:
    start = multiprocessing.get_context("fork").Process
    ranks = [start(target=rank_runs, args=(n, folder, home, microbatches)) for n in range(2)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join(SECONDS)
    hung = any(one.is_alive() for one in ranks)
    for one in ranks:
        one.kill()
        one.join()
    if hung:
        return "hangs"
    if not all(os.path.exists(f"{folder}/rank{rank}.pt") for rank in range(2)):
        return "crashed"
    return "safe" if right(folder, home, microbatches) else "crossed"


def drops(row: list[Step]) -> bool:
    """Whether an activation is sent after its own backward: torch has dropped it by then."""
    texts = [f"{step['step']} {step['op']}" for step in row]
    sent = [text for text in texts if text.startswith("SEND_F")]
    ran = (text.replace("SEND_F", "run").replace("F", "BW") for text in sent)
    return any(texts.index(a) > texts.index(b) for a, b in zip(sent, ran, strict=True))


def one_case(seed: int, folder: str) -> tuple[str, str]:
    rng = Random(seed)
    home, m = rng.choice(PLACES), rng.choice([2, 3, 4])
    stage = {"F": 1, "B": 1, "W": 1, "backward": "fused"}
    doc: dict[str, Any] = {
        "format": "pipesat.problem/1",
        "microbatches": m,
        "devices": [{}, {}],
        "stages": [{"device": here} | stage for here in home],
    }
    rows = random_order(doc, rng, plain=True)
    steps = late = posted_late(doc, rows)
    if rng.random() < 0.5:
        steps = posted_anyhow(late, rng)
        while any(map(drops, steps)):
            steps = posted_anyhow(late, rng)
    lines = []
    for row in steps:
        cells = []
        for step in row:
            stage_, _, number = step["op"].partition("F" if "F" in step["op"] else "BW")
            letter = "F" if "F" in step["op"] else "B"
            word = letter if step["step"] == "run" else step["step"]
            cells.append(f"{stage_}{word}{number}")
        lines.append(",".join(cells))
    path = Path(folder) / "order.csv"
    path.write_text("".join(f"{line}\n" for line in lines))
    problem = parse_problem(doc)
    schedule = time_order(problem, order_of(*map(" ".join, rows)))
    said = verdict(problem, schedule, "edge-fifo", posted_in(path, problem, schedule.order))
    expected = "hangs" if said.cycle else "crossed" if said.crossed else "safe"
    return expected, ran(folder, home, m)


def main() -> None:
    warnings.simplefilter("ignore")
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    found: Counter[tuple[str, str]] = Counter()
    for seed in range(first, first + count):
        with tempfile.TemporaryDirectory() as folder:
            expected, real = one_case(seed, folder)
        found[expected, real] += 1
        print(seed, expected, real, flush=True)
    reals = ["safe", "crossed", "hangs", "crashed"]
    heads = ["right gradients", "wrong gradients", "not over after 10 s", "an error"]
    lines = [["verdict by edge-fifo", *heads], ["---"] * 5]
    lines += [[kind, *(str(found[kind, real]) for real in reals)] for kind in KINDS]
    put(HERE / "README.md", "torch", lines, f"Seeds {first} to {first + count - 1}.")


if __name__ == "__main__":
    main()
