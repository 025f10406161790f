"""Measuring in processes of their own, so that the caller never imports torch; and in this one.

``python -m pipesat.runtime.profile_model FOLDER TIMEOUT NAME ...`` is such a process; NAME is
``profile`` or ``rank <number>``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipesat.core.arguments import public
from pipesat.profile.costs_file import MeasureOptions
from pipesat.profile.file import Profile, parse_profile
from pipesat.runtime.job import FOLDER_PREFIX, rank_name
from pipesat.runtime.launch import main, run_processes
from pipesat.runtime.torch_api import require_torch

if TYPE_CHECKING:
    from torch import nn


MEASURE = "profile"
"""Name of the process that measures."""
_ASK = "ask.json"


def measure_profile(
    model: dict[str, Any],
    options: MeasureOptions,
    dtype: str,
    *,
    links: bool,
    timeout: float,
    stop: threading.Event | None,
) -> Profile:
    """Measure in started processes; none is left when this returns.

    ``model`` is what the profile file's ``model`` will be; ``dtype`` is torch's name of a type
    (empty: the model's own, or float32); ``links`` also measures delays between two local ranks.
    """
    require_torch()
    ask = {
        "model": model,
        "options": asdict(options),
        "dtype": dtype,
        "folder": str(Path.cwd()),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }
    profile = parse_profile(_run(ask, [MEASURE], timeout, stop))
    if not links:
        return profile
    sizes = {costs.output.bytes for costs in profile.kinds.values()} | {1 << 10, 1 << 20}
    found = _run(ask | {"sizes": sorted(sizes)}, [rank_name(0), rank_name(1)], timeout, stop)
    return parse_profile(profile.model_dump() | {"links": found})


def _run(
    ask: dict[str, Any], names: Sequence[str], timeout: float, stop: threading.Event | None
) -> Any:
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as name:
        folder = Path(name)
        (folder / _ASK).write_text(json.dumps(ask))
        module = "pipesat.runtime.profile_model"
        run_processes(names, folder, timeout=timeout, stop=stop, module=module)
        return json.loads((folder / f"{names[0]}.json").read_text())


@public
def profile_model(
    layers: Sequence[nn.Module],
    microbatch: Callable[[int], tuple[Any, Any]],
    loss: Callable[[Any, Any], Any],
    **options: Any,
) -> Profile:
    """Measure your own layers, in this process, which has torch anyway.

    Parameters
    ----------
    layers
        Modules that map one tensor to one tensor, in order; they are copied, not changed.
    microbatch
        Returns input and target of a microbatch of that number; all have the same shapes.
    loss
        Loss of output and target.
    options
        Fields of :class:`~pipesat.profile.costs_file.MeasureOptions`: ``stages=[2, 4]``,
        ``device="cuda"``, ``samples=20``, ...

    Raises
    ------
    BadInput
        If the layers cannot be a pipeline, a loss is not finite, or the device is not there.
    """
    require_torch()
    import torch

    from pipesat.runtime.models import own_model
    from pipesat.runtime.profiling import profile_layers, require_device

    chosen = MeasureOptions(**options)
    require_device(chosen.device)
    model = own_model(layers, microbatch, loss, torch.device(chosen.device))
    return profile_layers(model, {"source": "call"}, chosen, lambda _: None)


def work(folder: Path, name: str, timeout: float) -> None:
    """Do what the folder's file asks for and leave the answer as JSON."""
    ask = json.loads((folder / _ASK).read_text())
    if ask["visible"] is None:  # the launcher hides all devices from local ranks
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = ask["visible"]
    document = _profile(ask) if name == MEASURE else _links(ask, folder, name, timeout)
    (folder / f"{name}.json").write_text(json.dumps(document))


def _profile(ask: dict[str, Any]) -> Any:
    import torch

    from pipesat.profile.costs_file import MeasureOptions
    from pipesat.profile.file import ModelModel
    from pipesat.runtime.models import profiled_model
    from pipesat.runtime.profiling import profile_layers, require_device

    options = MeasureOptions(**ask["options"])
    require_device(options.device)
    torch.manual_seed(0)
    model = ModelModel.model_validate(ask["model"])
    layered = profiled_model(model, ask["folder"], ask["dtype"], torch.device(options.device))
    return profile_layers(layered, ask["model"], options, _say).model_dump()


def _say(text: str) -> None:
    """Tell the parent, which reads our log, what is done now."""
    print(f"pipesat: {text}", flush=True)  # noqa: T201  this is the channel


def _links(ask: dict[str, Any], folder: Path, name: str, timeout: float) -> Any:
    import torch
    from torch import distributed

    from pipesat.runtime.link_delays import measure_links
    from pipesat.runtime.pipeline import connected

    with connected(folder, int(name.split()[1]), 2, timeout):
        document = measure_links(ask["sizes"], torch.device("cpu"))
        distributed.barrier()  # no rank leaves while the other still listens to it
    return document


def _load() -> None:
    if MEASURE not in sys.argv:  # which looks for devices first
        import pipesat.runtime.link_delays  # noqa: F401


if __name__ == "__main__":
    main(work, _load)
