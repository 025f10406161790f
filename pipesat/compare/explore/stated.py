"""A pipeline as the page states it: plain numbers, layers, or a problem file, and settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pipesat.compare.model_costs import SIZES, given
from pipesat.core.amounts import rate
from pipesat.core.arguments import public
from pipesat.core.errors import BadInput, require
from pipesat.core.settings import Amount, Chunks, Devices, OneRoutePlacement
from pipesat.core.strict_json import read_json
from pipesat.layers.devices import smallest_largest
from pipesat.layers.from_profile import layers_of_document
from pipesat.layers.layer import Layers
from pipesat.layers.pipeline import Pipeline, link_delay
from pipesat.layers.profile.profile_file import Profile
from pipesat.layers.stages import problem_with_recompute
from pipesat.problem.building import Backward, make
from pipesat.problem.problem import FORMAT, Problem

MOST_OPS_ON_THE_PAGE: Final = 50_000
"""Of a problem on the page: all hand-written schedules are then there within seconds."""
NUMBERS: Final[dict[str, Any]] = {
    "placement": "chain",
    "chunks": None,
    "devices": 8,
    "microbatches": 32,
    "layers": 32,
    "F": 10,
    "B": 11,
    "W": 8,
    "held_after_F": 300,
    "held_after_B": 120,
    "comm": 1,
    "memory": "1f1b",
    "backward": "either",
    "time_unit": "ms",
    "memory_unit": "MiB",
}
"""What the page begins with: costs are of one layer, and all layers are alike."""
_LAYERS: Final[dict[str, Any]] = {
    "placement": "chain",
    "chunks": None,
    "devices": 8,
    "microbatches": 32,
    "comm": 0,
    "bandwidth": None,
    "memory": None,
    "backward": "either",
}
_SETTINGS: Final = {
    "": {*NUMBERS},
    "pipesat.layers/1": {*_LAYERS},
    FORMAT: {"microbatches", "memory"},
}
"""What can be set, by the format of the base."""


def stated_by(
    source: Problem | Layers | Profile | str | Path | None, gpu: str | None
) -> dict[str, Any]:
    """Return what the page begins with: ``base`` is a document, or ``None`` for plain numbers."""
    if source is None:
        return {"base": None, "settings": dict(NUMBERS)}
    if isinstance(source, Problem):
        return {"base": source.document, "settings": {}}
    if isinstance(source, str | Path) and gpu is None and Path(source).is_file():
        document = read_json(Path(source))
        if isinstance(document, dict) and document.get("format") == FORMAT:
            return {"base": document, "settings": {}}
    known = given(source, gpu, SIZES)
    told = {"devices": min(8, len(known.layers)), "memory": known.memory}
    settings = _LAYERS | told | {"bandwidth": known.bandwidth and str(known.bandwidth)}
    return {"base": known.layers.document(), "settings": settings}


def problem_of(stated: Mapping[str, Any]) -> Problem:
    """Return the problem that the page states.

    Raises
    ------
    BadInput
        Naming the setting or the value of the document, or if there are too many ops.
    """
    base: Any = stated.get("base")
    said = stated.get("settings")
    kind = "" if base is None else str(base.get("format") if isinstance(base, dict) else base)
    if kind not in _SETTINGS or not isinstance(said, dict) or said.keys() - _SETTINGS[kind]:
        raise BadInput(
            f"expected plain numbers, a problem or layers, and settings of {', '.join(NUMBERS)}",
            where="format",
            value=kind,
        )
    if not kind:
        found = make(**{**NUMBERS, **said})
    elif kind != FORMAT:
        found = _cut(layers_of_document(base, Path("layers")), **{**_LAYERS, **said})
    else:
        found = Problem.from_document(base)
        for key, value in said.items():
            found = getattr(found, f"with_{key}")(value)
    require(
        found.op_count <= MOST_OPS_ON_THE_PAGE,
        f"{found.op_count:,} ops, expected at most {MOST_OPS_ON_THE_PAGE:,}",
        where="microbatches",
    )
    return found


@public
def _cut(
    layers: Layers,
    *,
    placement: OneRoutePlacement,
    chunks: Chunks | None,
    devices: Devices,
    microbatches: Devices,
    comm: Amount,
    bandwidth: str | None,
    memory: int | str | None,
    backward: Backward,
) -> Problem:
    """Cut layers so that the busiest device has least to do, whatever memory there is."""
    delay = link_delay(comm, None if bandwidth is None else rate("bandwidth", bandwidth))
    pipeline = Pipeline(
        devices=devices,
        microbatches=microbatches,
        placement=placement,
        chunks=chunks or 2,
        delay=delay,
        backward=backward,
    )
    partition = smallest_largest(layers, pipeline).partition
    return problem_with_recompute(layers, partition, pipeline).with_memory(memory)
