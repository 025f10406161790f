"""How to measure, as the command line and Python callers say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Device: TypeAlias = Literal["cpu", "cuda"]


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """How to measure.

    Attributes
    ----------
    samples, warmup
        Microbatches that count, and those before them that do not.
    threads
        Threads of the CPU's ops; ``None``: as they are.
    stages, splits
        Numbers of stages whose stages are measured as a whole too, and how layers are cut.
    checkpoint
        Whether layers between the first and the last are checkpointed.
    modes
        Whether stages are measured in memory modes, too: recomputed and offloaded.
    compile
        Backend of ``torch.compile`` for these layers; empty: none.
    """

    name: str = ""
    device: Device = "cpu"
    samples: int = 10
    warmup: int = 3
    threads: int | None = None
    stages: Sequence[int] = ()
    splits: Sequence[str] = ("even",)
    checkpoint: bool = False
    compile: str = ""
    modes: bool = False
