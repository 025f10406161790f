"""Costs of a model's layers, measured in processes of their own."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, Literal

from pipesat.core.arguments import public, require_once
from pipesat.core.errors import require
from pipesat.core.progress import doing
from pipesat.core.settings import Count, Keys, RunSteps, Seconds, Steps, Workers, keyed
from pipesat.layers.profile.published import SIZES

if TYPE_CHECKING:
    from pipesat.layers.profile.profile_file import Profile


@public
def profile(
    config: str | None = None,
    *,
    model: str | None = None,
    shape: str | Mapping[str, Any] | None = None,
    dtype: Literal["float64", "float32", "bfloat16", "float16"] | None = None,
    device: Literal["cpu", "cuda"] = "cpu",
    samples: RunSteps = 10,
    warm_up: Steps = 3,
    threads: Workers | None = 1,
    stages: Sequence[Count] = (),
    split: Literal["even", "balanced"] = "even",
    checkpoint: bool = False,
    compile: str = "",  # noqa: A002  as torch calls it
    measure_modes: bool = False,
    measure_links: bool = False,
    name: str = "",
    timeout: Seconds = 600.0,
    stop: threading.Event | None = None,
) -> Profile:
    """Measure F, B, W, BW and memory of a model's layers, in a process of its own.

    Needs torch. To measure layers that you have in hand, in this process, use
    :func:`pipesat.measure.processes.profile_model.profile_model`.

    Parameters
    ----------
    config
        Built-in decoder of a published model's shape; ``None``: tiny.
    model
        Your own, package.module:function: it returns layers, microbatch and loss in a dict.
    shape
        Sizes of the built-in decoder that differ, as layers=2,width=512: style (gpt or llama),
        layers, width, heads, kv_heads, feed_forward, vocabulary, length, batch.
    dtype
        torch's type of weights and activations; ``None``: the model's own, or float32.
    device
        Where to measure.
    samples
        Microbatches that count.
    warm_up
        Microbatches before them, which do not.
    threads
        Threads of CPU ops. If it is ``None``, torch decides.
    stages
        Numbers of stages: the stages of these cuts are measured as a whole, too.
    split
        How the cuts of ``stages`` are made.
    checkpoint
        Checkpoint all but the first and last layer.
    compile
        Compile these layers with this backend, inductor or aot_eager say.
    measure_modes
        Measure memory modes, too: recompute, offload.
    measure_links
        Measure delays between two local gloo ranks, too.
    timeout
        Seconds for all processes.
    stop
        Ends everything when set.

    Raises
    ------
    BadInput
        If torch, the device or the model is not there, or the model is unfit for a pipeline.
    RunFailed
        If a process fails, the time is over, or ``stop`` was set.
    """
    from pipesat.layers.profile.costs_file import MeasureOptions
    from pipesat.measure.processes.profile_model import measure_profile

    require_once("stages", stages)
    require(
        split == "even" or stages, "expected `stages`, which are cut so", where="split", value=split
    )
    options = MeasureOptions(
        name=name or model or config or "tiny",
        device=device,
        samples=samples,
        warmup=warm_up,
        threads=threads,
        stages=stages,
        splits=[split],
        checkpoint=checkpoint,
        modes=measure_modes,
        compile=compile,
    )
    wanted = _model(model, config, keyed("shape", shape, _KEYS), dtype or "")
    with doing("measuring the model's layers"):
        return measure_profile(
            wanted, options, dtype or "", links=measure_links, timeout=timeout, stop=stop
        )


_KEYS: Final[Keys] = {
    **SIZES,
    **dict.fromkeys(("length", "batch"), int),
}


def _model(
    path: str | None, config: str | None, given: dict[str, Any], dtype: str
) -> dict[str, Any]:
    """What the profile file's ``model`` is to be."""
    from pipesat.layers.profile.published import named_shape, with_sizes

    if path is not None:
        for where, one in (("config", config), ("shape", given)):
            require(
                not one, "this is of the built-in decoder, not of a model", where=where, value=one
            )
        return {"source": "import", "path": path, "dtype": dtype}
    base = named_shape(config or "tiny")
    length, sequences = given.pop("length", base.length), given.pop("batch", 1)
    return {
        "source": "decoder",
        "shape": asdict(with_sizes(base.shape, given)),
        "length": length,
        "sequences": sequences,
    }
