"""Orders run and measured in torch: timelines, checks, and runs that go wrong."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from pipesat.core.errors import BadInput
from pipesat.heuristics import BASELINES
from pipesat.measure.processes.forks import Call
from pipesat.measure.processes.job import Job
from pipesat.measure.processes.launch import run_processes
from pipesat.measure.processes.run import peaks_of
from pipesat.problem.ops import parse_item
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.runtimes.timeline_file import read_timeline
from pipesat.schedule.schedule_file import write_schedule
from pipesat.schedule.timing import time_order
from tests.support.paths import ROOT
from tests.support.problems import chain, document
from tests.support.timed_modes import MODES, ORDER, problem_with_modes

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm")]

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs torch: pip install 'pipesat[torch]'"
)

# What is asked of the ranks, without torch


@pytest.fixture
def files(save, tmp_path: Path) -> list[Path]:
    """Problem (20 ms per op, 5 ms per link) and ZB-H1's schedule of it."""
    problem = parse_problem(
        document(chain(2, 3, F=20, B=20, W=20, comm=5, held=(0, 0)), time_unit="ms")
    )
    schedule = tmp_path / "schedule.json"
    write_schedule(schedule, problem, BASELINES["zb-h1"](problem))
    return [save(problem), schedule]


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "timeline.json"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--shape", "blocks=1,2,3"], "--shape: 3 numbers of blocks, expected 2, one per stage"),
        (["--shape", "blocks=x"], "--shape: got 'x', expected blocks to be whole numbers"),
        (["--shape", "blocks=0"], "--shape: got 'blocks=0', expected at least one of the blocks"),
        (["--shape", "width=10"], "--shape: got 'width=10', expected a multiple of the 4 heads"),
        (["--shape", "width=8,width=8"], "batch, blocks, dtype, once each"),
        (["--shape", "rooms=8"], "heads, length, batch, blocks, dtype, not rooms"),
        (["--shape", "64"], "--shape: got '64', expected KEY=VALUE, as width=64"),
        (["--device", "cuda"], "start it with torchrun, one GPU per rank"),
        (["--shape", "dtype=int8"], "expected dtype to be one of bfloat16, float32, float64"),
    ],
)
def test_options_that_do_not_fit(cli, files, output, options, message) -> None:
    outcome = cli("run", *files, "-o", output, *options)
    assert outcome.code == 2
    assert message in outcome.err
    assert not output.exists()


# Runs


def rows_of(problem_file: Path, output: Path) -> tuple[Problem, list[list[tuple]]]:
    problem = parse_problem(json.loads(problem_file.read_text()))
    timeline = read_timeline(output, problem)
    return problem, [list(row.ops) for step in timeline.steps for row in step.devices]


PAIR = 25  # of F = BW = 20 ms each


@needs_torch
def test_overlapped_pairs_run_in_turn(cli, save, tmp_path, output):
    """One F and one BW run together on either rank; the rest alone."""
    kinds = [{"ops": [f"{stage}F", f"{stage}BW"], "time": PAIR} for stage in (0, 1)]
    stage = {"F": 20, "B": 10, "W": 10, "backward": "fused"}
    problem = parse_problem(
        {
            "format": "pipesat.problem/1",
            "time_unit": "ms",
            "microbatches": 3,
            "devices": [{}, {}],
            "stages": [{"device": 0} | stage, {"device": 1} | stage],
            "comm": {"default": 5},
            "overlap": {"pairs": kinds},
        }
    )
    rows = (
        ("0F0", "0F1", "(0F2+0BW0)", "0BW1", "0BW2"),
        ("1F0", "(1F1+1BW0)", "(1F2+1BW1)", "1BW2"),
    )
    order = tuple(tuple(map(parse_item, row)) for row in rows)
    schedule = tmp_path / "schedule.json"
    write_schedule(schedule, problem, time_order(problem, order))
    # 0: 0F0 0-20, 0F1 20-40, the pair 75-100 (1BW0 ended at 70), 0BW1 135-155, 0BW2 155-175
    # 1: 1F0 25-45, 45-70, 105-130 (0F2 ended at 100), 1BW2 130-150
    options = ["--shape", "width=8", "--steps", "1,warm_up=1", "--verify", "--json"]
    outcome = cli("run", save(problem), schedule, "-o", output, *options)
    assert outcome.code == 0, outcome.err
    assert outcome.json["check"]["passed"] is True
    # members in turn, sent after the cell: 0 does 0F2 40-60 and, from 90, 0BW0 to 110; 1 does
    # 1F1 45-65 and 1BW0 to 85, then 1F2 115-135 and 1BW1 to 155; 1BW2 155-175; 0BW1 160-180 and
    # 0BW2 180-200
    assert "overlapped pairs (3)" in outcome.err
    assert "makespan 175.0 ms, in stock torch 200.0 ms" in outcome.err
    ran = [
        [str(one.item) for one in row.ops]
        for row in read_timeline(output, problem).steps[0].devices
    ]
    assert ran == [
        ["0F0", "0F1", "0F2", "0BW0", "0BW1", "0BW2"],
        ["1F0", "1F1", "1BW0", "1F2", "1BW1", "1BW2"],
    ]


@needs_torch
def test_the_transformer(cli, files, output) -> None:
    options = ["--steps", "2", "--verify", "--shape", "blocks=1,2,width=32"]
    outcome = cli("run", *files, "-o", output, *options)
    assert outcome.code == 0, outcome.err
    said = " ".join(outcome.out.split())
    assert "check passed: largest relative error" in said
    # losses, 12 tensors per block (norms, products and biases), words, positions, norm and head
    assert f"of {3 + 3 * 12 + 5} losses and gradients" in said
    assert "Toy model a small transformer ran" in said
    assert "makespan / mean compute of a device: predicted" in said
    assert "error +" not in said
    timeline = json.loads(output.read_text())
    assert timeline["environment"]["ranks"] == "2 local, gloo"
    assert len(timeline["steps"]) == 2
    # it is not the model that the costs are of: they are scaled until both compute as long
    compared = cli("timeline", "compare", files[0], output, "--json").json
    assert compared["toy_model"] is True
    predicted, measured = (
        sum(row[key] for row in compared["devices"]) for key in ("predicted_busy", "busy")
    )
    assert predicted == pytest.approx(measured, rel=1e-4)  # the file has tenths of a us
    refit = cli("timeline", "refit", files[0], output, "-o", output.with_name("new.json"))
    assert refit.code == 2
    assert "the timeline is of a toy model" in refit.err


def test_a_toy_models_memory_is_not_held_against_the_problems() -> None:
    problem = parse_problem(document(chain(2, 2, held=(4, 4)), memory_unit="KiB"))
    for module, in_kib in (("mine.py", 2.0), ("", None)):
        job = Job("0F0,0B0\n", 1, 0, module=module, memory=True, predicted=(8, 4))
        peaks = peaks_of(problem, job, [{"peak": 2048}, {"peak": 1024}])
        assert peaks is not None
        assert (peaks[0].measured, peaks[0].measured_bytes) == (in_kib, 2048)
        assert (peaks[0].error is None, peaks[0].fits is None) == ((in_kib is None),) * 2


def model(tmp_path: Path, code: str) -> Path:
    """A model file whose second stage runs ``code`` in every forward, with its ``calls``."""
    path = tmp_path / "mine.py"
    path.write_text(
        f"""
import os, signal, sys, time, torch

class Stage(torch.nn.Linear):
    calls = 0
    def forward(self, x):
        self.calls += 1
        if self.number == 1:
            {code}
        return super().forward(x)

def build_stage(stage, stages):
    torch.manual_seed(stage)
    module = Stage(4, 4)
    module.number = stage
    return module

def whole_batch(microbatches):
    return torch.ones(2 * microbatches, 4), torch.ones(2 * microbatches, 4)

def loss_of(output, target):
    return (output - target).square().mean()
"""
    )
    return path


@needs_torch
def test_a_model_of_the_users(cli, files, output, tmp_path) -> None:
    path = model(tmp_path, "pass")
    outcome = cli("run", *files, "-o", output, "--model", path, "--verify", "--steps", "1")
    assert outcome.code == 0, outcome.err
    said = " ".join(outcome.out.split())
    assert "of 7 losses and gradients" in said
    assert "Makespan predicted" in said  # with the times of the model's costs


@needs_torch
@pytest.mark.parametrize(
    ("code", "words"),
    [
        # 3 warm-up forwards, 1 to find out shapes, then the second of the first measured step
        (
            "self.calls == 6 and os.kill(os.getpid(), signal.SIGKILL)",
            ("rank 1 failed (in 1F1, its action", "killed by SIGKILL"),
        ),
        (
            "if self.calls == 6: x = x / 0",
            ("the loss of microbatch 1 is nan in step 1 (warm-up steps counted)",),
        ),
    ],
    ids=["killed", "nan"],
)
def test_runs_that_go_wrong_end_soon_and_say_who(cli, files, output, tmp_path, code, words) -> None:
    path = model(tmp_path, code)
    options = ["--model", path, "--steps", "warm_up=1", "--steps", "timeout=3600"]
    outcome = cli("run", *files, "-o", output, *options)
    assert outcome.code == 1
    for word in words:
        assert word in outcome.err
    assert not output.exists()


@needs_torch
def test_a_shape_that_changes_is_refused(cli, files, output, tmp_path) -> None:
    path = model(tmp_path, "pass")
    path.write_text(
        path.read_text().replace(
            "return super().forward(x)", "return super().forward(x)[: 1 if self.calls == 6 else 2]"
        )
    )
    outcome = cli("run", *files, "-o", output, "--model", path, "--steps", "warm_up=1")
    assert outcome.code == 2
    assert "returns shapes [(1, 4)] for microbatch 1, expected [(2, 4)]" in outcome.err


@needs_torch
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be imported: FileNotFoundError"),
        ("import nothing_of_this_name", "cannot be imported: ModuleNotFoundError"),
        ("def build_stage(stage, stages): ...", "it has no function whole_batch"),
    ],
)
def test_models_that_cannot_be_taken(tmp_path, content, message) -> None:
    from pipesat.measure.processes.models import load_model

    if content is not None:
        (tmp_path / "mine.py").write_text(content)
    with pytest.raises(BadInput, match=message):
        load_model(Job("0F0,0B0\n", 1, 0, module="mine.py", folder=str(tmp_path)))


# torchrun


def torchrun(*arguments: object, module: str = "pipesat") -> subprocess.CompletedProcess[str]:
    loopback = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            "2",
            "--standalone",
            "-m",
            module,
            "run",
            *map(str, arguments),
        ],
        check=False,
        cwd=ROOT,
        env=dict(os.environ) | {"OMP_NUM_THREADS": "1"} | loopback,
        capture_output=True,
        text=True,
        timeout=600,
    )


@needs_torch
def test_on_cuda_as_far_as_a_stand_in_goes(files, output) -> None:
    """Events, counters and moves to the device; kernels and NCCL are not tried by it."""
    from tests.support.cuda import NAME

    options = ["--device", "cuda", "--steps", "2", "--verify", "--measure", "memory"]
    options += ["--shape", "dtype=bfloat16"]
    done = torchrun(*files, "-o", output, *options, module="tests.support.cuda")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "check passed: largest relative error 0.0e+00" in said
    assert said.count("Toy model ") == 1  # rank 0 alone speaks
    timeline = read_timeline(output, parse_problem(json.loads(files[0].read_text())))
    assert timeline.environment["ranks"] == "2 under torchrun, nccl"
    assert timeline.environment["device"] == NAME
    assert timeline.clock_error == 0  # one machine, one clock
    for step in timeline.steps:
        for row in step.devices:
            assert row.transfers == ()  # events around calls that enqueue say nothing
            assert all(a.end <= b.start for a, b in pairwise(row.ops))
            assert all(ran.end > ran.start for ran in row.ops)
    assert len(re.findall(r"^device \d +0 +[0-9]+$", done.stdout, re.MULTILINE)) == 2  # peaks


@needs_torch
def test_a_rank_of_torchrun_that_dies(files, output, tmp_path) -> None:
    path = model(tmp_path, "self.calls == 6 and os._exit(7)")
    done = torchrun(*files, "-o", output, "--model", path, "--steps", "warm_up=1")
    assert done.returncode != 0
    _, _, cause = done.stderr.partition("Root Cause")
    assert "rank      : 1" in cause
    assert "exitcode  : 7" in cause
    assert not output.exists()


# torch's profiler


TRACED = """
import torch
from torch.profiler import ProfilerActivity, profile
from pipesat.measure.processes.launch import load_torch_api
from pipesat.measure.processes.connection import connected, local_rank, offsets
from pipesat.measure.processes.job import Shape
from pipesat.measure.processes.models import transformer
api, model, cpu = load_torch_api(), transformer(Shape(), 2), torch.device("cpu")
with connected(60, **local_rank(folder, rank, 2)):
    stage = api.stage(model.build_stage(rank, 2), rank, 2, cpu)
    runtime = api.runtime([stage], 3, loss_fn=model.loss_of, scale_grads=False)
    runtime._load_csv("order.csv")
    inputs, targets = model.whole_batch(3)
    step = [*([] if rank else [inputs])], {"target": targets if rank else None}
    runtime.step(*step[0], **step[1])
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        runtime.step(*step[0], **step[1])
        runtime.step(*step[0], **step[1])
    profiler.export_chrome_trace(f"trace{rank}.json")
    offset, error = offsets(rank, 2, "cpu", ask=True)
    assert abs(offset) <= error and bool(error) == bool(rank)  # the clock is one
"""


@needs_torch
def test_traces_of_torchs_profiler_can_be_imported(cli, files, output, tmp_path) -> None:
    assert cli("export", *files, "--to", "torch-csv", "-o", tmp_path / "order.csv").code == 0
    call = "tests.support.rank_code:run_code"
    calls = {f"rank {n}": Call(call, (tmp_path, f"rank = {n}\n{TRACED}")) for n in (0, 1)}
    run_processes(calls, load="pipesat.measure.processes.launch:load_torch_api", timeout=600)
    traces = [tmp_path / "trace1.json", tmp_path / "trace0.json"]  # they know their rank
    outcome = cli("timeline", "import", files[0], *traces, "-o", output)
    assert outcome.code == 0, outcome.err
    problem, rows = rows_of(files[0], output)
    assert len(rows) in (2, 4)  # the first of the two steps may take longer, and is left out then
    csv = [line.split(",") for line in (tmp_path / "order.csv").read_text().splitlines()]
    letters = {"F": "F", "B": "I", "W": "W", "BW": "B"}
    for ops, row in zip(rows, csv * (len(rows) // 2), strict=True):
        ran = [f"{r.item.stage}{letters[r.item.kind]}{r.item.microbatch}" for r in ops]
        assert ran == row
    assert compare_is_sound(problem, output)


def compare_is_sound(problem: Problem, output: Path) -> bool:
    """Whether the comparison has the makespan that was measured."""
    from pipesat.measure.timeline.against_prediction import compare

    timeline = read_timeline(output, problem)
    return compare(problem, timeline).measured == timeline.typical.makespan > 0


@needs_torch
def test_modes_run_and_copies_are_told(cli, save, tmp_path, output) -> None:
    problem = problem_with_modes("ms")
    schedule = tmp_path / "schedule.json"
    write_schedule(schedule, problem, time_order(problem, ORDER))
    options = ["--shape", "width=8", "--steps", "1,warm_up=1", "--verify", "--json"]
    outcome = cli("run", save(problem), schedule, "-o", output, *options)
    assert outcome.code == 0, outcome.err
    assert "on CPU ranks nothing is copied" in outcome.err
    assert outcome.json["check"]["passed"] is True
    timeline = read_timeline(output, problem)
    assert timeline.modes == MODES
    assert timeline.typical.order == ORDER
    assert all(row.copies == () for row in timeline.typical.devices)
