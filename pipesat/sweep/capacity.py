"""Capacities as a sweep's ``memory`` axis has them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, TypeAlias

from pipesat.core.amounts import amount
from pipesat.core.errors import BadInput
from pipesat.core.least import require_plain
from pipesat.files.changed import changed_document
from pipesat.files.problem_file import parse_problem
from pipesat.files.values import MOST
from pipesat.placement.documents import capacities_of
from pipesat.placement.from_numbers import share_of_1f1b

UNLIMITED: Final = "unlimited"
_EXPECTED: Final = (
    'expected an integer, a list with one per device, "unlimited", a share as "1f1b*0.75", '
    'or for profiles an amount as "40GiB"'
)


@dataclass(frozen=True)
class CapacityInBytes:
    """An amount that was given with its unit."""

    count: int


Capacity: TypeAlias = int | list[int] | Fraction | CapacityInBytes | None
"""In the problem's unit, one or one per device; a share of 1F1B's peak; bytes; unlimited."""


def read_capacity(value: object, where: str = "memory", source: str = "") -> Capacity:
    """Read one value of the ``memory`` axis.

    Raises
    ------
    BadInput
        If it is no capacity.
    """
    if _is_amount(value):
        return value  # type: ignore[return-value]
    if isinstance(value, list) and value and all(map(_is_amount, value)):
        return value
    if isinstance(value, str):
        if value == UNLIMITED:
            return None
        if (share := share_of_1f1b(value)) is not None:
            return share
        try:
            return CapacityInBytes(amount(where, value))
        except BadInput:
            pass
    raise BadInput(_EXPECTED, source=source, where=where, value=value)


def with_capacity(document: dict[str, Any], capacity: Capacity) -> dict[str, Any]:
    """Return a problem document with other capacities; a share comes on top of static memory.

    1F1B's peak is that of the first route's stages, joined to one per device.

    Raises
    ------
    BadInput
        If there are fewer stages than devices, a list has not one value per device, or it is an
        amount with a unit: problem documents have units of their own.
    NotApplicable
        If it is a share of 1F1B's peak, and microbatches are a list or there are memory modes.
    """
    if isinstance(capacity, CapacityInBytes):
        raise BadInput("expected a number in the problem's own memory unit", where="memory")
    problem = parse_problem(document)
    if isinstance(capacity, Fraction):
        require_plain(problem, "a share of 1F1B's peak")
    capacities = capacities_of(problem, capacity)
    return changed_document(document, devices=[{"memory": memory} for memory in capacities])


def _is_amount(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST
