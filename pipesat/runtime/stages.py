"""Stages that report: something of ours runs around every action that torch makes them compute."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from pipesat.core.errors import BadInput

Around: TypeAlias = Callable[[str], AbstractContextManager[Any]]
"""Called with an action in torch's letters (``0F3``); entered before it is computed."""


def reporting(base: Any, around: Around) -> Any:
    """Derive a stage class whose every action is computed inside ``around(action)``.

    torch has waited for the action's input by then. The loss of the last stage's forward, and
    handing over to a stage on the same rank, come after it.
    """

    class ReportingStage(base):
        def forward_one_chunk(self, chunk: int, *args: Any, **kwargs: Any) -> Any:
            with around(f"{self.stage_index}F{chunk}"):
                output = super().forward_one_chunk(chunk, *args, **kwargs)
                self.shapes = _same_shapes(self, chunk, output)
            return output

        def backward_one_chunk(self, chunk: int, *args: Any, **kwargs: Any) -> Any:
            letter = "B" if kwargs.get("full_backward", True) else "I"
            with around(f"{self.stage_index}{letter}{chunk}"):
                return super().backward_one_chunk(chunk, *args, **kwargs)

        def backward_weight_one_chunk(self, chunk: int, *args: Any, **kwargs: Any) -> Any:
            with around(f"{self.stage_index}W{chunk}"):
                return super().backward_weight_one_chunk(chunk, *args, **kwargs)

    return ReportingStage


def _same_shapes(stage: Any, microbatch: int, output: Any) -> list[Any]:
    """Return the output's shapes if they are those of the outputs before.

    torch receives into buffers that were made for the first microbatch, and would fill a part of
    one without a word.

    Raises
    ------
    BadInput
        If they differ.
    """
    tensors = output if isinstance(output, tuple | list) else [output]
    shapes = [tuple(getattr(tensor, "shape", ())) for tensor in tensors]
    expected: list[Any] = getattr(stage, "shapes", shapes)
    if shapes != expected:
        raise BadInput(
            f"stage {stage.stage_index} returns shapes {shapes} for microbatch {microbatch}, "
            f"expected {expected} as before: all microbatches need the same"
        )
    return shapes
