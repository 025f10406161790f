"""A pipeline as the page states it: plain numbers, layers, or a problem file, and settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pipesat.compare.model_costs import SIZES, given
from pipesat.core.amounts import rate
from pipesat.core.errors import BadInput
from pipesat.core.strict_json import read_json
from pipesat.layers.devices import smallest_largest
from pipesat.layers.from_profile import layers_of_document
from pipesat.layers.layer import Layers
from pipesat.layers.layers_file import LARGEST_FILE
from pipesat.layers.pipeline import Pipeline, link_delay
from pipesat.layers.profile.profile_file import Profile
from pipesat.layers.stages import problem_with_recompute
from pipesat.problem.making import made
from pipesat.problem.problem import Problem

MOST_OPS: Final = 50_000
"""Of a problem on the page: all hand-written schedules are then there within seconds."""
NUMBERS: Final[Mapping[str, Any]] = {
    "placement": "chain",
    "chunks": 2,
    "devices": 8,
    "microbatches": 32,
    "layers": 32,
    "F": 10,
    "B": 11,
    "W": 8,
    "held_after_F": 300,
    "held_after_B": 120,
    "comm": 1,
    "static": 0,
    "memory": "1f1b",
    "backward": "either",
    "time_unit": "ms",
    "memory_unit": "MiB",
}
"""What the page begins with: costs are of one layer, and all layers are alike."""
_OF_LAYERS: Final[Mapping[str, Any]] = {
    "placement": "chain",
    "chunks": 2,
    "devices": 8,
    "microbatches": 32,
    "memory": None,
    "bandwidth": None,
    "comm": 0,
    "backward": "either",
}
_FORMATS: Final = {"pipesat.problem/1": "problem", "pipesat.layers/1": "layers"}
_COUNTS: Final = {"devices", "microbatches", "chunks", "layers"}
_TEXTS: Final = {"placement", "backward", "bandwidth", "time_unit", "memory_unit"}


def stated_by(source: Problem | Layers | Profile | str | Path | None, gpu: str | None) -> Any:
    """Return what the page begins with: ``base`` is a document, or ``None`` for plain numbers."""
    if source is None:
        return {"base": None, "settings": dict(NUMBERS)}
    if isinstance(source, Problem):
        return {"base": source.document, "settings": {}}
    if isinstance(source, str | Path) and gpu is None and Path(source).is_file():
        document = read_json(Path(source), LARGEST_FILE)
        if isinstance(document, Mapping) and document.get("format") == "pipesat.problem/1":
            return {"base": document, "settings": {}}
    known = given(source, gpu, SIZES)
    told = {"memory": known.memory, "bandwidth": known.bandwidth and str(known.bandwidth)}
    devices = min(8, len(known.layers))
    settings = _OF_LAYERS | told | {"devices": devices, "microbatches": 4 * devices}
    return {"base": known.layers.document(), "settings": settings}


def problem_of(stated: Mapping[str, Any]) -> Problem:
    """Return the problem that the page states.

    Raises
    ------
    BadInput
        Naming the setting or the value of the document, or if there are too many ops.
    """
    base, said = stated.get("base"), stated.get("settings")
    kind = "numbers"
    if base is not None:
        named = base.get("format") if isinstance(base, Mapping) else None
        kind = _FORMATS.get(str(named), "")
        if not kind:
            raise BadInput(f"expected one of {', '.join(_FORMATS)}", where="format", value=named)
    keys = {"numbers": NUMBERS, "layers": _OF_LAYERS, "problem": ("microbatches", "memory")}[kind]
    if not isinstance(said, Mapping) or said.keys() - {*keys}:
        raise BadInput(f"expected some of {', '.join(keys)}", where="settings")
    for key, value in said.items():
        _require(key, value)
    if kind == "numbers":
        told = {**NUMBERS, **said}
        found = made(told | ({} if told["placement"] == "loop" else {"chunks": None}))
    elif kind == "layers":
        found = _cut(layers_of_document(base, Path("layers")), {**_OF_LAYERS, **said})
    else:
        found = Problem.from_document(base)
        if "microbatches" in said:
            found = found.with_microbatches(said["microbatches"])
        if "memory" in said:
            found = found.with_memory(said["memory"])
    if found.op_count > MOST_OPS:
        text = f"{found.op_count:,} ops, this page takes {MOST_OPS:,}. pipesat compare takes more"
        raise BadInput(text)
    return found


def _require(key: str, value: Any) -> None:
    """Pass if a setting is of its type; ranges are of whoever makes the problem."""
    if key == "memory":
        good, wanted = value is None or type(value) in (int, str), "an amount, a share, or null"
    elif key in _TEXTS:
        good, wanted = isinstance(value, str) or value is None, "a text"
    else:
        least = int(key in _COUNTS)
        good, wanted = type(value) is int and least <= value <= 10**12, f"from {least} to 10^12"
    if not good:
        raise BadInput(f"expected {wanted}", where=key, value=value)


def _cut(layers: Layers, said: Mapping[str, Any]) -> Problem:
    """Cut layers so that the busiest device has least to do, whatever memory there is."""
    carried = None if said["bandwidth"] is None else rate("bandwidth", said["bandwidth"])
    shape = {key: said[key] for key in ("placement", "chunks", "devices", "microbatches")}
    pipeline = Pipeline(**shape, delay=link_delay(said["comm"], carried), backward=said["backward"])
    partition = smallest_largest(layers, pipeline).partition
    return problem_with_recompute(layers, partition, pipeline).with_memory(said["memory"])
