"""The format of problem files and its limits, for those who read none."""

from __future__ import annotations

from typing import Final

FORMAT: Final = "pipesat.problem/1"
LARGEST_FILE: Final = 64 << 20
MOST_DEVICES: Final = 4096
MOST_STAGES: Final = 16384
MOST_OPS: Final = 4_000_000
