"""Stages that recompute and offload: equal gradients, storages that are gone, measured peaks."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from pipesat.check.checker import check
from pipesat.heuristics import BASELINES
from pipesat.measure.processes.answers import device_peaks
from pipesat.measure.processes.run import check_parity
from pipesat.problem.ops import Op
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.runtimes.torch.adapt import adapt
from pipesat.runtimes.torch.companions import modes_text
from pipesat.runtimes.torch.csv_file import torch_csv
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.schedule_file import write_schedule
from pipesat.schedule.timing import time_order

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs torch: pip install 'pipesat[torch]'"
)
TIMEOUT = 240.0  # two slow cores shared with others


def with_modes(p: int, m: int, channels: int, **device: int) -> Problem:
    """A chain whose stages may recompute (mode 1) or offload (mode 2)."""
    modes = [
        {"name": "recompute", "backward": "fused", "BW": 30, "held_after_F": 1}
        | {"held_in_backward": 10},
        {"name": "offload", "offload": {"out": 8, "in": 8, "held": 1}},
    ]
    stage = {"F": 10, "B": 10, "W": 10, "held_after_F": 10, "held_after_B": 10, "modes": modes}
    return parse_problem(
        {
            "format": "pipesat.problem/1",
            "microbatches": m,
            "devices": [device | {"copy_channels": channels} for _ in range(p)],
            "stages": [stage | {"device": number} for number in range(p)],
            "comm": {"default": 1},
        }
    )


def mixed(problem: Problem, *, split: bool) -> Schedule:
    """1F1B with all three modes in turn; with ``split``, every B and W apart that may be."""
    rows: list[list[Op]] = []
    for row in BASELINES["1f1b"](problem).order:
        rows.append([])
        for op in row:
            assert isinstance(op, Op)
            op = op._replace(mode=(op.stage + op.microbatch) % 3)  # noqa: PLW2901
            apart = split and op.kind == "BW" and op.mode != 1 and op.stage > 0
            rows[-1] += [op._replace(kind="B"), op._replace(kind="W")] if apart else [op]
    schedule = time_order(problem, tuple(map(tuple, rows)))
    assert not check(problem, schedule)
    return schedule


# Without processes


@needs_torch
def test_live_storages_are_counted_once_and_while_they_live() -> None:
    import torch

    from pipesat.measure.processes.meters import HostMeter

    kept = torch.ones(1000)
    meter = HostMeter()
    meter.start()
    before = meter.at_start
    with meter.computing():
        a = kept + 1  # 4000 bytes
        b = a.view(10, 100)  # the same
        del a
        c = b * 2  # 8000
        del b, c
        d = kept * 3  # 4000: the others are gone
    del d
    meter.stop()
    assert meter.peak - before == 8000


@needs_torch
def test_what_autograd_saves_leaves_but_for_what_is_there_anyway() -> None:
    """Another host stands for the device: torch's own hooks are told to keep what they get."""
    import torch

    from pipesat.measure.processes.memory_modes import offloading, storages_of

    torch.manual_seed(0)
    layer, x = torch.nn.Linear(8, 8), torch.randn(16, 8)
    layer(x).tanh().square().sum().backward()
    expected, layer.weight.grad = layer.weight.grad, None
    away: list[Any] = []

    class Host:
        def __init__(self, *, pin_memory: bool) -> None:
            assert not pin_memory  # there is no GPU here

        def pack_hook(self, tensor: Any) -> Any:
            away.append(tensor.shape)
            return ("host", tensor.clone())

        def unpack_hook(self, packed: Any) -> Any:
            return packed[1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipesat.measure.processes.memory_modes.save_on_cpu", Host)
        with offloading([*storages_of([layer, {"x": [x]}])]):
            y = layer(x).tanh().square().sum()
    y.backward()
    assert torch.equal(layer.weight.grad, expected)
    assert away == [(16, 8), (16, 8)]  # tanh's result, for tanh and for the square


def test_peaks_are_held_against_what_was_predicted() -> None:
    problem = with_modes(2, 1, 2, memory=20)
    unknown = device_peaks(problem, [10, 20], [100, 200])
    assert [peak.error for peak in unknown] == [None, None]  # the problem names no unit
    assert [peak.fits for peak in unknown] == [None, None]
    document = dict(problem.document) | {"memory_unit": "KiB"}
    peaks = device_peaks(parse_problem(document), [10, 20], [10240, 21504])
    assert [peak.measured for peak in peaks] == [10, 21]
    assert [peak.error for peak in peaks] == [0, pytest.approx(0.05)]
    assert [peak.fits for peak in peaks] == [True, False]


# In torch's runtime


@needs_torch
@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_mixed_modes_train_like_one_process() -> None:
    problem = with_modes(4, 6, 1)
    adapted = [adapt(problem, mixed(problem, split=split)) for split in (False, True)]
    orders = [torch_csv(a.problem, a.schedule) for a in adapted]
    modes = [modes_text(a.problem, a.schedule) for a in adapted]
    assert all("recompute" in text and "offload" in text for text in modes)
    for report in check_parity(orders, modes=modes, timeout=TIMEOUT):
        assert report.passed, report.check
        assert report.check.error == 0


@needs_torch
@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_modes_lower_the_measured_peak(tmp_path: Path, cli: Any) -> None:
    """GPipe: every microbatch is in flight at once, so that modes save much of the memory.

    Half of them recompute: 1 of 10 KiB each, and 10 while it does so: 31 of 40 KiB at most.
    """
    document = dict(with_modes(2, 4, 2).document) | {"memory_unit": "KiB"}
    problem = parse_problem(document)
    path, file = tmp_path / "problem.json", tmp_path / "schedule.json"
    path.write_text(json.dumps(document))
    rows = tuple(
        tuple(op._replace(mode=op.microbatch % 2) for op in row)
        for row in BASELINES["gpipe"](problem).order
    )
    write_schedule(file, problem, time_order(problem, rows))
    shape = ["--shape", "width=32,length=64,blocks=2", "--steps", 1, "--steps", "warm_up=1"]
    peaks, listed, timeline = [], [], tmp_path / "t.json"
    for more in ([], ["--without-modes"]):
        ran = cli("run", path, file, "-o", timeline, "--measure", "memory", "--json", *shape, *more)
        assert ran.code == 0, ran.err
        listed.append(len(json.loads(timeline.read_text()).get("modes", ())))
        peaks.append([device["measured_bytes"] for device in ran.json["memory"]])
    for few, all_kept in zip(*peaks, strict=True):
        assert few < 0.9 * all_kept  # 31/40, and what torch holds besides
    assert listed == [4, 0]  # the last run kept everything
