"""Which layers every stage has: Megatron-LM's layout strings, lists of module names, partitions.

In a string ``E`` is the embedding, ``t`` a transformer layer, ``m`` a multi-token-prediction layer,
``L`` the loss (the head). ``|`` separates stages, commas mean nothing, ``x*n`` and ``(...)*n``
repeat, groups do not nest. Stage s of S lies on rank s mod p. (Facts of Megatron-LM core,
pipeline_parallel_layer_layout.py, 2026-08.)

torchtitan and NeMo AutoModel take ``module_fqns_per_model_part``, a list of names per stage:
``layers.7`` or ``model.layers.7`` are transformer layers, the other names are those of embeddings,
heads and what costs nothing to speak of (norms, rotary tables).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pipesat.core.errors import BadInput
from pipesat.layers.layer import Layers, Role

SYMBOLS: Final[dict[Role, str]] = {"embedding": "E", "block": "t", "mtp": "m", "head": "L"}
WORDS: Final = {"E": "embedding", "t": "transformer layer", "m": "MTP layer", "L": "loss"}


_MOST: Final = 100_000  # layers and bars of a string
_ITEM: Final = re.compile(
    r",|(?:(?P<one>[EtmL|])|\((?P<group>[^()]+)\)(?=\*))(?:\*(?P<times>[0-9]{1,6}))?"
)
_ORDER: Final = "expected E first, every t before every m, and L last, E and L once"
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

    Raises
    ------
    BadInput
        If layers are lost, doubled or in another order.
    """
    roles = [SYMBOLS[layer.role] for layer in layers.layers]
    silent = {"E", "L"} - set(roles)
    given = ["".join(s for s in stage if s not in silent) for stage in layout.stages]
    flat = "".join(given)
    for symbol in "EtmL":
        has, wanted = flat.count(symbol), roles.count(symbol)
        if has != wanted:
            fate = "lost" if has < wanted else "too many"
            raise BadInput(
                f"{has} {symbol} ({WORDS[symbol]}), the model has {wanted}: "
                f"{abs(has - wanted)} {fate}",
                value=layout.text,
            )
    for number, (symbol, role) in enumerate(zip(flat, roles, strict=True)):
        if symbol != role:
            raise BadInput(
                f"its layer {number} is {symbol} ({WORDS[symbol]}), the model's "
                f"{layers.label(number)} is {role} ({WORDS[role]})",
                value=layout.text,
            )
    parts, begin = [], 0
    for stage in given:
        parts.append(range(begin, begin + len(stage)))
        begin += len(stage)
    return tuple(parts)


def layout_of_partition(layers: Layers, partition: Sequence[range]) -> MegatronLayout:
    """Layout of a partition; ``E`` and ``L`` are added where no layer has that role."""
    stages = ["".join(SYMBOLS[layers.layers[k].role] for k in part) for part in partition]
    flat = "".join(stages)
    if "E" not in flat:
        stages[0] = "E" + stages[0]
    if "L" not in flat:
        stages[-1] += "L"
    return MegatronLayout(tuple(stages))


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

    Raises
    ------
    BadInput
        Naming the character, counted from 1, and what would be right there.
    """
    symbols = _symbols(text, 0, len(text))
    stages = "".join(symbol for symbol, _ in symbols).split("|")
    layers = [(symbol, place) for symbol, place in symbols if symbol != "|"]
    if not layers:
        raise BadInput("the layout has no layer", value=text)
    if (wrong := _out_of_order("".join(stages))) is not None:
        if wrong == len(layers):
            raise BadInput(f"there is no L ({WORDS['L']})", value=text)
        raise _at(text, layers[wrong][1], _ORDER)
    if devices is not None and len(stages) % devices:
        expected = f"{len(stages)} stages, expected a multiple of {devices}, the ranks"
        raise BadInput(expected, value=text)
    having = [number for number, stage in enumerate(stages) if "m" in stage]
    place = next((place for symbol, place in reversed(layers) if symbol == "m"), 0)
    if len(having) > 1:
        which = " and ".join(map(str, having[:2]))
        raise _at(text, place, f"MTP layers on stages {which}, expected all on one")
    if having and devices is not None and having[0] < len(stages) - devices:
        where = f"an MTP layer on stage {having[0]}, expected one of the last {devices} stages"
        raise _at(text, place, where)
    return MegatronLayout(tuple(stages))


def _symbols(text: str, begin: int, end: int) -> list[tuple[str, int]]:
    """Layers and bars of a part of a string, repeated as it says, each with its place there."""
    found: list[tuple[str, int]] = []
    place = begin
    while place < end:
        item = _ITEM.match(text, place, end)
        if item is None:
            raise _at(text, place, _expected(text, place))
        times = 1 if item["times"] is None else int(item["times"])
        if not 1 <= times <= _MOST:
            raise _at(text, item.start("times"), f"expected a number from 1 to {_MOST}")
        own = [(item["one"], place)] if item["one"] else []
        if item["group"]:
            own = _symbols(text, *item.span("group"))
        if len(found) + len(own) * times > _MOST:
            raise _at(text, place, f"more than {_MOST} layers and bars up to here")
        found += own * times
        place = item.end()
    return found


def _expected(text: str, place: int) -> str:
    if text[place] == "*":
        return f"expected a layer, a | or a group before *, and from 1 to {_MOST} after it"
    if text[place] in "()":
        return "expected a group as (t|)*2, in no other group"
    near = {"e": "E", "l": "L", "T": "t", "M": "m"}.get(text[place])
    known = "expected E, t, m, L, |, a comma or a group in parentheses"
    return known + (f"; {near} is meant, perhaps" if near else "")


def _at(text: str, place: int, expected: str) -> BadInput:
    before = text[max(0, place - 12) : place]
    near = f" after {before!r}" if before else ""
    return BadInput(f"{text[place]!r}{near}: {expected}", where=f"character {place + 1}")


def _out_of_order(layers: str) -> int | None:
    """Place of the first symbol that is not in its order; the end if L lacks, ``None`` if all are.

    E comes first, then every t, every m, and L.
    """
    if re.fullmatch("Et*m*L", layers):
        return None
    some = re.match("(Et*m*L?)?", layers)
    return 0 if some is None else some.end()


def layout_of_module_names(document: object) -> MegatronLayout:
    """Read a list of lists of names.

    Raises
    ------
    BadInput
        With the place in the list: names that are not known, and layers that are lost, doubled or
        not in order.
    """
    if not isinstance(document, list) or not document:
        raise BadInput("expected a list of lists of names", value=document)
    stages, places, seen = [], list[str](), 0
    for number, names in enumerate(document):
        if not isinstance(names, list):
            raise BadInput("expected a list of names", where=f"[{number}]", value=names)
        stages.append("")
        for place, name in enumerate(names):
            where = f"[{number}][{place}]"
            symbol = _symbol(name, where)
            if symbol == "t":
                index = int(name.rpartition(".")[2])
                if index != seen:
                    fate = "it is there twice" if index < seen else f"layer {seen} is lost"
                    raise BadInput(fate, where=where, value=name)
                seen += 1
            stages[-1] += symbol
            places += [where] * len(symbol)
    if (wrong := _out_of_order("".join(stages))) is not None:
        expected = "expected the embedding first and the head last, each once"
        raise BadInput(expected, where=places[wrong] if wrong < len(places) else f"[{number}]")
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
