"""Entries of ``overlap.pairs`` for all stages alike: one time for two kinds of ops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from pipesat.core.ops import Kind


def pair_entries(
    homes: Sequence[int], times: Mapping[tuple[Kind, Kind], int]
) -> Iterator[dict[str, Any]]:
    """Yield an entry for every two stages of one device, a stage with itself included.

    ``homes`` has the device of every stage, ``times`` the time of two kinds together.
    """
    for (kind, other_kind), time in times.items():
        for stage, other in product(range(len(homes)), repeat=2):
            if homes[stage] == homes[other] and (kind != other_kind or stage <= other):
                yield {"ops": [f"{stage}{kind}", f"{other}{other_kind}"], "time": time}
