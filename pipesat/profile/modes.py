"""Memory modes of a problem's stages, from a profile's measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pipesat.core.errors import BadInput
from pipesat.profile.cut import StageCosts
from pipesat.profile.file import Profile
from pipesat.profile.units import Units

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
    """Pass if the profile has what modes are made of, where they are asked for.

    Raises
    ------
    BadInput
        If not.
    """
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
