"""One rank's stages in torch's pipeline runtime: what parity and measured runs have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from pipesat.runtime.answers import Answer
from pipesat.runtime.models import TrainedModel
from pipesat.runtime.orders import TorchOrder
from pipesat.runtime.torch_api import TorchApi


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
