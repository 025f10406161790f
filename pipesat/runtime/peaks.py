"""The most memory that each device held in a run, against what the schedule says and may take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pipesat.core.problem import Problem

_BYTES: Final = {
    "B": 1,
    **{f"{x}iB": 1 << 10 * (i + 1) for i, x in enumerate("KMGT")},
    **{f"{x}B": 1000 ** (i + 1) for i, x in enumerate("KMGT")},
}


@dataclass(frozen=True)
class DevicePeak:
    """One device: ``predicted`` and ``capacity`` in the problem's unit, ``measured`` in bytes.

    ``unit`` has the bytes of that unit; ``None`` where it is none that is known, or another model
    ran than the one whose memory was predicted.
    """

    device: str
    predicted: int
    capacity: int | None
    measured: int
    unit: int | None

    @property
    def in_units(self) -> float | None:
        """The measured peak in the problem's unit."""
        return None if self.unit is None else self.measured / self.unit

    @property
    def error(self) -> float | None:
        """By which share of the prediction the measured peak is off."""
        if self.in_units is None or not self.predicted:
            return None
        return self.in_units / self.predicted - 1

    @property
    def fits(self) -> bool | None:
        """Whether the measured peak is within the capacity; ``None`` where that is not known."""
        if self.in_units is None:
            return None
        return self.capacity is None or self.in_units <= self.capacity

    def document(self) -> dict[str, Any]:
        """Return it for ``--json``."""
        return {
            "device": self.device,
            "capacity": self.capacity,
            "predicted": self.predicted,
            "measured": self.in_units,
            "measured_bytes": self.measured,
            "error": self.error,
            "fits": self.fits,
        }


def device_peaks(
    problem: Problem, predicted: Sequence[int], measured: Sequence[int], *, comparable: bool = True
) -> tuple[DevicePeak, ...]:
    """Put both peaks of every device together, of one model if they are ``comparable``."""
    unit = _BYTES.get(problem.memory_unit) if comparable else None
    return tuple(
        DevicePeak(problem.device_name(number), most, device.memory, seen, unit)
        for number, (device, most, seen) in enumerate(
            zip(problem.devices, predicted, measured, strict=True)
        )
    )
