"""Does the GPU run more slowly in a step than when it is profiled? Its clock and power, in both.

    python experiments/on-a-gpu/3_clocks.py [FOLDER]

With a folder, which has ``model.json`` and ``alone.json`` of ``1_measure.py``, on a machine with a
GPU: samples both for two minutes, every 0.1 s. Then, or without: prints a table.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
SAMPLE = ["nvidia-smi", "--format=csv,noheader,nounits", "-lms", "100"]
FIELDS = "--query-gpu=clocks.sm,power.draw,clocks_event_reasons.active"
PYTHON = [sys.executable, "-m"]
PROFILE = "pipesat profile --config llama2-7b --shape layers=4,length=2048,batch=1 --samples 100"
ON = ["--device", "cuda,dtype=bfloat16", "--stages", "4", "-o", "again.json"]
RUN = ["run", "alone.json", "looped-bfs", "--model", "model.json", "--device", "cuda"]
STEPS = ["--steps", "100", "-o", "again.timeline.json"]
ONE_RANK = ["torch.distributed.run", "--nproc-per-node", "1", str(HERE / "as_a_rank.py")]
COMMANDS = {
    "profile": [*PYTHON, *PROFILE.split(), *ON],
    "run": [*PYTHON, *ONE_RANK, *RUN, *STEPS],
}
BUSY = {"profile": 250.0, "run": 400.0}  # watts, of samples that count: neither start nor pauses
POWER_LIMIT = 4  # nvidia-smi's reason for a lower clock


def measure(folder: Path) -> None:
    """Sample clock and power during both commands."""
    for name, command in COMMANDS.items():
        with (RESULTS / f"clocks.{name}.csv").open("w") as out:
            sampling = subprocess.Popen([*SAMPLE, FIELDS], stdout=out)
            try:
                subprocess.run(command, cwd=folder, check=True)
            finally:
                sampling.terminate()


def table() -> None:
    """Print what the clock was while the GPU was busy."""
    print("| | samples | clock, MHz | least | power, W | held back by the power limit |")
    print("|---|---|---|---|---|---|")
    for name, least in BUSY.items():
        lines = (RESULTS / f"clocks.{name}.csv").read_text().splitlines()
        rows = [tuple(line.replace(" ", "").split(",")) for line in lines]
        busy = [row for row in rows if float(row[1]) > least]
        clocks = [float(clock) for clock, *_ in busy]
        power = statistics.median(float(watts) for _, watts, _ in busy)
        held = sum(bool(int(reason, 16) & POWER_LIMIT) for *_, reason in busy) / len(busy)
        middle, low = statistics.median(clocks), min(clocks)
        print(f"| {name} | {len(busy)} | {middle:.0f} | {low:.0f} | {power:.0f} | {held:.0%} |")


if __name__ == "__main__":
    for folder in sys.argv[1:2]:
        measure(Path(folder))
    table()
