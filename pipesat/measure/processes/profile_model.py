"""Measuring in processes of their own, so that the caller never imports torch; and in this one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipesat.core.arguments import public
from pipesat.layers.profile.costs_file import MeasureOptions
from pipesat.layers.profile.profile_file import ModelModel, Profile, parse_profile
from pipesat.measure.processes.forks import Call
from pipesat.measure.processes.launch import require_torch, run_processes

if TYPE_CHECKING:
    from torch import nn


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

    def answer(calls: Mapping[str, Call], *, devices: bool = False) -> Any:
        load = "pipesat.measure.processes.launch:require_torch"
        found = run_processes(calls, load=load, timeout=timeout, stop=stop, devices=devices)
        return next(iter(found.values()))

    arguments = (model, options, dtype, str(Path.cwd()))
    asked = {"profile": Call("pipesat.measure.processes.profile_model:profile_here", arguments)}
    profile = parse_profile(answer(asked, devices=True))
    if not links:
        return profile
    sizes = {costs.output.bytes for costs in profile.kinds.values()} | {1 << 10, 1 << 20}
    function = "pipesat.measure.processes.link_delays:measure_as_rank"
    ranks = {f"rank {rank}": Call(function, (rank, sorted(sizes), timeout)) for rank in (0, 1)}
    return parse_profile(profile.model_dump() | {"links": answer(ranks)})


def profile_here(
    _: Path, wanted: dict[str, Any], options: MeasureOptions, dtype: str, folder: str
) -> dict[str, Any]:
    """Build a model, which may be looked for in ``folder``, and measure it in this process."""
    import torch

    from pipesat.measure.processes.models import profiled_model
    from pipesat.measure.processes.profiling import profile_layers, require_device

    require_device(options.device)
    torch.manual_seed(0)
    model = ModelModel.model_validate(wanted)
    layered = profiled_model(model, folder, dtype, torch.device(options.device))
    return profile_layers(layered, wanted, options).model_dump()


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
        Fields of :class:`~pipesat.layers.profile.costs_file.MeasureOptions`: ``stages=[2, 4]``,
        ``device="cuda"``, ``samples=20``, ...

    Raises
    ------
    BadInput
        If the layers cannot be a pipeline, a loss is not finite, or the device is not there.
    """
    require_torch()
    import torch

    from pipesat.measure.processes.models import own_model
    from pipesat.measure.processes.profiling import profile_layers, require_device

    chosen = MeasureOptions(**options)
    require_device(chosen.device)
    model = own_model(layers, microbatch, loss, torch.device(chosen.device))
    return profile_layers(model, {"source": "call"}, chosen)
