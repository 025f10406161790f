"""The processes that ``pipesat profile`` starts: one that measures, two that send to each other.

``python -m pipesat.runtime.profile_child FOLDER NAME TIMEOUT``; NAME is ``profile`` or
``rank <number>``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pipesat.runtime.child import main
from pipesat.runtime.profile_model import MEASURE, answer_of, ask_file


def work(folder: Path, name: str, timeout: float) -> None:
    """Do what the folder's file asks for and leave the answer as JSON."""
    ask = json.loads(ask_file(folder).read_text())
    if ask["visible"] is None:  # the launcher hides all devices from local ranks
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = ask["visible"]
    document = _profile(ask) if name == MEASURE else _links(ask, folder, name, timeout)
    answer_of(folder, name).write_text(json.dumps(document))


def _profile(ask: dict[str, Any]) -> Any:
    import torch

    from pipesat.profile.options import MeasureOptions
    from pipesat.profile.shapes import DecoderShape
    from pipesat.runtime.layered import decoder_model, imported_model
    from pipesat.runtime.profiling import profile_layers, require_device

    options = MeasureOptions(**ask["options"])
    require_device(options.device)
    torch.manual_seed(0)
    model, device = ask["model"], torch.device(options.device)
    dtype = getattr(torch, ask["dtype"]) if ask["dtype"] else None
    if model["source"] == "decoder":
        shape = DecoderShape(**model["shape"])
        layered = decoder_model(
            shape, model["sequences"], model["length"], dtype or torch.float32, device
        )
    else:
        layered = imported_model(model["path"], ask["folder"], device, dtype)
    return profile_layers(layered, model, options, _say).model_dump()


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


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), work)
