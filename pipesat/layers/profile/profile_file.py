"""Profile files, ``pipesat.profile/1``: what was measured, on what, with every sample.

Times are microseconds, memory is bytes, everywhere in the file. Equal layers are measured once:
``layers`` names the kind of each, ``kinds`` has the costs. ``stages`` has slices of layers that
were measured as a whole; other slices are sums of their layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from pipesat.core.arguments import public
from pipesat.core.atomic import write_file
from pipesat.core.complaint import validated
from pipesat.core.errors import require, said_of
from pipesat.core.folder import json_file
from pipesat.core.showing import Displayed, Facts, Table, table_of
from pipesat.core.strict_json import StrictModel, read_json
from pipesat.layers.profile.costs_file import (
    CopiesModel,
    Dtype,
    MeasuredCostsModel,
    NonNegative,
    ParametersModel,
    Positive,
    Samples,
    Slice,
    TensorModel,
)

FORMAT = "pipesat.profile/1"
LINKS_FORMAT = "pipesat.links/1"


class MeasuredLayerModel(StrictModel):
    """One layer: its name, and the key of its costs in ``kinds``."""

    name: str
    kind: str


class StageCostsModel(StrictModel):
    """Layers ``layers[0]`` to ``layers[1] - 1``, measured together."""

    layers: Slice
    costs: MeasuredCostsModel


class TiedModel(StrictModel):
    """One parameter that several layers share."""

    name: str
    layers: Annotated[list[NonNegative], Field(min_length=2)]
    parameter: ParametersModel


class ModelModel(StrictModel):
    """Where the model came from, enough to build it again.

    ``source`` is ``decoder`` (then ``shape``, ``length`` and ``sequences`` are there), ``import``
    (then ``path`` is, and ``dtype`` where it was changed) or ``call``.
    """

    source: Literal["decoder", "import", "call"]
    path: str = ""
    dtype: Dtype | Literal[""] = ""
    shape: dict[str, int | str] = {}
    length: NonNegative = 0
    sequences: NonNegative = 0


class EnvironmentModel(StrictModel):
    """What was measured on."""

    device: Literal["cpu", "cuda"]
    device_name: str
    dtype: Dtype
    threads: Positive
    torch: str
    cuda: str | None = None
    python: str
    platform: str
    pipesat: str


class OptionsModel(StrictModel):
    """How it was measured; ``compile`` is the backend, empty if nothing was compiled."""

    checkpoint: bool = False
    compile: str = ""
    modes: bool = False
    samples: Positive
    warmup: NonNegative


class MicrobatchModel(StrictModel):
    """What one microbatch brings along."""

    input: TensorModel
    target: TensorModel | None = None


class LinkModel(StrictModel):
    """One-way delay of one size of message."""

    bytes: NonNegative
    delay: Samples


class LinksModel(StrictModel):
    """Delays between two ranks: half of a message's way there and back."""

    format: Literal["pipesat.links/1"]
    backend: str
    torch: str
    device_name: str
    sizes: Annotated[list[LinkModel], Field(min_length=1)]


class Profile(Displayed, StrictModel):
    """The whole document."""

    format: Literal["pipesat.profile/1"]
    name: str = ""
    model: ModelModel
    environment: EnvironmentModel
    options: OptionsModel
    microbatch: MicrobatchModel
    layers: Annotated[list[MeasuredLayerModel], Field(min_length=1)]
    kinds: dict[str, MeasuredCostsModel]
    stages: list[StageCostsModel] = []
    tied: list[TiedModel] = []
    links: LinksModel | None = None
    copies: CopiesModel | None = None

    @public
    def write(self, path: str | Path) -> None:
        """Write the file that says this, all or nothing.

        Raises
        ------
        BadInput
            If the file cannot be written.
        """
        write_document(Path(path), self)

    def facts(self) -> Facts:
        """Return what was measured, and on what."""
        on = self.environment
        late = ", ".join(kind for kind, costs in self.kinds.items() if costs.host_bound)
        waited = f"the GPU waited for the host in {late}: their times include launches"
        sizes = self.links.sizes if self.links else []
        links = [f"{one.delay.median:.0f} us for {one.bytes} B" for one in sizes]
        return [
            ("profile", self.name),
            ("layers", f"{len(self.layers)} of {len(self.kinds)} kinds"),
            ("measured on", f"{on.device_name}, {on.dtype}, torch {on.torch}"),
            *(("fused", f"{k}: {c.no_split}") for k, c in self.kinds.items() if c.no_split),
            ("doubt", waited if late else ""),
            *(("tied", f"{one.name} is shared by layers {one.layers}") for one in self.tied),
            ("links", ", ".join(links)),
        ]

    def tables(self) -> Iterator[Table]:
        """Yield a line per kind of layer."""
        yield table_of(self.records(), notes=["medians in us, memory in bytes"])

    def records(self) -> list[dict[str, Any]]:
        """Return a row per kind of layer and per stage: median times in us, held bytes."""
        kinds = [layer.kind for layer in self.layers]
        measured = [(kind, kinds.count(kind), costs) for kind, costs in self.kinds.items()]
        for stage in self.stages:
            begin, end = stage.layers
            measured.append((f"{begin} to {end - 1}", end - begin, stage.costs))
        return [
            {
                "kind": kind,
                "layers": layers,
                **{
                    op: None if times is None else times.median
                    for op, times in (("F", c.F), ("B", c.B), ("W", c.W), ("BW", c.BW))
                },
                "held_after_F": c.held_after_F,
                "held_after_B": c.held_after_B,
            }
            for kind, layers, c in measured
        ]

    def costs_of(self, layer: int) -> MeasuredCostsModel:
        """Costs of one layer."""
        return self.kinds[self.layers[layer].kind]


@public
def read_profile(path: str | Path) -> Profile:
    """Read and validate a profile file.

    Raises
    ------
    BadInput
        With the file, the path of the value, the value and what would be right.
    """
    return parse_profile(read_json(Path(path)), str(path))


def parse_profile(document: object, source: str = "profile") -> Profile:
    """Validate a profile document (what ``json.loads`` returns)."""
    profile = validated(document, Profile, source)
    with said_of(source):
        _check(profile)
    return profile


def _check(profile: Profile) -> None:
    for number, layer in enumerate(profile.layers):
        require(
            layer.kind in profile.kinds,
            f"expected a key of kinds: {', '.join(profile.kinds)}",
            where=f"layers[{number}].kind",
            value=layer.kind,
        )
    most = len(profile.layers)
    for number, stage in enumerate(profile.stages):
        begin, end = stage.layers
        require(
            begin < end <= most,
            f"expected [begin, end] with begin < end <= {most}",
            where=f"stages[{number}].layers",
            value=stage.layers,
        )
    for number, tied in enumerate(profile.tied):
        require(
            max(tied.layers) < most,
            f"expected layers from 0 to {most - 1}",
            where=f"tied[{number}].layers",
            value=tied.layers,
        )


def read_links(path: str | Path) -> LinksModel:
    """Read a file of link delays (:mod:`pipesat.measure.processes.link_delays` writes it)."""
    document = read_json(Path(path))
    return validated(document, LinksModel, str(path))


def write_document(path: Path, model: BaseModel) -> None:
    """Write a profile, or links, all or nothing."""
    write_file(path, json_file(model.model_dump()))


def delay_of(links: LinksModel, size: int) -> float:
    """Microseconds for ``size`` bytes: measured, or on the line through the two nearest sizes.

    Below the smallest size it is that one's delay; above the largest, the last two sizes' line goes
    on (one size alone: in proportion).
    """
    known = sorted({link.bytes: link.delay.median for link in links.sizes}.items())
    if size <= known[0][0]:
        return known[0][1]
    if len(known) == 1:
        (bytes_known, delay) = known[0]
        return delay * size / bytes_known if bytes_known else delay
    for (low, low_delay), (high, high_delay) in pairwise(known):
        if size <= high or high == known[-1][0]:
            share = (size - low) / (high - low)
            return max(low_delay + share * (high_delay - low_delay), 0.0)
    return known[-1][1]
