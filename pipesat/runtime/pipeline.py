"""One rank's stages in torch's pipeline runtime, measured step by step; all in one process."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import distributed

from pipesat.core.errors import RunFailed
from pipesat.runtime.answers import Answer
from pipesat.runtime.job import (
    REFERENCE,
    Job,
    TorchOrder,
    answer_file,
    measured_file,
    progress_file,
    rank_name,
    read_jobs,
)
from pipesat.runtime.memory_modes import MemoryModes
from pipesat.runtime.meters import CudaClock, CudaMeter, HostClock, HostMeter
from pipesat.runtime.models import TrainedModel, load_model
from pipesat.runtime.op_recorder import (
    Recorder,
    has_overlapped_cells,
    listen,
    register_overlap,
    reporting,
)
from pipesat.runtime.torch_api import TorchApi, load_torch_api
from pipesat.runtime.virtual import VirtualDevice


@contextmanager
def connected(folder: Path, rank: int, ranks: int, timeout: float) -> Iterator[None]:
    """Connect a local rank to the others by gloo, through a file in ``folder``.

    ``timeout``, in seconds, also bounds each communication.
    """
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        store=distributed.FileStore(str(folder / "rendezvous"), ranks),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=timeout),
    )
    yield  # after a failure nothing is left to be ended in order
    distributed.destroy_process_group()


class RankPipeline:
    """The stages of one rank with their batch, ready to train in the order of a CSV file.

    The loss scales gradients, not the runtime, which would scale old ones or a shared weight's
    twice. Another pipeline of the same stages may have built its ``modules`` already.
    """

    def __init__(
        self,
        api: TorchApi,
        wanted: TorchOrder,
        rank: int,
        order: Path,
        model: TrainedModel,
        stage_class: Any,
        device: str = "cpu",
        around_loss: Callable[[], AbstractContextManager[Any]] = nullcontext,
        modules: Mapping[int, Any] | None = None,
    ) -> None:
        self.wanted = wanted
        on = torch.device(device)
        self.modules = modules or {
            stage: model.build_stage(stage, wanted.stages).to(on)
            for stage in wanted.stages_on[rank]
        }
        stages = [
            stage_class(submodule=m, stage_index=s, num_stages=wanted.stages, device=on)
            for s, m in self.modules.items()
        ]

        def loss_of(output: Any, target: Any) -> Any:
            with around_loss():
                return model.loss_of(output, target) / wanted.microbatches

        self.runtime = api.runtime(stages, wanted.microbatches, loss_fn=loss_of, scale_grads=False)
        self.runtime._load_csv(str(order))
        inputs, targets = model.whole_batch(wanted.microbatches)
        self.inputs = [inputs.to(on)] if 0 in self.modules else []
        self.targets = targets.to(on) if wanted.stages - 1 in self.modules else None

    def step(self) -> list[Any]:
        """Run one training step; return the losses of the microbatches on the last stage's rank."""
        losses: list[Any] = []
        self.runtime.step(*self.inputs, target=self.targets, losses=losses, return_outputs=False)
        return [loss.detach() * self.wanted.microbatches for loss in losses]

    def forget_gradients(self) -> None:
        """Set gradients to zero; their memory stays, as in a training loop that measures well."""
        for module in self.modules.values():
            module.zero_grad(set_to_none=False)

    def answer(self, losses: list[Any]) -> Answer:
        """Return losses and the gradients of the rank's parameters."""
        return Answer.of(dict(enumerate(losses)), self.modules)


_POLL = 0.02  # seconds
_COARSE = 2  # bytes of a number: sums of them depend on their order where one can see it


def run_reference(folder: Path) -> None:
    """Write losses and gradients of every checked job's model, when no rank is disturbed by it."""
    torch.set_num_threads(1)
    jobs = read_jobs(folder)
    ranks = [measured_file(folder, rank_name(rank)) for rank in range(len(jobs[0].order.rows))]
    while not all(map(Path.exists, ranks)):
        time.sleep(_POLL)
    for number, job in enumerate(jobs):
        if job.check:
            train_alone(load_model(job), job.order).write(answer_file(folder, REFERENCE, number))


def train_alone(model: TrainedModel, wanted: TorchOrder) -> Answer:
    """Return the loss of every microbatch, and each parameter's gradient of their mean.

    Gradients of 16 bits are added in the order in which the run adds those of their stage, if need
    be in one pass per order: what is left of a difference is then a fault and not a rounding.
    """
    modules = {stage: model.build_stage(stage, wanted.stages) for stage in range(wanted.stages)}
    turns = dict.fromkeys(modules, tuple(range(wanted.microbatches)))
    if any(p.element_size() <= _COARSE for m in modules.values() for p in m.parameters()):
        turns = dict(enumerate(wanted.weight_turns))
    answers = []
    for turn in dict.fromkeys(turns.values()):
        losses = _pass(model, list(modules.values()), turn)
        answers.append(Answer.of(losses, {s: m for s, m in modules.items() if turns[s] == turn}))
    return Answer.all_of(answers)


def _pass(model: TrainedModel, modules: list[Any], turn: tuple[int, ...]) -> dict[int, Any]:
    """Train all microbatches in turn, from no gradients on; return their losses."""
    for module in modules:
        module.zero_grad()  # new ones: answers still have the old
    parts = [tensor.tensor_split(len(turn)) for tensor in model.whole_batch(len(turn))]
    batch = list(zip(*parts, strict=True))
    losses = {}
    for number in turn:
        x, target = batch[number]
        for module in modules:
            x = module(x)
        loss = model.loss_of(x, target)
        (loss / len(turn)).backward()
        losses[number] = loss.detach()
    return losses


def run_measured_rank(folder: Path, rank: int, timeout: float) -> None:
    """Run jobs as rank ``rank`` of local ranks and leave what was measured in files."""
    jobs = read_jobs(folder)
    with connected(folder, rank, len(jobs[0].order.rows), timeout):
        documents, answers = run_in_turns(load_torch_api(), jobs, rank, folder)
        measured_file(folder, rank_name(rank)).write_text(json.dumps(documents))
        for number, answer in enumerate(answers):
            if answer is not None:
                answer.write(answer_file(folder, rank_name(rank), number))
        distributed.barrier()  # no rank leaves while another still listens to it


def run_in_turns(
    api: TorchApi, jobs: Sequence[Job], rank: int, folder: Path
) -> tuple[list[dict[str, Any]], list[Answer | None]]:
    """Run a step of every job, then the next of every job: what disturbs one disturbs all.

    Jobs that are not checked are orders of one model on the same stages, and share its weights.
    Each is the first in its turn. Returned are, per job, what the measured steps' recorders say,
    torch's version, the device and the peak; and the answers of those that are checked.
    """
    ranks: list[MeasuredRank] = []
    for number, job in enumerate(jobs):
        modules = ranks[0].pipeline.modules if ranks and not job.check else None
        ranks.append(MeasuredRank(api, job, number, rank, folder, modules))
    for step in range(jobs[0].warm_up + jobs[0].steps):
        for turn in range(len(jobs)):
            ranks[(step + turn) % len(jobs)].run(step)
    return [one.document() for one in ranks], [one.answer for one in ranks]


class MeasuredRank:
    """A rank that is connected to the others already."""

    def __init__(
        self, api: TorchApi, job: Job, number: int, rank: int, folder: Path, modules: Any = None
    ) -> None:
        self.job, self.number, self.rank, self.folder = job, number, rank, folder
        wanted = job.order
        self.progress: TextIO | None = None
        cuda = job.device == "cuda"
        self.recorder = Recorder(
            CudaClock() if cuda else HostClock(), counts_cores=not cuda and job.virtual is None
        )
        self.virtual: VirtualDevice | None = None
        if job.virtual is not None:
            self.virtual = VirtualDevice(job.virtual, wanted, rank, folder / f"ends.{number}")
        model: TrainedModel = load_model(job)
        order = folder / f"{rank_name(rank)}.{number}.csv"
        order.write_text(wanted.csv)
        self.meter = CudaMeter() if cuda else HostMeter()
        modes = MemoryModes(wanted.modes)
        stage_class = modes.stage_class(reporting(api.stage, self._around))
        self.pipeline = RankPipeline(
            api, wanted, rank, order, model, stage_class, job.device, self.meter.computing, modules
        )
        self.within_cell = False
        if self.virtual is not None and has_overlapped_cells(job.csv):
            register_overlap(api, self.pipeline.runtime, self._around_cell)
        self.answer: Answer | None = None
        self.steps: list[Any] = []

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
    def _around_cell(self, cell: str) -> Iterator[None]:
        with self._around(cell):
            self.within_cell = True
            yield
            self.within_cell = False

    def run(self, step: int) -> None:
        """Run a step, and keep it if it is measured."""
        listen(self.recorder)
        losses = self._step(step)
        _require_finite(losses, step)
        if step >= self.job.warm_up:
            self.steps.append(self.recorder.document())
        if self.job.check and step + 1 == self.job.warm_up + self.job.steps:
            self.answer = self.pipeline.answer(losses)

    def _step(self, step: int, *, metered: bool = False) -> list[Any]:
        path = progress_file(self.folder, rank_name(self.rank), self.number, step)
        with path.open("w", buffering=1) as self.progress, _without_collector():
            self.pipeline.forget_gradients()
            if metered:
                self.meter.start()
            distributed.barrier()
            self.recorder.restart()
            return self.pipeline.step()

    def document(self) -> dict[str, Any]:
        """Return what was measured; a peak in one more step."""
        if self.job.memory:
            listen(self.recorder)
            self._step(self.job.warm_up + self.job.steps, metered=True)
            self.meter.stop()
        return {
            "steps": self.steps,
            "torch": torch.__version__,
            "device": _device(self.job.device),
            "peak": self.meter.peak if self.job.memory else None,
        }


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
