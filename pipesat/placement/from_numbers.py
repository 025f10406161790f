"""A new problem document from costs, a placement and a share of 1F1B's memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

from pipesat.core.errors import BadInput
from pipesat.files.limits import MOST_STAGES
from pipesat.placement.documents import (
    CapacityChoice,
    Costs,
    Setting,
    Split,
    peak_of_1f1b,
    per_device,
    placed,
)
from pipesat.placement.geometry import Geometry, Placement

_SHARE_OF_1F1B: Final = re.compile(r"1f1b(?:\*([0-9]{1,9}(?:\.[0-9]{1,9})?))?")


def share_of_1f1b(text: str) -> Fraction | None:
    """Read ``1f1b*0.75`` (``1f1b`` is all of it); ``None`` if it is something else."""
    match = _SHARE_OF_1F1B.fullmatch(text.lower().replace(" ", ""))
    return None if match is None else Fraction(match[1] or 1)


def costs_of(
    given: Mapping[str, int | Sequence[int]],
    layers: int | None,
    stages: int,
    named: Callable[[str], str] = str,
) -> list[Costs]:
    """Return the costs of layers, or of ``stages`` stages where nothing speaks of layers.

    ``given`` has a value per field of :class:`Costs`. One number stands for all entries; lists
    have one number per entry. ``named`` says how users call a field, for messages.

    Raises
    ------
    BadInput
        If lists differ in length.
    """
    count, because = layers, named("layers")
    for field, values in given.items():
        if not isinstance(values, int):
            if count is not None and len(values) != count:
                raise BadInput(
                    f"{len(values)} numbers, expected {count} as `{because}` says, or one for all",
                    where=named(field),
                )
            count, because = len(values), named(field) if layers is None else because
    entries = stages if count is None else count
    columns = {
        field: [values] * entries if isinstance(values, int) else values
        for field, values in given.items()
    }
    return [
        Costs(**{field: column[entry] for field, column in columns.items()})
        for entry in range(entries)
    ]


def stages_of(placement: Placement, devices: int, chunks: int, where: str = "chunks") -> int:
    """How many stages the layers are cut into.

    Raises
    ------
    BadInput
        If they are more than a problem may have.
    """
    stages = Geometry(placement, devices, chunks).parts
    if stages > MOST_STAGES:
        raise BadInput(f"{stages} stages, expected at most {MOST_STAGES}", where=where)
    return stages


def document_from_numbers(
    costs: Sequence[Costs],
    setting: Setting,
    placement: Placement,
    chunks: int,
    split: Split = "even",
    memory: CapacityChoice = None,
    where: str = "memory",
) -> dict[str, Any]:
    """Return the document of layers or stages in a placement; ``where`` names ``memory``.

    Raises
    ------
    BadInput
        If there are fewer layers than stages, or a list has not one value per device.
    """
    if isinstance(memory, Fraction):
        peak = round(memory * peak_of_1f1b(costs, setting, split))
        static = per_device(setting.static, setting.devices, "static")
        memory = [(taken or 0) + peak for taken in static]
    capacities = per_device(memory, setting.devices, where)
    return placed(costs, replace(setting, memory=capacities), placement, chunks, split)
