"""Memory modes of a problem's stages, from a profile, and the units that suit what was measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

from pipesat.core.errors import BadInput
from pipesat.profile.cut import StageCosts
from pipesat.profile.file import Profile

_FINE: Final = 200  # the smallest time or amount has this many units: rounding is below 0.25 %
_MEMORY_UNITS: Final = (("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))
_TIME_UNITS: Final = (("us", 1), ("ns", 1000))


class Units(NamedTuple):
    """Names of the units, how many of time are 1 us, and the bytes of one of memory."""

    time_unit: str
    per_us: int
    memory_unit: str
    bytes: int

    @classmethod
    def of(cls, times: Iterable[float], amounts: Iterable[int]) -> Self:
        """Return the coarsest that round microseconds and bytes finely enough."""
        shortest = min((time for time in times if time > 0), default=float(_FINE))
        smallest = min((amount for amount in amounts if amount > 0), default=_FINE << 20)
        time = next((unit for unit in _TIME_UNITS if shortest * unit[1] >= _FINE), _TIME_UNITS[-1])
        memory = next(
            (unit for unit in _MEMORY_UNITS if smallest >= _FINE * unit[1]), _MEMORY_UNITS[-1]
        )
        return cls(*time, *memory)

    def time(self, us: float) -> int:
        """Time units, rounded, of microseconds."""
        return round(us * self.per_us)

    def amount(self, size: int) -> int:
        """Memory units, rounded up, of bytes."""
        return ceil(size / self.bytes)


ModeName: TypeAlias = Literal["recompute", "offload"]
MODES: tuple[ModeName, ...] = ("recompute", "offload")


@dataclass(frozen=True)
class Bandwidth:
    """Bytes per second of copies between a device and its host."""

    out: float
    back: float


def bandwidth_of(profile: Profile, given: int | None) -> Bandwidth | None:
    """Return the given bytes per second, else the measured ones; ``None`` if there are none."""
    if given is not None:
        return Bandwidth(given, given)
    if profile.copies is None:
        return None
    size = profile.copies.bytes
    out, back = profile.copies.out.median, profile.copies.back.median
    return Bandwidth(1e6 * size / out, 1e6 * size / back) if out and back else None


def require_measured(profile: Profile, wanted: tuple[ModeName, ...] | None) -> None:
    """Pass if the profile has what modes are made of, where they are asked for."""
    if wanted and not profile.options.modes:
        raise BadInput("the profile has no memory modes: measure it with modes", where="modes")


def mode_entries(
    stage: StageCosts,
    held: int,
    beside: int,
    transient: int,
    bandwidth: Bandwidth | None,
    wanted: tuple[ModeName, ...],
    units: Units,
) -> list[dict[str, Any]]:
    """Return the entries of ``modes`` of a stage.

    Parameters
    ----------
    held, beside
        Bytes that the stage holds after F, kept; and those of them that are there in every mode (a
        receive buffer that is held as needed).
    transient
        Bytes of the device's static memory that are there for what an op takes for itself.
    """
    entries: list[dict[str, Any]] = []
    if stage.recompute is not None and "recompute" in wanted:
        after = stage.recompute.held_after_F
        during = max(stage.recompute.peak_in_backward - transient, after)
        entries.append(
            {
                "name": "recompute",
                "backward": "fused",
                "BW": units.time(stage.recompute.BW),
                "held_after_F": units.amount(after + beside),
                "held_in_backward": units.amount(during + beside),
            }
        )
    if stage.offload is not None and bandwidth is not None and "offload" in wanted:
        copies = {
            "out": units.time(1e6 * stage.offload.bytes / bandwidth.out),
            "in": units.time(1e6 * stage.offload.bytes / bandwidth.back),
            "held": min(units.amount(stage.offload.held + beside), units.amount(held)),
        }
        entries.append({"name": "offload", "offload": copies})
    return entries
