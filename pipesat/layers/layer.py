"""Layers of a model: costs, weights, outputs, and what ties them to a stage. Pure data.

Layers come from :func:`pipesat.layers.layers_file.parse_layers`, which checks every value, or from
a profile (:mod:`pipesat.layers.from_profile`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property, partial
from itertools import accumulate, product
from math import ceil, floor
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from pydantic import ConfigDict

from pipesat.core.arguments import public
from pipesat.core.atomic import write_file
from pipesat.core.strict_json import Count, StrictModel
from pipesat.layers.profile.static import BYTES_OF, OPTIMIZER_STATES, Number, Optimizer
from pipesat.problem.building import Backward
from pipesat.problem.costs import Costs
from pipesat.problem.remarks import Remark, of_amounts, of_limit, of_variant, remarks_at
from pipesat.problem.stage import COSTS, HELD, Stage

FORMAT: Final = "pipesat.layers/1"
KEPT: Final = ("weights", "output", "role", "first", "last", "with_next", "fused", "hybrid")
"""What an entry of a layers file says of each of its layers as it stands."""
_TIMES: Final = ("B", "W", "BW")  # what is held by a layer may be of a stage that runs split


class StaticParts(NamedTuple):
    """Bytes by what they are for."""

    weights: int
    gradients: int
    optimizer: int


class WeightMemory(StrictModel):
    """What memory one weight takes. ``weights`` of layers then are numbers of weights.

    Attributes
    ----------
    unit_bytes
        Bytes of one memory unit: 1048576 for MiB.
    dtype, grad_dtype, state_dtype
        Types of weights, gradients and optimizer states; the latter two default to ``dtype``.
    optimizer
        One of :data:`pipesat.layers.profile.static.OPTIMIZER_STATES`.
    master_dtype
        Type of a second copy of the weights that the optimizer updates; ``None``: there is none.
    """

    model_config = ConfigDict(frozen=True)

    unit_bytes: Count
    dtype: Number = "bfloat16"
    grad_dtype: Number | None = None
    optimizer: Optimizer = "adamw"
    state_dtype: Number | None = None
    master_dtype: Number | None = None

    def parts(self, weights: int) -> StaticParts:
        """Bytes that ``weights`` weights take."""
        own = BYTES_OF[self.dtype]
        states = OPTIMIZER_STATES[self.optimizer] * BYTES_OF[self.state_dtype or self.dtype]
        master = 0 if self.master_dtype is None else BYTES_OF[self.master_dtype]
        gradient = BYTES_OF[self.grad_dtype or self.dtype]
        return StaticParts(weights * own, weights * gradient, weights * (states + master))

    def memory(self, weights: int) -> int:
        """Memory units that ``weights`` weights take in all, rounded up."""
        return -(-sum(self.parts(weights)) // self.unit_bytes)


Role: TypeAlias = Literal["embedding", "block", "mtp", "head"]
TieKind: TypeAlias = Literal["same_device", "copies"]


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: what it costs, and where it may lie.

    Attributes
    ----------
    costs, recomputed
        Costs as it is, and with its activations computed again in the backward (``None``: it has
        no such variant, and costs the same on a stage that recomputes).
    weights
        Amount of weights; what memory it takes, the recipe of :class:`Layers` says.
    output
        Size of what it hands to the next layer, in size units: what a link transfers.
    role
        What frameworks call it: layout strings tell these four apart.
    first, last
        It must lie on the first, on the last stage.
    with_next
        It must lie on the same stage as the layer after it.
    fused
        Its backward cannot be split, so that of its stage neither.
    tied_to, tie, tied_weights
        Name of an earlier or later layer that shares ``tied_weights`` of its weights; and whether
        both must lie on one device, or may each have a copy.
    hybrid
        Megatron-LM's symbols of what it is in a hybrid model: ``M`` or ``*E``, say.
    entry
        Which entry of ``layers`` in its file states it; ``None``: there is no file.
    """

    name: str
    costs: Costs
    weights: int = 0
    output: int = 0
    role: Role = "block"
    first: bool = False
    last: bool = False
    with_next: bool = False
    fused: bool = False
    tied_to: str = ""
    tie: TieKind = "same_device"
    tied_weights: int = 0
    recomputed: Costs | None = None
    hybrid: str = ""
    entry: int | None = field(default=None, compare=False, repr=False)

    def amount(self, kind: str, *, recompute: bool = False) -> int:
        """One of :data:`pipesat.problem.stage.COSTS`; BW defaults to B + W."""
        costs = self.recomputed if recompute and self.recomputed is not None else self.costs
        value = getattr(costs, kind)
        return int(costs.B + costs.W if value is None else value)

    def with_costs(self, change: Callable[[Costs], Costs]) -> Layer:
        """Return it with other costs, those with its activations computed again too."""
        again = None if self.recomputed is None else change(self.recomputed)
        return replace(self, costs=change(self.costs), recomputed=again)

    def document(self) -> dict[str, Any]:
        """Return its entry of a layers file; defaults are left out."""
        entry: dict[str, Any] = {"name": self.name} | _costs_entry(self.costs)
        default = {one.name: one.default for one in fields(self)}
        entry |= {key: v for key in KEPT if (v := getattr(self, key)) != default[key]}
        if self.tied_to:
            entry |= {"tied_to": self.tied_to, "tie": self.tie, "tied_weights": self.tied_weights}
        if self.recomputed is not None:
            entry["recompute"] = _costs_entry(self.recomputed)
        return entry


def _costs_entry(costs: Costs) -> dict[str, int]:
    values = {key: getattr(costs, key) for key in COSTS}
    return {k: v for k, v in values.items() if v or (v is not None and COSTS[k] == "time")}


@dataclass(frozen=True, slots=True)
class Tie:
    """Layers ``one`` and ``other`` share weights of ``memory`` memory units, gradients included."""

    one: int
    other: int
    copies: bool
    memory: int


def at_speed(speed: Fraction, down: bool, costs: Costs) -> Costs:
    """Return costs on a device of this speed, each time rounded up, or ``down``."""
    times = {kind: getattr(costs, kind) for kind, factor in COSTS.items() if factor == "time"}
    round_ = floor if down else ceil
    scaled: dict[str, Any] = {
        kind: None if t is None else round_(t / speed) for kind, t in times.items()
    }
    return replace(costs, **scaled)


@dataclass(frozen=True)
class Layers:
    """All layers of a model, in order.

    Times are in ``time_unit``, held amounts and ``reserve`` (what every device keeps besides) in
    ``memory_unit``, outputs in ``size_unit``. Without a ``recipe``, weights are memory units that
    weights, gradients and optimizer take together. ``estimate`` says where the costs come from if
    no one has measured them, ``estimate_range`` between which thousandths of the stated times they
    may really lie. ``tensor_parallel`` GPUs share every layer: costs and amounts are of one.
    A microbatch has ``batch`` sequences, one if it is not known.
    """

    layers: tuple[Layer, ...]
    name: str = ""
    time_unit: str = ""
    memory_unit: str = ""
    size_unit: str = ""
    reserve: int = 0
    recipe: WeightMemory | None = None
    estimate: str = ""
    estimate_range: tuple[int, int] | None = None
    tensor_parallel: int = 1
    batch: int = 1

    def __len__(self) -> int:
        return len(self.layers)

    def document(self) -> dict[str, Any]:
        """Return a document that reads back as the same layers; defaults are left out."""
        document: dict[str, Any] = {"format": FORMAT}
        for key in ("name", "estimate", "time_unit", "memory_unit", "size_unit", "reserve"):
            if value := getattr(self, key):
                document[key] = value
        for key in ("tensor_parallel", "batch"):
            if (count := getattr(self, key)) > 1:
                document[key] = count
        if self.estimate_range is not None:
            document["estimate_range"] = [*self.estimate_range]
        if self.recipe is not None:
            document["static"] = self.recipe.model_dump(exclude_none=True)
        return document | {"layers": [layer.document() for layer in self.layers]}

    def file(self) -> bytes:
        """Return the content of a layers file, one line per layer."""
        document = self.document()
        rows = ",\n  ".join(json.dumps(entry) for entry in document.pop("layers"))
        entries = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in document.items()]
        text = "{\n" + ",\n".join([*entries, f' "layers": [\n  {rows}\n ]']) + "\n}\n"
        return text.encode()

    @public
    def write(self, path: str | Path) -> None:
        """Write the file that says this, one line per layer, all or nothing.

        Raises
        ------
        BadInput
            If the file cannot be written.
        """
        write_file(Path(path), self.file())

    def label(self, layer: int) -> str:
        """Name of a layer for messages: ``layer 17 (head)``."""
        name = self.layers[layer].name
        return f"layer {layer}" if name == f"layer {layer}" else f"layer {layer} ({name})"

    def remarks(self, memory: int | None = None) -> tuple[Remark, ...]:
        """Return what they state and perhaps do not mean, on devices of this capacity."""
        found = [one for number in range(len(self)) for one in self._remarks(number)]
        if memory is not None and not any(any(self.amounts(key)) for key in COSTS if key in HELD):
            found.append(of_limit("memory", memory, self.memory_unit))
        return tuple(found)

    def _remarks(self, number: int) -> Iterator[Remark]:
        layer = self.layers[number]
        units = self.time_unit, self.memory_unit
        path = f"layers[{number if layer.entry is None else layer.entry}]"
        backward: Backward = "fused" if layer.fused else "either"
        own = Stage(device=0, backward=backward, **asdict(layer.costs))
        yield from remarks_at(number, path, of_amounts(own, _TIMES, units), "layer")
        if layer.recomputed is not None:
            again = replace(own, sums=False, **asdict(layer.recomputed))
            found = [*of_amounts(again, _TIMES, units)]
            for fact, means in of_variant(own, again, "recomputing"):
                found.append(("held_after_F", again.held_after_F, fact, "", means))
            yield from remarks_at(number, f"{path}.recompute", found, "layer")

    def with_costs(self, change: Callable[[Costs], Costs]) -> Layers:
        """Return all layers with other costs."""
        return replace(self, layers=tuple(layer.with_costs(change) for layer in self.layers))

    def at(self, speed: Fraction, *, down: bool = False) -> Layers:
        """Return the layers on a device of this speed: times ``ceil(time / speed)`` of each.

        ``down``: rounded down, for what is to hold of times that are rounded before.
        """
        if speed == 1:
            return self
        if (speed, down) not in self._at:
            self._at[speed, down] = self.with_costs(partial(at_speed, speed, down))
        return self._at[speed, down]

    @cached_property
    def _at(self) -> dict[tuple[Fraction, bool], Layers]:
        return {}

    def amounts(self, kind: str, *, recompute: bool = False) -> tuple[int, ...]:
        """One of :data:`pipesat.problem.stage.COSTS` of every layer."""
        return tuple(layer.amount(kind, recompute=recompute) for layer in self.layers)

    @property
    def hybrid(self) -> bool:
        """Whether Megatron-LM takes a pattern of symbols for it, and no layout."""
        return any(layer.hybrid for layer in self.layers)

    @property
    def recomputable(self) -> bool:
        """Whether any layer has a variant with recomputation."""
        return self.may_recompute(range(len(self.layers)))

    def may_recompute(self, part: range) -> bool:
        """Whether a stage of these layers differs when it recomputes."""
        return any(self.layers[k].recomputed is not None for k in part)

    @cached_property
    def sums(self) -> dict[tuple[str, bool], tuple[int, ...]]:
        """Sums over the layers before each, of a cost and whether layers recompute."""
        return {
            (kind, again): (*accumulate(self.amounts(kind, recompute=again), initial=0),)
            for kind, again in product(COSTS, (False, True))
        }

    @cached_property
    def static(self) -> tuple[int, ...]:
        """Memory that every layer's weights, gradients and optimizer take, in memory units."""
        return tuple(self._memory_of(layer.weights) for layer in self.layers)

    @cached_property
    def ties(self) -> tuple[Tie, ...]:
        """Pairs of layers that share weights."""
        number = {layer.name: i for i, layer in enumerate(self.layers)}
        return tuple(
            Tie(number[x.tied_to], i, x.tie == "copies", self._memory_of(x.tied_weights))
            for i, x in enumerate(self.layers)
            if x.tied_to
        )

    @cached_property
    def bound(self) -> tuple[tuple[int, int], ...]:
        """Pairs of layers that must lie on one device, as they share weights without copies."""
        pairs = ((tie.one, tie.other) for tie in self.ties if not tie.copies)
        return tuple((min(pair), max(pair)) for pair in pairs)

    @cached_property
    def may_cut(self) -> tuple[bool, ...]:
        """Whether a stage may begin with layer k, k from 0 to L (the end)."""
        inside = (not layer.with_next for layer in self.layers[:-1])
        return (True, *inside, True)

    @cached_property
    def first_stage_until(self) -> int:
        """The first stage has at least this many layers."""
        return max((i + 1 for i, layer in enumerate(self.layers) if layer.first), default=0)

    @cached_property
    def last_stage_from(self) -> int:
        """The last stage begins with this layer or an earlier one."""
        return min((i for i, x in enumerate(self.layers) if x.last), default=len(self.layers))

    def _memory_of(self, weights: int) -> int:
        return weights if self.recipe is None else self.recipe.memory(weights)
