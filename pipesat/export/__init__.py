"""What a schedule can be exported to: one file per format, one function each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from pipesat.export.trace import trace_bytes
from pipesat.problem import Problem
from pipesat.schedule import Schedule

Exporter: TypeAlias = Callable[[Problem, Schedule], bytes]

EXPORTERS: Final[dict[str, Exporter]] = {
    "trace": trace_bytes,
}
