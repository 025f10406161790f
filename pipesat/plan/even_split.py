"""The split that frameworks make unless told otherwise: equally many blocks per stage."""

from __future__ import annotations

from itertools import pairwise

from pipesat.core.errors import BadInput, said_of
from pipesat.layers.layer import Layers
from pipesat.layers.pipeline import Pipeline
from pipesat.layers.rules import check_partition
from pipesat.placement.partition import even


def even_partition(layers: Layers, shape: Pipeline) -> tuple[range, ...]:
    """Equally many blocks per stage, earlier stages get what remains.

    What stands before the first block (an embedding) is on the first stage, what follows the last
    block (MTP layers, a head) on the last. With fewer blocks than stages, all layers count.

    Raises
    ------
    BadInput
        If it breaks a flag or a tie.
    """
    stages, count = shape.stages, len(layers)
    blocks = [i for i, layer in enumerate(layers.layers) if layer.role == "block"]
    first, last = (blocks[0], blocks[-1] + 1) if blocks else (0, count)
    if last - first < stages:
        first, last = 0, count
    if count < stages:
        raise BadInput(f"{stages} stages, but only {count} layers", where="stages")
    parts = [[first + layer for layer in part] for part in even(last - first, stages)]
    cuts = [0, *(part[0] for part in parts[1:]), count]
    partition = tuple(range(a, b) for a, b in pairwise(cuts))
    with said_of("even split"):
        check_partition(layers, partition, shape.homes)
    return partition
