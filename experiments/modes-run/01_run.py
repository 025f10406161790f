"""Profile a small decoder, solve with memory modes under a cap, run it in torch, measure peaks.

python 01_run.py: prints a table and writes results.json. Takes about 8 minutes on two cores.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import torch

HERE = Path(__file__).parent
SIZES = {"width": 128, "heads": 4, "length": 256, "vocabulary": 256}
SHAPE = ",".join(f"{key}={value}" for key, value in SIZES.items())
MICROBATCHES, CAPACITY = 6, "18MiB"
SPEED = "4479MiB"  # per second to a file and back, measured on 2026-11-22
CASES = (  # ranks, blocks, which modes each stage has
    (2, 6, "recompute"),
    (4, 10, "recompute"),
)


def pipesat(*words: object) -> str:
    command = [sys.executable, "-m", "pipesat", *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def allow(path: Path, choice: str) -> None:
    """Leave of every stage's modes in a problem file those that are to be used."""
    document = json.loads(path.read_text())
    for stage in document["stages"]:
        stage["modes"] = [m for m in stage["modes"] if m["name"] == choice]
    path.write_text(json.dumps(document))


def case(folder: Path, ranks: int, blocks: int, choice: str, speed: str) -> dict:
    profile, problem, out = folder / "profile.json", folder / "problem.json", folder / "out"
    cut = ("--shape", f"{SHAPE},layers={blocks}", "--stages", ranks, "--samples", 5)
    pipesat("profile", *cut, "--measure", "modes", "-o", profile)
    pipesat(
        *("problem", "from-profile", profile, "--devices", ranks, "--microbatches", MICROBATCHES),
        *(
            "--training",
            "optimizer=none",
            "--backward",
            "fused",
            "--modes",
            f"copy_bandwidth={speed}",
        ),
        *("--memory", CAPACITY, "-o", problem),
    )
    allow(problem, choice)
    solved = json.loads(pipesat("solve", problem, "-o", out, "--time-limit", 15, "--json"))
    runs = {}
    for name, more in (("modes", ["--verify"]), ("kept", ["--without-modes"])):
        words = ("run", problem, out / "schedule.json", "-o", folder / "timeline.json")
        steps = ("--model", profile, "--steps", "1,warm_up=1", "--measure", "memory", "--json")
        runs[name] = json.loads(pipesat(*words, *steps, *more))
    keys = ("status", "value", "lower_bound", "modes")
    return {
        "ranks": ranks,
        "blocks": blocks,
        "microbatches": MICROBATCHES,
        "allowed": choice,
        "copy_bandwidth": speed,
        "solved": {key: solved[key] for key in keys},
        "check": runs["modes"]["check"],
        "peaks": {name: ran["memory"] for name, ran in runs.items()},
    }


def main() -> None:
    results = []
    for ranks, *rest in CASES:
        with tempfile.TemporaryDirectory() as name:
            found = case(Path(name), ranks, *rest, SPEED)
        results.append(found)
        print(f"{ranks} ranks, {found['allowed']}: modes {found['solved']['modes']}", flush=True)
        print(f"  largest relative error of gradients {found['check']['largest_relative_error']}")
        for name, peaks in found["peaks"].items():
            for peak in peaks:
                print(
                    f"  {name:6} {peak['device']}: capacity {peak['capacity']}, predicted "
                    f"{peak['predicted']}, measured {peak['measured']:.0f} KiB, error "
                    f"{100 * peak['error']:+.1f} %{'' if peak['fits'] else ', exceeds'}"
                )
    machine = f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"
    document = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine, "cases": results}
    (HERE / "results.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
