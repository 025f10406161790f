"""Run torch's own schedules with known costs under its profiler, and import the traces.

Two gloo ranks on the CPU. A stage sleeps in its forward, in the backward for its input and in that
for its weights, and notes how long that took: what an op takes is known.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import multiprocessing, nn
from torch.distributed import destroy_process_group, init_process_group
from torch.distributed.pipelining import PipelineStage, schedules
from torch.profiler import ProfilerActivity, profile

from pipesat.workflows.traces import import_trace

RANKS, MICROBATCHES, STEPS, WIDTH = 2, 4, 4, 8
F, B, W = 0.050, 0.060, 0.040
"""Seconds of every stage; a whole backward takes B + W, on the first stage W: it has no input."""
RUNS = {
    "GPipe": ("ScheduleGPipe", "chain", ""),
    "GPipe, runtime": ("_PipelineScheduleRuntime", "chain", "gpipe"),
    "1F1B, runtime": ("_PipelineScheduleRuntime", "chain", "1f1b"),
    "interleaved 1F1B": ("ScheduleInterleaved1F1B", "loop", ""),
    "ZB-V": ("ScheduleZBVZeroBubble", "vee", ""),
}
HOMES = {"chain": (0, 1), "loop": (0, 1, 0, 1), "vee": (0, 1, 1, 0)}


SEEN: dict[str, list[float]] = defaultdict(list)
"""Seconds that each part of each stage of this rank took, by its own clock: 0F, 0B, 0W."""


def nap(part: str, seconds: float) -> None:
    """Sleep, and note how long that took: longer than asked for on a machine in use."""
    start = time.perf_counter()
    time.sleep(seconds)
    SEEN[part].append(time.perf_counter() - start)


class Slept(torch.autograd.Function):
    """The identity, which takes a while backwards."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, part: str, seconds: float) -> torch.Tensor:
        ctx.given = part, seconds
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        nap(*ctx.given)
        return gradients[0], None, None


class Stage(nn.Module):
    """A layer of known times."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.weight = nn.Parameter(torch.eye(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Sleep, and multiply."""
        nap(f"{self.number}F", F)
        weight = Slept.apply(self.weight, f"{self.number}W", W)
        return Slept.apply(x, f"{self.number}B", B) @ weight


def order_of(rank: int, order: str) -> list[str]:
    """The cells of a rank in torch's letters."""
    forward, backward = ([f"{rank}{kind}{m}" for m in range(MICROBATCHES)] for kind in "FB")
    warm = MICROBATCHES if order == "gpipe" else RANKS - rank - 1
    both = [cell for pair in zip(forward[warm:], backward, strict=False) for cell in pair]
    return [*forward[:warm], *both, *backward[MICROBATCHES - warm :]]


def rank_main(rank: int, name: str, folder: str) -> None:
    """Run a schedule on one rank, and write its trace."""
    kind, placement, order = RUNS[name]
    init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    homes = HOMES[placement]
    stages = [
        PipelineStage(Stage(number), number, len(homes), torch.device("cpu"))
        for number, home in enumerate(homes)
        if home == rank
    ]
    loss = partial(nn.functional.mse_loss)
    made = getattr(schedules, kind)
    own = stages[0] if kind == "ScheduleGPipe" else stages
    schedule = made(own, MICROBATCHES, loss_fn=loss)
    if order:
        path = Path(folder, f"order{rank}.csv")
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(order_of(each, order) for each in range(RANKS))
        schedule._load_csv(str(path), format="compute_only")
    x = torch.ones(MICROBATCHES, WIDTH)
    with profile(activities=[ProfilerActivity.CPU]) as trace:
        for _ in range(STEPS):
            given = (x,) if homes[0] == rank else ()
            last = homes[-1] == rank
            schedule.step(*given, **({"target": x, "losses": []} if last else {}))
    trace.export_chrome_trace(f"{folder}/traces/rank{rank}.json")
    own = {part: median(times) for part, times in SEEN.items()}
    Path(folder, f"own{rank}.json").write_text(json.dumps(own))
    destroy_process_group()


def main() -> None:
    """Print a row per schedule: what was found, and the largest error of a cost."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--keep", type=Path, help="folder for the traces")
    keep = asked.parse_args().keep
    print("| run | recognised | placement | F ms | backward ms | largest error |")
    print("|---|---|---|---|---|---|")
    for name in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            home = str(keep / name.replace(" ", "-")) if keep else folder
            Path(home, "traces").mkdir(parents=True, exist_ok=True)
            multiprocessing.spawn(rank_main, (name, home), nprocs=RANKS)
            found = import_trace([Path(home, "traces")], time_limit=1)
            own = [json.loads(path.read_text()) for path in Path(home).glob("own*.json")]
            print(row(name, found, own[0] | own[1]), flush=True)


def row(name: str, found: Any, own: dict[str, float]) -> str:
    """Compare the costs found with what the stages saw themselves."""
    errors = []
    seen: dict[str, list[str]] = {"F": [], "backward": []}
    for stage in found.records():
        for kind in ("F", "B", "W", "BW"):
            wanted = sum(own.get(f"{stage['stage']}{part}", 0.0) for part in kind)
            if kind in stage and wanted:  # the first stage has no backward for its input
                errors.append(stage[kind] / (wanted * 1e6) - 1)
                seen["F" if kind == "F" else "backward"].append(f"{stage[kind] / 1000:.1f}")
    texts = [", ".join(values) for values in seen.values()]
    worst = max(errors, key=abs)
    cells = (name, found.name or "none", found.steps.placement, *texts, f"{100 * worst:+.1f} %")
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
