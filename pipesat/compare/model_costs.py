"""The costs of a model: layers from a file, a profile, or a published model."""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NamedTuple

from pipesat.compare.from_profile import estimate_layers
from pipesat.core.errors import require
from pipesat.core.progress import doing
from pipesat.core.strict_json import read_json
from pipesat.layers.from_profile import layers_of_document, layers_of_profile
from pipesat.layers.layer import Layers
from pipesat.layers.profile.profile_file import Profile
from pipesat.layers.profile.published import GPUS, SHAPES, named_gpu, named_shape
from pipesat.layers.roofline import LIKELY

_MODULE: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
SIZES: Final[Mapping[str, Any]] = {
    "shape": None,
    "length": None,
    "batch": 1,
    "tensor_parallel": 1,
}
"""In which microbatches a published model runs, unless that is given."""


class Given(NamedTuple):
    """Layers, and what is known of the machine and the microbatches besides.

    ``memory`` is in MiB. ``within``: ``bandwidth`` is that of links within a machine.
    """

    layers: Layers
    memory: int | None = None
    bandwidth: Fraction | None = None
    tokens: int | None = None
    within: bool = False


@doing("reading costs")
def given(model: Layers | Profile | str | Path, gpu: str | None, sizes: Mapping[str, Any]) -> Given:
    """Return the layers that are meant."""
    if isinstance(model, Layers):
        return Given(model)
    if isinstance(model, Profile):
        return Given(layers_of_profile(model))
    if gpu is not None:
        require(
            not os.path.exists(model),
            "a file has its costs: expected the name of a published model",
            where="gpu",
            value=gpu,
        )
        return _estimated(str(model), gpu, sizes)
    for name, unset in SIZES.items():
        require(
            sizes[name] == unset,
            "only a published model with its GPU is estimated",
            where=name,
            value=sizes[name],
        )
    return _of_file(model)


def _of_file(path: str | Path) -> Given:
    if not os.path.exists(path):
        require(
            str(path) not in SHAPES,
            f"a published model needs a GPU to estimate its costs for: one of {', '.join(GPUS)}",
            where="gpu",
        )
        require(
            not _MODULE.fullmatch(str(path)),
            f"a model is measured first: pipesat profile --model {path} -o profile.json, then "
            "pipesat advise profile.json",
            where="model",
            value=str(path),
        )
    document = read_json(Path(path))
    kind = document.get("format") if isinstance(document, dict) else None
    require(
        kind != "pipesat.problem/1",
        "a problem is cut already: pipesat compare answers for it, advise takes layers",
        source=str(path),
    )
    return Given(layers_of_document(document, Path(path)))


def _estimated(model: str, gpu: str, sizes: Mapping[str, Any]) -> Given:
    """Costs of a published model by the roofline; memory and links are the GPU's."""
    each, device = sizes["length"] or named_shape(model).length, named_gpu(gpu)
    carried = Fraction(str(device.link_bandwidth * LIKELY.traffic)) * 1000  # 10^9/s: bytes per us
    layers = estimate_layers(model, gpu, **sizes)
    return Given(layers, device.memory // 2**20, carried, each * sizes["batch"], within=True)
