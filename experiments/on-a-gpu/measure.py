"""All that a machine with one GPU can say in seven minutes: profiles, runs, loops on idle cores.

    python experiments/on-a-gpu/measure.py FOLDER [--modes] [--rehearse]

Three lanes at a time, on cores of their own: the GPU, 4 ranks and 8 ranks on the CPU. ``--modes``:
what the first call had no time for, checkpointing, compilation and memory modes. ``--rehearse``
needs no GPU and measures toys.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PIPESAT = [sys.executable, "-m", "pipesat"]
BLOCK = "length=4096,batch=1"
PAPER = {"zb-1.5b": 6, "zb-6.2b": 3, "zb-14.6b": 1, "zb-28.3b": 1}  # sequences of 1024 tokens
TIGHT = {  # name: memory mode, capacities of four devices, of toys
    "tight": ("recompute", "1500MiB,1500MiB,1200MiB,4000MiB", "12MiB"),
    "aside": ("offload", "2000MiB,2200MiB,1600MiB,4000MiB", "12MiB"),
}


def rank(ranks: int, *words: str) -> list[str]:
    """A command under torchrun."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    return [*launch, str(HERE / "as_a_rank.py"), *words]


def gpu_lane(device: str, quick: bool, *, modes: bool) -> list[tuple[str, int, list[str]]]:
    """Names, seconds at most, commands; ``quick`` measures toys, ``modes``: the second call."""
    config = ["--config", "tiny"] if quick else ["--config", "llama3-8b", "--shape", BLOCK]
    toy = ["--config", "tiny"] if quick else []
    model = toy or ["--config", "llama2-7b", "--shape", "layers=4,length=2048,batch=1"]
    wide = toy or ["--config", "gpt2-xl", "--shape", "layers=8,length=1024,batch=4"]
    samples = ["--samples", "3" if quick else "20"]
    on = f"{device},dtype={'float32' if quick else 'bfloat16'}"
    there = ["--device", device]
    steps: list[tuple[str, int, list[str]]] = [("doctor", 60, [*PIPESAT, "--doctor"])]

    def profile(name: str, what: list[str], on: str, *more: str) -> None:
        words = ["profile", *what, "--device", on, *samples, *more, "-o", f"{name}.json"]
        steps.append((name, 120, [*PIPESAT, *words]))

    def problem(name: str, profile: str, devices: int, *more: str) -> None:
        memory = [] if "--memory" in more else ["--memory", "60GiB"]
        words = ["--devices", str(devices), "--microbatches", "8", *memory, *more]
        told = ["problem", "from-profile", f"{profile}.json", *words, "-o", f"{name}.json"]
        steps.append((name, 30, [*PIPESAT, *told]))

    def ran(name: str, ranks: int, order: str, profile: str, *more: str) -> None:
        words = [
            "run",
            f"{name.partition('.')[0]}.json",
            order,
            "--model",
            f"{profile}.json",
            *there,
        ]
        told = [*words, *more, "-o", f"{name}.timeline.json"]
        steps.append((name, 90, rank(ranks, *told)))

    profile("block", config, on)
    if modes:
        profile("block.checkpoint", config, f"{on},checkpoint")
        profile("block.modes", config, on, "--measure", "modes")
        profile("block.inductor", config, f"{on},compile=inductor")
        profile("wide", wide, on, "--stages", "4", "--measure", "modes")
        for name, (mode, capacities, toys) in TIGHT.items():
            words = ["--memory", toys if quick else capacities, "--training", "optimizer=none"]
            speed = ",copy_bandwidth=1GiB" if quick and mode == "offload" else ""
            problem(name, "wide", 4, *words, "--modes", mode + speed)
            solve = ["solve", f"{name}.json", "--time-limit", "20", "-o", f"{name}.solved"]
            steps.append((f"{name}.solved", 60, [*PIPESAT, *solve]))
            for kind, more in (("with", ()), ("without", ("--without-modes",))):
                measured = ["--verify", "--measure", "memory", *more]
                ran(f"{name}.{kind}", 4, f"{name}.solved", "wide", *measured)
        return steps
    for name, batch in PAPER.items():
        sized = ["--config", name, "--shape", f"length=1024,batch={batch}"]
        profile(name, toy or sized, on)
    profile("model", model, on, "--stages", "4")
    problem("alone", "model", 1, "--placement", "loop,chunks=4")
    for order in ("looped-bfs", "interleaved-zb"):
        ran(f"alone.{order}", 1, order, "model", "--verify", "--measure", "memory")
    profile("wide", wide, on, "--stages", "4")
    problem("shared", "wide", 4)
    for order in ("1f1b", "zb-h1"):
        ran(f"shared.{order}", 4, order, "wide", "--verify", "--measure", "memory")
    problem("shared-vee", "wide", 2, "--placement", "vee")
    ran("shared-vee.zb-v", 2, "zb-v", "wide", "--verify")
    return steps


def work(
    folder: Path, steps: list[tuple[str, int, list[str]]], cores: set[int], end: float
) -> None:
    """Run a lane's steps one after the other, each with a log."""
    for name, seconds, words in steps:
        begin = time.monotonic()
        left = min(seconds, end - begin)
        if left < 5:
            code: int | str = "no time left"
        else:
            with (folder / f"{name}.log").open("w") as log:
                log.write(" ".join(words) + "\n")
                log.flush()
                try:
                    code = subprocess.run(
                        words,
                        cwd=folder,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        timeout=left,
                        check=False,
                        preexec_fn=lambda: os.sched_setaffinity(0, cores),
                        env=os.environ
                        | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
                    ).returncode
                except subprocess.TimeoutExpired:
                    code = "took too long"
        print(f"{time.monotonic() - begin:6.1f} s  {name}: {code}", flush=True)


def main() -> None:
    """Run all lanes, and pack what they wrote."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--modes", action="store_true")
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--minutes", type=float, default=8)
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cores = sorted(os.sched_getaffinity(0))
    end = time.monotonic() + 60 * asked.minutes
    device = "cpu" if asked.rehearse else "cuda"
    work(folder, gpu_lane(device, asked.rehearse, modes=asked.modes), set(cores[:4]), end)
    (folder / "machine.json").write_text(json.dumps({"cores": len(cores), "uname": os.uname()}))


if __name__ == "__main__":
    main()
