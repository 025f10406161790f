"""Import every sample of a folder of traces, and print measured against predicted.

    python -m experiments.gpu-traces.run FOLDER [--seconds S]

Samples are a folder of dump_pp_data or one Chrome trace each. Medians are by stage over all steps
of a replica ("fixed") and within each step ("own step's"), which uses what a prediction cannot
know; own times are those of each op. Errors are predicted / measured - 1 over the steps of all
replicas: median, and 5th and 95th percentile.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median

import numpy as np

from bench.pages import table
from pipesat.measure.timeline.trace_costs import TraceCosts
from pipesat.measure.timeline.trace_problem import Error, error_of, replay_of
from pipesat.measure.trace_answer import TraceAnswer
from pipesat.measure.traces import import_trace

FIRST = "sample, steps, measured ms, fixed medians, own step's medians, own times, classes, "
FIRST += "a size each, with fitted delay"
SECOND = "sample, noise of F, of backwards, delay fitted ms, seen ms, stalls, slowest replica, "
SECOND += "schedule, gain, at most, best order, resolves"


def text(error: Error | None) -> str:
    """Show an error and its spread."""
    if error is None:
        return "-"
    middle, low, high = (f"{100 * part:+.1f}" for part in error)
    return f"{middle} ({low} to {high}) %"


def of_own_step(costs: TraceCosts) -> Error:
    """Return the error of medians by stage within each step."""
    times = costs.own.copy()
    for part in costs.parts:
        columns = [n for n, op in enumerate(costs.ops) if (op.stage, op.kind) == part]
        times[:, columns] = np.median(times[:, columns], axis=1, keepdims=True)
    return error_of(replay_of(costs)(times), costs.measured)


def by_size(costs: TraceCosts) -> Error:
    """Return the error of medians times a size of each microbatch, the same for all stages."""
    return error_of(replay_of(costs)(costs.by_size), costs.measured)


def with_delay(costs: TraceCosts, answer: TraceAnswer) -> Error:
    """Return the error of fixed medians, or of classes, with the fitted delay."""
    classes = answer.prediction.classes
    times = costs.by_median if classes is None else costs.by_class(classes, costs.by_median)
    return error_of(replay_of(costs)(times, answer.prediction.delay), costs.measured)


def main() -> None:
    """Print both tables."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("folder", type=Path, help="folder of samples")
    asked.add_argument("--seconds", type=float, default=10, help="of each search")
    given = asked.parse_args()
    samples = sorted(
        one for one in given.folder.iterdir() if one.is_dir() or ".json" in one.suffixes
    )
    first, second = [], []
    for sample in samples:
        answer = import_trace([sample], time_limit=given.seconds)
        costs, p = TraceCosts(answer.steps), answer.prediction
        name = sample.name.removesuffix(".gz").removesuffix(".json")
        cells = [
            name,
            str(len(p.measured)),
            f"{median(p.measured) / 1000:,.0f}",
            *map(text, (p.medians, of_own_step(costs), p.own, p.by_class)),
            text(by_size(costs) if p.classes else None),
            text(with_delay(costs, answer)),
        ]
        first.append(cells)
        noise = [f"{100 * min(v):.1f} to {100 * max(v):.1f} %" for v in by_kind(p.noise)]
        hurt = [us / 1000 for us in p.lost.values() if us > 0.01 * median(p.measured)]
        best = answer.result
        second.append(
            [
                name,
                *noise,
                f"{p.delay / 1000:.1f}",
                "-" if p.seen_delay is None else f"{p.seen_delay / 1000:.1f}",
                f"{len(p.stalls)} ops, {len(hurt)} steps longer",
                "-" if p.slowest is None else f"{p.slowest:.2f}",
                answer.name or "none",
                f"{100 * answer.gain:.1f} %",
                "-" if answer.most is None else f"{100 * answer.most:.1f} %",
                best.status,
                "-" if p.resolves is None else f"{100 * p.resolves:.1f} %",
            ]
        )
    print(table(FIRST.split(", "), first), "\n")
    print(table(SECOND.split(", "), second))


def by_kind(noise: dict[tuple[int, str], float]) -> list[list[float]]:
    """Noise of forwards and of the rest."""
    forward = [value for (_, kind), value in noise.items() if kind == "F"]
    return [forward, [value for (_, kind), value in noise.items() if kind != "F"]]


if __name__ == "__main__":
    main()
