"""The peak of live storages against the predicted one, for ten orders of a small decoder.

python experiments/record/02_peaks.py peaks.json
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SHAPE = "width=128,heads=4,length=128,vocabulary=256,layers=6"
ORDERS = {
    "chain": ["1f1b", "gpipe", "zb-h1", "zb-h2"],
    "loop": ["interleaved-1f1b", "looped-bfs", "interleaved-zb"],
    "vee": ["zb-v", "v-half", "v-min"],
}
STAGES = {"chain": 2, "loop": 4, "vee": 4}


def pipesat(*words: object) -> str:
    command = [sys.executable, "-m", "pipesat", *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def peaks(folder: Path, placement: str, orders: list[str]) -> dict[str, Any]:
    profile, problem = folder / f"{placement}.profile.json", folder / f"{placement}.json"
    cut = ("--shape", SHAPE, "--stages", STAGES[placement], "--samples", "2,warm_up=1")
    pipesat("profile", *cut, "-o", profile)
    pipesat(
        *("problem", "from-profile", profile, "--devices", 2, "--microbatches", 8),
        *("--placement", placement, "--training", "optimizer=none", "--backward", "either"),
        *("-o", problem),
    )
    found = {}
    for order in orders:
        words = ("run", problem, order, "-o", folder / "timeline.json", "--model", profile)
        steps = ("--steps", "1,warm_up=1", "--measure", "memory", "--json")
        found[order] = json.loads(pipesat(*words, *steps))["memory"]
        print(placement, order, [round(100 * one["error"], 1) for one in found[order]], flush=True)
    return found


def main() -> None:
    path = Path(sys.argv[1])
    done = json.loads(path.read_text()) if path.exists() else {}
    for placement, orders in ORDERS.items():
        if placement not in done:
            with tempfile.TemporaryDirectory() as name:
                done[placement] = peaks(Path(name), placement, orders)
            path.write_text(json.dumps(done, indent=1))


if __name__ == "__main__":
    main()
