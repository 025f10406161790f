"""The problems of this experiment: a chain of alike stages with less memory than 1F1B needs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from pipesat.core.problem import Problem  # noqa: E402
from pipesat.files.problem_file import parse_problem  # noqa: E402

DEVICES = (4, 8, 16)
SHARES = (Fraction(1, 4), Fraction(3, 8), Fraction(1, 2), Fraction(3, 4))
COPY_TIMES = (Fraction(14, 10), Fraction(1), Fraction(1, 2))  # what fits first fits later, too
LEVERS = ("wait", "recompute", "offload", "both")
F, B, W, LINK = 29802, 29428, 19530, 577  # Zero Bubble (2024), Table 9, 6.2B; microseconds
UNIT = 10_000  # held after F; after B the share of Table 9
RESULTS = HERE / "results.json"


@dataclass(frozen=True)
class Case:
    """``copies``: out and back over F + B + W; ``None`` where nothing is copied."""

    p: int
    share: Fraction
    lever: str
    copies: Fraction | None = None
    channels: int = 2

    @property
    def name(self) -> str:
        """Key in the results."""
        copies = "" if self.copies is None else f"-k{float(self.copies):g}"
        one = "-one" if self.channels == 1 else ""
        return f"p{self.p}-{self.lever}{copies}{one}-{float(self.share):g}"

    def problem(self) -> Problem:
        """Return the problem: 2 p microbatches, one stage per device."""
        stage: dict[str, Any] = {"F": F, "B": B, "W": W, "held_after_F": UNIT, "held_after_B": 4324}
        work = F + B + W
        modes: list[dict[str, Any]] = []
        if self.lever in ("recompute", "both"):
            recompute: dict[str, Any] = {"name": "recompute", "backward": "fused", "BW": work}
            modes.append(recompute | {"held_after_F": UNIT // 10, "held_in_backward": 3500})
        if self.copies is not None:
            copy = int(work * self.copies / 2)
            modes.append(
                {"name": "offload", "offload": {"out": copy, "in": copy, "held": UNIT // 10}}
            )
        device: dict[str, Any] = {"memory": int(self.share * self.p * UNIT)}
        if modes:
            stage["modes"], device["copy_channels"] = modes, self.channels
        return parse_problem(
            {
                "format": "pipesat.problem/1",
                "name": self.name,
                "time_unit": "us",
                "microbatches": 2 * self.p,
                "devices": [device] * self.p,
                "stages": [{"device": d} | stage for d in range(self.p)],
                "comm": {"default": LINK},
            },
            self.name,
        )


def levers(p: int) -> Iterator[tuple[str, Fraction | None, int]]:
    """Yield lever, copy time and channels: whoever comes later may do what those before may."""
    yield "wait", None, 2
    yield "recompute", None, 2
    if p == 8:  # one channel is asked about in the middle case alone
        yield from (("offload", k, 1) for k in COPY_TIMES)
    for k in COPY_TIMES:
        yield "offload", k, 2
    for k in COPY_TIMES:
        yield "both", k, 2


def cases() -> Iterator[Case]:
    """Yield all cases, and first of each p what keep takes at 1F1B's memory."""
    for p in DEVICES:
        yield Case(p, Fraction(1), "wait")
        for lever, copies, channels in levers(p):
            for share in SHARES:
                yield Case(p, share, lever, copies, channels)


def implies(one: Case, other: Case) -> bool:
    """Whether every schedule of one case is, copies shortened, one of the other."""
    return (
        one.p == other.p
        and one.share <= other.share
        and one.lever in ("wait", other.lever, *(LEVERS if other.lever == "both" else ()))
        and (one.copies is None or (other.copies is not None and one.copies >= other.copies))
        and (one.copies is None or one.channels <= other.channels)
    )
