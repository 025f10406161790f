"""One rank's stages in torch's pipeline runtime, measured step by step; all in one process."""

from __future__ import annotations

import gc
import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeAlias

import torch
from torch import distributed

from pipesat.core.errors import BadInput, RunFailed
from pipesat.measure.processes.answers import Answer, Check, compare_answers
from pipesat.measure.processes.connection import connected, gathered, local_rank, offsets
from pipesat.measure.processes.job import Job, TorchOrder
from pipesat.measure.processes.launch import TorchApi, load_torch_api, progress_file
from pipesat.measure.processes.memory_modes import MemoryModes
from pipesat.measure.processes.meters import HostClock, clock_and_meter
from pipesat.measure.processes.models import TrainedModel, load_model

Around: TypeAlias = Callable[[str], AbstractContextManager[Any]]
"""Called with an action in torch's letters (``0F3``); entered before it is computed."""


def reporting(base: Any, around: Around) -> Any:
    """Derive a stage class whose every action is computed inside ``around(action)``.

    torch has waited for the action's input by then. The loss of the last stage's forward, and
    handing over to a stage on the same rank, come after it.
    """

    class ReportingStage(base):
        def forward_one_chunk(self, chunk: int, *args: Any, **kwargs: Any) -> Any:
            with around(f"{self.stage_index}F{chunk}"):
                output = super().forward_one_chunk(chunk, *args, **kwargs)
                self.shapes = _same_shapes(self, chunk, output)
            return output

        def backward_one_chunk(self, chunk: int, *args: Any, **kwargs: Any) -> Any:
            letter = "B" if kwargs.get("full_backward", True) else "I"
            with around(f"{self.stage_index}{letter}{chunk}"):
                return super().backward_one_chunk(chunk, *args, **kwargs)

        def backward_weight_one_chunk(self, chunk: int, *args: Any, **kwargs: Any) -> Any:
            with around(f"{self.stage_index}W{chunk}"):
                return super().backward_weight_one_chunk(chunk, *args, **kwargs)

    return ReportingStage


def _same_shapes(stage: Any, microbatch: int, output: Any) -> list[Any]:
    """Return the output's shapes if they are those of the outputs before.

    torch receives into buffers that were made for the first microbatch, and would fill a part of
    one without a word.
    """
    tensors = output if isinstance(output, tuple | list) else [output]
    shapes = [tuple(getattr(tensor, "shape", ())) for tensor in tensors]
    expected: list[Any] = getattr(stage, "shapes", shapes)
    if shapes != expected:
        raise BadInput(
            f"stage {stage.stage_index} returns shapes {shapes} for microbatch {microbatch}, "
            f"expected {expected} as before: all microbatches need the same"
        )
    return shapes


_PREFIX = "PP:"


class Recorder:
    """The actions of one rank in one step after the other.

    With ``counts_cores``, also how long their thread was on a core: torch computes on the CPU,
    backwards included, in the thread that asks for it.
    """

    def __init__(self, clock: HostClock, *, counts_cores: bool) -> None:
        self.clock = clock
        self.counts_cores = counts_cores
        self.restart()

    def restart(self) -> None:
        """Forget what was recorded and begin a step."""
        self.clock.begin()
        self.ops: list[list[Any]] = []  # action, waiting since, start, end
        self.on_core: list[int | None] = []  # per op, ns of its thread
        self.transfers: list[tuple[str, Any, Any]] = []
        self.waiting_since: Any = None
        self.running = False

    def begin(self, action: str) -> None:
        """Note that an action's input is there and it is about to be computed."""
        now = self.clock.mark()
        if self.running:  # the member before it of an overlapped cell
            self._end(now)
        self.ops.append([action, self.waiting_since, now, None])
        self.running = True
        self.core_time = time.thread_time_ns()

    def _end(self, now: Any) -> None:
        self.ops[-1][3] = now
        self.on_core.append(time.thread_time_ns() - self.core_time if self.counts_cores else None)
        self.waiting_since, self.running = now, False

    def range(self, name: str) -> AbstractContextManager[Any]:
        """Stand in for torch's ``record_function``."""
        return self._action(name) if name.startswith(_PREFIX) else nullcontext()

    @contextmanager
    def _action(self, name: str) -> Iterator[None]:
        entered = self.waiting_since = self.clock.mark()
        yield
        now = self.clock.mark()
        if self.running:
            self._end(now)
        elif self.clock.calls_block and ("SEND" in name or "RECV" in name):
            self.transfers.append((name.removeprefix(_PREFIX), entered, now))

    def document(self) -> dict[str, list[list[Any]]]:
        """Return what ran, in ns.

        ``ops`` as ``[op, since, start, end, on a core]``, ``transfers`` as ``[name, start, end]``.
        """
        at = self.clock.nanoseconds
        return {
            "ops": [
                [name, *map(at, stamps), core]
                for (name, *stamps), core in zip(self.ops, self.on_core, strict=True)
            ],
            "transfers": [[name, at(start), at(end)] for name, start, end in self.transfers],
        }


def listen(recorder: Recorder) -> None:
    """Make torch's pipeline runtime tell a recorder of every action, in this process."""
    schedules = importlib.import_module("torch.distributed.pipelining.schedules")
    schedules.record_function = recorder.range  # type: ignore[attr-defined]


class Found(NamedTuple):
    """What all ranks together have found; rank 0 has it.

    ``documents`` are each job's by rank: what the measured steps' recorders say, torch's version,
    the device, and the peak of memory. ``checks`` are the jobs'. ``clocks`` have, per rank, what to
    add to its clock to get that of rank 0, and the largest error, in ns.
    """

    documents: Sequence[Sequence[Mapping[str, Any]]]
    checks: Sequence[Check | None]
    clocks: Sequence[tuple[int, int]]


def run_local_rank(folder: Path, rank: int, jobs: Sequence[Job], timeout: float) -> Found | None:
    """Run jobs as a local rank."""
    with connected(timeout, **local_rank(folder, rank, len(jobs[0].order.rows))):
        return run_jobs(load_torch_api(), jobs, rank, folder)


def run_jobs(api: TorchApi, jobs: Sequence[Job], rank: int, folder: Path) -> Found | None:
    """Run jobs one after the other; the process is connected to the other ranks already."""
    clocks = gathered(offsets(rank, distributed.get_world_size(), jobs[0].device))
    ours = [_RankJob(api, job, number, rank, folder) for number, job in enumerate(jobs)]
    for one in ours:
        for step in range(one.job.warm_up + one.job.steps):
            one.run(step)
    documents = gathered([one.document() for one in ours])
    checks = [one.check() for one in ours]
    if rank:
        return None
    return Found([*zip(*documents, strict=True)], checks, clocks)


class _RankJob:
    """A job on one rank: its stages with their batch, in the order of a CSV file.

    The loss scales gradients, not the runtime, which would scale old ones or a shared weight's
    twice.
    """

    def __init__(
        self,
        api: TorchApi,
        job: Job,
        number: int,
        rank: int,
        folder: Path,
    ) -> None:
        wanted = job.order
        self.job, self.wanted, self.on = job, wanted, torch.device(job.device)
        clock, self.meter = clock_and_meter(job.device)
        self.recorder = Recorder(clock, counts_cores=job.device == "cpu")
        self.model: TrainedModel = load_model(job)
        self.progress_file = progress_file(folder, f"rank {rank}")
        self.progress: TextIO
        self.losses: list[Any] = []
        self.steps: list[Any] = []

        self.modules = {
            stage: self.model.build_stage(stage, wanted.stages).to(self.on)
            for stage in wanted.stages_on[rank]
        }
        stage_class = MemoryModes(wanted.modes).stage_class(reporting(api.stage, self._around))
        stages = [
            stage_class(submodule=m, stage_index=s, num_stages=wanted.stages, device=self.on)
            for s, m in self.modules.items()
        ]
        self.runtime = api.runtime(
            stages, wanted.microbatches, loss_fn=self._loss, scale_grads=False
        )
        order = folder / f"rank {rank}.{number}.csv"
        order.write_text(job.csv)
        self.runtime._load_csv(str(order))
        inputs, targets = self.model.whole_batch(wanted.microbatches)
        self.inputs = [inputs.to(self.on)] if 0 in self.modules else []
        self.targets = targets.to(self.on) if wanted.stages - 1 in self.modules else None
        self.batch = inputs, targets

    def _loss(self, output: Any, target: Any) -> Any:
        return self.model.loss_of(output, target) / self.wanted.microbatches

    @contextmanager
    def _around(self, action: str) -> Iterator[None]:
        """Compute an action."""
        self.progress.write(f"{action}\n")
        self.recorder.begin(action)
        yield

    def run(self, step: int) -> None:
        """Run a training step, and keep it if it is measured."""
        self.losses = self._step()
        for microbatch, loss in enumerate(self.losses):
            if not bool(torch.isfinite(loss).all()):
                raise RunFailed(
                    f"the loss of microbatch {microbatch} is {float(loss)} in step {step} "
                    "(warm-up steps counted)"
                )
        if step >= self.job.warm_up:
            self.steps.append(self.recorder.document())

    def _step(self, *, metered: bool = False) -> list[Any]:
        """Run one step; return the losses of the microbatches on the last stage's rank.

        Garbage is collected before it, as careful training loops do; gradients are set to zero and
        their memory stays.
        """
        losses: list[Any] = []
        listen(self.recorder)
        gc.collect()
        gc.disable()
        with self.progress_file.open("w", buffering=1) as self.progress:
            for module in self.modules.values():
                module.zero_grad(set_to_none=False)
            if metered:
                self.meter.start()
            distributed.barrier()
            self.recorder.restart()
            with self.meter.computing():  # buffers of receives are made between ops
                self.runtime.step(
                    *self.inputs, target=self.targets, losses=losses, return_outputs=False
                )
        gc.enable()
        return [loss.detach() * self.wanted.microbatches for loss in losses]

    def check(self) -> Check | None:
        """Compare losses and gradients of all ranks with one process: on rank 0, if asked for."""
        if not self.job.check or not (answers := gathered(self.answer)):
            return None
        alone = train_alone(self.model, self.wanted, self.batch, self.on)
        return compare_answers(alone, Answer.all_of(answers))

    def document(self) -> dict[str, Any]:
        """Return what was measured; a peak in one more step."""
        if self.job.check:
            self.answer = Answer.of(dict(enumerate(self.losses)), self.modules)
        if self.job.memory:
            self._step(metered=True)
            self.meter.stop()
        cuda = self.job.device == "cuda"
        return {
            "steps": self.steps,
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name() if cuda else "cpu",
            "peak": self.meter.peak if self.job.memory else None,
        }


_COARSE = 2  # bytes of a number: sums of them depend on their order where one can see it


def train_alone(
    model: TrainedModel, wanted: TorchOrder, batch: Sequence[Any], on: torch.device
) -> Answer:
    """Return the loss of every microbatch, and each parameter's gradient of their mean.

    On the run's own device: another one's kernels round differently, and a CPU takes minutes for
    what a GPU does in a second.
    Gradients of 16 bits are added in the order in which the run adds those of their stage, if need
    be in one pass per order: what is left of a difference is then a fault and not a rounding.
    """
    modules = {s: model.build_stage(s, wanted.stages).to(on) for s in range(wanted.stages)}
    batch = [tensor.to(on) for tensor in batch]
    turns = dict.fromkeys(modules, tuple(range(wanted.microbatches)))
    if any(p.element_size() <= _COARSE for m in modules.values() for p in m.parameters()):
        turns = dict(enumerate(wanted.weight_turns))
    answers = []
    for turn in dict.fromkeys(turns.values()):
        losses = _pass(model, [*modules.values()], batch, turn)
        answers.append(Answer.of(losses, {s: m for s, m in modules.items() if turns[s] == turn}))
    return Answer.all_of(answers)


def _pass(
    model: TrainedModel, modules: Sequence[Any], batch: Sequence[Any], turn: tuple[int, ...]
) -> dict[int, Any]:
    """Train all microbatches in turn, from no gradients on; return their losses."""
    for module in modules:
        module.zero_grad()  # new ones: answers still have the old
    inputs, targets = (tensor.tensor_split(len(turn)) for tensor in batch)
    losses = {}
    for number in turn:
        x = inputs[number]
        for module in modules:
            x = module(x)
        loss = model.loss_of(x, targets[number])
        (loss / len(turn)).backward()
        losses[number] = loss.detach()
    return dict(sorted(losses.items()))
