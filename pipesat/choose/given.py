"""What ``advise`` is asked about: layers from a file, a profile, parts, or a published model."""

from __future__ import annotations

import os.path
import re
from fractions import Fraction
from pathlib import Path
from typing import Final, NamedTuple

from pipesat.choose.pairs import layers_of_parts
from pipesat.core.errors import BadInput
from pipesat.core.progress import doing
from pipesat.layers.layer import Layers
from pipesat.parts.parts import Parts
from pipesat.profile.file import Profile

_MODULE: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class Run(NamedTuple):
    """What a published model runs on, and in which microbatches."""

    gpu: str | None = None
    length: int | None = None
    batch: int = 1
    tensor_parallel: int = 1


class Given(NamedTuple):
    """Layers, and what is known of the machine and the microbatches besides.

    ``memory`` is in MiB.
    """

    layers: Layers
    memory: int | None = None
    bandwidth: Fraction | None = None
    tokens: int | None = None
    parts: Parts | None = None


@doing("reading costs")
def given(model: Layers | Parts | Profile | str | Path, run: Run) -> Given:
    """Return the layers that are meant.

    Raises
    ------
    BadInput
        If a file has something else, or a published model has no GPU to run on.
    """
    if isinstance(model, Layers):
        return Given(model)
    if isinstance(model, Parts):
        return Given(layers_of_parts(model), parts=model)
    if isinstance(model, Profile):
        return _of_profile(model)
    if run.gpu is not None:
        if os.path.exists(model):
            text = "a file has its costs: expected the name of a published model"
            raise BadInput(text, where="gpu", value=run.gpu)
        return _estimated(str(model), run.gpu, run)
    for (name, value), unset in zip(run._asdict().items(), Run(), strict=True):
        if value != unset:
            text = "only a published model with its GPU is estimated"
            raise BadInput(text, where=name, value=value)
    return _of_file(model)


def _of_profile(profile: Profile) -> Given:
    from pipesat.layers.from_profile import layers_of_profile

    return Given(layers_of_profile(profile))


def _of_file(path: str | Path) -> Given:
    from pipesat.files.strict_json import read_json
    from pipesat.layers.file import LARGEST_FILE, parse_layers
    from pipesat.parts.file import parse_parts
    from pipesat.profile.file import read_profile
    from pipesat.profile.published import SHAPES

    if not os.path.exists(path):
        if str(path) in SHAPES:
            raise BadInput("a published model needs a GPU to estimate its costs for", where="gpu")
        if _MODULE.fullmatch(str(path)):
            raise BadInput(
                f"a model is measured first: pipesat profile --model {path} -o profile.json, then "
                "pipesat advise profile.json",
                where="model",
                value=str(path),
            )
    document = read_json(Path(path), LARGEST_FILE)
    kind = document.get("format") if isinstance(document, dict) else None
    if kind == "pipesat.problem/1":
        raise BadInput(
            "a problem is cut already: pipesat compare answers for it, advise takes layers",
            source=str(path),
        )
    if kind == "pipesat.parts/1":
        own = parse_parts(document, str(path))
        return Given(layers_of_parts(own), parts=own)
    if isinstance(kind, str) and kind.startswith("pipesat.profile/"):
        return _of_profile(read_profile(path))
    return Given(parse_layers(document, str(path)))


def _estimated(model: str, gpu: str, run: Run) -> Given:
    """Costs of a published model by the roofline; memory and links are the GPU's."""
    from pipesat.layers.roofline import LIKELY
    from pipesat.profile.published import named_gpu, named_shape
    from pipesat.workflows.from_profile import estimate_layers

    each, device = run.length or named_shape(model).length, named_gpu(gpu)
    options = {"length": each, "batch": run.batch, "tensor_parallel": run.tensor_parallel}
    carried = Fraction(str(device.link_bandwidth * LIKELY.traffic)) * 1000  # 10^9/s: bytes per us
    return Given(
        estimate_layers(model, gpu, **options),
        device.memory // 2**20,
        carried,
        each * run.batch,
    )
