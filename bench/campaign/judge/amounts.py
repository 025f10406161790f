"""Amounts of one microbatch of a stage: of its class, in its mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

KEEP = "keep"


@dataclass(frozen=True)
class Stage:
    """``copies`` are the times out and in and what stays on the device between them.

    ``listed``: whether the pairs of ``overlap`` by time hold in this mode.
    """

    device: int
    F: int
    B: int
    W: int
    BW: int
    held_F: int
    held_B: int
    may_split: bool
    may_fuse: bool
    held_x: int = 0
    copies: tuple[int, int, int] | None = None
    listed: bool = True

    @property
    def backwards(self) -> list[tuple[str, ...]]:
        """The ways in which the backward may run."""
        return [("B", "W")] * self.may_split + [("BW",)] * self.may_fuse


def scaled(amount: int, factor: list[int] | None) -> int:
    """Return amount x num / den, rounded up."""
    return amount if factor is None else -(-amount * factor[0] // factor[1])


def way_of(entry: dict[str, Any], mode: dict[str, Any], kind: dict[str, Any], stage: int) -> Stage:
    """Return a stage's amounts in a mode for a class; entries are those of the problem file."""
    outright = kind.get("stages", {}).get(str(stage), {})
    time, held = kind.get("time"), kind.get("held")

    def amount(key: str, factor: list[int] | None) -> int:
        if key in outright:
            return int(outright[key])
        return scaled(mode.get(key, entry.get(key, 0)), factor)

    F, B, W = (amount(key, time) for key in ("F", "B", "W"))
    sums = "B" in mode or "W" in mode
    states = "BW" in mode or (not sums and "BW" in entry)
    BW = amount("BW", time) if states or "BW" in outright else B + W
    backward = mode.get("backward", entry.get("backward", "either"))
    offload = mode.get("offload")
    return Stage(
        device=entry["device"],
        F=F,
        B=B,
        W=W,
        BW=BW,
        held_F=amount("held_after_F", held),
        held_B=amount("held_after_B", held),
        may_split=backward != "fused",
        may_fuse=backward != "split",
        held_x=amount("held_in_backward", held),
        copies=offload and tuple(scaled(offload[key], held) for key in ("out", "in", "held")),
        listed=mode["name"] == KEEP or offload is not None,
    )
