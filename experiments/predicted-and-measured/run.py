"""Predicted against measured: a small real model on 2 local ranks.

    python -m experiments.predicted-and-measured.run [ROUNDS]

Prints the tables of README.md. Needs torch. It profiles the model first if ``profile.json`` is not
there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from operator import itemgetter
from pathlib import Path
from typing import Any

from bench.pages import table

PROFILE = Path(__file__).parent / "profile.json"
SIZES = "layers=6,width=256,heads=4,feed_forward=1024,vocabulary=1024,length=128,batch=2"
MODEL = ["--shape", f"style=gpt,{SIZES}"]
MICROBATCHES = "8"
CASES = {  # stages on 2 ranks: placement, and hand-written orders beside the synthesized one
    "2 stages, chain": ("chain,cut=balanced", ["1f1b", "zb-h1"]),
    "4 stages, loop": ("loop,chunks=2,cut=balanced", ["interleaved-1f1b", "interleaved-zb"]),
}
ROUNDS = 3  # every order runs in each; the middle one by makespan counts


def pipesat(*arguments: object) -> str:
    command = [sys.executable, "-m", "pipesat", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def orders(problem: Path, baselines: list[str], folder: Path) -> dict[str, Path]:
    """Schedule files: the synthesized one, and the hand-written ones."""
    pipesat("solve", problem, "--for", "torch", "--time-limit", 20, "-o", folder / "solved")
    found = {"synthesized": folder / "solved/schedule.json"}
    for name in baselines:
        found[name] = folder / f"{name}.json"
        pipesat("export", problem, name, "--to", "schedule", "-o", found[name])
    return found


def measure(problem: Path, schedules: dict[str, Path], rounds: int, *options: object) -> Any:
    """Run every order in turns; per order, the comparison of its middle round and the load."""
    runs: dict[str, list[Any]] = {name: [] for name in schedules}
    for number in range(rounds):
        for name, schedule in schedules.items():
            load = os.getloadavg()[0]
            timeline = problem.parent / f"{name}.{number}.timeline.json"
            text = pipesat("run", problem, schedule, "-o", timeline, "--json", *options)
            runs[name].append(json.loads(text) | {"load": load})
            print(f"{name}, round {number}: {runs[name][-1]['measured'] / 1000:.1f} ms", flush=True)
    return {
        name: sorted(done, key=itemgetter("measured"))[rounds // 2] for name, done in runs.items()
    }


def show(title: str, results: dict[str, Any]) -> None:
    """Median step and shortest one, each against the prediction."""
    rows = []
    for name, run in results.items():
        cells = [name, f"{run['predicted'] / 1000:.1f}"]
        for key in ("measured", "shortest"):
            off = run["predicted"] / run[key] - 1
            cells += [f"{run[key] / 1000:.1f}", f"{100 * off:+.1f} %"]
        rows.append([*cells, f"{run['load']:.1f}"])
    heads = ("order", "predicted ms", "measured ms", "error", "shortest ms", "error", "load")
    print(f"\n{title}\n\n{table(heads, rows)}")


def refitted(problem: Path, results: dict[str, Any], source: str) -> None:
    """Take costs from one order's timeline and predict all orders with them."""
    new = problem.parent / "refit.json"
    pipesat("timeline", "refit", problem, results[source]["timeline"], "-o", new)
    for run in results.values():
        again = json.loads(pipesat("timeline", "compare", new, run["timeline"], "--json"))
        run["refit"] = {"predicted": again["predicted"], "error": again["error"]}


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    if not PROFILE.exists():
        cuts = ["--stages", "2,4,cut=balanced", "--measure", "links", "--samples", "30"]
        pipesat("profile", "-o", PROFILE, *MODEL, *cuts)
    for title, (placement, baselines) in CASES.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            problem = folder / "problem.json"
            sizes = ["--devices", 2, "--microbatches", MICROBATCHES, "--placement", placement]
            words = [*sizes, "--backward", "either", "--cost", "low", "-o", problem]
            pipesat("problem", "from-profile", PROFILE, *words)
            options = ["--model", f"{PROFILE},cut=balanced", "--verify", "--steps", "25"]
            results = measure(problem, orders(problem, baselines, folder), rounds, *options)
            refitted(problem, results, baselines[0])
            show(title, results)
            print(f"\nwith costs refit from {baselines[0]}'s timeline:")
            for order, run in results.items():
                again = run["refit"]
                print(f"{order}: {again['predicted'] / 1000:.1f} ms, {100 * again['error']:+.1f} %")


if __name__ == "__main__":
    main()
