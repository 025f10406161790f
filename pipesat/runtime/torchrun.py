"""One rank of a measured run under torchrun: on one machine or several, on CPUs or GPUs."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pipesat.core.errors import BadInput, RunFailed
from pipesat.runtime.answers import Answer, Check, compare_answers
from pipesat.runtime.job import FOLDER_PREFIX, actions_so_far
from pipesat.runtime.run import Measured, peaks_of, timeline_of
from pipesat.runtime.torch_api import load_torch_api

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.runtime.job import Job

_ENVIRONMENT = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")

_LINGER = 2.0  # seconds

T = TypeVar("T")


def under_torchrun(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is a rank that torchrun started."""
    return all(name in environment for name in _ENVIRONMENT)


def run_this_rank(problem: Problem, job: Job, *, timeout: float) -> Measured | None:
    """Run a job as the rank that torchrun made of this process; ``None`` on all but rank 0."""
    api = load_torch_api()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    wanted = job.order
    if len(wanted.rows) != ranks:
        raise BadInput(
            f"torchrun started {ranks} ranks, expected {len(wanted.rows)}, one per device"
        )
    if job.virtual is not None:
        raise BadInput("local ranks only: run it without torchrun", where="virtual")
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as name:
        folder = Path(name)
        try:
            return _run(api, problem, job, rank, ranks, folder, timeout)
        except (BadInput, RunFailed):
            raise
        except Exception as error:
            raise RunFailed(f"rank {rank} failed ({_whereabouts(folder)}): {error}") from error


def leave(code: int) -> NoReturn:
    """End this process without torch's own clean-up, which may wait for ranks that are gone.

    Not at once: torchrun reports the first that it sees ended as the cause, and a rank that lost
    another is not.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(_LINGER)
    os._exit(code)


def _run(
    api: Any, problem: Problem, job: Job, rank: int, ranks: int, folder: Path, timeout: float
) -> Measured | None:
    import torch
    from torch import distributed

    from pipesat.runtime.link_delays import offsets
    from pipesat.runtime.pipeline import run_in_turns

    _require_device(torch, job.device)
    if job.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    else:
        torch.set_num_threads(1)
    # no device_id: with it, NCCL runs all sends and receives of a rank one after the other
    backend = "nccl" if job.device == "cuda" else "gloo"
    distributed.init_process_group(backend, timeout=timedelta(seconds=timeout))
    clocks = _gathered(distributed, offsets(rank, ranks, job.device))
    documents, (answer,) = run_in_turns(api, [job], rank, folder)
    documents = [found[0] for found in _gathered(distributed, documents)]
    check = None if answer is None else _check(distributed, job, answer)
    distributed.barrier()
    distributed.destroy_process_group()
    if rank:
        return None
    timeline = timeline_of(
        problem,
        job,
        documents,
        offsets=[offset for offset, _ in clocks],
        clock_error=2 * max(error for _, error in clocks) / 1000,
        environment={"ranks": f"{ranks} under torchrun, {backend}"},
    )
    return Measured(timeline, check, peaks_of(problem, job, documents))


def _require_device(torch: Any, device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        raise BadInput("no GPU that torch can use is there", where="device", value=device)


def _gathered(distributed: Any, value: T) -> Sequence[T]:
    everything: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(everything, value)
    return everything


def _check(distributed: Any, job: Job, answer: Answer) -> Check | None:
    from pipesat.runtime.models import load_model
    from pipesat.runtime.pipeline import train_alone

    answers = _gathered(distributed, answer)
    if distributed.get_rank():
        return None
    return compare_answers(train_alone(load_model(job), job.order), Answer.all_of(answers))


def _whereabouts(folder: Path) -> str:
    if actions := actions_so_far(folder):
        return f"in {actions[-1]} or waiting for what follows it, action {len(actions)}"
    return "before its first action"
