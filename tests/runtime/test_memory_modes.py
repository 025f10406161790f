"""Stages that recompute and offload: equal gradients, storages that are gone, measured peaks."""

from __future__ import annotations

import importlib.util
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from pipesat.core.checker import check
from pipesat.core.errors import BadInput, RunFailed
from pipesat.core.ops import Op
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.core.timing import time_order
from pipesat.export.torch.adapt import adapt
from pipesat.export.torch.modes import ModeRow, modes_csv
from pipesat.export.torch.write import torch_csv
from pipesat.files.problem_file import parse_problem
from pipesat.files.schedule_file import write_schedule
from pipesat.heuristics import BASELINES
from pipesat.runtime.parity import check_parity
from pipesat.runtime.peaks import device_peaks

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
def test_an_offloaded_storage_is_gone_until_it_comes_back() -> None:
    import torch
    from torch.autograd.graph import saved_tensors_hooks
    from torch.multiprocessing.reductions import StorageWeakRef

    from pipesat.runtime.offload import Trip

    torch.manual_seed(0)
    weight = torch.randn(8, 8, requires_grad=True)

    def forward(x: Any) -> Any:
        hidden = (x @ weight).tanh()  # saved by tanh and by the product
        halves = hidden.chunk(2, dim=-1)  # two views of one storage
        return (halves[0] * halves[1]) @ weight[:4]

    x = torch.randn(16, 8)
    forward(x).sum().backward()
    expected, weight.grad = weight.grad, None
    trip = Trip("trip", frozenset(t.untyped_storage().data_ptr() for t in (weight, x)))
    with saved_tensors_hooks(trip.pack, trip.unpack):
        y = forward(x)
    trip.keep([y])
    refs = [StorageWeakRef(s.storage) for s in trip.stored.values()]
    assert trip.copied == 4 * (16 * 8 + 16 * 4)  # tanh's output once, and the product's input
    trip.out()
    assert all(ref.expired() for ref in refs)
    with pytest.raises(RunFailed, match="not copied back"):
        y.sum().backward(retain_graph=True)
    made: list[Any] = []
    trip.back(made.append)
    assert sum(storage.nbytes() for storage in made) == 4 * (16 * 8 + 16 * 4)
    y.sum().backward()
    assert torch.equal(weight.grad, expected)


@needs_torch
def test_what_is_not_in_the_hosts_memory_is_not_offloaded() -> None:
    import torch

    from pipesat.runtime.offload import Trip

    trip = Trip("stage 0, microbatch 1", frozenset())
    trip.pack(torch.empty(3, device="meta"))  # profiles measure how much would be copied
    assert trip.copied == 12
    with pytest.raises(BadInput, match="untested on a GPU, and a saved tensor is on meta"):
        trip.out()


@needs_torch
def test_members_of_an_overlapped_cell_start_and_end_together() -> None:
    from pipesat.runtime.memory_modes import MemoryModes

    row = ModeRow(0, 7, "offload", 0, "0F2", 0, "", ("0F2",))  # its copies never start here
    modes = MemoryModes([row], await_input=(asked := []).append)
    modes.stages[0] = None
    modes._begin_step([])
    assert modes.channels is not None
    modes.channels.note("0O7")  # else 0F2 would wait for it
    with modes.running_cell("(0F2;0B0)OVERLAP_F_B"):
        for member in ("0F2", "0B0"):
            with modes.running(member):
                assert modes.channels.happened == {"0O7", ">0F2", ">0B0"}
    assert modes.channels.happened == {"0O7", ">0F2", ">0B0", "0F2", "0B0"}
    assert asked == ["(0F2;0B0)OVERLAP_F_B"]


@needs_torch
def test_live_storages_are_counted_once_and_while_they_live() -> None:
    import torch

    from pipesat.runtime.live_storages import LiveStorages

    kept = torch.ones(1000)
    meter = LiveStorages()
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


def test_copies_of_a_channel_run_in_turn_and_failures_reach_the_ops() -> None:
    pytest.importorskip("torch")
    from pipesat.runtime.copy_channels import ChannelCopy, CopyChannels

    ran: list[str] = []

    def copy(name: str, *after: str) -> ChannelCopy:
        return ChannelCopy(name, after, lambda: ran.append(name))

    channels = CopyChannels([[copy("0O0", "0F0"), copy("0O1"), copy("0L0", ">0F1")]])
    channels.note(">0F1")
    assert not ran  # the first still waits for its forward
    channels.note("0F0")
    channels.await_all(["0L0"], "0B0")
    assert ran == ["0O0", "0O1", "0L0"]
    channels.finish()
    assert not any(thread.is_alive() for thread in channels.threads)

    def fails() -> None:
        raise OSError("disk full")

    broken = CopyChannels([[ChannelCopy("0O0", (), fails)]])
    with pytest.raises(RunFailed, match="0F1: a copy failed: disk full"):
        broken.await_all(["0O0"], "0F1")
    assert threading.active_count() >= 1


def test_peaks_are_held_against_what_was_predicted() -> None:
    problem = with_modes(2, 1, 2, memory=20)
    unknown = device_peaks(problem, [10, 20], [100, 200])
    assert [peak.error for peak in unknown] == [None, None]  # the problem names no unit
    assert [peak.fits for peak in unknown] == [None, None]
    document = dict(problem.document) | {"memory_unit": "KiB"}
    peaks = device_peaks(parse_problem(document), [10, 20], [10240, 21504])
    assert [peak.in_units for peak in peaks] == [10, 21]
    assert [peak.error for peak in peaks] == [0, pytest.approx(0.05)]
    assert [peak.fits for peak in peaks] == [True, False]


# In torch's runtime


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize(("p", "m", "channels"), [(2, 4, 2), (4, 6, 1)])
def test_mixed_modes_train_like_one_process(p: int, m: int, channels: int) -> None:
    problem = with_modes(p, m, channels)
    adapted = [adapt(problem, mixed(problem, split=split)) for split in (False, True)]
    orders = [torch_csv(a.problem, a.schedule) for a in adapted]
    modes = [modes_csv(a.problem, a.schedule) for a in adapted]
    assert all("recompute" in text and "offload" in text for text in modes)
    for report in check_parity(orders, modes=modes, timeout=TIMEOUT):
        assert report.passed, report.check
        assert report.check.worst.relative_error == 0


@needs_torch
@pytest.mark.slow
def test_modes_lower_the_measured_peak(tmp_path: Path, cli: Any) -> None:
    """GPipe: every microbatch is in flight at once, so that modes save much of the memory.

    However late the copies are, the schedule holds at most 22 and 31 of 40 KiB on its devices.
    """
    document = dict(with_modes(2, 4, 2).document) | {"memory_unit": "KiB"}
    problem = parse_problem(document)
    path, file = tmp_path / "problem.json", tmp_path / "schedule.json"
    path.write_text(json.dumps(document))
    rows = tuple(
        tuple(op._replace(mode=1 + op.microbatch % 2) for op in row)
        for row in BASELINES["gpipe"](problem).order
    )
    write_schedule(file, problem, time_order(problem, rows))
    shape = ["--shape", "width=32,length=64,blocks=2", "--steps", 1, "--warm-up", 1]
    peaks, listed, timeline = [], [], tmp_path / "t.json"
    for more in ([], ["--without-modes"]):
        ran = cli("run", path, file, "-o", timeline, "--measure-memory", "--json", *shape, *more)
        assert ran.code == 0, ran.err
        listed.append(len(json.loads(timeline.read_text()).get("modes", ())))
        peaks.append([device["measured_bytes"] for device in ran.json["memory"]])
    for few, all_kept in zip(*peaks, strict=True):
        assert few < 0.9 * all_kept  # at most 31/40, and what torch holds besides
    assert listed == [8, 0]  # the last run kept everything
