"""The parts of torch's pipelining that parity needs, looked for before they are used.

Most are private ("will most likely get renamed"). No version is refused: whatever has them runs.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from typing import Any, Final, NamedTuple

from pipesat.core.errors import BadInput

_PIPELINING: Final = "torch.distributed.pipelining"
_SCHEDULES: Final = f"{_PIPELINING}.schedules"
_RUNTIME: Final = "_PipelineScheduleRuntime"

# of each class: its methods, and for each the arguments that are passed by name
_RUNTIME_METHODS: Final = {"_load_csv": set[str](), "step": {"target", "losses", "return_outputs"}}
_STAGE_METHODS: Final = {
    "__init__": {"submodule", "stage_index", "num_stages", "device"},
    "forward_one_chunk": set[str](),
    "backward_one_chunk": {"full_backward"},
    "backward_weight_one_chunk": set[str](),
}


class TorchApi(NamedTuple):
    """The two classes, and the version they come from."""

    stage: Any
    runtime: Any
    version: str


def require_torch() -> None:
    """Find out, without importing it, whether torch is installed."""
    if importlib.util.find_spec("torch") is None:
        raise BadInput("this needs PyTorch: pip install 'torch>=2.13'")


def load_torch_api() -> TorchApi:
    """Import torch's pipelining and look for everything that is used of it."""
    require_torch()
    import torch

    version = str(torch.__version__)
    distributed = importlib.import_module("torch.distributed")
    if not (distributed.is_available() and distributed.is_gloo_available()):
        raise _unknown(version, "torch.distributed with gloo")
    stage = _find(version, _PIPELINING, "PipelineStage")
    runtime = _find(version, _SCHEDULES, _RUNTIME)
    _require(version, stage, "PipelineStage", _STAGE_METHODS)
    _require(version, runtime, _RUNTIME, _RUNTIME_METHODS)
    return TorchApi(stage, runtime, version)


def _find(version: str, module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError:
        raise _unknown(version, f"{module}.{name}") from None
    except ImportError as error:
        package = (error.name or "torch").partition(".")[0]
        if package == "torch":
            raise _unknown(version, f"{module}.{name}") from None
        raise BadInput(
            f"torch {version} cannot load {module}, which needs {package}: {error}. "
            f"Try: pip install {package}"
        ) from None


def _require(version: str, owner: Any, name: str, methods: dict[str, set[str]]) -> None:
    for method, arguments in methods.items():
        function = getattr(owner, method, None)
        if function is None:
            raise _unknown(version, f"{name}.{method}")
        known = inspect.signature(function).parameters
        if lacking := sorted(arguments - known.keys()):
            raise _unknown(version, f"the argument {lacking[0]} of {name}.{method}")


def _unknown(version: str, what: str) -> BadInput:
    return BadInput(
        f"torch {version} has no {what}, which running a pipeline order needs; it was tested with "
        "torch 2.13 (a private interface: other versions may have moved it)"
    )
