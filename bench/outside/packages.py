"""What others' packages say when they run here; installed into temporary environments."""

from __future__ import annotations

import json
import subprocess
import tempfile
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from bench.outside.checks import Check
from bench.outside.formulas import (
    HETEROPIPE,
    IN_FLIGHT,
    TORCH,
    cells,
    held_by_sends,
    in_flight,
    last_ends,
)

FORWARDS = """
import json, sys
from heteropipe import Pipeline
for times, delays, m in json.load(sys.stdin):
    pipe = Pipeline(times, delays)
    print(json.dumps([pipe.async_(m), pipe.block(m)]))
"""
LIVENESS = """
import json, sys
from torch.distributed.pipelining import analyze_pipeline_activation_liveness as analyze
from torch.distributed.pipelining.schedules import _Action, _PipelineScheduleRuntime
for m, rows in json.load(sys.stdin):
    runtime = _PipelineScheduleRuntime.__new__(_PipelineScheduleRuntime)
    runtime._n_microbatches = m
    runtime.pipeline_order_with_comms = {
        rank: [_Action.from_str(cell) for cell in row] for rank, row in enumerate(rows)
    }
    slots = [
        analyze(
            runtime,
            pp_rank=rank,
            stage_indices=sorted({action.stage_index for action in actions if action}),
            granularity="stage_microbatch",
        ).num_slots
        for rank, actions in runtime.pipeline_order_with_comms.items()
    ]
    print(json.dumps(slots))
"""


def asked(python: str | Path, script: str, questions: Any) -> list[Any]:
    """What a script answers in another environment, a JSON line each."""
    done = subprocess.run(
        [python, "-c", script],
        input=json.dumps(questions),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def installed(folder: str, *packages: str) -> Path:
    """The Python of a new environment with these packages."""
    venv.create(folder, with_pip=True)
    python = Path(folder) / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def chains(count: int) -> list[tuple[Sequence[int], Sequence[int], int]]:
    """Chains of forwards: one to seven stages, one to forty microbatches."""
    chance, found = Random(7024), []
    for _ in range(count):
        p = chance.randint(1, 7)
        times, delays = ([chance.randint(0, 99) for _ in range(n)] for n in (p, p - 1))
        found.append((times, delays, chance.randint(1, 40)))
    return found


def checks(torch_python: str | None = None) -> Iterator[Check]:
    """heteropipe on drawn chains, and torch's liveness analysis on the orders that we export."""
    drawn = chains(200)
    with tempfile.TemporaryDirectory() as folder:
        theirs = asked(installed(folder, "heteropipe==0.1.0"), FORWARDS, drawn)
    for place, what in enumerate(("links carry while devices compute", "sends hold the device")):
        problems = [
            (held_by_sends(times, delays), [0] * len(delays), m) if place else (times, delays, m)
            for times, delays, m in drawn
        ]
        ends = [last_ends(*problem) for problem in problems]
        said = [1 + answer[place] for answer in theirs]  # 0 has no share
        for number, name in enumerate(("makespan", "closed-form bound")):
            ours = [1 + end[number] for end in ends]
            yield Check(f"200 chains of forwards, {what}: {name}", HETEROPIPE, said, ours)
    with tempfile.TemporaryDirectory() as folder:
        python = torch_python or installed(folder, "torch==2.15.0", "numpy==2.4.6")
        slots = asked(python, LIVENESS, [cells(name) for name in IN_FLIGHT])
    for name, found in zip(IN_FLIGHT, slots, strict=True):
        yield Check(f"in flight, {name}", TORCH, found, in_flight(name))
