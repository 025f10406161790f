"""Predicted peaks of each torch release beside those of the torch that is here, on CPU ranks.

``python experiments/runtimes/torch_peaks.py``: profiles a small decoder, cuts it for two ranks in
each placement, and runs orders in one more step whose peak is measured. Prints rows of a table, in
KiB per rank: by the other release's rules, by this one's, measured, and by how much the prediction
is above it at most.
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
from pipesat.core.torch_releases import release_named
from pipesat.runtimes.torch.adapt import adapt
from pipesat.schedule.metrics import peak_memory

HERE = str(release_named("installed").version)
RECEIVE = sorted(("2.13", "2.15"), key=lambda version: version == HERE)  # that one last
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
                    training={"receive": receive, "optimizer": "none"},  # no step of one runs
                    backward="either",
                )
                for receive in RECEIVE
            }
            for order in orders:
                predicted = []
                for problem in problems.values():  # the last one's order runs
                    adapted = adapt(problem, baseline(order, problem))
                    predicted.append(peak_memory(adapted.problem, adapted.schedule))
                ran = run(problem, adapted.schedule, model=str(file), measure_memory=True, steps=1)
                measured = [round(peak.measured) for peak in ran.peaks]
                over = max(p / seen - 1 for p, seen in zip(predicted[-1], measured, strict=True))
                told = [torch.__version__.partition("+")[0], placement, order, *predicted, measured]
                print("|", " | ".join(map(str, told)), f"| {100 * over:.1f} % |", flush=True)


if __name__ == "__main__":
    main()
