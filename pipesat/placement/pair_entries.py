"""Entries of ``overlap.pairs`` for all stages alike: one time, or factor, for two kinds of ops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

from pipesat.core.ops import Kind

TimeOrFactor: TypeAlias = int | tuple[int, int]


def pair_entries(
    homes: Sequence[int], times: Mapping[tuple[Kind, Kind], TimeOrFactor]
) -> Iterator[dict[str, Any]]:
    """Yield an entry for every two stages of one device, a stage with itself included.

    ``homes`` has the device of every stage, ``times`` the time of two kinds together, or a factor.
    """
    for (kind, other_kind), said in times.items():
        time = {"time": said} if isinstance(said, int) else {"factor": [*said]}
        for stage, other in product(range(len(homes)), repeat=2):
            if homes[stage] == homes[other] and (kind != other_kind or stage <= other):
                yield {"ops": [f"{stage}{kind}", f"{other}{other_kind}"]} | time
