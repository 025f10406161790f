"""Bounds with pairs as they are without some of their rows, to see what these raise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from pipesat.bounds import paired, paired_memory
from pipesat.bounds.paired_device import Runs
from pipesat.bounds.paired_memory import Around, least_end_in_memory
from pipesat.bounds.paired_waiting import Course
from pipesat.problem.problem import Problem


@contextmanager
def without_waiting() -> Iterator[None]:
    """Nothing is known of what microbatches wait on their way."""

    def least(
        problem: Problem,
        devices: Sequence[Around],
        _: Course | None,
        *runs: Sequence[Sequence[Runs]],
    ) -> int:
        return least_end_in_memory(problem, devices, None, *runs)

    with patch.object(paired, "least_end_in_memory", least):
        yield


@contextmanager
def without_whole_microbatches() -> Iterator[None]:
    """Memory may be filled to the last unit, by parts of microbatches too."""
    with (
        patch.object(paired_memory, "in_whole_microbatches", lambda *_: ()),
        patch.object(paired, "with_slacks_in_use", lambda same: same),
    ):
        yield
