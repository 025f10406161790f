"""Same name, other schedule: how many microbatches do public packages hold in flight?

``python run.py FOLDER [--torch PYTHON]`` installs the packages below FOLDER, each with what it
needs, asks each for its orders (``others.py``) and prints a table. PYTHON has torch 2.15; without
one, torch is installed there too. Takes some 6 GB without ``--torch``, and 2 with it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pipesat
from pipesat.core.errors import NotApplicable
from pipesat.heuristics import BASELINES
from pipesat.problem.ops import members
from pipesat.schedule.schedule import Schedule

WANTED = {
    "torch": ("torch 2.15.0", ["torch==2.15.0", "numpy"]),
    "d9d": ("d9d 0.24.0", ["optree", "tqdm", "safetensors", "pydantic"]),
    "elf": ("elf-pipeline 0.1.0", []),
    "deepspeed": (
        "deepspeed 0.19.8",
        ["psutil", "hjson", "msgpack", "einops", "py-cpuinfo", "pydantic", "tqdm", "ninja"],
    ),
    "spectrax": ("spectrax-lib 0.1.4", ["jax", "treescope", "tensorstore", "protobuf<7"]),
    "paddle": ("paddlepaddle 3.3.1", ["paddlepaddle==3.3.1"]),
}
WITH_TORCH = ("torch", "d9d", "elf", "deepspeed")
OURS = {
    "1f1b": "1f1b",
    "zbh1": "zb-h1",
    "zbh2": "zb-h2",
    "Std1F1B": "1f1b",
    "ZeroBubbleH1": "zb-h1",
    "ZBH1": "zb-h1",
    "VPP": "interleaved-1f1b",
    "DualPipeV": "dualpipev",
    "Schedule1F1B.pipeline_order": "1f1b",
}


def installed(folder: Path, name: str) -> Path:
    """A folder with the package, and with what it imports besides torch."""
    title, others = WANTED[name]
    target, pin = folder / name, title.replace(" ", "==")
    if not target.is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target)]
        alone = [pin] if pin not in others else []
        for options, packages in (([], others), (["--no-deps", "--no-build-isolation"], alone)):
            if packages:
                subprocess.run([*pip, *options, *packages], check=True)
    return target


def orders(folder: Path, name: str, python: str | None) -> list[tuple[str, list[list[str]]]]:
    """The package's orders, by its own name."""
    needed = [name, *(["torch"] if name in WITH_TORCH[1:] else [])]
    paths = [installed(folder, each) for each in needed if python is None or each != "torch"]
    asked = [python or sys.executable, str(Path(__file__).with_name("others.py")), name]
    found = subprocess.run(
        asked,
        env={**os.environ, "PYTHONPATH": ":".join(map(str, paths))},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(found.stdout.splitlines()[-1])


def texts(schedule: Schedule) -> list[list[str]]:
    """Its ops, rank by rank."""
    return [[str(op) for item in row for op in members(item)] for row in schedule.order]


def in_flight(rows: list[list[str]]) -> list[int]:
    """Most microbatches that a rank holds, each of its stages counted, from F to W's end."""
    peaks = []
    for row in rows:
        held = most = 0
        for text in row:
            kind = re.sub(r"\d", "", text)
            held += kind == "F"
            most = max(most, held)
            held -= "W" in kind
        peaks.append(most)
    return peaks


def judged(rows: list[list[str]], problem: pipesat.Problem) -> str:
    """Which of our schedules it is, or what is wrong or special with it."""
    counts = Counter(text for row in rows for text in row)
    numbers = range(problem.routes[0].microbatches)
    wanted = {f"{s}F{i}" for s in range(len(problem.stages)) for i in numbers}
    if missing := sorted(wanted - counts.keys()):
        extra = sorted(text for text in counts if "F" in text and text not in wanted)
        return f"no order: without {', '.join(missing)}, with {', '.join(extra)}"
    for name, build in BASELINES.items():
        with contextlib.suppress(NotApplicable):
            if texts(build(problem)) == rows:
                return f"equal to `{name}`"
    split = [len({text for text in row if re.search(r"\dW", text)}) for row in rows]
    if any(split):
        return f"splits {', '.join(map(str, split))} backwards by rank"
    return "whole backwards"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--torch", help="a Python that has torch 2.15")
    asked = parser.parse_args()
    print("| package | its name | p, m | in flight, by rank | ours of that name | what it is |")
    print("|---|---|---|---|---|---|")
    for name, (title, _) in WANTED.items():
        python = asked.torch if name in WITH_TORCH else None
        for said, rows in orders(asked.folder, name, python):
            ours = OURS[said.partition(",")[0]]
            stages = 1 + max(int(re.match(r"\d+", text)[0]) for row in rows for text in row)
            m = sum("F" in text for text in rows[0]) * len(rows) // stages
            given = {"devices": len(rows), "microbatches": m, "F": 1, "B": 1, "W": 1, "BW": 2}
            kind = {4: "chain", 8: "vee" if ours == "dualpipev" else "loop"}[stages]
            problem = getattr(pipesat.Problem, kind)(**given)
            own = texts(BASELINES[ours](problem))
            held, expected = (", ".join(map(str, in_flight(x))) for x in (rows, own))
            cells = [title, said, f"{len(rows)}, {m}", held, f"`{ours}`: {expected}"]
            print(f"| {' | '.join([*cells, judged(rows, problem)])} |", flush=True)


if __name__ == "__main__":
    main()
