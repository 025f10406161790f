"""Lists of module names per stage, as torchtitan and NeMo AutoModel take them, read back.

``module_fqns_per_model_part`` has one list of names per stage: ``layers.7`` or
``model.layers.7`` are transformer layers, the other names are those of embeddings, heads and what
costs nothing to speak of (norms, rotary tables).
"""

from __future__ import annotations

import re
from typing import Final

from pipesat.core.errors import BadInput
from pipesat.layers.layout import MegatronLayout

_LAYER: Final = re.compile(r"(?:[a-z_]+\.)*(?:layers|h|blocks)\.(0|[1-9][0-9]{0,5})")
_EMBEDDINGS: Final = ("tok_embeddings", "embed_tokens", "word_embeddings", "wte")
_HEADS: Final = ("output", "lm_head")
_FREE: Final = ("norm", "final_layernorm", "ln_f", "rotary_emb", "freqs_cis", "wpe")


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
    stages, seen, ends = [], 0, {"E": "", "L": ""}
    for number, names in enumerate(document):
        if not isinstance(names, list):
            raise BadInput("expected a list of names", where=f"[{number}]", value=names)
        stage = ""
        for place, name in enumerate(names):
            where = f"[{number}][{place}]"
            symbol = _symbol(name, where)
            if symbol == "t":
                index = int(name.rpartition(".")[2])
                if index != seen:
                    fate = "it stands twice" if index < seen else f"layer {seen} is lost before it"
                    raise BadInput(fate, where=where, value=name)
                seen += 1
            elif symbol in ends:
                if ends[symbol]:
                    raise BadInput(f"{ends[symbol]} is one already", where=where, value=name)
                ends[symbol] = where
            stage += symbol
        stages.append(stage)
    for symbol, known in (("E", _EMBEDDINGS), ("L", _HEADS)):
        if not ends[symbol]:
            raise BadInput(f"none of {', '.join(known)} is there")
    flat = "".join(stages)
    if flat[0] != "E" or flat[-1] != "L":
        raise BadInput("expected the embedding first and the head last")
    return MegatronLayout(tuple(stages))


def _symbol(name: object, where: str) -> str:
    """Symbol of a name in layouts; empty for what costs nothing."""
    if isinstance(name, str):
        if _LAYER.fullmatch(name):
            return "t"
        end = name.rpartition(".")[2]
        if end in _EMBEDDINGS:
            return "E"
        if end in _HEADS:
            return "L"
        if end in _FREE:
            return ""
    known = ", ".join(("layers.N", *_EMBEDDINGS, *_HEADS, *_FREE))
    raise BadInput(f"expected one of {known}", where=where, value=name)
