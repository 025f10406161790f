"""Starting what needs torch in local processes, so that the caller never imports it.

Most that is used of torch's pipelining is private ("will most likely get renamed"). It is looked
for before it is used, and no version is refused: whatever has it runs.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pipesat.core.errors import BadInput, RunFailed, require
from pipesat.core.torch_releases import RELEASES, TESTED
from pipesat.measure.processes.forks import Batch, Call, Host, Outcome, first_failed

FOLDER_PREFIX = "pipesat-ranks-"


def run_processes(
    calls: Mapping[str, Call],
    *,
    load: str,
    timeout: float,
    stop: threading.Event | None = None,
    devices: bool = False,
) -> dict[str, Any]:
    """Run calls, each in a process, and return their answers; none is left when this returns.

    Parameters
    ----------
    calls
        By the process's name; in front of its arguments it is handed a folder for files that are
        read by the others or while it runs.
    load
        ``module:function`` that imports what they need, called first and once.
    timeout
        Seconds for all together, their start included.
    stop
        Ends all when it is set.
    devices
        Whether they may use accelerators.
    """
    require_torch()
    deadline = time.monotonic() + timeout
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as name:
        folder = Path(name)

        def idle() -> None:
            if stop is not None and stop.is_set():
                raise RunFailed("stopped, all processes were ended")
            if time.monotonic() > deadline:
                raise RunFailed(
                    f"not finished after {timeout:g} s, all processes were ended",
                    [f"{name}: {whereabouts(folder, name)}" for name in calls],
                )

        handed = {
            name: call._replace(arguments=(folder, *call.arguments)) for name, call in calls.items()
        }
        hidden = {} if devices else {"CUDA_VISIBLE_DEVICES": ""}
        with Host(_environment(folder) | hidden) as host:
            outcomes = host.run(Batch(handed, Call(load), str(folder)), idle)
        if (failed := first_failed(outcomes)) is not None:
            raise _failure(failed, outcomes[failed], folder)
    return {name: outcomes[name].answer for name in calls}


def _environment(folder: Path) -> dict[str, str]:
    """One thread, and gloo on the loopback alone.

    Temporary files go to ``folder``: importing torch alone leaves a cache of its compiler there.
    """
    ours = {"TMPDIR": str(folder), "TORCHINDUCTOR_CACHE_DIR": str(folder)}
    ours |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    loopback = [name for _, name in socket.if_nameindex() if name.startswith("lo")]
    if loopback:  # else gloo takes the host name's address, which need not exist
        ours["GLOO_SOCKET_IFNAME"] = loopback[0]
    return ours


def _failure(name: str, outcome: Outcome, folder: Path) -> BadInput | RunFailed:
    if isinstance(outcome.error, BadInput):
        return BadInput(outcome.error.expected, where=outcome.error.where)
    code = outcome.code
    ended = f"exit code {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"
    return RunFailed(
        f"{name} failed ({whereabouts(folder, name)}): {outcome.error or ended}", outcome.log
    )


def progress_file(folder: Path, name: str) -> Path:
    """Where a rank writes each action of a step as it starts it, one a line."""
    return folder / f"{name}.progress"


def whereabouts(folder: Path, name: str) -> str:
    """Say which action of its last step a rank started last."""
    path = progress_file(folder, name)
    actions: Iterable[str] = path.read_text().split() if path.exists() else ()
    *before, last = ["", *actions]
    return f"in {last}, its action {len(before)}" if last else "before its first action"


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
    """The two classes."""

    stage: Any
    runtime: Any


def require_torch() -> None:
    """Find out, without importing it, whether torch is installed."""
    require(
        importlib.util.find_spec("torch") is not None,
        f"this needs PyTorch: pip install 'torch>={RELEASES[0].version}'",
    )


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
    return TorchApi(stage, runtime)


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
        f"torch {TESTED} (a private interface: other versions may have moved it)"
    )
