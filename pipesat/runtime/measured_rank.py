"""One rank of a measured run: the same step again and again, with the time of every op."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import distributed

from pipesat.core.errors import RunFailed
from pipesat.runtime.answers import Answer
from pipesat.runtime.job import Job, read_job
from pipesat.runtime.live_storages import CudaStepMeter, LiveStorages, StepMeter
from pipesat.runtime.memory_modes import MemoryModes
from pipesat.runtime.models import TrainedModel, load_model
from pipesat.runtime.op_recorder import CudaStamps, HostStamps, Recorder, listen
from pipesat.runtime.orders import (
    TorchOrder,
    answer_file,
    measured_file,
    order_file,
    progress_file,
    rank_name,
)
from pipesat.runtime.overlap import has_overlapped_cells, register_overlap
from pipesat.runtime.pipeline import RankPipeline, connected
from pipesat.runtime.stages import reporting
from pipesat.runtime.torch_api import TorchApi
from pipesat.runtime.waits import VirtualDevice


def run_measured_rank(api: TorchApi, folder: Path, rank: int, timeout: float) -> None:
    """Run a job as rank ``rank`` of local ranks and leave what was measured in files."""
    job = read_job(folder)
    wanted = job.order
    with connected(folder, rank, len(wanted.rows), timeout):
        measured = MeasuredRank(api, job, wanted, rank, folder)
        document = measured.run()
        measured_file(folder, rank_name(rank)).write_text(json.dumps(document))
        if measured.answer is not None:
            measured.answer.write(answer_file(folder, rank_name(rank), 0))
        distributed.barrier()  # no rank leaves while another still listens to it


class MeasuredRank:
    """A rank that is connected to the others already."""

    def __init__(
        self, api: TorchApi, job: Job, wanted: TorchOrder, rank: int, folder: Path
    ) -> None:
        self.job, self.rank, self.folder = job, rank, folder
        self.progress: TextIO | None = None
        cuda = job.device == "cuda"
        self.recorder = Recorder(
            CudaStamps() if cuda else HostStamps(), counts_cores=not cuda and job.virtual is None
        )
        self.virtual: VirtualDevice | None = None
        if job.virtual is not None:
            self.virtual = VirtualDevice(job.virtual, wanted, rank, folder)
        model: TrainedModel = load_model(job)
        order = order_file(folder, 0)
        if not order.exists():  # under torchrun every rank has a folder of its own
            order.write_text(wanted.csv)
        self.meter: StepMeter = CudaStepMeter() if cuda else LiveStorages()
        self.modes = MemoryModes(
            wanted.modes,
            self.meter.add,
            await_input=(lambda _: None) if self.virtual is None else self.virtual.await_input,
            around_copy=self._around_copy,
        )
        stage_class = self.modes.stage_class(reporting(api.stage, self._around))
        self.pipeline = RankPipeline(
            api, wanted, rank, order, model, stage_class, job.device, self.meter.computing
        )
        self.within_cell = False
        if self.virtual is not None and has_overlapped_cells(job.csv):
            register_overlap(api, self.pipeline.runtime, self._around_cell)
        self.answer: Answer | None = None

    @contextmanager
    def _around(self, action: str) -> Iterator[None]:
        if self.within_cell:
            yield
            return
        if self.progress is not None:
            self.progress.write(f"{action}\n")
        if self.virtual is not None:
            self.virtual.await_input(action)
        self.recorder.begin(action)
        begin = time.monotonic()
        with self.meter.computing():
            yield
        if self.virtual is not None:
            self.virtual.compute(action, begin)

    @contextmanager
    def _around_copy(self, copy: str) -> Iterator[None]:
        begin, start = time.monotonic(), self.recorder.stamps.now()
        yield
        if self.virtual is not None:
            self.virtual.copy(copy, begin)
        self.recorder.copies.append((copy, start, self.recorder.stamps.now()))

    @contextmanager
    def _around_cell(self, cell: str) -> Iterator[None]:
        with self.modes.running_cell(cell), self._around(cell):
            self.within_cell = True
            yield
            self.within_cell = False

    def run(self) -> dict[str, Any]:
        """Run all steps.

        Returns
        -------
        What the measured steps' recorders say, and torch's version and the device.

        Raises
        ------
        RunFailed
            If a loss is not finite.
        """
        listen(self.recorder)
        steps = []
        for number in range(self.job.warm_up + self.job.steps):
            path = progress_file(self.folder, rank_name(self.rank), number)
            with path.open("w", buffering=1) as self.progress, _without_collector():
                self.pipeline.forget_gradients()
                distributed.barrier()
                self.recorder.restart()
                losses = self.pipeline.step()
            _require_finite(losses, number)
            if number >= self.job.warm_up:
                steps.append(self.recorder.document())
        if self.job.check:
            self.answer = self.pipeline.answer(losses)
        return {
            "steps": steps,
            "torch": torch.__version__,
            "device": _device(self.job.device),
            "peak": self._peak() if self.job.memory else None,
        }

    def _peak(self) -> int:
        """Run one more step and return the most bytes that are alive in it."""
        path = progress_file(self.folder, rank_name(self.rank), self.job.warm_up + self.job.steps)
        with path.open("w", buffering=1) as self.progress, _without_collector():
            self.pipeline.forget_gradients()
            self.meter.start()
            distributed.barrier()
            self.recorder.restart()
            self.pipeline.step()
            self.meter.stop()
        return self.meter.peak


def _require_finite(losses: list[Any], step: int) -> None:
    for microbatch, loss in enumerate(losses):
        if not bool(torch.isfinite(loss).all()):
            raise RunFailed(
                f"the loss of microbatch {microbatch} is {float(loss)} in step {step} "
                "(warm-up steps counted)"
            )


def _device(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else "cpu"


@contextmanager
def _without_collector() -> Iterator[None]:
    """Collect garbage now and not during a step, as careful training loops do."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
