"""Starting what needs torch in local processes, so that the caller never imports it."""

from __future__ import annotations

import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pipesat.core.errors import BadInput, RunFailed
from pipesat.runtime.forks import Batch, Call, Host, Outcome, first_failed
from pipesat.runtime.torch_api import require_torch

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
    message = f"{name} failed ({whereabouts(folder, name)}): {outcome.error or ended}"
    return RunFailed(message, outcome.log)


def progress_file(folder: Path, name: str) -> Path:
    """Where a rank writes each action of a step as it starts it, one a line."""
    return folder / f"{name}.progress"


def whereabouts(folder: Path, name: str) -> str:
    """Say which action of its last step a rank started last."""
    path = progress_file(folder, name)
    actions: Iterable[str] = path.read_text().split() if path.exists() else ()
    *before, last = ["", *actions]
    return f"in {last}, its action {len(before)}" if last else "before its first action"
