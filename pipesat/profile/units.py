"""Units of time and memory that suit what was measured, and amounts in them."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import Final, NamedTuple, Self

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
