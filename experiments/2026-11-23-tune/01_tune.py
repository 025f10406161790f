"""Tune pipelines in place: real models on two gloo ranks, and virtual devices.

    python experiments/2026-11-23-tune/01_tune.py results.json [CASE ...]

Cases that the file has already are left out. The last column says how busy the machine was.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from statistics import median
from typing import Any

from pipesat.core.problem import Problem
from pipesat.files.problem_file import parse_problem
from pipesat.workflows.torch_runs import run
from pipesat.workflows.tuning import tune

SIZES = {"small": (64, 64), "middle": (128, 128), "large": (192, 192)}  # width, tokens
BLOCKS = {2: (1, 2), 4: (1, 2, 1, 1)}


def problem_of(ranks: int, stages: list[dict[str, int]], microbatches: int, cap: int) -> Problem:
    return parse_problem(
        {
            "format": "pipesat.problem/1",
            "time_unit": "us",
            "microbatches": microbatches,
            "devices": [{"memory": cap}] * ranks,
            "stages": [
                {"device": i % ranks, "held_after_F": 1, "held_after_B": 1} | stage
                for i, stage in enumerate(stages)
            ],
        }
    )


def costs(F: int, B: int, W: int) -> dict[str, int]:
    return {"F": F, "B": B, "W": W}


def cases() -> dict[str, tuple[Problem, str, dict[str, Any]]]:
    found = {}
    for name, (width, length) in SIZES.items():
        for stages, blocks in BLOCKS.items():
            guess = [costs(*(1000 * n for n in (1, 1, 1))) for _ in blocks]
            today, cap = ("1f1b", 2) if stages == 2 else ("interleaved-1f1b", 6)
            shape = {"width": width, "length": length, "blocks": list(blocks)}
            found[f"{stages} stages, {name}"] = (
                problem_of(2, guess, 6, cap),
                today,
                {"shape": shape},
            )
    ramp = [costs(20_000, 20_000, 20_000) for _ in range(3)] + [costs(30_000, 30_000, 20_000)]
    found["4 ranks, virtual"] = problem_of(4, ramp, 8, 4), "1f1b", {"virtual": True}
    longer = [costs(20_000, 20_000, 20_000) for _ in range(7)] + [costs(30_000, 30_000, 20_000)]
    found["8 ranks, virtual"] = problem_of(8, longer, 8, 8), "1f1b", {"virtual": True}
    # 1F1B takes 9 x 60 ms; what W leaves for the end is at most 8 x 0.34 ms of it, 0.5 %
    half = [costs(20_000, 39_660, 340)] * 2
    found["half a percent, virtual"] = problem_of(2, half, 8, 8), "1f1b", {"virtual": True}
    return found


def tuned(name: str) -> dict[str, Any]:
    problem, today, what = cases()[name]
    load, start = os.getloadavg()[0], time.monotonic()
    found = tune(problem, today, time_limit=5, note=print, **what)
    print(found)
    seconds = time.monotonic() - start
    return found.document() | {"load": load, "load_after": os.getloadavg()[0], "seconds": seconds}


def launches() -> dict[str, Any]:
    """The median of one order's steps in five launches: how much a launch alone changes."""
    problem, today, what = cases()["half a percent, virtual"]
    found = []
    for _ in range(5):
        measured = run(problem, today, steps=20, **what)
        assert measured is not None
        found.append(median(measured.timeline.makespans) / 1000)
    return {"medians": found, "load_after": os.getloadavg()[0]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("results", type=Path)
    parser.add_argument("cases", nargs="*", default=[*cases(), "launches"])
    asked = parser.parse_args()
    done = json.loads(asked.results.read_text()) if asked.results.exists() else {}
    for name in asked.cases:
        if name not in done:
            print(f"== {name}", flush=True)
            done[name] = launches() if name == "launches" else tuned(name)
            asked.results.write_text(json.dumps(done, indent=1))


if __name__ == "__main__":
    main()
