"""The runtimes that a schedule can be exported to: the one table of their records.

A record stands in the runtime's own module, with what writes its file.
"""

from __future__ import annotations

from typing import Final

from pipesat.export import automodel, d9d, jaxpp, megatron, primus, torchtitan
from pipesat.export.runtime import Runtime
from pipesat.export.torch import target as torch

RUNTIMES: Final[dict[str, Runtime]] = {
    module.RUNTIME.name: module.RUNTIME
    for module in (torch, torchtitan, automodel, megatron, primus, d9d, jaxpp)
}
OLD_NAMES: Final = {
    "torch-csv": "torch",
    "nemo-automodel": "automodel",
    "megatron-layout": "megatron",
}
"""What formats were called that are a runtime's: still understood."""
