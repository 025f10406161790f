"""Memory modes of a problem's stages, from a profile, and the units that suit what was measured."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import Final, Literal, NamedTuple, Self, TypeAlias, get_args

from pipesat.layers.profile.cut import StageCosts
from pipesat.layers.profile.profile_file import Profile
from pipesat.problem.problem import Mode, Offload

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


ModeName: TypeAlias = Literal["recompute", "offload", "drop after B", "keep the input only"]
ModeChoice: TypeAlias = Literal[ModeName, "none"]
MODES: Final[tuple[ModeName, ...]] = get_args(ModeName)
USUAL: Final = MODES[:2]
"""Those that any runtime may have; the others recompute between B and W."""


Bandwidth: TypeAlias = tuple[float, float]
"""Bytes per second of copies from a device to its host, and back."""


def bandwidth_of(profile: Profile, given: int | None) -> Bandwidth | None:
    """Return the given bytes per second, else the measured ones; ``None`` if there are none."""
    if given is not None:
        return given, given
    copies = profile.copies
    if copies is None or not copies.out.median or not copies.back.median:
        return None
    return 1e6 * copies.bytes / copies.out.median, 1e6 * copies.bytes / copies.back.median


def modes_of(
    stage: StageCosts,
    beside: int,
    transient: int,
    bandwidth: Bandwidth | None,
    wanted: tuple[ModeName, ...],
    units: Units,
) -> tuple[Mode, ...]:
    """Return the memory modes of a stage.

    Parameters
    ----------
    beside
        Bytes that the stage holds after F in every mode (a receive buffer that is held as needed).
    transient
        Bytes of the device's static memory that are there for what an op takes for itself.
    """
    modes = list[Mode]()
    if stage.recompute is not None and "recompute" in wanted:
        after = stage.recompute.held_after_F
        during = max(stage.recompute.peak_in_backward - transient, after)
        stated = {
            "BW": units.time(stage.recompute.BW),
            "held_after_F": units.amount(after + beside),
            "held_in_backward": units.amount(during + beside),
        }
        modes.append(Mode("recompute", tuple(stated.items()), "fused"))
    if stage.offload is not None and bandwidth is not None and "offload" in wanted:
        out, back = (units.time(1e6 * stage.offload.bytes / each) for each in bandwidth)
        held = units.amount(min(stage.offload.held, stage.held_after_F) + beside)
        modes.append(Mode("offload", offload=Offload(out, back, held)))
    return tuple(modes)


def modes_between(
    stage: StageCosts, kept: int, gradient: int, wanted: tuple[ModeName, ...], units: Units
) -> list[tuple[Mode, int]]:
    """Return the memory modes that recompute between B and W, and the most that W then takes.

    ``kept`` and ``gradient``: bytes of the stage's input, and of the gradient of its output, that
    are held for them. W runs F again, or F and B, first.
    """
    again = stage.held_after_F + stage.transient.F
    both = max(again, max(stage.held_after_F, stage.held_after_B) + stage.transient.B)
    dropped = None if stage.recompute is None else stage.recompute.gradients
    found = list[tuple[Mode, int]]()
    for name, left, time, most in (
        ("drop after B", dropped, stage.F, again),
        ("keep the input only", gradient, stage.F + stage.B, both),
    ):
        if name in wanted and left is not None and not stage.no_split:
            held = {
                "W": units.time(stage.W + time),
                "held_after_B": units.amount(left + kept),
            }
            found.append((Mode(name, tuple(held.items()), "split"), most))
    return found
