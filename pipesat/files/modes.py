"""``modes`` of a stage in a problem file: other ways to run it (contract, section 9)."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from pipesat.core.building import Backward
from pipesat.core.errors import BadInput
from pipesat.core.problem import Mode, Offload
from pipesat.core.stage import AMOUNTS, KEEP
from pipesat.files.strict_model import StrictModel
from pipesat.files.values import Amount

MOST_MODES = 16


class AmountsModel(StrictModel):
    """Amounts of a stage, those of :data:`pipesat.core.stage.AMOUNTS`, or what of it differs."""

    F: Amount = 0
    B: Amount = 0
    W: Amount = 0
    BW: Amount = 0
    held_after_F: Amount = 0
    held_after_B: Amount = 0
    held_in_backward: Amount = 0


class OffloadModel(StrictModel):
    """``offload`` of a mode."""

    out: Amount
    in_: Amount = Field(alias="in")
    held: Amount


class ModeModel(AmountsModel):
    """One entry of ``modes``."""

    name: str
    backward: Backward | None = None
    offload: OffloadModel | None = None


def stated_in(model: AmountsModel) -> tuple[tuple[str, int], ...]:
    """Return the amounts that an entry states, with their keys."""
    return tuple((key, getattr(model, key)) for key in AMOUNTS if key in model.model_fields_set)


def parse_modes(entries: Sequence[ModeModel], held_after_f: int, stage: int) -> tuple[Mode, ...]:
    """Return the modes of a stage, which holds so much after F.

    Raises
    ------
    BadInput
        With the file, the path of the value, the value and what would be right.
    """
    where = f"stages[{stage}].modes"
    seen = {KEEP: "the stage's own amounts"}
    modes = []
    for number, entry in enumerate(entries):
        here = f"{where}[{number}]"
        if entry.name in seen:
            text = f"expected another name, this one is that of {seen[entry.name]}"
            raise BadInput(text, where=f"{here}.name", value=entry.name)
        seen[entry.name] = here
        for key in ("backward", "offload"):
            if key in entry.model_fields_set and getattr(entry, key) is None:
                wanted = "an object" if key == "offload" else "split, fused or either"
                raise BadInput(f"expected {wanted}", where=f"{here}.{key}")
        modes.append(
            Mode(entry.name, stated_in(entry), entry.backward, _offload(held_after_f, entry, here))
        )
    return tuple(modes)


def _offload(held_after_f: int, entry: ModeModel, where: str) -> Offload | None:
    if entry.offload is None:
        return None
    if others := sorted(entry.model_fields_set - {"name", "offload"}):
        text = f"expected offload alone, without {', '.join(others)}"
        raise BadInput(text, where=where)
    copies = entry.offload
    if copies.held > held_after_f:
        raise BadInput(
            f"expected at most held_after_F, {held_after_f}",
            where=f"{where}.offload.held",
            value=copies.held,
        )
    return Offload(copies.out, copies.in_, copies.held)
