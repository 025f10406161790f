"""Layouts: which layers every stage has, in Megatron-LM's letters.

:mod:`pipesat.layers.layout_text` reads them, :mod:`pipesat.layers.module_names` reads what other
frameworks take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pipesat.core.errors import BadInput
from pipesat.layers.layer import Layers, Role

SYMBOLS: Final[dict[Role, str]] = {"embedding": "E", "block": "t", "mtp": "m", "head": "L"}
WORDS: Final = {"E": "embedding", "t": "transformer layer", "m": "MTP layer", "L": "loss"}


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


def fewer_at_ends(
    blocks: int, stages: int, *, first_less: int = 1, last_less: int = 1
) -> MegatronLayout:
    """Layout of even stages, the first and the last with so many transformer layers less.

    As torchtitan's ``pipeline_parallel_first_stage_less_layers`` and ``..._last_stage_...``: with
    ``blocks + first_less + last_less`` cut evenly, the first stages get what remains.

    Raises
    ------
    BadInput
        If an end would have less than no layer, or a stage nothing.
    """
    whole = blocks + first_less + last_less
    for name, value in (("first_less", first_less), ("last_less", last_less)):
        if value < 0:
            raise BadInput("expected at least 0", where=name, value=value)
    if not 1 <= stages <= whole:
        raise BadInput(f"expected from 1 to {whole}", where="stages", value=stages)
    size, more = divmod(whole, stages)
    if stages == 1:
        return MegatronLayout(("E" + "t" * blocks + "L",))
    for name, value in (("first_less", first_less), ("last_less", last_less)):
        if value > size:
            raise BadInput(f"expected at most {size}, a stage's layers", where=name, value=value)
    counts = [size + (stage < more) for stage in range(stages)]
    counts[0] -= first_less
    counts[-1] -= last_less
    texts = ["t" * count for count in counts]
    return MegatronLayout(("E" + texts[0], *texts[1:-1], texts[-1] + "L"))


def _short(stage: str) -> str:
    """Write ``Ettt`` as ``Et*3``, as Megatron's documentation does."""
    for symbol in "tm":
        count = stage.count(symbol)
        if count > 2:
            stage = stage.replace(symbol * count, f"{symbol}*{count}")
    return stage
