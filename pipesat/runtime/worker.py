"""One rank of a parity run: one training step per order, its gradients written to a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import distributed

from pipesat.runtime.job import Shape
from pipesat.runtime.layered import transformer
from pipesat.runtime.memory_modes import MemoryModes
from pipesat.runtime.orders import answer_file, order_file, progress_file, rank_name, read_orders
from pipesat.runtime.pipeline import RankPipeline, connected
from pipesat.runtime.stages import Around, reporting
from pipesat.runtime.torch_api import TorchApi


def run_rank(api: TorchApi, folder: Path, rank: int, timeout: float) -> None:
    """Run every order as rank ``rank``; ``timeout`` in seconds also bounds each communication."""
    orders_wanted = list(read_orders(folder))
    with connected(folder, rank, len(orders_wanted[0].rows), timeout):
        for number, wanted in enumerate(orders_wanted):
            with writing_down(progress_file(folder, rank_name(rank), number)) as around:
                stage_class = MemoryModes(wanted.modes).stage_class(reporting(api.stage, around))
                order = order_file(folder, number)
                model = transformer(Shape(), wanted.stages)
                pipeline = RankPipeline(api, wanted, rank, order, model, stage_class)
                answer = pipeline.answer(pipeline.step())
            answer.write(answer_file(folder, rank_name(rank), number))
            distributed.barrier()  # no rank leaves while another still listens to it


@contextmanager
def writing_down(path: Path) -> Iterator[Around]:
    """Write every action to a file as it starts, one a line, at once."""
    with path.open("w", buffering=1) as progress:

        @contextmanager
        def around(action: str) -> Iterator[None]:
            print(action, file=progress)
            yield

        yield around
