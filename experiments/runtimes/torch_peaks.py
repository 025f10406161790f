"""Predicted peaks of each torch release beside those of the torch that is here, on CPU ranks.

``python experiments/runtimes/torch_peaks.py``: profiles a small decoder, cuts it for two ranks in
each placement, and runs orders in one more step whose peak is measured. Prints rows of a table.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from pipesat import profile, run
from pipesat.compare.from_profile import problem_from_profile
from pipesat.compare.hand_written import baseline

RECEIVE = ("2.13", "2.15")
RUNS = {
    "chain": ("1f1b", "gpipe", "zb-h1"),
    "loop": ("interleaved-1f1b", "looped-bfs"),
    "vee": ("zb-v", "dualpipev"),
}
SHAPE = "style=gpt,layers=8,width=128,heads=4,feed_forward=512,vocabulary=256,length=128,batch=4"
MICROBATCHES = 8


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        file = Path(name, "profile.json")
        profile(shape=SHAPE, stages=[2, 4], samples=3).write(file)
        for placement, orders in RUNS.items():
            problems = {
                receive: problem_from_profile(
                    file,
                    2,
                    MICROBATCHES,
                    placement=placement,
                    training={"receive": receive},
                    backward="either",
                )
                for receive in RECEIVE
            }
            for order in orders:
                predicted = []
                for problem in problems.values():
                    schedule = baseline(order, problem)
                    ran = run(problem, schedule, model=str(file), measure_memory=True, steps=1)
                    predicted.append([peak.predicted for peak in ran.peaks])
                measured = [round(peak.measured) for peak in ran.peaks]
                told = [torch.__version__.partition("+")[0], placement, order, *predicted, measured]
                print("|", " | ".join(map(str, told)), "|", flush=True)


if __name__ == "__main__":
    main()
