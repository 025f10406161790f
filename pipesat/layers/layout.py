"""Which layers every stage has: Megatron-LM's layout strings, lists of module names, partitions.

In a string ``E`` is the embedding, ``t`` a transformer layer, ``m`` a multi-token-prediction layer,
``L`` the loss (the head). ``|`` separates stages, commas mean nothing, ``x*n`` and ``(...)*n``
repeat, groups do not nest. Stage s of S lies on rank s mod p. ``E`` and ``L`` place nothing: the
embedding is on the first stage and the head on the last whatever stands there, so here they must
stand there. (Facts of megatron-core 0.19.2, pipeline_parallel_layer_layout.py.)

torchtitan and NeMo AutoModel take ``module_fqns_per_model_part``, a list of names per stage:
``layers.7`` or ``model.layers.7`` are transformer layers, the other names are those of embeddings,
heads and what costs nothing to speak of (norms, rotary tables).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from pipesat.core.errors import BadInput, NotApplicable, require
from pipesat.layers.layer import Layers, Role
from pipesat.problem.partition import partition_of

SYMBOLS: Final[dict[Role, str]] = {"embedding": "E", "block": "t", "mtp": "m", "head": "L"}
WORDS: Final = {"E": "embedding", "t": "transformer layer", "m": "MTP layer", "L": "loss"}


_MOST: Final = 100_000  # layers and bars of a string
_ITEM: Final = re.compile(
    r",|(?:(?P<one>[EtmL|])|\((?P<group>[^()]+)\)(?=\*))(?:\*(?P<times>[0-9]{1,5}))?(?![*0-9])"
)
_LAYER: Final = re.compile(r"(?:[a-z_]+\.)*(?:layers|h|blocks)\.(0|[1-9][0-9]{0,5})")
_NAMES: Final = {
    "E": ("tok_embeddings", "embed_tokens", "word_embeddings", "wte"),
    "L": ("output", "lm_head"),
    "": ("norm", "final_layernorm", "ln_f", "rotary_emb", "freqs_cis", "wpe"),
}
"""Last words of names, by their symbol; those without one cost nothing."""


@dataclass(frozen=True)
class MegatronLayout:
    """Every stage's layers as a text of ``E``, ``t``, ``m`` and ``L``; a stage may be empty."""

    stages: tuple[str, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Transformer layers of every stage."""
        return tuple(stage.count("t") for stage in self.stages)

    @property
    def text(self) -> str:
        """The string: three equal layers in a row and more are written ``t*3``."""
        return "|".join(map(_short, self.stages))


def partition_of_layout(layout: MegatronLayout, layers: Layers) -> tuple[range, ...]:
    """Cut layers as a layout says.

    ``E`` and ``L`` are passed over if no layer has the role ``embedding`` or ``head``: then their
    costs are in the first and the last block's.
    """
    roles = "".join(SYMBOLS[layer.role] for layer in layers.layers)
    given = ["".join(s for s in stage if s in roles or s in "tm") for stage in layout.stages]
    if (flat := "".join(given)) != roles:
        words = ", ".join(f"{symbol} {word}" for symbol, word in WORDS.items())
        raise BadInput(
            f"it has the layers {_short(flat)}, the model has {_short(roles)} ({words})",
            value=layout.text,
        )
    return partition_of([0, *accumulate(map(len, given))])


def layout_of_partition(layers: Layers, partition: Sequence[range]) -> MegatronLayout:
    """Layout of a partition; ``E`` and ``L`` are added where no layer has that role.

    Raises
    ------
    NotApplicable
        If a layer has no letter there: a second embedding or head, or one out of turn.
    """
    if (without := without_letter(layers)) is not None:
        raise NotApplicable(
            f"{layers.label(without)} has no letter in Megatron-LM's layout, which has E "
            "(embedding) once and first, every t (transformer layer), every m (MTP layer), and L "
            "(loss) once and last"
        )
    stages = ["".join(SYMBOLS[layers.layers[k].role] for k in part) for part in partition]
    flat = "".join(stages)
    if "E" not in flat:
        stages[0] = "E" + stages[0]
    if "L" not in flat:
        stages[-1] += "L"
    return MegatronLayout(tuple(stages))


def without_letter(layers: Layers) -> int | None:
    """Return the first layer that a layout cannot say by its role and place, if there is one."""
    before = -1
    for number, layer in enumerate(layers.layers):
        place = [*SYMBOLS].index(layer.role)
        if place == 0 < before:
            return 0  # what comes before the embedding
        if place < before or (place == before and layer.role in ("embedding", "head")):
            return number
        before = place
    return None


def _short(stage: str) -> str:
    """Write ``Ettt`` as ``Et*3``, as Megatron's documentation does."""
    for symbol in "tm":
        count = stage.count(symbol)
        if count > 2:
            stage = stage.replace(symbol * count, f"{symbol}*{count}")
    return stage


def parse_layout(text: str, *, devices: int | None = None) -> MegatronLayout:
    """Read a layout string, with the rules that Megatron-LM checks.

    ``devices`` are ranks, a divisor of the number of stages; ``None``: not checked. How many layers
    there must be, :func:`partition_of_layout` knows.
    """
    stages = tuple(_expanded(text).split("|"))
    _require_order(stages)
    for symbol, end, where in (("E", 0, "first"), ("L", -1, "last")):
        if symbol not in stages[end]:
            expected = f"expected {symbol} ({WORDS[symbol]}) on the {where} stage"
            raise BadInput(
                f"{expected}: Megatron-LM builds it there whatever the layout says", value=text
            )
    require(
        devices is None or len(stages) % devices == 0,
        f"{len(stages)} stages, expected a multiple of {devices}, the ranks",
        value=text,
    )
    having = [number for number, stage in enumerate(stages) if "m" in stage]
    first = 0 if devices is None else len(stages) - devices
    if len(having) > 1 or (having and having[0] < first):
        raise BadInput(
            f"MTP layers on stages {', '.join(map(str, having))}, expected all on one, from stage "
            f"{first} on",
            value=text,
        )
    return MegatronLayout(stages)


def _expanded(text: str) -> str:
    """The layers and bars of a string, repeated as it says."""
    found, place = "", 0
    while place < len(text):
        item = _ITEM.match(text, place)
        if item is None:
            raise BadInput(
                "expected E, t, m, L, |, a comma or a group as (t|)*2, and after a * a number from "
                "0 to 99999",
                where=f"character {place + 1} of {text!r}",
                value=text[place],
            )
        own = _expanded(item["group"]) if item["group"] else item["one"] or ""
        times = 1 if item["times"] is None else int(item["times"])
        require(
            len(found) + len(own) * times <= _MOST, f"more than {_MOST} layers and bars", value=text
        )
        found += own * times
        place = item.end()
    return found


def _require_order(stages: Sequence[str]) -> None:
    """Refuse layers in which E does not come first, then every t, every m, and L."""
    require(
        re.fullmatch("Et*m*L", "".join(stages)),
        "expected E (embedding) first, every t (transformer layer) before every m (MTP layer), "
        "and L (loss) last, E and L once",
        value="|".join(map(_short, stages)),
    )


def partition_of_names(document: object, layers: Layers) -> tuple[range, ...]:
    """Cut layers by a list of names per stage: their own, else those that frameworks know."""
    stages = document if isinstance(document, list) else []
    lists = all(isinstance(names, list) for names in stages)
    if lists and [name for names in stages for name in names] == [x.name for x in layers.layers]:
        return partition_of([0, *accumulate(map(len, stages))])
    return partition_of_layout(layout_of_module_names(document), layers)


def layout_of_module_names(document: object) -> MegatronLayout:
    """Read a list of lists of names."""
    if not isinstance(document, list) or not document:
        raise BadInput("expected a list of lists of names", value=document)
    stages, layers = [], 0
    for number, names in enumerate(document):
        if not isinstance(names, list):
            raise BadInput("expected a list of names", where=f"[{number}]", value=names)
        stages.append("")
        for place, name in enumerate(names):
            where = f"[{number}][{place}]"
            symbol = _symbol(name, where)
            require(
                symbol != "t" or name.rpartition(".")[2] == str(layers),
                f"expected layer {layers} next",
                where=where,
                value=name,
            )
            layers += symbol == "t"
            stages[-1] += symbol
    _require_order(stages)
    return MegatronLayout(tuple(stages))


def _symbol(name: object, where: str) -> str:
    """Symbol of a name in layouts; empty for what costs nothing."""
    if isinstance(name, str):
        if _LAYER.fullmatch(name):
            return "t"
        for symbol, ends in _NAMES.items():
            if name.rpartition(".")[2] in ends:
                return symbol
    known = ", ".join(("layers.N", *(end for ends in _NAMES.values() for end in ends)))
    raise BadInput(f"expected one of {known}", where=where, value=name)
