"""Costs of a model's layers, measured in processes of their own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from pipesat.core.arguments import public
from pipesat.core.errors import BadInput

if TYPE_CHECKING:
    from pipesat.profile.file import Profile


@public
def profile(
    config: str = "tiny",
    *,
    model: str | None = None,
    sizes: dict[str, Any] | None = None,
    length: int | None = None,
    sequences: int = 1,
    dtype: str | None = None,
    links: bool = False,
    timeout: float = 600.0,
    stop: threading.Event | None = None,
    **options: Any,
) -> Profile:
    """Measure F, B, W, BW and memory of a model's layers, in a process of its own.

    Needs ``pipesat[torch]``. To measure layers that you have in hand, in this process, use
    :func:`pipesat.runtime.profile_model.profile_model`.

    Parameters
    ----------
    config
        Built-in decoder of a published model's shape; ``pipesat profile --list-configs`` lists
        them.
    model
        Your own, ``package.module:function``: it returns layers, microbatch and loss in a dict.
    sizes
        Sizes of the built-in decoder that differ: ``style``, ``layers``, ``width``, ``heads``,
        ``kv_heads``, ``feed_forward``, ``vocabulary``.
    length
        Tokens per sequence of the built-in decoder.
    sequences
        Its sequences per microbatch.
    dtype
        torch's name of a type; ``None``: the model's own, or float32.
    links
        Measure delays between two local gloo ranks too.
    timeout
        Seconds for all processes.
    stop
        Ends everything when set.
    options
        Fields of :class:`pipesat.profile.options.MeasureOptions`: ``samples=20``,
        ``stages=[2, 4]``, ``device="cuda"``, ...

    Raises
    ------
    BadInput
        If torch, the device or the model is not there, or the model is unfit for a pipeline.
    RunFailed
        If a process fails, the time is over, or ``stop`` was set.
    """
    from pipesat.profile.options import MeasureOptions
    from pipesat.runtime.profile_model import Request, measure_profile

    given = {key: value for key, value in (sizes or {}).items() if value is not None}
    options = {"name": model or config} | options
    request = Request(
        model=_model(model, config, given, length, sequences, dtype or ""),
        options=MeasureOptions(**options),
        dtype=dtype or "",
        links=links,
    )
    return measure_profile(request, timeout=timeout, stop=stop)


def _model(
    path: str | None,
    config: str,
    given: dict[str, Any],
    length: int | None,
    sequences: int,
    dtype: str,
) -> dict[str, Any]:
    """What the profile file's ``model`` is to be."""
    from pipesat.profile.shapes import DecoderShape, named_shape, shape_document

    if path is not None:
        if given or length is not None:
            size = next(iter(given), "length")
            raise BadInput("sizes are for the built-in decoder, not for a model", where=size)
        return {"source": "import", "path": path, "dtype": dtype}
    base = named_shape(config)
    fields = shape_document(base.shape) | given
    if "heads" in given and "kv_heads" not in given:
        fields["kv_heads"] = fields["heads"]
    if "width" in given and "feed_forward" not in given:
        fields["feed_forward"] = base.shape.feed_forward * fields["width"] // base.shape.width or 1
    return {
        "source": "decoder",
        "shape": shape_document(DecoderShape(**fields)),
        "length": length or base.length,
        "sequences": sequences,
    }
